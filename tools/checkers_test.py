#!/usr/bin/env python3
"""Every rule of the checkers is shown to fail on a planted file, and to pass without it."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import make_docs

TOOLS = Path(__file__).resolve().parent
HEADER = "#pragma once\n"
CLEAN_TREE = {
    "include/tandem/tandem.hpp": HEADER,
    "include/tandem/base/error.hpp": HEADER + "#include <tl/expected.hpp>\n",
    "include/tandem/device/stream.hpp": HEADER + "#include <tandem/base/error.hpp>\n",
    "include/tandem/fused/op.hpp": HEADER + "#include <tandem/device/stream.hpp>\n",
    "src/base/format.hpp": HEADER + "#include <fmt/format.h>\n",
    "src/base/config.cpp": '// reads\nauto x = std::getenv("TANDEM_X");\n',
    "src/base/log.cpp": "#include <spdlog/spdlog.h>\n",
    "src/base/CMakeLists.txt": "tandem_library(base SOURCES config.cpp log.cpp)\n",
    "src/device/cpu/queue.hpp": HEADER + '#include "base/format.hpp"\n',
    "src/fused/op.cpp": '#include "base/format.hpp"\nint op() { return 1; }\n',
    "src/fused/CMakeLists.txt": "tandem_library(fused SOURCES op.cpp)\n",
    "tests/unit/op_test.cpp": '#include "device/cpu/queue.hpp"\n#include "testing/ranks.hpp"\n',
    "tests/dist/op_test.cpp": "#include <tandem/tandem.hpp>\n",
    "tests/testing/ranks.hpp": HEADER,
    "tests/fused.cmake": "SOURCES unit/op_test.cpp\nSOURCES dist/op_test.cpp\n",
    "harness/problem.hpp": HEADER + "#include <tandem/tandem.hpp>\n",
    "cli/main.cpp": '#include <tandem/tandem.hpp>\n#include "harness/problem.hpp"\n',
    "cli/CMakeLists.txt": "add_executable(tandem_cli main.cpp)\n",
}


def run(checker, files):
    """Exit code and output of a checker on a clean tree with `files` planted in it."""
    with tempfile.TemporaryDirectory() as root:
        for name, text in {**CLEAN_TREE, **files}.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, TOOLS / checker, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class CheckerTest(unittest.TestCase):
    checker = ""

    def refuse(self, files, *words):
        code, output = run(self.checker, files)
        self.assertEqual(code, 1, f"accepted {files}")
        self.assertEqual(len(output.splitlines()), 1, output)
        for word in words:
            self.assertIn(word, output)

    def accept(self, files):
        code, output = run(self.checker, files)
        self.assertEqual((code, output), (0, ""))


class Layers(CheckerTest):
    checker = "check_layers.py"

    def test_clean_tree(self):
        self.accept({})

    def test_upwards(self):
        self.refuse({"src/device/x.hpp": HEADER + "#include <tandem/fused/op.hpp>\n"},
                    "src/device/x.hpp:2", "device may not include fused")
        self.refuse({"include/tandem/base/x.hpp": HEADER + "#include <tandem/device/stream.hpp>\n"},
                    "base may not include device")

    def test_sideways(self):
        self.refuse({"src/io/x.hpp": HEADER + "#include <tandem/trace/t.hpp>\n", "include/tandem/trace/t.hpp": HEADER},
                    "io may not include trace")

    def test_internal_upwards(self):
        self.refuse({"src/base/x.hpp": HEADER + '#include "fused/y.hpp"\n', "src/fused/y.hpp": HEADER},
                    "base may not include fused")

    def test_folder_with_a_level_of_its_own(self):
        self.accept({"src/graph/interpreter/x.hpp": HEADER + "#include <tandem/fused/op.hpp>\n#include <tandem/graph/g.hpp>\n",
                     "include/tandem/graph/g.hpp": HEADER})
        self.refuse({"src/graph/ir/x.hpp": HEADER + '#include "graph/interpreter/y.hpp"\n',
                     "src/graph/interpreter/y.hpp": HEADER}, "graph may not include graph/interpreter")
        self.refuse({"include/tandem/graph/x.hpp": HEADER + "#include <tandem/graph/interpreter/y.hpp>\n",
                     "include/tandem/graph/interpreter/y.hpp": HEADER}, "graph may not include graph/interpreter")
        self.refuse({"src/fused/x.hpp": HEADER + "#include <tandem/graph/interpreter/y.hpp>\n",
                     "include/tandem/graph/interpreter/y.hpp": HEADER}, "fused may not include graph/interpreter")

    def test_commented_include_does_not_count(self):
        self.accept({"src/base/x.hpp": HEADER + "// #include <tandem/fused/op.hpp>\n"})

    def test_unknown_module(self):
        self.refuse({"src/magic/x.hpp": HEADER + "#include <tandem/base/error.hpp>\n"}, "module magic")

    def test_umbrella_header_inside(self):
        self.refuse({"src/fused/x.hpp": HEADER + "#include <tandem/tandem.hpp>\n"}, "for users")

    def test_missing_header(self):
        self.refuse({"src/base/x.hpp": HEADER + '#include "base/nowhere.hpp"\n'}, "does not exist in src/")
        self.refuse({"src/base/x.hpp": HEADER + "#include <tandem/base/nowhere.hpp>\n"}, "does not exist in include/")
        self.refuse({"cli/x.hpp": HEADER + '#include "nowhere.hpp"\n'}, "does not exist in cli/")

    def test_quotes(self):
        self.refuse({"src/base/x.hpp": HEADER + '#include "tandem/base/error.hpp"\n'}, "write <tandem/base/error.hpp>")
        self.refuse({"include/tandem/base/x.hpp": HEADER + '#include "base/format.hpp"\n'}, "<tandem/...> only")

    def test_leaf_from_above(self):
        self.refuse({"src/fused/x.hpp": HEADER + '#include "device/cpu/queue.hpp"\n'}, "belongs to a leaf")
        self.accept({"src/symm/cpu/x.hpp": HEADER + '#include "device/cpu/queue.hpp"\n'})

    def test_outside_sees_public_headers_only(self):
        for place in ("cli", "examples", "tests/dist", "tests/testing"):
            self.refuse({f"{place}/x.hpp": HEADER + '#include "base/format.hpp"\n'}, "public headers only")

    def test_harness_is_for_tools_and_tests(self):
        use = HEADER + '#include "harness/problem.hpp"\n'
        for place in ("harness", "cli", "bench", "tests/conformance"):
            self.accept({f"{place}/x.hpp": use})
        self.refuse({"examples/x.hpp": use}, "examples may not include harness")
        self.refuse({"src/fused/x.hpp": use}, "does not exist in src/")
        self.refuse({"cli/x.hpp": HEADER + '#include "harness/nowhere.hpp"\n'}, "does not exist")
        self.refuse({"harness/x.hpp": HEADER + '#include "base/format.hpp"\n'}, "public headers only")

    def test_tools_see_one_internal_header(self):
        header = {"src/backend/for_tools.hpp": HEADER}
        included = '#include "backend/for_tools.hpp"\n'
        self.accept({**header, "cli/main.cpp": included, "tests/dist/op_test.cpp": included})
        self.refuse({**header, "examples/main.hpp": HEADER + included}, "is internal")

    def test_header_beside_the_folders(self):
        header = {"include/tandem/dlpack.hpp": HEADER + "#include <tandem/base/error.hpp>\n"}
        self.accept({**header, "include/tandem/device/stream.hpp": HEADER + "#include <tandem/dlpack.hpp>\n"})
        self.refuse({"include/tandem/dlpack.hpp": HEADER + "#include <tandem/device/stream.hpp>\n"}, "not below it")

    def test_private_library_in_public_header(self):
        for header in ("fmt/format.h", "nlohmann/json.hpp"):
            self.refuse({"include/tandem/base/x.hpp": HEADER + f"#include <{header}>\n"}, "in a public header")

    def test_environment(self):
        self.refuse({"cli/x.hpp": HEADER + 'auto x = getenv("HOME");\n'}, "reads the environment")
        self.refuse({"src/base/x.hpp": HEADER + "auto x = environ[0];\n"}, "reads the environment")

    def test_spdlog(self):
        self.refuse({"src/base/x.hpp": HEADER + "#include <spdlog/spdlog.h>\n"}, "spdlog")

    def test_pragma_once(self):
        self.refuse({"src/base/x.hpp": "\n"}, "#pragma once")

    def test_names(self):
        self.refuse({"src/base/string_utils.hpp": HEADER}, "'utils'")
        self.refuse({"src/base/CamelCase.hpp": HEADER}, "snake_case")

    def test_unbuilt(self):
        self.refuse({"src/fused/forgotten.cpp": "\n"}, "named by no CMake file")
        self.refuse({"tests/unit/forgotten_test.cpp": "\n"}, "named by no CMake file")
        listed = "foreach(x IN ITEMS a b)\ntest(unit/${x}_test.cpp)\nendforeach()\n"
        self.accept({"tests/x.cmake": listed, "tests/unit/a_test.cpp": "\n", "tests/unit/b_test.cpp": "\n"})
        self.refuse({"tests/x.cmake": listed, "tests/unit/c_test.cpp": "\n"}, "unit/c_test.cpp")
        self.refuse({"src/fused/cpu/op.cpp": "\n"}, "named by no CMake file")
        self.refuse({"src/fused/p.cpp": "\n", "src/fused/CMakeLists.txt": "# p.cpp\nx(op.cpp)\n"}, "named by no CMake")


class Sizes(CheckerTest):
    checker = "check_sizes.py"

    @staticmethod
    def function(num_lines, head="int f()"):
        return head + " {\n" + "  g();\n" * (num_lines - 2) + "}\n"

    def test_clean_tree(self):
        self.accept({})

    def test_columns(self):
        self.refuse({"src/base/x.hpp": "x" * 111 + "\n"}, "src/base/x.hpp:1", "111 columns")
        self.accept({"src/base/x.hpp": "x" * 110 + "\n"})

    def test_lines(self):
        self.refuse({"include/tandem/base/x.hpp": "\n" * 301}, "301 lines, at most 300")
        self.accept({"include/tandem/base/x.hpp": "\n" * 300})
        self.refuse({"src/base/x.cpp": "\n" * 701}, "701 lines, at most 700")
        self.accept({"src/base/x.cpp": "\n" * 700})

    def test_function(self):
        for head in ("int f()", "void A::f(int x) const", "auto f() -> Result<int>", "TEST(A, b)",
                     "A::A(int x) : x_(x), y_{x}", "template <class T>\nvoid f(T x)"):
            extra = head.count("\n")
            self.refuse({"src/base/x.cpp": "namespace a {\n" + self.function(61, head) + "}\n"},
                        "src/base/x.cpp:2", f"{61 + extra} lines")
            self.accept({"src/base/x.cpp": "namespace a {\n" + self.function(60 - extra, head) + "}\n"})

    def test_kernel_role(self):
        self.accept({"src/gemm/cpu/kernel_avx2.cpp": self.function(150)})
        self.refuse({"src/gemm/cpu/kernel_avx2.cpp": self.function(151)}, "at most 150")

    def test_member_function(self):
        self.refuse({"src/base/x.cpp": "class A {\n" + self.function(61) + "};\n"}, "61 lines")

    def test_scopes_and_tables_are_not_functions(self):
        members = "  int x;\n" * 80
        self.accept({"src/base/x.cpp": f"namespace a {{\n{members}}}\nstruct B {{\n{members}}};\n"})
        self.accept({"src/base/x.cpp": "constexpr int kTable[] = {\n" + "  f(4),\n" * 80 + "};\n"})

    def test_braces_in_text_do_not_count(self):
        text = '  x("{{{");  // {\n  y(\'{\');\n  /* { */ z(R"({)");\n'
        self.accept({"src/base/x.cpp": "int f() {\n" + text + "}\n" + self.function(60, "int g()")})
        self.refuse({"src/base/x.cpp": "int f() {\n" + text + "}\n" + self.function(61, "int g()")}, "x.cpp:6", "61 lines")


class Docs(CheckerTest):
    checker = "check_docs.py"
    pages = {"README.md": "See [docs](docs/README.md).\n```cpp\nint main() {}\n```\n",
             "examples/readme_example.cpp": "int main() {}\n",
             "docs/README.md": "[a](design/a.md), [elsewhere](https://example.org/x)\n", "docs/design/a.md": "`[x](y)`\n"}

    def test_clean_tree(self):
        self.accept(self.pages)

    def test_link(self):
        self.refuse({**self.pages, "docs/design/a.md": "[b](b.md)\n"}, "b.md leads nowhere")

    def test_heading(self):
        page = "# `a`: what, it is\n[b](#a-what-it-is) [c](../../README.md)\n"
        self.accept({**self.pages, "docs/design/a.md": page})
        self.refuse({**self.pages, "docs/design/a.md": page.replace("# `a`", "# `b`")}, "#a-what-it-is leads to no heading")
        self.refuse({**self.pages, "docs/README.md": "[a](design/a.md#b)\n"}, "design/a.md#b leads to no heading")

    def test_index(self):
        self.refuse({**self.pages, "docs/design/b.md": "\n"}, "not linked from docs/README.md")

    def test_example(self):
        self.refuse({**self.pages, "examples/readme_example.cpp": "int main() { }\n"}, "C++ block")

    def test_source(self):
        self.refuse({**self.pages, "include/tandem/base/x.hpp": HEADER + "/// Source:  docs/design/z.md\n"}, "z.md")

    def test_columns(self):
        fits, too_long = "x" * 110 + " so wide.\n", "x" * 110 + " much wider.\n"
        self.accept({**self.pages, "docs/design/a.md": fits})
        for prose in (too_long, "* " + too_long, "1. " + too_long, "Begins\n" + too_long, "  " + too_long):
            self.refuse({**self.pages, "docs/design/a.md": prose}, "a.md:", "columns, may have 120")

    def test_columns_where_nothing_can_be_cut(self):
        link = f"[a](https://{'x' * 120})\n"
        for text in (f"```\n{'x ' * 80}\n```\n", f"| {'x ' * 80} |\n", f"# {'x ' * 80}\n", "* " + link, f"`{'x ' * 80}`\n"):
            self.accept({**self.pages, "docs/design/a.md": text})

    def test_sentences(self):
        words = "word\n" * 15
        self.accept({**self.pages, "docs/design/a.md": words + words.rstrip() + ". " + words})
        self.accept({**self.pages, "docs/design/a.md": words + words.rstrip() + ": " + words})
        self.accept({**self.pages, "docs/design/a.md": words + "`a b c` 1 2 3 [a b](a.md)\n" + words[:60]})
        for prose in (words * 2 + "more.\n", "Short. " + words * 2 + "more.\n", "* " + words + "`a b`\n" + words):
            self.refuse({**self.pages, "docs/design/a.md": prose}, "a.md:1: a sentence of 31 words, may have 30")


class Reference(unittest.TestCase):
    def test_every_module_has_its_page_and_place(self):
        self.assertEqual(set(make_docs.MODULES), set(make_docs.MAY_INCLUDE))
        levels = make_docs.levels()
        for module, below in make_docs.MAY_INCLUDE.items():
            self.assertTrue(all(levels[one] < levels[module] for one in below))
            self.assertIn(f">{module}</text>", make_docs.house(module))
        self.assertEqual(make_docs.house(None).count("<rect"), len(levels))

    def test_arrows_are_those_that_no_other_road_replaces(self):
        self.assertEqual(make_docs.direct("symm"), ["device", "bootstrap"])
        self.assertEqual(make_docs.direct("fused"), ["program"])

    def test_facts_become_paragraphs_and_examples_code(self):
        self.assertEqual(make_docs.filtered("/// Sums.\n/// Types:   f32.\n"),
                         "/// Sums.\n/// @par Types\n/// f32.\n")
        self.assertEqual(make_docs.filtered("/// So:\n///\n///   %a = b\n///   c\n/// d\n"),
                         "/// So:\n///\n///     %a = b\n///     c\n/// d\n")


class WrapDocs(unittest.TestCase):
    def wrapped(self, text):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "a.md"
            page.write_text(text, encoding="utf-8")
            subprocess.run([sys.executable, TOOLS / "wrap_docs.py", page], check=True)
            return page.read_text(encoding="utf-8")

    def test_prose_is_wrapped(self):
        self.assertEqual(self.wrapped("a\nb\n"), "a b\n")
        self.assertEqual(self.wrapped("* " + "word " * 30 + "\n"), "* " + "word " * 22 + "word\n  " + "word " * 6 + "word\n")

    def test_a_code_span_stays_whole(self):
        self.assertEqual(self.wrapped("x" * 110 + " `a b c d e f`\n"), "x" * 110 + "\n`a b c d e f`\n")

    def test_no_line_becomes_a_list_item(self):
        for word in ("-", "1.", "19)", "*", "#", "|"):
            self.assertEqual(self.wrapped("x" * 100 + " y" + "z" * 18 + f" {word} end\n"),
                             "x" * 100 + "\ny" + "z" * 18 + f" {word} end\n")

    def test_the_rest_stays(self):
        wide = "x " * 80
        for text in (f"```\n{wide}\n```\n", f"| {wide} |\n| - |\n", f"# {wide}\n", "a\n\n\nb\n", "* a\n* b\n  * c\n"):
            self.assertEqual(self.wrapped(text), text)

    def test_what_is_wrapped_is_accepted_and_stays(self):
        text = "* " + "some `code span` and [a link](b.md), " * 20 + "end.\n\n" + "word, " * 80 + "\n"
        once = self.wrapped(text)
        self.assertTrue(all(len(line) <= 120 for line in once.split("\n")))
        self.assertEqual(self.wrapped(once), once)


if __name__ == "__main__":
    unittest.main()
