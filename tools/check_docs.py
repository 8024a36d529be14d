#!/usr/bin/env python3
"""What the texts promise is there: check_docs.py [ROOT]

Every relative link in a Markdown file leads to a file, the C++ block of README.md is examples/readme_example.cpp (which
is compiled and run), and docs/README.md links every page below docs/. One line a fault; exits 1 if there is any.
"""
import re
import sys
from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE_NOTE = re.compile(r"^///\s*Source:\s*(\S+\.md)", re.MULTILINE)
EXAMPLE = "examples/readme_example.cpp"


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def links_of(page):
    """Files that a page links to."""
    for target in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:|#", target):
            continue
        yield target, (page.parent / target.split("#")[0]).resolve()


def check_links(root, pages):
    for page in pages:
        for target, file in links_of(page):
            if not file.exists():
                yield f"{page.relative_to(root)}: the link {target} leads nowhere"


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


def run(root):
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return [*check_links(root, pages), *check_index(root), *check_example(root), *check_sources(root)]


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent).resolve()
    faults = run(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
