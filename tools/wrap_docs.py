#!/usr/bin/env python3
"""Wraps the paragraphs and list items of Markdown pages at 120 columns, in place: wrap_docs.py FILE...

Tables, code, headings and comments stay as they are. A code span is never cut in two.
"""
import re
import sys
from pathlib import Path

from markdown_prose import COLUMNS, GLUE, ITEM, blocks_of, glued


def may_begin_a_line(word):
    """Not where it would read as a list item, a heading or a table."""
    return not (ITEM.match(word + " ") or re.match(r"#+$|\||>|<", word))


def wrap(block):
    hanging = block.indent + " " * len(block.marker)
    words = []
    for word in glued(block.text).split(" "):
        if words and not may_begin_a_line(word):
            words[-1] += GLUE + word
        else:
            words.append(word)
    lines, line = [], block.indent + block.marker
    is_empty = True
    for word in words:
        if not is_empty and len(line) + 1 + len(word) > COLUMNS:
            lines.append(line)
            line, is_empty = hanging, True
        line += word if is_empty else " " + word
        is_empty = False
    return [each.replace(GLUE, " ") for each in [*lines, line]]


def wrapped(text):
    lines = text.split("\n")
    out = []
    for block in blocks_of(lines):
        out += lines[block.first:block.last] if block.text is None else wrap(block)
    return "\n".join(out)


def main(paths):
    for path in map(Path, paths):
        text = path.read_text(encoding="utf-8")
        path.write_text(wrapped(text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
