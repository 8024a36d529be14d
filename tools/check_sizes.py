#!/usr/bin/env python3
"""Sizes that keep the code readable: check_sizes.py [ROOT]

Lines of a file, columns of a line, lines of a function. Prints one line a fault and exits 1 if there is any.
"""
import re
import sys
from pathlib import Path

MAX_COLUMNS = 110
MAX_PUBLIC_HEADER_LINES = 300
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 60
MAX_KERNEL_ROLE_LINES = 150  # files named kernel_*.cpp and *.cu
SOURCE_EXTENSIONS = {".hpp", ".cpp", ".cu", ".cuh"}
# A brace that opens one of these holds declarations, not statements.
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def blank(match):
    """The same number of lines and columns, without anything that could be taken for code."""
    return re.sub(r"[^\n]", " ", match.group())


def strip_text(code):
    """Code without comments, strings and character literals, line for line."""
    pattern = re.compile(
        r'R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
        r"|//[^\n]*"
        r"|/\*.*?\*/"
        r'|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
        re.DOTALL)
    code = pattern.sub(blank, code)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.MULTILINE)


def without_templates(head):
    """Drops <...>, whose `class` opens no scope."""
    shorter = re.sub(r"<[^<>]*>", "", head)
    return shorter if shorter == head else without_templates(shorter)


def is_function(head):
    """Whether the text before an opening brace is the head of a function (not a lambda, scope or initialiser)."""
    head = without_templates(head).strip()
    if SCOPE.search(head.split("(")[0]) or "(" not in head or re.search(r"=\s*$", head):
        return False
    if re.search(r"\)\s*:[^:]", head):
        return head.endswith((")", "}"))  # a constructor: its initialisers are done
    return head.endswith((")", "const", "noexcept", "override", "final")) or "->" in head


def functions(code):
    """(first line, lines) of every function body at namespace or class scope; lambdas count to their function."""
    found = []
    stack = []  # (is_function, first line, where to go on with the head) of each open brace
    head_start = 0
    inside = 0  # open function bodies
    line = 1
    head_line = 1
    for position, character in enumerate(code):
        if character == "\n":
            line += 1
        elif character == "{":
            head = code[head_start:position]
            function = inside == 0 and is_function(head)
            leading = len(head) - len(head.lstrip())
            first = head_line + head[:leading].count("\n")
            # `y_{x}` in a constructor's head is part of that head.
            is_value = not function and not SCOPE.search(without_templates(head))
            resume = (head_start, head_line) if is_value else None
            stack.append((function, first, resume))
            inside += function
            head_start, head_line = position + 1, line
        elif character == "}":
            function, first, resume = stack.pop() if stack else (False, line, None)
            if function:
                inside -= 1
                found.append((first, line - first + 1))
            head_start, head_line = resume or (position + 1, line)
        elif character == ";" and inside == 0:
            head_start, head_line = position + 1, line
    return found


def check_source(path, text):
    faults = []
    num_lines = text.count("\n")
    is_public = path.parts[0] == "include"
    limit = MAX_PUBLIC_HEADER_LINES if is_public else MAX_FILE_LINES
    if num_lines > limit:
        faults.append(f"{path}: {num_lines} lines, at most {limit}")
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_COLUMNS:
            faults.append(f"{path}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
    is_kernel = path.suffix in (".cu", ".cuh") or path.name.startswith("kernel_")
    limit = MAX_KERNEL_ROLE_LINES if is_kernel else MAX_FUNCTION_LINES
    for first, length in functions(strip_text(text)):
        if length > limit:
            faults.append(f"{path}:{first}: a function of {length} lines, at most {limit}")
    return faults


def run(root):
    faults = []
    for top in ("include", "src", "harness", "cli", "tests", "examples", "bench", "tools"):
        for path in sorted((root / top).rglob("*")):
            if path.is_file() and path.suffix in SOURCE_EXTENSIONS:
                faults += check_source(path.relative_to(root), path.read_text(encoding="utf-8"))
    return faults


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent)
    faults = run(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
