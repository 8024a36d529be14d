#!/usr/bin/env python3
"""Draws the charts of docs/charts from rows of bench/results: plot_results.py [--check] [CHART...]

Each chart shows the last run of its file and names machine, date and command. A variant that the run has not timed is named
under the chart with its reason, and printed. Needs matplotlib. A chart's metadata has a digest of what it shows.

    --check          draws nothing, needs no matplotlib: exits 1 unless the charts there show the committed rows
    --results, --out other folders
"""
import argparse
import dataclasses
import hashlib
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# How a variant of a row is called in a chart, its colour (Okabe and Ito's, which the colour-blind tell apart) and its
# dashes: tandem's lines are solid, those of others dashed. A variant that is missing here is drawn in grey by its own name.
SOLID, DASHED, DOTTED = "solid", (0, (5, 2)), (0, (1.5, 1.5))
STYLES = {
    "tandem auto": ("tandem auto", "#0072b2", SOLID),
    "tandem native": ("tandem native", "#56b4e9", SOLID),
    "tandem pipelined": ("tandem pipelined", "#009e73", SOLID),
    "tandem serial": ("tandem serial", "#cc79a7", SOLID),
    "tandem.torch": ("tandem.torch", "#7a5195", SOLID),
    "tandem low contention, symmetric": ("tandem, symmetric", "#0072b2", SOLID),
    "tandem low contention": ("tandem", "#56b4e9", SOLID),
    "tandem": ("tandem's ordinary one", "#cc79a7", SOLID),
    "cublas + nccl": ("cuBLAS + NCCL", "#000000", DASHED),
    "nccl": ("NCCL", "#000000", DASHED),
    "torch decomposed": ("PyTorch decomposed", "#d55e00", DASHED),
    "torch native": ("PyTorch native", "#e69f00", DASHED),
    "torch low contention, symmetric": ("PyTorch, symmetric", "#d55e00", DASHED),
    "torch low contention": ("PyTorch", "#e69f00", DASHED),
}
THICK = ("tandem auto", "tandem low contention, symmetric")
GREY = "#8a8a8a"
INK, PALE, PAPER = "#1f2328", "#d8dee4", "#ffffff"


@dataclasses.dataclass
class Series:
    name: str  # as in the rows
    points: list  # (x, y), sorted


@dataclasses.dataclass
class Panel:
    title: str
    y_label: str
    series: list
    is_log: bool = True  # of y
    limits: tuple | None = None  # of y; what lies outside is told
    level: float | None = None  # of a line across, such as the product alone
    level_name: str = ""
    percent: bool = False


@dataclasses.dataclass
class Chart:
    name: str
    title: str
    x_label: str
    panels: list  # in rows of two
    about: list  # lines below: what is missing, then machine, date and command

    def digest(self):
        """Of all that the chart shows, and of nothing that depends on matplotlib."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self)).encode()).hexdigest()


def label_of(name):
    return STYLES.get(name, (name,))[0]


def last_run(path):
    """The rows of the last run in a file. Rows without a date are older than runs are."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    last = max((row["date"] for row in rows if "date" in row), default=None)
    if last is None:
        raise ValueError(f"{path.name}: no row has a date")
    return [row for row in rows if row.get("date") == last]


def provenance(rows, file):
    """Machine, date and command, as lines."""
    row = rows[0]
    versions = [f"{name} {row[key]}" for name, key in (("PyTorch", "torch"), ("NCCL", "nccl")) if key in row]
    machine = [f"{row['world']} × {row['gpu']}", row["date"].replace("T", " ").replace("Z", " UTC"), *versions]
    return [", ".join([*machine, f"commit {row['commit']}"]), row["command"], f"bench/results/{file}"]


def gathered(rows, x_of, y_of, x_name):
    """Series from rows, in the order of STYLES, and what is missing. `y_of(row)` is {name: y}."""
    points, missing, xs_of_all = {}, {}, {x_of(row) for row in rows}
    for row in rows:
        x = x_of(row)
        for name, y in y_of(row).items():
            points.setdefault(name, []).append((x, y))
        reasons = {name: f"{count} wrong elements" for name, count in row.get("wrong", {}).items() if count}
        for name, reason in {**row.get("why_not", {}), **reasons}.items():
            missing.setdefault((name, reason), []).append(x)
    order = list(STYLES)
    names = sorted(points, key=lambda name: (order.index(name) if name in order else len(order), name))
    notes = []
    for (name, reason), xs in missing.items():
        which = "" if set(xs) == xs_of_all else f" ({', '.join(map(str, sorted(xs)))} {x_name})"
        notes.append(f"{label_of(name)}: {reason}{which}")
    return [Series(name, sorted(points[name])) for name in names], notes


def outside(panel):
    """What the panel's limits leave out, as a note."""
    if not panel.limits:
        return []
    low, high = panel.limits
    names = [label_of(one.name) for one in panel.series if any(not low <= y <= high for _, y in one.points)]
    return [f"Partly outside of the chart ({panel.title}): {', '.join(names)}."] if names else []


def chart_of(name, title, x_label, parts, rows, file, notes=()):
    """`parts` are (panel without series, rows, {name: y} of a row)."""
    panels, notes = [], list(notes)
    x_key = "mib" if "MiB" in x_label else "m"
    for panel, its_rows, y_of in parts:
        panel.series, missing = gathered(its_rows, lambda row: row[x_key], y_of, x_label)
        if not panel.series:
            missing.append(f"{panel.title}: no row in this run")
        notes += [f"Not drawn: {text}." for text in missing] + outside(panel)
        panels.append(panel)
    return Chart(name, title, x_label, panels, [*dict.fromkeys(notes), *provenance(rows, file)])


OPS = {"all_gather_matmul": "all-gather + matmul", "matmul_reduce_scatter": "matmul + reduce-scatter"}


def comparison(rows, panel_of, y_of, mode):
    return [(panel_of(title), [row for row in rows if row["op"] == op and row["mode"] == mode], y_of)
            for op, title in OPS.items()]


def without(names, values):
    return {name: value for name, value in values.items() if name not in names}


HALVES = ("product alone", "nccl alone")
GIVES_ROWS = "tandem.torch and the ops of PyTorch also return the gathered rows."


def over_product(row):
    found = {name.removesuffix(" / product alone"): ratio for name, ratio in row["ratios"].items()
             if name.endswith(" / product alone")}
    return without(HALVES, found)


def sizes_of(rows):
    row = next((row for row in rows if row["op"] == "all_gather_matmul"), rows[0])
    return f"n = {row['n']}, k = {row['k']}, {row['dtype']}, W = {row['world']}"


def time_over_product(name, rows, file, mode):
    how = "eager" if mode == "eager" else "recorded in CUDA graphs"
    parts = comparison(rows, lambda title: Panel(title, "time over that of the product alone", [], level=1.0,
                                                 level_name="product alone"), over_product, mode)
    return chart_of(name, f"Time over that of the product alone, {how} ({sizes_of(rows)})", "rows", parts, rows, file,
                    [GIVES_ROWS])


def share_hidden(name, rows, file):
    parts = comparison(rows, lambda title: Panel(title, "share of the communication hidden", [], is_log=False,
                                                 limits=(-1.0, 1.25), level=1.0, level_name="all hidden", percent=True),
                       lambda row: row["hidden"], "eager")
    title = f"Communication hidden: 1 - (time - product alone) / NCCL alone, eager ({sizes_of(rows)})"
    return chart_of(name, title, "rows", parts, rows, file, [GIVES_ROWS])


def host_cost(name, rows, file):
    parts = comparison(rows, lambda title: Panel(title, "us a call keeps the host", []),
                       lambda row: without(HALVES, row["host_us_in_bursts"]), "eager")
    title = f"Host cost of a call behind others, eager ({sizes_of(rows)})"
    return chart_of(name, title, "rows", parts, rows, file, [GIVES_ROWS])


OF_CONTENTION = ("PyTorch and tandem: their low-contention ops. Symmetric: the input lies in symmetric memory. Kernels of a "
                 "collective that find no multiprocessor free wait for the product's end: the product loses nothing then.")
COLLECTIVES = {"all_gather": "all-gather", "reduce_scatter": "reduce-scatter"}


def over_nccl(key):
    """Each side's figure over NCCL's; nothing where that is missing, which the row says."""
    def figures_of(row):
        sides = row["sides"]
        return {side: figures[key] / sides["nccl"][key] for side, figures in sides.items()} if "nccl" in sides else {}
    return figures_of


def contention(name, rows, file):
    figures = (("product beside it", {"y_label": "time over that alone", "is_log": False, "level": 1.0, "level_name": "alone"},
                lambda row: {side: one["product_ratio"] for side, one in row["sides"].items()}),
               ("collective beside the product", {"y_label": "mean time over NCCL's"}, over_nccl("t_beside_us")),
               ("collective alone", {"y_label": "time over NCCL's"}, over_nccl("t_alone_us")))
    parts = [(Panel(f"{title}: {what}", series=[], **options), [row for row in rows if row["op"] == op], y_of)
             for what, options, y_of in figures for op, title in COLLECTIVES.items()]
    m, n, k = (rows[0][key] for key in "mnk")
    return chart_of(name, f"A product of {m}x{n}x{k} while a collective runs again and again beside it (W = {rows[0]['world']})",
                    "MiB a rank", parts, rows, file, [OF_CONTENTION])


@dataclasses.dataclass
class Source:
    """A chart's file of rows, and how rows become the chart."""
    file: str
    make: Callable  # (name, rows, file) -> Chart


AGAINST_TORCH, CONTENTION = "h200_x2_against_torch.json", "h200_x2_contention.json"
CHARTS = {
    "time_over_product": Source(AGAINST_TORCH, lambda *of: time_over_product(*of, "eager")),
    "time_over_product_recorded": Source(AGAINST_TORCH, lambda *of: time_over_product(*of, "graph")),
    "share_hidden": Source(AGAINST_TORCH, share_hidden),
    "host_cost": Source(AGAINST_TORCH, host_cost),
    "contention": Source(CONTENTION, contention),
}


def read_chart(name, results):
    source = CHARTS[name]
    return source.make(name, last_run(results / source.file), source.file)


# Drawing. What is above needs no matplotlib.

def spread(wanted, gap, low, high):
    """Places for labels near the wanted ones, at least `gap` apart, in [low, high] as far as they fit."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [wanted[i] for i in order]
    for _ in range(200):
        moved = False
        for i in range(len(places) - 1):
            short = gap - (places[i + 1] - places[i])
            if short > 1e-9:
                places[i] -= short / 2
                places[i + 1] += short / 2
                moved = True
        places = [min(max(place, low), high) for place in places]
        if not moved:
            break
    found = [0.0] * len(wanted)
    for place, i in zip(places, order):
        found[i] = place
    return found


def nice_ticks(low, high):
    """Ticks of a logarithmic axis that people read: 1, 1.5, 2, 3, 5, 7 and so on; fewer where they are many."""
    for steps in ((1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        found = [step * 10 ** power for power in range(-3, 7) for step in steps]
        found = [tick for tick in found if low <= tick <= high]
        if len(found) <= 9:
            return found
    return found


def draw_panel(axes, panel, chart):
    """Lines with their names at their ends."""
    xs = sorted({x for one in panel.series for x, _ in one.points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(xs, [str(x) for x in xs])
    axes.minorticks_off()
    if panel.is_log:
        axes.set_yscale("log")
    for one in panel.series:
        _, colour, dashes = STYLES.get(one.name, (one.name, GREY, DOTTED))
        width = 2.6 if one.name in THICK else 1.5
        axes.plot(*zip(*one.points), color=colour, linestyle=dashes, linewidth=width, marker="o", markersize=2.2 + width,
                  markeredgecolor=PAPER, markeredgewidth=0.6, clip_on=bool(panel.limits), gid=f"{panel.title}: {one.name}",
                  zorder=3 if one.name.startswith("tandem") else 2.5)
    if panel.limits:
        axes.set_ylim(*panel.limits)
    if panel.level is not None:
        axes.axhline(panel.level, color=INK, linewidth=0.8, zorder=1)
        low, high = (axes.transData.transform((1, y))[1] for y in axes.get_ylim())
        above = axes.transData.transform((1, panel.level))[1] < (low + high) / 2
        axes.annotate(panel.level_name, (0, panel.level), xycoords=("axes fraction", "data"), textcoords="offset points",
                      xytext=(3, 2 if above else -3), va="bottom" if above else "top", fontsize=7.5, color=INK)
    low, high = axes.get_ylim()
    if panel.is_log:
        ticks = nice_ticks(low, high)
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    elif panel.percent:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title(panel.title, loc="left", fontsize=10, fontweight="bold", color=INK, pad=8)
    axes.set_xlabel(chart.x_label, fontsize=8.5, color=INK)
    axes.set_ylabel(panel.y_label, fontsize=8.5, color=INK)
    axes.grid(axis="y", color=PALE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8, colors=INK)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    draw_labels(axes, panel)


def darker(colour):
    """The colour as one of text, which needs more contrast than lines do."""
    return "#" + "".join(f"{int(colour[i:i + 2], 16) * 3 // 4:02x}" for i in (1, 3, 5))


def draw_labels(axes, panel):
    """The series' names right of their last points, apart from each other."""
    to_share = axes.transData + axes.transAxes.inverted()
    ends = [to_share.transform(one.points[-1]) for one in panel.series]
    height = axes.get_window_extent().height / axes.figure.dpi * 72  # points
    places = spread([min(max(y, 0.0), 1.0) for _, y in ends], 10.5 / height, 0.0, 1.0)
    for one, (x, y), place in zip(panel.series, ends, places):
        label, colour, _ = STYLES.get(one.name, (one.name, GREY, DOTTED))
        axes.annotate(label, (x, y), xycoords="axes fraction", xytext=(1.04, place), textcoords="axes fraction",
                      fontsize=8, color=darker(colour), va="center", annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "relpos": (0, 0.5), "shrinkA": 1,
                                  "shrinkB": 3})


def lines_below(chart, columns):
    return [line for text in chart.about for line in textwrap.wrap(text, columns, subsequent_indent="    ")]


def draw(chart, path):
    """Writes an SVG. The same chart gives the same bytes with one version of matplotlib and its fonts."""
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    style = {"svg.hashsalt": "tandem", "svg.fonttype": "none", "font.family": "sans-serif",
             "font.sans-serif": ["Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"]}
    num_rows = math.ceil(len(chart.panels) / 2)
    below = lines_below(chart, 150)
    top, bottom, panel_height = 0.75, 0.75 + 0.145 * len(below), 3.0
    height = top + bottom + num_rows * panel_height + (num_rows - 1) * 0.85
    with matplotlib.rc_context(style):
        figure, grid = pyplot.subplots(num_rows, 2, figsize=(11.2, height), squeeze=False, facecolor=PAPER)
        figure.subplots_adjust(left=0.06, right=0.845, top=1 - top / height, bottom=bottom / height, wspace=0.68,
                               hspace=0.85 / panel_height)
        for axes, panel in zip(grid.flat, chart.panels):
            draw_panel(axes, panel, chart)
        for axes in grid.flat[len(chart.panels):]:
            axes.set_visible(False)
        figure.text(0.012, 1 - 0.2 / height, chart.title, fontsize=12, fontweight="bold", color=INK, va="top")
        for i, line in enumerate(below):
            figure.text(0.012, (0.1 + 0.145 * (len(below) - 1 - i)) / height, line, fontsize=7, color="#59636e")
        metadata = {"Date": None, "Creator": "tools/plot_results.py", "Title": chart.title,
                    "Description": "\n".join(chart.about), "Keywords": [f"sha256:{chart.digest()}"]}
        figure.savefig(path, format="svg", metadata=metadata)
        pyplot.close(figure)


def digest_in(path):
    """The digest in a chart's metadata, or None."""
    found = re.search(r"sha256:([0-9a-f]{64})", path.read_text(encoding="utf-8")) if path.is_file() else None
    return found and found.group(1)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("charts", nargs="*", metavar="CHART", help=f"{', '.join(CHARTS)}; the default is all")
    parser.add_argument("--check", action="store_true", help="only whether the charts there show the committed rows")
    parser.add_argument("--results", type=Path, default=ROOT / "bench/results")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/charts")
    args = parser.parse_args(arguments)
    unknown = [name for name in args.charts if name not in CHARTS]
    if unknown:
        parser.error(f"no chart {', '.join(unknown)}; there are {', '.join(CHARTS)}")
    stale = []
    for name in args.charts or CHARTS:
        try:
            chart, path = read_chart(name, args.results), args.out / f"{name}.svg"
        except (OSError, ValueError) as error:
            parser.error(f"{name}: {error}")
        if args.check:
            stale += [] if digest_in(path) == chart.digest() else [name]
            continue
        args.out.mkdir(parents=True, exist_ok=True)
        draw(chart, path)
        print(path)
        for note in chart.about[:-3]:
            print(f"    {note}")
    for name in stale:
        print(f"{args.out / name}.svg does not show the last run in {CHARTS[name].file}: run tools/plot_results.py")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
