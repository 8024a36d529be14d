"""tools/plot_results.py: charts of made-up rows and of the committed ones. tandem itself is not needed."""

import importlib.util
import itertools
import json
import pathlib
import sys
from xml.etree import ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("plot_results", ROOT / "tools/plot_results.py")
plot_results = importlib.util.module_from_spec(_spec)
sys.modules["plot_results"] = plot_results  # dataclasses look their module up
_spec.loader.exec_module(plot_results)

FACTS = {
    "world": 2,
    "gpu": "Made-up GPU",
    "torch": "2.11.0",
    "nccl": "2.28.9",
    "date": "2026-01-02T03:04:05Z",
    "commit": "0123456789ab",
    "command": "torchrun --nproc-per-node 2 made_up.py --with 'many words' " + "--and more " * 20,
}
OURS = ("tandem auto", "tandem native", "tandem pipelined", "tandem serial", "tandem.torch")
PEERS = ("cublas + nccl", "torch decomposed", "torch native")
SIDES = ("nccl", "torch low contention", "torch low contention, symmetric", "tandem", "tandem low contention")


def comparison_row(op, m, mode, **changes):
    variants = ("product alone", "nccl alone", *OURS, *PEERS)
    times = {name: 10.0 + m / 8 + 3 * i for i, name in enumerate(variants)}
    row = {"op": op, "m": m, "n": 48, "k": 96, "dtype": "bf16", "mode": mode, "wrong": {}, "why_not": {}}
    row["ratios"] = {f"{name} / product alone": us / times["product alone"] for name, us in times.items()}
    row["hidden"] = {name: 0.1 * i - 0.2 for i, name in enumerate((*OURS, *PEERS))}
    row["host_us_in_bursts"] = {name: us / 2 for name, us in times.items()}
    return row | FACTS | changes


def comparison_rows(**changes):
    return [
        comparison_row(op, m, mode, **changes)
        for op in ("all_gather_matmul", "matmul_reduce_scatter")
        for m in (64, 128, 256)
        for mode in ("eager", "graph")
    ]


def contention_figures(i, mib):
    return {"product_ratio": 1 + i / 50, "t_alone_us": 10.0 * mib + i, "t_beside_us": 30.0 * mib + 2 * i}


def contention_rows():
    return [
        {"op": op, "mib": mib, "m": 64, "n": 48, "k": 96, "wrong": {}, "why_not": {}, **FACTS}
        | {"sides": {side: contention_figures(i, mib) for i, side in enumerate(SIDES)}}
        for op in ("all_gather", "reduce_scatter")
        for mib in (1, 8, 64)
    ]


@pytest.fixture
def results(tmp_path):
    """A folder of rows, and a function that writes other ones to it."""
    folder = tmp_path / "results"
    folder.mkdir()

    def write(file, rows):
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    write(plot_results.AGAINST_TORCH, comparison_rows())
    write(plot_results.CONTENTION, contention_rows())
    return folder, write


def drawn(chart, path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    plot_results.draw(chart, path)
    tree = ElementTree.parse(path)
    texts = ["".join(one.itertext()) for one in tree.iter("{http://www.w3.org/2000/svg}text")]
    return tree, texts


def check_drawing(chart, path):
    """The SVG has every panel, series, note and fact of the chart, and its digest."""
    tree, texts = drawn(chart, path)
    ids = {one.get("id") for one in tree.iter()}
    joined = "".join(texts).replace(" ", "")
    assert chart.title in texts
    for panel in chart.panels:
        assert panel.title in texts
        for series in panel.series:
            assert plot_results.label_of(series.name) in texts
            assert f"{panel.title}: {series.name}" in ids
    for line in chart.about:
        assert line.replace(" ", "") in joined
    assert plot_results.digest_in(path) == chart.digest()


@pytest.mark.parametrize("name", plot_results.CHARTS)
def test_made_up_rows(name, results, tmp_path):
    folder, _ = results
    chart = plot_results.read_chart(name, folder)
    names = {series.name for panel in chart.panels for series in panel.series}
    assert names == set(SIDES if name == "contention" else (*OURS, *PEERS))
    assert all(len(series.points) == 3 for panel in chart.panels for series in panel.series)
    about = "\n".join(chart.about)
    assert "2 × Made-up GPU" in about
    assert "2026-01-02 03:04:05 UTC" in about
    assert FACTS["command"] in about
    check_drawing(chart, tmp_path / "first.svg")
    plot_results.draw(chart, tmp_path / "second.svg")
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()


@pytest.mark.parametrize("name", plot_results.CHARTS)
def test_committed_charts_show_committed_rows(name, tmp_path):
    chart = plot_results.read_chart(name, ROOT / "bench/results")
    assert plot_results.digest_in(ROOT / f"docs/charts/{name}.svg") == chart.digest()
    assert all(panel.series for panel in chart.panels)
    check_drawing(chart, tmp_path / "chart.svg")


def test_values_are_those_of_the_rows(results):
    folder, _ = results
    rows = comparison_rows()
    chart = plot_results.read_chart("time_over_product_recorded", folder)
    gather = {series.name: dict(series.points) for series in chart.panels[0].series}
    assert gather["tandem serial"][128] == rows[3]["ratios"]["tandem serial / product alone"]
    hidden = plot_results.read_chart("share_hidden", folder)
    assert dict(hidden.panels[1].series[0].points)[64] == rows[6]["hidden"][hidden.panels[1].series[0].name]


def test_collectives_are_over_those_of_nccl(results):
    folder, write = results
    rows = contention_rows()
    del rows[0]["sides"]["nccl"]
    write(plot_results.CONTENTION, rows)
    panels = {panel.title: panel for panel in plot_results.read_chart("contention", folder).panels}
    beside = {series.name: dict(series.points) for series in panels["all-gather: collective beside the product"].series}
    assert beside["tandem"] == {8: 246 / 240, 64: 1926 / 1920}
    alone = {series.name: dict(series.points) for series in panels["reduce-scatter: collective alone"].series}
    assert alone["tandem"] == {1: 13 / 10, 8: 83 / 80, 64: 643 / 640}


def test_missing_peers_are_told(results, tmp_path, capsys):
    folder, write = results
    rows = [row for row in comparison_rows() if row["op"] == "all_gather_matmul"]
    for row in rows:
        for figures in (row["ratios"], row["hidden"], row["host_us_in_bursts"]):
            for key in [key for key in figures if key.startswith("torch native")]:
                del figures[key]
        row["why_not"] = {"torch native": "not tried"}
    late = rows[-1]
    late["wrong"] = {"torch decomposed": 7}
    del late["ratios"]["torch decomposed / product alone"]
    write(plot_results.AGAINST_TORCH, rows)
    chart = plot_results.read_chart("time_over_product_recorded", folder)
    assert "Not drawn: PyTorch native: not tried." in chart.about
    assert "Not drawn: PyTorch decomposed: 7 wrong elements (256 rows)." in chart.about
    assert "Not drawn: matmul + reduce-scatter: no row in this run." in chart.about
    check_drawing(chart, tmp_path / "chart.svg")
    assert plot_results.main(["share_hidden", "--results", str(folder), "--out", str(tmp_path)]) == 0
    assert "PyTorch native: not tried" in capsys.readouterr().out


def test_what_is_outside_is_told(results):
    folder, write = results
    rows = comparison_rows()
    rows[0]["hidden"]["torch decomposed"] = -3.0
    write(plot_results.AGAINST_TORCH, rows)
    about = plot_results.read_chart("share_hidden", folder).about
    assert "Partly outside of the chart (all-gather + matmul): PyTorch decomposed." in about


def test_unknown_variant_has_its_own_name(results, tmp_path):
    folder, write = results
    rows = comparison_rows()
    for row in rows:
        row["ratios"]["somebody else / product alone"] = 2.0
    write(plot_results.AGAINST_TORCH, rows)
    _, texts = drawn(plot_results.read_chart("time_over_product", folder), tmp_path / "chart.svg")
    assert texts.count("somebody else") == 2


def test_only_the_last_run_counts(results):
    folder, write = results
    older = comparison_rows(date="2025-01-01T00:00:00Z", gpu="Old GPU")
    undated = [{key: value for key, value in row.items() if key != "date"} for row in older]
    want = plot_results.read_chart("host_cost", folder).digest()
    write(plot_results.AGAINST_TORCH, [*undated, *comparison_rows(), *older])
    assert plot_results.read_chart("host_cost", folder).digest() == want
    write(plot_results.AGAINST_TORCH, undated)
    with pytest.raises(SystemExit) as ended:
        plot_results.main(["host_cost", "--results", str(folder)])
    assert ended.value.code == 2


def test_check_finds_a_stale_chart(results, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    folder, write = results
    arguments = ["--results", str(folder), "--out", str(tmp_path / "charts")]
    assert plot_results.main(["--check", *arguments]) == 1  # none is drawn
    assert plot_results.main(arguments) == 0
    assert plot_results.main(["--check", *arguments]) == 0
    rows = comparison_rows()
    rows[0]["ratios"]["tandem auto / product alone"] += 0.01
    write(plot_results.AGAINST_TORCH, rows)
    capsys.readouterr()
    assert plot_results.main(["--check", *arguments]) == 1
    told = capsys.readouterr().out.splitlines()
    assert [pathlib.Path(line.split(" ")[0]).name for line in told] == ["time_over_product.svg"]


def test_labels_keep_apart():
    wanted = [0.5, 0.51, 0.49, 0.9, 0.0, 0.02]
    places = plot_results.spread(wanted, 0.1, 0.0, 1.0)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gaps = [places[b] - places[a] for a, b in itertools.pairwise(order)]
    assert min(gaps) > 0.0999
    assert 0.0 <= min(places) <= max(places) <= 1.0
