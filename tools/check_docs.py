#!/usr/bin/env python3
"""What the texts promise is there: check_docs.py [ROOT]

Every relative link in a Markdown file leads to a file, and to a heading of it if it names one. The C++ block of
README.md is examples/readme_example.cpp (which is compiled and run), and docs/README.md links every page below docs/.
Prose ends its lines at 120 columns and its sentences at 30 words. One line a fault; exits 1 if there is any.
"""
import re
import sys
from pathlib import Path

from markdown_prose import CODE_SPAN, COLUMNS, ITEM, blocks_of, glued

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE_NOTE = re.compile(r"^///\s*Source:\s*(\S+\.md)", re.MULTILINE)
EXAMPLE = "examples/readme_example.cpp"
# The goal is 25. A clause that a semicolon or a colon ends counts by itself; a number is no word, a code span is one.
MAX_WORDS = 30
END_OF_SENTENCE = re.compile(r"(?<=[.!?:;])[\"')*_]*\s+")
NOT_CHECKED_FOR_SENTENCES = {"CHANGELOG.md"}


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def links_of(page):
    """Files that a page links to."""
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name = target.split("#")[0]
        yield target, (page.parent / name if name else page).resolve()


def anchors_of(page):
    """The anchors of a page's headings, as hosts of Markdown make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def check_links(root, pages):
    for page in pages:
        for target, file in links_of(page):
            if not file.exists():
                yield f"{page.relative_to(root)}: the link {target} leads nowhere"
            elif "#" in target and file.suffix == ".md" and target.split("#")[1] not in anchors_of(file):
                yield f"{page.relative_to(root)}: the link {target} leads to no heading"


def check_index(root):
    index = root / "docs/README.md"
    linked = {file for _, file in links_of(index)} if index.is_file() else set()
    for page in sorted((root / "docs").rglob("*.md")):
        if page != index and page.resolve() not in linked:
            yield f"{page.relative_to(root)}: not linked from docs/README.md"


def check_example(root):
    blocks = re.findall(r"^```cpp\n(.*?)^```", (root / "README.md").read_text(encoding="utf-8"),
                        flags=re.DOTALL | re.MULTILINE)
    if not blocks or blocks[0] != (root / EXAMPLE).read_text(encoding="utf-8"):
        yield f"README.md: its C++ block is not {EXAMPLE}"


def check_sources(root):
    for header in sorted((root / "include").rglob("*.hpp")):
        for page in SOURCE_NOTE.findall(header.read_text(encoding="utf-8")):
            if not (root / page).is_file():
                yield f"{header.relative_to(root)}: its source {page} does not exist"


def check_columns(root, pages):
    """A line may be longer than COLUMNS only where nothing in it can be cut: a link's address, a code span."""
    for page in pages:
        lines = page.read_text(encoding="utf-8").split("\n")
        for block in blocks_of(lines):
            if block.text is None:
                continue
            for number in range(block.first, block.last):
                line = lines[number]
                item = ITEM.match(line)
                begin = item.end() if item else len(line) - len(line.lstrip())
                if len(line) > COLUMNS and " " in glued(line[begin:]):
                    yield f"{page.relative_to(root)}:{number + 1}: {len(line)} columns, may have {COLUMNS} (tools/wrap_docs.py)"


def sentences_of(text):
    text = CODE_SPAN.sub("code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return END_OF_SENTENCE.split(text)


def check_sentences(root, pages):
    for page in pages:
        if page.name in NOT_CHECKED_FOR_SENTENCES:
            continue
        for block in blocks_of(page.read_text(encoding="utf-8").split("\n")):
            for sentence in sentences_of(block.text or ""):
                num_words = sum(any(letter.isalpha() for letter in word) for word in sentence.split())
                if num_words > MAX_WORDS:
                    yield (f"{page.relative_to(root)}:{block.first + 1}: a sentence of {num_words} words, may have "
                           f"{MAX_WORDS}: {sentence[:60]}...")


def run(root):
    pages = [*sorted(root.glob("*.md")), *sorted((root / "bench").glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return [*check_links(root, pages), *check_index(root), *check_example(root), *check_sources(root),
            *check_columns(root, pages), *check_sentences(root, pages)]


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent).resolve()
    faults = run(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
