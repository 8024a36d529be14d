#!/usr/bin/env python3
"""Who may include whom, and a few rules about where things may stand: check_layers.py [ROOT]

The table below is the only statement of the levels. Prints one line a fault and exits 1 if there is any.
"""
import re
import sys
from pathlib import Path

# Module -> what it may include besides itself and what these may include in turn: includes go downwards only.
# A leaf (src/<module>/cpu) may include what its module may. "a/b" is a folder of module a with a level of its own.
MAY_INCLUDE = {
    "base": [],
    "io": ["base"],
    "trace": ["base"],
    "cost": ["io"],
    "graph": ["base", "cost"],
    "bootstrap": ["base", "cost"],
    "device": ["base", "trace"],
    "cpu": ["device"],  # include/tandem/cpu: launching on CPU streams, the device module's leaf
    "transport": ["device", "bootstrap"],
    "timeline": ["device", "bootstrap", "io"],
    "symm": ["device", "bootstrap"],
    "gemm": ["device", "symm", "cost"],
    "coll": ["device", "symm", "cost", "timeline", "transport"],
    "program": ["gemm", "coll", "symm", "trace"],
    "fused": ["program", "cost"],
    "graph/interpreter": ["fused", "coll", "gemm", "device", "graph"],
    "backend": ["fused", "io", "transport"],
    "cuda": ["device"],
}
# Outside the library: what is there sees public headers only, and all of them; but see check_quoted().
OUTSIDE = ("harness", "cli", "examples", "tests", "bench", "python")
MAY_INCLUDE_HARNESS = ("harness", "cli", "tests", "bench")
# What the tool and the tests may include of src/, whatever their class.
OPEN_TO_TOOLS = {"backend/for_tools.hpp", "base/byte_size.hpp", "base/make_thread.hpp", "base/memory_limit.hpp",
                 "base/memory_pages.hpp", "base/shared_library.hpp", "base/system_refusal.hpp", "base/threads_together.hpp",
                 "base/transfer.hpp", "base/uninterrupted.hpp", "device/cpu/core_peaks.hpp", "io/file_lock.hpp",
                 "io/folder.hpp", "io/json_value.hpp", "io/regular_file.hpp", "io/text_cursor.hpp", "io/whole_file.hpp"}
# Public headers beside the modules' folders, and the module that each belongs to.
HEADERS_OF = {"dlpack.hpp": "base"}
INTERNAL_TEST_CLASSES = ("unit", "race", "simulated_gpu")
EXTENSIONS = {".hpp", ".cpp", ".cu", ".cuh"}
BANNED_WORDS = {"fast", "new", "v2", "utils", "misc", "common", "helper", "helpers", "util"}
ONLY_IN = {
    "reads the environment": (re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b"), {"src/base/config.cpp", "tests/simulated_gpu/gpu.cpp", "tests/support/syscall_faults.cpp"}),
    "includes spdlog": (re.compile(r"#\s*include\s*[<\"]spdlog/"), {"src/base/log.cpp"}),
}
PRIVATE_LIBRARIES = ("fmt", "spdlog", "nlohmann", "CLI")
SYSTEM_PREFIXES = (*PRIVATE_LIBRARIES, "tl", "gtest", "gmock", "nanobind")
INCLUDE = re.compile(r"^\s*#\s*include\s*([<\"])([^>\"]+)[>\"]", re.MULTILINE)


def allowed_modules(module):
    allowed = {module}
    for below in MAY_INCLUDE[module]:
        allowed |= allowed_modules(below)
    if module in ("device", "symm", "gemm", "coll", "transport"):
        allowed |= {"cpu", "cuda"}
    return allowed


def strip_comments(text):
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def expand_foreach(cmake):
    """The text with every `foreach(x IN ITEMS ...)` written out."""
    def write_out(match):
        variable, items, body = match.groups()
        return "\n".join(body.replace(f"${{{variable}}}", item) for item in items.split())
    return re.sub(r"\bforeach\((\w+) IN ITEMS ([^)]*)\)(.*?)\bendforeach\(\)", write_out, cmake, flags=re.DOTALL)


def source_files(root):
    for top in ("include", "src", *OUTSIDE):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in EXTENSIONS and path.is_file():
                yield path.relative_to(root)


def module_of(parts):
    """The module of a path below src/ or include/tandem/, given by its parts."""
    nested = "/".join(parts[:2])
    return nested if len(parts) > 2 and nested in MAY_INCLUDE else parts[0]


def place_of(path):
    """(kind, module): kind is public, internal or outside."""
    parts = path.parts
    if parts[0] == "include":
        return "public", module_of(parts[2:]) if len(parts) > 3 else HEADERS_OF.get(parts[2], "*")
    if parts[0] == "src":
        return "internal", module_of(parts[1:])
    return "outside", parts[0]


class Checker:
    def __init__(self, root):
        self.root = root
        self.faults = []

    def fault(self, path, line, text):
        self.faults.append(f"{path}:{line}: {text}" if line else f"{path}: {text}")

    def check_include(self, path, line, quote, target):
        kind, module = place_of(path)
        first = target.split("/")[0]
        if quote == "<" and first != "tandem":
            if kind == "public" and first in PRIVATE_LIBRARIES:
                self.fault(path, line, f"<{target}> in a public header: users would need it too")
            return
        if first == "tandem" and quote == "<":
            if not (self.root / "include" / target).is_file():
                self.fault(path, line, f"<{target}> does not exist in include/")
                return
            parts = target.split("/")
            # tandem/tandem.hpp is for users.
            included = module_of(parts[1:]) if len(parts) > 2 else HEADERS_OF.get(parts[1])
            if kind == "outside" or module == "*":
                return
            if included is None:
                self.fault(path, line, f"<{target}> is for users; include the header you need")
            else:
                self.check_module(path, line, module, included, target)
            return
        self.check_quoted(path, line, kind, module, target)

    def check_quoted(self, path, line, kind, module, target):
        first = target.split("/")[0]
        if first in SYSTEM_PREFIXES or first == "tandem":
            self.fault(path, line, f'"{target}": write <{target}>')
        elif kind == "public":
            self.fault(path, line, f'"{target}": a public header includes <tandem/...> only')
        elif kind == "internal":
            if not (self.root / "src" / target).is_file():
                self.fault(path, line, f'"{target}" does not exist in src/ (write "module/file.hpp")')
            elif first not in MAY_INCLUDE:
                self.fault(path, line, f'"{target}": module {first} is not in the table of levels')
            else:
                self.check_module(path, line, module, module_of(target.split("/")), target)
        elif first == "harness":
            if not (self.root / target).is_file():
                self.fault(path, line, f'"{target}" does not exist')
            elif module not in MAY_INCLUDE_HARNESS:
                self.fault(path, line, f'"{target}": {module} may not include harness')
        elif any((self.root / folder / (target + suffix)).is_file()
                 for folder in (module, path.parent) for suffix in ("", ".in")):
            return
        elif (self.root / "src" / target).is_file():
            # A measurement may be of a part that no public call shows.
            is_open = target in OPEN_TO_TOOLS and module in ("cli", "tests")
            if not (is_open or module == "bench" or (module == "tests" and path.parts[1] in INTERNAL_TEST_CLASSES)):
                self.fault(path, line, f'"{target}" is internal: {module} sees public headers only')
        else:
            self.fault(path, line, f'"{target}" does not exist in {module}/')

    def check_module(self, path, line, module, included, target):
        if module not in MAY_INCLUDE:
            self.fault(path, line, f"module {module} is not in the table of levels")
        elif included not in allowed_modules(module):
            self.fault(path, line, f"{module} may not include {included} ({target}): not below it")

    def check_leaf(self, path, line, target):
        """src/<module>/*.cpp must not know its own leaves; only backend and the leaves do."""
        parts = path.parts
        target_parts = target.split("/")
        if parts[0] != "src" or len(target_parts) < 3 or target_parts[1] not in ("cpu", "cuda"):
            return
        in_leaf = len(parts) > 3 and parts[2] == target_parts[1]
        if not in_leaf and parts[1] != "backend":
            self.fault(path, line, f'"{target}" belongs to a leaf; only leaves and backend may include it')

    def check_file(self, path):
        text = (self.root / path).read_text(encoding="utf-8")
        code = strip_comments(text)
        for match in INCLUDE.finditer(code):
            line = code.count("\n", 0, match.start(2)) + 1
            self.check_include(path, line, match.group(1), match.group(2))
            self.check_leaf(path, line, match.group(2))
        for what, (pattern, places) in ONLY_IN.items():
            match = pattern.search(code)
            if match and str(path) not in places:
                line = code.count("\n", 0, match.start()) + 1
                self.fault(path, line, f"{what}; only {', '.join(sorted(places))} may")
        if path.suffix == ".hpp" and "#pragma once" not in text:
            self.fault(path, 0, "a header without #pragma once")
        self.check_name(path)

    def check_name(self, path):
        stem = path.stem
        if not re.fullmatch(r"[a-z0-9_]+", stem):
            self.fault(path, 0, "file names are snake_case")
        for word in sorted(BANNED_WORDS & set(stem.split("_"))):
            self.fault(path, 0, f"'{word}' in a file name says nothing about what is in the file")

    def check_built(self, sources):
        """Every .cpp is named by some CMake file: what is not built is not tested."""
        cmake_files = [*self.root.glob("*/CMakeLists.txt"), *self.root.glob("src/**/CMakeLists.txt"),
                       *self.root.glob("tests/**/*.cmake"), *self.root.glob("tests/**/CMakeLists.txt"),
                       *self.root.glob("cli/**/CMakeLists.txt"), *self.root.glob("examples/**/CMakeLists.txt"),
                       *self.root.glob("bench/**/CMakeLists.txt")]
        texts = {cmake: expand_foreach(re.sub(r"#[^\n]*", "", cmake.read_text(encoding="utf-8")))
                 for cmake in set(cmake_files)}
        for path in sources:
            if path.suffix != ".cpp":
                continue
            named = False
            for cmake, text in texts.items():
                folder = cmake.parent.relative_to(self.root)
                if not path.is_relative_to(folder):
                    continue
                relative = re.escape(str(path.relative_to(folder)))
                if re.search(rf"(?<![\w/.]){relative}(?![\w.])", text):
                    named = True
            if not named:
                self.fault(path, 0, "is named by no CMake file, so it is never built")

    def run(self):
        sources = list(source_files(self.root))
        for path in sources:
            self.check_file(path)
        self.check_built(sources)
        return self.faults


def main(arguments):
    root = Path(arguments[0] if arguments else Path(__file__).resolve().parent.parent)
    faults = Checker(root).run()
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
