"""The prose of a Markdown page: its paragraphs and list items, apart from tables, code, headings and comments."""
import re
from dataclasses import dataclass

COLUMNS = 120
ITEM = re.compile(r"^(\s*)((?:[*+-]|\d+[.)])\s+)")
CODE_SPAN = re.compile(r"(`+)(.+?)\1")
GLUE = "\0"  # stands for a space at which no line may end


@dataclass
class Block:
    """Lines [first, last) of a page. `indent` and `marker` are those of the first line, `text` is None for what is not prose."""
    first: int
    last: int
    indent: str = ""
    marker: str = ""
    text: str | None = None


def is_fence(line):
    return line.lstrip().startswith(("```", "~~~"))


def is_verbatim(line):
    stripped = line.lstrip()
    return stripped.startswith(("|", "#", "<", "[^")) or not stripped


def end_of_fence(lines, first):
    last = first + 1
    while last < len(lines) and not is_fence(lines[last]):
        last += 1
    return min(last + 1, len(lines))


def blocks_of(lines):
    """The page in order: every line is in one block."""
    at = 0
    while at < len(lines):
        if is_fence(lines[at]):
            last = end_of_fence(lines, at)
            yield Block(at, last)
        elif is_verbatim(lines[at]):
            last = at + 1
            yield Block(at, last)
        else:
            item = ITEM.match(lines[at])
            indent, marker = item.groups() if item else (re.match(r"\s*", lines[at]).group(), "")
            last = at + 1
            while last < len(lines) and not (is_fence(lines[last]) or is_verbatim(lines[last]) or ITEM.match(lines[last])):
                last += 1
            words = [lines[at][len(indent) + len(marker):], *lines[at + 1:last]]
            yield Block(at, last, indent, marker, " ".join(" ".join(words).split()))
        at = last


def glued(text):
    """`text` with a GLUE for each space inside a code span."""
    return CODE_SPAN.sub(lambda span: span.group().replace(" ", GLUE), text)
