"""Pages that `tandem trace` itself has written, of CPU ranks: --tool names the binary."""

import json
import os
import subprocess

import browser
import pytest
from checks import clean, near, time_in

# Of one rank: its communication beside products, from the events that the page has.
HIDDEN = """const rank = model.ranks[arguments[0]];
const copies = [];
for (const lane of rank.lanes)
  for (let i = lane.first; i < lane.last; ++i) if (model.category[i] === COPY) copies.push([model.begin[i], model.end[i]]);
const length = (spans) => spans.reduce((sum, [begin, end]) => sum + end - begin, 0);
const all = joined(copies);
return length(all) - length(without(all, rank.products));"""


@pytest.fixture
def trace(request, tmp_path):
    """trace(arguments..., env) runs `tandem trace run`; the page's file and the JSON."""
    tool = request.config.getoption("--tool")
    if tool is None:
        pytest.skip("no --tool: the command-line tool is not part of this build")

    def run(problem, **env):
        out = tmp_path / "trace"
        line = [os.path.abspath(tool), "trace", "--out", out, "run", "--backend", "cpu", "--problem", problem]
        own = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
        done = subprocess.run(
            [*line, "--out", tmp_path / "result.npy"],
            env={**own, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return out / "trace.html", json.loads((out / "trace.json").read_text(encoding="utf-8"))

    return run


@pytest.mark.parametrize("algorithm", ["serial", "pipelined", "native"])
@pytest.mark.parametrize("op", ["all_gather_matmul", "matmul_reduce_scatter"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_shows_what_the_trace_says(ranks, op, algorithm, trace, driver):
    file, told = trace(f"{op},a=64x48,n=40,dtype=f32,dim=0,ranks={ranks},algorithm={algorithm},seed=3")
    facts = told["tandem"]
    before, after = browser.TEMPLATE.read_text(encoding="utf-8").split(browser.MARKER)
    text = file.read_text(encoding="utf-8")
    assert text.startswith(before) and text.endswith(after)
    page = browser.Page(driver, file)
    assert page.texts(".warning") == []
    assert page.js("return JSON.parse(document.getElementById('trace').textContent)") == told
    events = [event for event in told["traceEvents"] if event["ph"] == "X"]
    stats = page.stats
    assert stats["events"] == stats["drawn"] + stats["merged"] + stats["hidden"] == len(events)
    waiting = sum(rank["waiting_us"] for rank in facts["ranks"])
    assert near(float(page.data("#tile-waiting", "us")), waiting)
    for rank in facts["ranks"]:
        assert abs(page.js(HIDDEN, rank["rank"]) - rank["hidden_us"]) < 0.01, rank
    assert page.texts("#calls-table tbody tr td:nth-child(5)") == [call["schedule"] or "" for call in facts["calls"]]
    assert page.texts("#ops-table tbody th") == [op["op"] for op in facts["ops"]]
    assert page.texts("#ops-table tbody td:nth-child(2)") == [op["algorithm"] for op in facts["ops"]] == [algorithm]
    page.key("n", "Home", "n", "l")
    clean(page)


def test_names_a_planted_stall(trace, driver):
    file, told = trace(
        "all_gather_matmul,a=64x48,n=40,dtype=f32,dim=0,ranks=2,algorithm=pipelined,seed=3",
        TANDEM_FAULT="get:1:1:delay:400",
    )
    loss = told["tandem"]["losses"][0]
    page = browser.Page(driver, file)
    tile = page.text("#tile-loss")
    assert "waited for rank 1" in tile and "on rank 0" in tile and time_in(tile) > 0.9 * 400e3, tile
    page.click_on("#tile-loss")
    assert (page.selected["pid"], page.selected["ts"], page.selected["cat"]) == (0, loss["ts"], "wait")
    assert loss["because"] in page.text("#detail")
    clean(page)
