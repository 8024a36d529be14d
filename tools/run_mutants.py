#!/usr/bin/env python3
"""Runs mutants: each is a patch in tools/mutants/ that breaks one check, and the test that must fail then.

    tools/run_mutants.py                   all of them
    tools/run_mutants.py --some 10         ten, spread over all
    tools/run_mutants.py 22_other_user     those whose names begin so
    tools/run_mutants.py --report FILE     also as JUnit XML

A patch begins with lines of comment, and ends with a diff of the sources that `git apply` takes:

    # promise: 22                                              of docs/reliability.md; `files`: of outputs
    # test: test_error_bootstrap Strangers.*                   a test executable and which of its tests, or
    # test: ctest dist.cli_sandbox                             a test of the tool or of a script
    # what: The user of who connects is not looked at.

The sources are copied to build/mutants/tree, so the checkout stays as it is. Each test first passes without its mutant. Then a
mutant is killed if its test fails, or does not end. Exit code 1 if one survives, does not apply or does not compile.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time
from xml.sax.saxutils import escape, quoteattr

ROOT = pathlib.Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "mutants" / "tree"
PATCHES = ROOT / "tools" / "mutants"
KEYS = ("promise", "test", "what")
SLOWER = 4  # times as long as without the mutant, and
LEAST_S = 60  # at least so long, a test may take before it counts as one that does not end


class Mutant:
    def __init__(self, path):
        self.name = path.stem
        self.path = path
        facts = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("# "):
                break
            key, _, value = line[2:].partition(": ")
            if key not in KEYS:
                sys.exit(f"{path}: '{key}' is none of {', '.join(KEYS)}")
            facts[key] = value.strip()
        if facts.keys() != set(KEYS):
            sys.exit(f"{path}: its first lines need # {', # '.join(KEYS)}")
        self.promise, self.what = facts["promise"], facts["what"]
        self.test = facts["test"].split()
        if len(self.test) != 2:
            sys.exit(f"{path}: '{facts['test']}': need an executable and a filter, or ctest and a name")
        self.target = "cli_test_programs" if self.test[0] == "ctest" else self.test[0]


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)


def copy_tree():
    """The sources as they are, with the times of those that have not changed, so that little is built again."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE).stdout.decode().split("\0")
    kept = set()
    for name in filter(None, listed):
        source, copy = ROOT / name, TREE / name
        if not source.is_file():
            continue
        kept.add(copy)
        if copy.is_file() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)
    for folder, folders, files in os.walk(TREE):
        if pathlib.Path(folder) == TREE and "build" in folders:
            folders.remove("build")
        for name in files:
            if pathlib.Path(folder, name) not in kept:
                pathlib.Path(folder, name).unlink()


def build(targets):
    command = 'source tools/set_up_ccache.sh && cmake --build build/release --parallel "$(tools/num_jobs.sh)" --target "$@"'
    return run(["bash", "-c", command, "build", *targets], cwd=TREE)


def build_without_mutant(targets):
    built = build(targets)
    if built.returncode != 0:
        sys.exit(f"without a mutant:\n{built.stdout[-3000:]}")


def test(mutant, limit_s):
    """(whether it passed, how it went)"""
    runner, name = mutant.test
    if runner == "ctest":
        command = ["ctest", "--test-dir", "build/release", "--no-tests=error", "--output-on-failure", "-R", f"^{name}$"]
    else:
        command = [str(TREE / "build" / "release" / "tests" / runner), f"--gtest_filter={name}"]
    try:
        done = run(command, cwd=TREE, timeout=limit_s, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return False, f"did not end in {limit_s:.0f} s"
    if done.returncode == 0 and runner != "ctest" and "[       OK ]" not in done.stdout:
        return False, f"no test of {runner} is named {name}, or it was skipped"
    return done.returncode == 0, done.stdout[-3000:]


def try_mutant(mutant, took_s):
    """None if it is killed, or else why not."""
    applied = run(["git", "apply", "--unsafe-paths", f"--directory={TREE.relative_to(ROOT)}", str(mutant.path)], cwd=ROOT)
    if applied.returncode != 0:
        return f"does not apply: {applied.stdout.strip()}"
    try:
        built = build([mutant.target])
        if built.returncode != 0:
            return f"does not compile:\n{built.stdout[-3000:]}"
        passed, _ = test(mutant, max(LEAST_S, SLOWER * took_s))
        return "survived" if passed else None
    finally:
        undone = run(["git", "apply", "-R", "--unsafe-paths", f"--directory={TREE.relative_to(ROOT)}", str(mutant.path)],
                     cwd=ROOT)
        if undone.returncode != 0:
            sys.exit(f"{mutant.name}: cannot be undone: {undone.stdout}")


def chosen(mutants, arguments):
    if arguments.names:
        found = [one for one in mutants if any(one.name.startswith(name) for name in arguments.names)]
        return found or sys.exit(f"no mutant of {PATCHES} begins with {' or '.join(arguments.names)}")
    count = min(arguments.some or len(mutants), len(mutants))
    return [mutants[i * len(mutants) // count] for i in range(count)]


def write_report(path, results):
    """`results`: names, and why each was not killed, or None."""
    cases = []
    for name, why in results:
        status = "run" if why is None else "fail"
        cases.append(f'<testcase name={quoteattr("mutants." + name)} status="{status}">'
                     f'<system-out>{escape(why or "")}</system-out></testcase>')
    pathlib.Path(path).write_text("<testsuite>" + "\n".join(cases) + "</testsuite>\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--some", type=int)
    parser.add_argument("--report")
    arguments = parser.parse_args()
    mutants = chosen([Mutant(path) for path in sorted(PATCHES.glob("*.patch"))], arguments)
    copy_tree()
    configured = run(["bash", "-c", "source tools/set_up_ccache.sh && cmake --preset release -DTANDEM_CUDA=OFF"], cwd=TREE)
    if configured.returncode != 0:
        sys.exit(configured.stdout)
    build_without_mutant(sorted({one.target for one in mutants}))
    times, results = {}, []
    for mutant in mutants:
        key = tuple(mutant.test)
        if key not in times:
            build_without_mutant([mutant.target])  # the one before it is still in its programs
            begin = time.monotonic()
            passed, text = test(mutant, 600)
            if not passed:
                sys.exit(f"{' '.join(mutant.test)} fails without a mutant:\n{text}")
            times[key] = time.monotonic() - begin
        why = try_mutant(mutant, times[key])
        results.append((mutant.name, why))
        print(f"{'killed' if why is None else 'SURVIVED' if why == 'survived' else 'BROKEN':8}  {mutant.name}: {mutant.what}",
              flush=True)
        if why not in (None, "survived"):
            print(why)
    num_killed = sum(why is None for _, why in results)
    print(f"{num_killed} of {len(mutants)} mutants killed")
    if arguments.report:
        write_report(arguments.report, results)
    return 0 if num_killed == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
