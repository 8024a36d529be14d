#!/usr/bin/env python3
"""Adds up JUnit reports of ctest and pytest: sum_up_tests.py NUM_FAILED_STEPS REPORT.xml...

Prints every skipped test with its reason, then every failed one with the end of what it printed, so that the end of a log
tells what went wrong; "N passed, N failed" is the last line. Steps that failed without a failed test in any report (an empty
test list, a crash of the runner) count as failures. Exits 1 on any failure, or if nothing ran.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree

NUM_LINES_OF_A_FAILURE = 8
FRAME_OF_GOOGLETEST = re.compile(r"\[[ =A-Z-]{10}\]| *\d+ FAILED TESTS?$")


def is_skipped(case):
    """Whether a test that did not run chose so itself; one whose program is missing did not."""
    mark = case.find("skipped")
    return case.get("status") == "disabled" or (mark is not None and mark.get("message", "").startswith("SKIP_"))


def outcome_of_pytest(case):
    """ctest's word for the outcome of a pytest case, which has no status but what went wrong."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "fail"
    return "run" if case.find("skipped") is None else "disabled"


def reason_of(case):
    """Why a test was skipped."""
    # googletest prints "file:line: Skipped" and, on the next line, why.
    printed = re.search(r": Skipped\s*\n(.+)", case.findtext("system-out") or "")
    if printed:
        return printed[1].strip()
    mark = case.find("skipped")
    return mark.get("message") if mark is not None and "status" not in case.attrib else "no reason given"


def end_of_output(case):
    """The last lines that a failed test printed, or what pytest says of it, each on a line of its own."""
    fault = case.find("failure") if case.find("failure") is not None else case.find("error")
    said = case.findtext("system-out") or (fault.text if fault is not None else "") or ""
    lines = [line for line in said.splitlines() if line.strip() and not FRAME_OF_GOOGLETEST.match(line)]
    return "".join(f"\n  {line}" for line in lines[-NUM_LINES_OF_A_FAILURE:])


def read_report(path):
    """(passed, [(name, end of its output) of failed], [(name, reason) of skipped]) of one report."""
    passed, failed, skipped = 0, [], []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        is_ctest = "status" in case.attrib
        status = case.get("status") if is_ctest else outcome_of_pytest(case)
        if status == "run":
            passed += 1
        elif status == "fail" or (is_ctest and not is_skipped(case)):
            failed.append((case.get("name"), end_of_output(case)))
        else:
            skipped.append((case.get("name"), reason_of(case)))
    return passed, failed, skipped


def main(arguments):
    num_failed_steps, reports = int(arguments[0]), arguments[1:]
    passed, failed, skipped = 0, [], []
    for report in reports:
        report_passed, report_failed, report_skipped = read_report(report)
        passed += report_passed
        failed += report_failed
        skipped += report_skipped
    num_failed = len(failed) or num_failed_steps
    for name, reason in skipped:
        print(f"skipped: {name}: {reason}")
    if skipped:
        print(f"{len(skipped)} skipped")
    for name, output in failed:
        print(f"failed: {name}{output}")
    print(f"{passed} passed, {num_failed} failed")
    return 1 if num_failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
