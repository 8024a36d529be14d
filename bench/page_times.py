#!/usr/bin/env python3
"""How long headless Chromium takes to open the page of a trace, and to draw it.

page_times.py [--events N...] [--rounds N] [--out FILE]

The traces are those of tests/page/traces.py: calls of a pipelined gather on four ranks. Sizes take turns, each in a page of
its own, and each page has to have drawn every event before its time counts. Prints one JSON object a size and adds it to FILE:
    ready_ms     from asking for the file until the first picture is on the screen
    cpu_ms       processor time of the page's thread until then, which says more where others use the machine
    draw_ms      one picture of the whole trace, and of its middle tenth (draw_tenth_ms)
"p50_" are medians over rounds, "most_" the largest. load_average is that of the machine's last minute.
tools/install_packages.sh page installs what this needs.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/page"))

import browser
import traces

DRAW = """const [begin, end] = arguments; setView(begin * model.total, end * model.total); draw();
const times = [];
for (let i = 0; i < 9; ++i) { const from = performance.now(); isStale = true; drawPlot(); times.push(performance.now() - from); }
return times.sort((a, b) => a - b)[4];"""


def cpu_ms(driver):
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1000 * next(one["value"] for one in metrics if one["name"] == "TaskDuration")


def times_of(driver, file, num_events):
    page = browser.Page(driver, file)
    spent_ms = cpu_ms(driver)
    stats = page.stats
    if stats["events"] != num_events or stats["drawn"] + stats["merged"] + stats["hidden"] != num_events:
        raise RuntimeError(f"{file}: {stats}, need {num_events} events")
    faults = page.console()
    if faults:
        raise RuntimeError(f"{file}: {faults}")
    return {
        "ready_ms": page.js("return performance.getEntriesByName('tandem-ready')[0].startTime"),
        "cpu_ms": spent_ms,
        "draw_ms": page.js(DRAW, 0, 1),
        "draw_tenth_ms": page.js(DRAW, 0.45, 0.55),
    }


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return f"{line.split(': ')[1]}, {len(os.sched_getaffinity(0))} cores"
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[10_000, 100_000, 300_000])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as folder, browser.chromium() as driver:
        pages = {}
        for size in options.events:
            recording = traces.many(size)
            file = pathlib.Path(folder) / f"{size}.html"
            file.write_text(browser.page_of(recording.trace()), encoding="utf-8")
            pages[size] = (file, len(recording.spans))
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        found = {size: [] for size in pages}
        for _ in range(options.rounds):
            for size, (file, num_events) in pages.items():
                found[size].append(times_of(driver, file, num_events))
        for size, rows in found.items():
            file, num_events = pages[size]
            row = {"command": " ".join(["bench/page_times.py", *sys.argv[1:]]), "commit": commit, "machine": machine()}
            row.update(browser=driver.capabilities["browserVersion"], events=num_events, file_bytes=file.stat().st_size)
            row.update(rounds=options.rounds, load_average=round(os.getloadavg()[0], 1))
            for key in rows[0]:
                row[f"p50_{key}"] = round(statistics.median(one[key] for one in rows), 2)
                row[f"most_{key}"] = round(max(one[key] for one in rows), 2)
            line = json.dumps(row, sort_keys=True)
            print(line)
            if options.out:
                with options.out.open("a", encoding="utf-8") as out:
                    out.write(line + "\n")


if __name__ == "__main__":
    main()
