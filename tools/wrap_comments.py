#!/usr/bin/env python3
"""Wraps comments beyond the column limit, in place: wrap_comments.py FILE...

clang-format would join lines of tables and drawings, so it leaves comments as written. This moves only what sticks out: to
the next line where that goes on in the same paragraph, else to a line of its own. A comment behind code goes above it.
"""
import re
import sys
from pathlib import Path

from check_sizes import MAX_COLUMNS

COMMENT = re.compile(r"^(\s*)(///<?|//)(\s*)(.*)$")
BEHIND_CODE = re.compile(r"^(\s*)(\S.*?)\s+(///<|//) (.*)$")
# "Shapes:  ", "- ", "put   ": what follows is indented as far as the text behind it.
ENTRY = re.compile(r"^([\w-]+\s{2,}|[A-Z][A-Za-z]+:\s+|[-*] |\d+\. )")


def wrap_comment(lines, number):
    indent, mark, gap, text = COMMENT.match(lines[number]).groups()
    entry = ENTRY.match(text)
    rest_gap = gap + " " * len(entry.group(1)) if entry else gap
    whole = indent + mark + gap + text
    cut = whole.rfind(" ", len(indent + mark + gap), MAX_COLUMNS + 1)
    if cut < 0:
        return  # one long word
    rest = whole[cut + 1:].strip()
    lines[number] = whole[:cut].rstrip()
    following = COMMENT.match(lines[number + 1]) if number + 1 < len(lines) else None
    same_paragraph = (following and following.group(1, 2, 3) == (indent, mark, rest_gap) and following.group(4)
                      and not ENTRY.match(following.group(4)) and "NOLINT" not in following.group(4))
    if same_paragraph:
        lines[number + 1] = f"{indent}{mark}{rest_gap}{rest} {following.group(4)}"
    else:
        lines.insert(number + 1, f"{indent}{mark}{rest_gap}{rest}")


def lift_comment(lines, number):
    """Puts the comment behind a line of code, with the lines it goes on in, above that line."""
    match = BEHIND_CODE.match(lines[number])
    if not match or match.group(2).count('"') % 2 or "NOLINT" in match.group(4):
        return False
    indent, code, mark, text = match.groups()
    column = match.start(3)
    end = number + 1
    while end < len(lines):
        more = COMMENT.match(lines[end])
        if not more or len(more.group(1)) != column:
            break
        text += " " + more.group(4)
        end += 1
    lines[number:end] = [f"{indent}{'///' if mark == '///<' else '//'} {text}", indent + code]
    return True


def wrap(text):
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        if len(lines[number]) > MAX_COLUMNS:
            if COMMENT.match(lines[number]):
                wrap_comment(lines, number)
            elif lift_comment(lines, number):
                continue  # the lifted comment may itself be too long
        number += 1
    return "\n".join(lines)


def main(paths):
    for path in map(Path, paths):
        text = path.read_text(encoding="utf-8")
        wrapped = wrap(text)
        if wrapped != text:
            path.write_text(wrapped, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
