#!/usr/bin/env python3
"""install_packages.sh against a made-up Debian, build.sh with made-up CMake and GPU drivers, memcheck.py with a made-up
checker, and the summing up of test reports."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import wrap_comments

TOOLS = Path(__file__).resolve().parent
COMMANDS = ("g++", "cmake", "ninja", "ccache", "make", "pkg-config", "python3")
LIBRARIES = ("libfmt-dev", "libspdlog-dev", "nlohmann-json3-dev", "libcli11-dev", "libexpected-dev", "libgtest-dev",
             "libboost-context-dev")


class Debian:
    """A PATH on which there are only these commands, and a dpkg-query that knows only these packages."""

    def __init__(self, folder, commands=COMMANDS, packages=LIBRARIES, uid=0, sudo=None):
        self.folder = Path(folder)
        self.log = self.folder / "log"
        self.log.touch()
        for name in ("bash", "env", "true"):
            (self.folder / name).symlink_to(Path("/usr/bin") / name)
        for name in commands:
            self.write(name, "exit 0")
        known = "|".join(packages) or "none"
        self.write("dpkg-query", f'case "${{!#}}" in {known}) echo -n installed ;; '
                                 "removed-*) echo -n config-files ;; *) exit 1 ;; esac")
        self.write("apt-get", f'echo "${{DEBIAN_FRONTEND:-unset}} apt-get $*" >>{self.log}')
        self.write("id", f"echo {uid}")
        if sudo is not None:
            self.write("sudo", f'[[ {sudo} == free ]] || exit 1\n[[ "$1" == -n ]] && shift\nexec "$@"')

    def write(self, name, body):
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, *arguments):
        done = subprocess.run(["/bin/bash", TOOLS / "install_packages.sh", *arguments], capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL, env={"PATH": str(self.folder)})
        return done.returncode, done.stdout + done.stderr, self.log.read_text(encoding="utf-8").splitlines()


class Memcheck(unittest.TestCase):
    def run_with(self, body, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            checker = Path(folder) / "checker"
            checker.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
            checker.chmod(0o755)
            done = subprocess.run([sys.executable, TOOLS / "memcheck.py", "--tandem", "tandem", "--sanitizer", checker,
                                   "--timeout", "2", *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_all_cases_run_once_or_spread(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"

            def cases(*arguments):
                log.write_text("", encoding="utf-8")
                self.run_with(f'[[ $1 == --version ]] || echo "$*" >>{log}', *arguments)
                return log.read_text(encoding="utf-8").splitlines()

            every = cases()
            self.assertGreater(len(every), 50)
            self.assertEqual(len(set(every)), len(every))
            self.assertEqual(len(set(cases("--cases", "10"))), 10)
            parts = [case for part in range(3) for case in cases("--part", f"{part}/3")]
            self.assertEqual(sorted(parts), sorted(every))

    def test_what_is_known_to_be_clean_comes_last(self):
        clean = 'echo "total: 1 cases run, 0 skipped, of 1; 0 wrong"; echo "ERROR SUMMARY: 0 errors"'
        with tempfile.TemporaryDirectory() as folder:
            log, rows = Path(folder) / "log", Path(folder) / "rows"
            self.run_with(f'[[ "$*" != *serial* ]] || {{ {clean}; }}', "--out", rows)
            self.run_with(f'[[ $1 == --version ]] || echo "$*" >>{log}', "--known", rows, "--at-a-time", "1")
            are_known = ["serial" in case for case in log.read_text(encoding="utf-8").splitlines()]
        self.assertEqual(are_known, sorted(are_known))
        self.assertEqual(set(are_known), {False, True})

    def test_what_does_not_end_in_time_is_not_run(self):
        endless = 'echo "total: 1 cases run, 0 skipped, of 1; 0 wrong"; echo "ERROR SUMMARY: 0 errors"; [[ "$*" != *native* ]] || exec sleep 60'
        _, text = self.run_with(endless, "--seconds", "1", "--timeout", "60", "--cases", "10")
        ran = re.fullmatch(r"memcheck: (\d+) of \1 cases clean, \1 calls, (\d+) not run\n", text)
        self.assertTrue(ran, text)
        self.assertEqual(int(ran.group(1)) + int(ran.group(2)), 10)
        self.assertGreater(int(ran.group(2)), 0)

    def test_only_clean_cases_pass(self):
        ran = 'echo "total: 1 cases run, 0 skipped, of 1; 0 wrong"; '
        code, text = self.run_with(ran + 'echo "ERROR SUMMARY: 0 errors"', "--cases", "3")
        self.assertEqual((code, text), (0, "memcheck: 3 of 3 cases clean, 3 calls, 0 not run\n"))
        for body in (ran + 'echo "ERROR SUMMARY: 2 errors"', ran, 'echo "ERROR SUMMARY: 0 errors"',
                     ran + 'echo "ERROR SUMMARY: 0 errors"; exit 1',
                     'echo "total: 1 cases run, 1 skipped, of 2; 0 wrong"; echo "ERROR SUMMARY: 0 errors"', ran + 'echo "ERROR SUMMARY: 0 errors"; [[ $1 == --version ]] || exec sleep 60'):
            code, text = self.run_with(body, "--cases", "3")
            self.assertEqual(code, 1, body)
            self.assertIn("memcheck: 0 of 3 cases clean", text)
            self.assertIn('"check": "--problem all_gather_matmul,', text)


class TestPage(unittest.TestCase):
    def test_a_skip_has_its_remedy_and_fails_where_it_must_run(self):
        for commands, why in (((), "no chromium here"), (("chromium", "chromedriver"), "selenium, pytest and Pillow")):
            with tempfile.TemporaryDirectory() as folder:
                debian = Debian(folder, commands)
                debian.write("python3", "exit 1")
                (debian.folder / "dirname").symlink_to(shutil.which("dirname"))
                # Another Python, that of Debian, may have them on this machine.
                script = (TOOLS / "test_page.sh").read_text(encoding="utf-8").replace(" /usr/bin/python3;", ";")
                for must_run, expected in (("", 77), ("1", 1)):
                    done = subprocess.run(["/bin/bash", "-c", script, TOOLS / "test_page.sh"], capture_output=True, text=True, check=False,
                                          env={"PATH": folder, "PAGE_MUST_RUN": must_run})
                    self.assertEqual(done.returncode, expected, done.stderr)
                    first, last = done.stdout.splitlines()
                    self.assertEqual(first, "tests/page: Skipped")
                    self.assertIn(why, last)
                    self.assertIn("tools/install_packages.sh page", last)


class InstallPackages(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_nothing_missing(self):
        self.assertEqual(Debian(self.folder.name).run("build"), (0, "", []))

    def test_bare_machine_as_root(self):
        code, _, calls = Debian(self.folder.name, commands=(), packages=()).run("build")
        self.assertEqual(code, 0)
        self.assertEqual(calls[0], "noninteractive apt-get update")
        self.assertEqual(calls[1], "noninteractive apt-get install -y --no-install-recommends g++ cmake ninja-build "
                                   "ccache make pkg-config python3 " + " ".join(LIBRARIES))
        self.assertEqual(len(calls), 2)

    def test_only_what_is_missing(self):
        commands = [name for name in COMMANDS if name != "ninja"]
        _, _, calls = Debian(self.folder.name, commands, LIBRARIES[1:]).run("build")
        self.assertTrue(calls[1].endswith("--no-install-recommends ninja-build libfmt-dev"), calls)

    def test_removed_package_counts_as_missing(self):
        debian = Debian(self.folder.name)
        debian.write("dpkg-query", "echo -n config-files")
        _, _, calls = debian.run("build")
        self.assertIn("libexpected-dev", calls[1])

    def test_browser_of_the_page(self):
        commands = [*COMMANDS, "chromium", "chromedriver"]
        debian = Debian(self.folder.name, commands, ["python3-selenium", "python3-pytest"])
        _, _, calls = debian.run("page")
        self.assertTrue(calls[1].endswith("--no-install-recommends python3-pil"), calls)

    def test_python_that_cannot_build_wheels(self):
        debian = Debian(self.folder.name)
        self.assertEqual(debian.run("python"), (0, "", []))
        debian.write("python3", "exit 1")
        _, _, calls = debian.run("python")
        self.assertTrue(calls[1].endswith("--no-install-recommends python3-dev python3-venv"), calls)

    def test_sudo_without_password(self):
        code, _, calls = Debian(self.folder.name, packages=LIBRARIES[1:], uid=1000, sudo="free").run("build")
        self.assertEqual(code, 0)
        self.assertEqual(calls[-1], "noninteractive apt-get install -y --no-install-recommends libfmt-dev")

    def test_user_without_rights_gets_the_line(self):
        for sudo in (None, "asks"):
            with self.subTest(sudo=sudo), tempfile.TemporaryDirectory() as folder:
                code, output, calls = Debian(folder, packages=LIBRARIES[1:], uid=1000, sudo=sudo).run("build")
                self.assertEqual(code, 4)
                self.assertEqual(calls, [])
                self.assertEqual(output.splitlines()[-1],
                                 "sudo apt-get install -y --no-install-recommends libfmt-dev")

    def test_docs_need_doxygen_and_no_compiler(self):
        _, _, calls = Debian(self.folder.name, commands=("python3",), packages=()).run("docs")
        self.assertIn("doxygen", calls[-1])
        self.assertNotIn("g++", calls[-1])

    def test_lint_needs_pinned_clang(self):
        _, _, calls = Debian(self.folder.name).run("lint")
        self.assertTrue(calls[1].endswith("clang-14 clang-format-14 clang-tidy-14"), calls)

    def test_failing_apt(self):
        debian = Debian(self.folder.name, packages=())
        debian.write("apt-get", "exit 100")
        self.assertEqual(debian.run("build")[0], 100)

    def test_no_debian(self):
        debian = Debian(self.folder.name)
        (debian.folder / "apt-get").unlink()
        code, output, _ = debian.run("build")
        self.assertEqual(code, 0)
        self.assertIn("libexpected-dev", output)

    def test_unknown_need(self):
        self.assertEqual(Debian(self.folder.name).run("everything")[0], 2)


class Build(unittest.TestCase):
    """build.sh in a tree of its own, with a cmake that writes what it was told into the cache, and a driver with GPUs or
    without."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name)
        (self.tree / "tools").mkdir()
        (self.tree / "commands").mkdir()
        for name in ("build.sh", "choose_cuda.py", "set_up_ccache.sh"):
            shutil.copy(TOOLS / name, self.tree / "tools")
        self.write("tools/num_jobs.sh", "echo 1")
        # What AUTO comes to is what the file `auto` says.
        self.write("commands/cmake", """
            echo "$*" >>log
            [[ $1 == --preset ]] || exit 0
            mkdir -p build/$2
            case "$*" in
              *TANDEM_CUDA=OFF*) why=TANDEM_CUDA=OFF ;;
              *TANDEM_CUDA=ON*) why= ;;
              *) why=$(cat auto 2>/dev/null || true) ;;
            esac
            echo "TANDEM_WHY_NO_CUDA:INTERNAL=$why" >build/$2/CMakeCache.txt""")
        self.use_driver(init=100, num_gpus=0)

    def write(self, name, body):
        path = self.tree / name
        path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def use_driver(self, init, num_gpus):
        code = f"int cuInit(unsigned) {{ return {init}; }} int cuDeviceGetCount(int* n) {{ *n = {num_gpus}; return 0; }}"
        if num_gpus is None:
            code = "int nothing;"
        subprocess.run(["g++", "-shared", "-fPIC", "-o", self.tree / "libcuda.so.1", "-xc++", "-"], check=True, text=True,
                       input=f'extern "C" {{ {code} }}')

    def build(self, *arguments, cuda=None):
        """(exit code, what cmake was told to make of TANDEM_CUDA, the last line)."""
        (self.tree / "log").unlink(missing_ok=True)
        environment = {"PATH": f"{self.tree / 'commands'}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(self.tree)}
        if cuda is not None:
            environment["CUDA"] = cuda
        done = subprocess.run(["/bin/bash", self.tree / "tools" / "build.sh", *arguments], text=True, check=False,
                              capture_output=True, env=environment)
        log = self.tree / "log"
        told = re.findall("TANDEM_CUDA=([A-Z]+)", log.read_text(encoding="utf-8")) if log.exists() else []
        return done.returncode, told, (done.stdout + done.stderr).rpartition("\n")[0].rpartition("\n")[2]

    def demo(self, cuda=None):
        return self.build("--to-run-here", "release", "tandem_cli", cuda=cuda)

    def test_demo_without_a_gpu(self):
        for init, num_gpus, why in ((0, None, "no GPU driver here"), (100, 0, "no GPU here"), (0, 0, "no GPU here"),
                                    (999, 1, "the GPU driver here does not start (CUDA error 999)")):
            self.use_driver(init, num_gpus)
            self.assertEqual(self.demo(),
                             (0, ["OFF"], f"build/release: built without CUDA ({why}; CUDA=1 builds it)"))

    def test_demo_with_a_gpu(self):
        self.use_driver(init=0, num_gpus=1)
        self.assertEqual(self.demo(), (0, ["AUTO"], "build/release: built with CUDA (a GPU is here)"))
        (self.tree / "auto").write_text("no CUDA compiler here", encoding="utf-8")
        self.assertEqual(self.demo(), (0, ["AUTO"], "build/release: built without CUDA (no CUDA compiler here)"))

    def test_caller_decides(self):
        for num_gpus in (0, 1):
            self.use_driver(init=0, num_gpus=num_gpus)
            for build in (self.demo, lambda cuda: self.build("release", cuda=cuda)):
                self.assertEqual(build(cuda="1"), (0, ["ON"], "build/release: built with CUDA (CUDA=1)"))
                self.assertEqual(build(cuda="0"), (0, ["OFF"], "build/release: built without CUDA (CUDA=0)"))

    def test_demo_keeps_a_tool_with_cuda(self):
        self.assertEqual(self.build("release"), (0, ["AUTO"], "build/release: built with CUDA"))
        self.assertEqual(self.demo()[1], ["OFF"])  # there was no tool
        self.assertEqual(self.build("release")[1], ["AUTO"])
        tool = self.tree / "build" / "release" / "bin" / "tandem"
        tool.parent.mkdir()
        tool.write_bytes(b"\x7fELF.text")
        self.assertEqual(self.demo()[1], ["OFF"])  # one without kernels: the build was stopped before the new one
        tool.write_bytes(b"\x7fELF.text\0.nv_fatbin\0")
        for _ in range(2):
            code, told, line = self.demo()
            self.assertEqual((code, told), (0, ["AUTO"]))
            self.assertRegex(line, r"built with CUDA \(.*, but it was built already; CUDA=0 builds without\)")
        self.assertEqual(self.demo(cuda="0")[1], ["OFF"])

    def test_presets_that_have_their_own(self):
        for preset in ("asan", "tsan", "cuda"):
            self.assertEqual(self.build(preset, cuda="0")[:2], (0, []), preset)

    def test_what_cuda_may_be(self):
        code, told, line = self.demo(cuda="yes")
        self.assertEqual((code, told), (1, []))
        self.assertIn("CUDA='yes': need 1", line)
        for no_answer in ("", "/usr/local/cuda"):
            self.assertEqual(self.demo(cuda=no_answer)[1], ["OFF"])


class SumUpTests(unittest.TestCase):
    MARKS = {"notrun": '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>',
             "missing": '<skipped message="Unable to find executable"/>'}

    def sum_up(self, num_failed_steps, *reports):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, cases in enumerate(reports):
                body = "".join(f'<testcase name="{name}" status="{status}">{self.MARKS.get(status, "")}'
                               f"<system-out>{output}</system-out></testcase>" for name, status, output in cases)
                body = body.replace('status="missing"', 'status="notrun"')
                paths.append(Path(folder) / f"{number}.xml")
                paths[-1].write_text(f"<testsuite>{body}</testsuite>", encoding="utf-8")
            done = subprocess.run([sys.executable, TOOLS / "sum_up_tests.py", str(num_failed_steps), *paths],
                                  capture_output=True, text=True, check=False)
            return done.returncode, done.stdout.splitlines()

    def test_all_passed(self):
        self.assertEqual(self.sum_up(0, [("a", "run", "")], [("b", "run", ""), ("c", "run", "")]),
                         (0, ["3 passed, 0 failed"]))

    def test_failure(self):
        self.assertEqual(self.sum_up(1, [("a", "run", ""), ("b", "fail", "")]),
                         (1, ["failed: b", "1 passed, 1 failed"]))

    def test_failure_ends_with_what_was_printed(self):
        output = "\n".join(["[ RUN      ] b", *(f"line {number}" for number in range(20)), "[  FAILED  ] b (3 ms)", "",
                            " 1 FAILED TEST"])
        code, lines = self.sum_up(1, [("a", "run", ""), ("b", "fail", output)], [("c", "notrun", "x:3: Skipped\nno")])
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["skipped: c: no", "1 skipped", "failed: b",
                                 *(f"  line {number}" for number in range(12, 20)), "1 passed, 1 failed"])

    def test_failed_step_without_a_report_counts(self):
        self.assertEqual(self.sum_up(1, [("a", "run", "")]), (1, ["1 passed, 1 failed"]))

    def test_missing_program_is_a_failure(self):
        self.assertEqual(self.sum_up(1, [("a", "run", ""), ("b", "missing", "")]),
                         (1, ["failed: b", "1 passed, 1 failed"]))

    def test_nothing_ran(self):
        self.assertEqual(self.sum_up(0), (1, ["0 passed, 0 failed"]))

    def test_skipped_are_counted_with_their_reason(self):
        code, lines = self.sum_up(0, [("a", "run", ""), ("b", "notrun", "x.cpp:3: Skipped\nneeds two hosts\n")])
        self.assertEqual(code, 0)
        self.assertEqual(lines[-2:], ["1 skipped", "1 passed, 0 failed"])
        self.assertEqual(lines[0], "skipped: b: needs two hosts")

    def test_cases_of_pytest(self):
        cases = ('<testsuites><testsuite><testcase name="a"/><testcase name="b"><failure message="x"/></testcase>'
                 '<testcase name="c"><skipped message="no GPU"/></testcase><testcase name="d"><error/></testcase>'
                 "</testsuite></testsuites>")
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
            report.write(cases)
            report.flush()
            done = subprocess.run([sys.executable, TOOLS / "sum_up_tests.py", "0", report.name], capture_output=True,
                                  text=True, check=False)
        self.assertEqual((done.returncode, done.stdout.splitlines()),
                         (1, ["skipped: c: no GPU", "1 skipped", "failed: b", "failed: d", "1 passed, 2 failed"]))

    def test_a_step_that_is_skipped_whole(self):
        code, lines = self.sum_up(0, [("a", "run", "")], [("python", "disabled", "python: Skipped \nno PyPI")])
        self.assertEqual((code, lines), (0, ["skipped: python: no PyPI", "1 skipped", "1 passed, 0 failed"]))


class WrapComments(unittest.TestCase):
    def check(self, before, after):
        self.assertEqual(wrap_comments.wrap(before), after)

    def test_short_lines_stay(self):
        text = "// a table   of   columns\n//   - and a drawing\nint x;  // why\n"
        self.check(text, text)

    def test_goes_on_in_the_next_line(self):
        self.check("  // " + "word " * 25 + "\n  // next\n", "  // " + ("word " * 21).strip() + "\n  // "
                   + "word " * 4 + "next\n")

    def test_entries_stay_apart(self):
        self.check("/// Types:   " + "word " * 20 + "\n/// Order:   none\n", "/// Types:   " + ("word " * 19).strip()
                   + "\n///          word\n/// Order:   none\n")

    def test_comment_behind_code_goes_above(self):
        self.check("  int x;  ///< " + "word " * 25 + "\n", "  /// " + ("word " * 21).strip() + "\n  /// "
                   + ("word " * 4).strip() + "\n  int x;\n")

    def test_code_and_long_words_stay(self):
        text = "// " + "x" * 120 + '\nauto s = "' + "//x" * 40 + '";\n'
        self.check(text, text)


if __name__ == "__main__":
    unittest.main()
