"""What must hold for the page: each check opens pages and fails by an AssertionError. tests/page/test_page.py runs them on the
page, and on mutants of it that they have to refuse."""

import itertools
import json
import random
import re

import traces
from browser import MARKER, ROOT, SHIFT

UNITS_US = {"ns": 1e-3, "µs": 1, "ms": 1e3, "s": 1e6}


def near(some, others, within=1e-6):
    """Whether two ranges, or numbers, are the same but for rounding."""
    pairs = list(zip(some, others)) if isinstance(some, (list, tuple)) else [(some, others)]
    return all(abs(a - b) <= within * max(1, abs(a), abs(b)) for a, b in pairs)


def time_in(text):
    """The first time of a text, us."""
    found = re.search(r"([\d.]+) (ns|µs|ms|s)\b", text or "")
    assert found, f"no time in {text!r}"
    return float(found[1]) * UNITS_US[found[2]]


def clean(page):
    """No message in the console, and nothing asked of the network."""
    assert page.console() == [], page.console()
    assert page.requests() == []


def origin_of(trace):
    return min(event["ts"] for event in trace["traceEvents"] if event["ph"] == "X")


def spans_of(trace):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def loads_nothing(open_page):
    page = open_page(traces.pipelined_gathers(2).trace())
    page.key("n", "Enter", "+", "l", "?", "Escape")
    page.settle()
    clean(page)


def rows_of(page, table):
    """The texts of a table's cells, row by row."""
    return page.js(
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))",
        table,
    )


def shows_sums(cells, told):
    """Whether cells show the sums of time of a rank, or of an op."""
    times = [*cells[:4], cells[5]]
    for cell, key in zip(times, ["busy_us", "product_us", "communication_us", "hidden_us", "waiting_us"], strict=True):
        assert cell == "0" if told[key] == 0 else near(time_in(cell), told[key], 1e-3), (key, cell, told[key])
    share = told["hidden_share"]
    assert cells[4] == ("–" if share is None else f"{100 * share:.0f} %"), (cells, share)


def shows_the_numbers(open_page):
    trace = traces.pipelined_gathers(4, stall=(2, 3, 700)).trace()
    facts = trace["tandem"]
    page = open_page(trace)
    waiting = sum(rank["waiting_us"] for rank in facts["ranks"])
    hidden = sum(rank["hidden_us"] for rank in facts["ranks"]) / sum(
        rank["communication_us"] for rank in facts["ranks"]
    )
    assert near(float(page.data("#tile-waiting", "us")), waiting)
    assert near(time_in(page.text("#tile-waiting .value")), waiting, 1e-3)
    assert near(float(page.data("#tile-hidden", "share")), hidden)
    assert page.text("#tile-hidden .value") == f"{100 * hidden:.0f} %"
    assert page.text("#tile-slowest .value") == f"rank {facts['slowest_rank']}"
    rows = rows_of(page, "#ranks-table")
    assert len(rows) == 4
    for row, rank in zip(rows, facts["ranks"]):
        assert row[0].replace("slowest", "") == f"rank {rank['rank']}"
        assert ("slowest" in row[0]) == (rank["rank"] == facts["slowest_rank"])
        shows_sums(row[1:], rank)
    assert len(page.texts("#losses-table tbody tr")) == len(facts["losses"])
    assert len(page.texts("#calls-table tbody tr")) == len(facts["calls"])
    assert "4 ranks" in page.text("#facts") and facts["command"] == page.text("#command")


def sums_up_ops(open_page):
    trace = traces.two_algorithms().trace()
    facts = trace["tandem"]
    page = open_page(trace)
    rows = rows_of(page, "#ops-table")
    expected = [("pipelined", "3"), ("serial", "1"), ("native", "1")]
    assert [(row[1], row[2]) for row in rows] == expected, rows
    for row, op in zip(rows, facts["ops"], strict=True):
        assert row[0] == op["op"]
        assert near(time_in(row[3]), op["median_us"], 1e-3) and near(time_in(row[4]), op["mean_us"], 1e-3), (row, op)
        shows_sums(row[5:], op)
    assert rows[0][3] == "160.0 µs" and rows[0][9] == "59 %" and rows[2][9] == "–", rows
    shares = page.js(
        "return [...document.querySelectorAll('#ops-table td.bar')].map(cell => +cell.style.getPropertyValue('--share'))"
    )
    times = ["median_us", "busy_us", "product_us", "communication_us", "hidden_us", "waiting_us"]
    longest = max(op["median_us"] for op in facts["ops"])
    wholes = [longest, *[2 * page.total] * 5]
    assert near(shares, [op[key] / whole for op in facts["ops"] for key, whole in zip(times, wholes)]), shares
    for heads in ("thead th[scope=col]", "tbody th[scope=row]"):  # readers of the screen say them with each cell
        assert len(page.texts(f"#ops-table {heads}")) == (11 if heads.startswith("thead") else 3)
    page = open_page(traces.Recording(1).trace())  # no ops, no table
    assert page.js("return document.getElementById('ops-table').hidden")
    clean(page)


def names_the_planted_loss(open_page):
    trace = traces.pipelined_gathers(4, 12, stall=(2, 8, 5000)).trace()
    page = open_page(trace)
    loss = trace["tandem"]["losses"][0]
    assert loss["waited_for"] == 2 and loss["call"] == 8
    tile = page.text("#tile-loss")
    assert f"barrier 1 on rank {loss['rank']}" in tile and "waited for rank 2" in tile and loss["because"] in tile
    assert near(time_in(tile), loss["us"], 1e-3)
    first = page.texts("#losses-table tbody tr:first-child > *")
    assert first[:3] == ["barrier 1", str(loss["rank"]), "#8"] and first[4] == "rank 2" and first[5] == loss["because"]
    begin = loss["ts"] - origin_of(trace)
    expected = [begin - loss["dur"] / 2, begin + 1.5 * loss["dur"]]
    for go in (
        lambda: page.click_on("#tile-loss"),
        lambda: page.key("0", "L", "l"),
        lambda: page.click_on("#losses-table tbody tr:first-child button"),
    ):
        page.key("Escape", "0")
        go()
        assert near(page.view, expected), (page.view, expected)
        assert (page.selected["ts"], page.selected["pid"], page.selected["cat"]) == (loss["ts"], loss["rank"], "wait")
        assert "barrier 1" in page.text("#detail")


def zooms_by_keys(open_page):
    page = open_page(traces.pipelined_gathers(2).trace())
    total = page.total
    assert near(page.view, [0, total])
    page.key("-")
    assert near(page.view, [0, total])  # there is no more
    page.key("+")
    assert near(page.view, [total / 6, total * 5 / 6])
    page.key("=")
    assert near(page.view, [total / 2 - total / 4.5, total / 2 + total / 4.5])
    page.key("-", "-")
    assert near(page.view, [0, total])
    plot = page.plot
    page.move(plot["left"] + plot["width"] / 4, plot["top"] + 60)
    page.key("w")
    assert near(page.view, [total / 4 - total / 6, total / 4 + total / 2])
    page.key("s")
    assert near(page.view, [0, total])
    for _ in range(60):
        page.key("+")
    begin, end = page.view
    assert near(end - begin, 0.001, 1e-4)  # a nanosecond
    page.key("0")
    assert near(page.view, [0, total])
    clean(page)


def moves_by_keys(open_page):
    page = open_page(traces.pipelined_gathers(2).trace())
    page.key("+", "+", "+")
    begin, end = page.view
    quarter = (end - begin) / 4
    for key, sign in (("d", 1), ("a", -1), ("ArrowRight", 1), ("ArrowLeft", -1)):
        before = page.view
        page.key(key)
        assert near(page.view, [before[0] + sign * quarter, before[1] + sign * quarter]), key
    for _ in range(20):
        page.key("d")
    assert near(page.view, [page.total - 4 * quarter, page.total])  # the end stays within the trace


def zooms_by_wheel(open_page):
    page = open_page(traces.pipelined_gathers(2).trace())
    plot = page.plot
    x, y = round(plot["left"] + plot["width"] * 0.3), round(plot["top"] + 80)
    for notches in (-1, -2, 1, -5):
        begin, end = page.view
        time = page.time_of(x)
        page.wheel(x, y, notches)
        after = page.view
        assert near(after[1] - after[0], (end - begin) * 1.25**notches), notches
        assert near(page.time_of(x), time), notches
    begin, end = page.view
    page.wheel(x, y, 1, modifiers=SHIFT)
    by = 100 / plot["width"] * (end - begin)
    assert near(page.view, [begin + by, end + by])
    page.wheel(plot["left"] - 20, y, -1)  # over the names
    assert near(page.view, [begin + by, end + by])


def zooms_by_dragging(open_page):
    page = open_page(traces.pipelined_gathers(2).trace())
    plot = page.plot
    x0, x1, y = plot["left"] + 200, plot["left"] + 500, plot["top"] + 80
    for ends in ((x0, x1), (x1, x0)):
        page.key("0")
        expected = [page.time_of(x0), page.time_of(x1)]
        page.drag(*ends, y)
        assert near(page.view, expected)
    begin, end = page.view
    page.drag(x0, x1, y, modifiers=SHIFT)
    by = (x0 - x1) / plot["width"] * (end - begin)
    assert near(page.view, [begin + by, end + by])
    page.press(x0, y, clicks=2)
    assert near(page.view, [0, page.total])
    # The strip of the whole trace: a click beside the range centres it there.
    page.drag(x0, x1, y)
    begin, end = page.view
    box = page.js("const box = document.getElementById('overview').getBoundingClientRect(); return [box.left, box.top]")
    page.press(plot["left"] + plot["width"] * 0.75, box[1] + 20)
    middle = page.total * 0.75
    assert near(page.view, [middle - (end - begin) / 2, middle + (end - begin) / 2], 1e-3)


def same_event_by_mouse_and_keys(open_page):
    recording = traces.pipelined_gathers(2, 3)
    trace = recording.trace()
    page = open_page(trace)
    origin = origin_of(trace)
    lanes = [("product", 0), ("from rank 1", 0), ("waits", 1), ("from rank 0", 1)]
    for lane, rank in lanes:
        spans = recording.events_of(rank, lane)
        for k, (_, _, name, begin, duration, args) in enumerate(spans[:4]):
            page.key("Escape", "0")
            place = page.lane(rank, lane)
            middle = page.x_of(begin - origin + duration / 2)
            page.move(page.plot["left"] - 60, place["y"] + 5)  # over no event
            assert page.tip() is None
            page.move(middle, place["y"] + place["height"] / 2)
            by_mouse = page.tip()
            assert by_mouse and name in by_mouse and f"rank {rank}, {lane}" in by_mouse, (by_mouse, name)
            assert near(time_in(by_mouse), duration, 1e-3)
            for key, value in args.items():
                shown = {"call": f"#{value}", "peer": f"rank {value}"}.get(key, str(value))
                assert key == "bytes" or shown in by_mouse, (key, by_mouse)
            page.press(middle, place["y"] + place["height"] / 2)  # now keys walk in this lane
            page.key("Home", *["n"] * k)
            assert page.selected["ts"] == begin, (k, page.selected)
            assert page.tip() == by_mouse
            assert name in page.text("#live") and (args["step"] in page.text("#live"))
            page.key("Enter")
            first = min(max(begin - origin - duration / 2, 0), page.total - 2 * duration)
            assert near(page.view, [first, first + 2 * duration], 1e-6), (page.view, begin, duration)
    clean(page)


def marks_meetings(open_page):
    recording = traces.Recording(3)
    for rank in range(3):
        for meeting in range(2):
            begin = 100.0 * meeting + 10 * rank
            step = f"cur: barrier {meeting}"
            recording.wait(rank, begin, 50.0, step, waited_for=2, call=4, meeting=meeting)
        recording.wait(rank, 300.0 + 10 * rank, 50.0, "cur: barrier 0", waited_for=2, call=5, meeting=1)
    page = open_page(recording.trace())
    page.key("n", "n")
    partners = "return partners.map(i => [model.raw(i).pid, model.raw(i).ts])"
    assert page.selected["ts"] == 100.0 and page.js(partners) == [[1, 110.0], [2, 120.0]]
    place = page.lane(2, "waits")
    page.move(page.plot["left"] - 60, place["y"])  # what stood beside the bar goes
    picture = page.screenshot()
    edge = [picture.getpixel((int(page.x_of(145)), int(place["y"]) + row)) for row in (-2, -1, 0)]
    assert any(is_like(color, page.color("accent")) for color in edge), edge
    page.key("Escape")
    assert page.js(partners) == []


def reaches_both_ends(open_page):
    recording = traces.pipelined_gathers(2, 3)
    trace = recording.trace()
    page = open_page(trace)
    origin = origin_of(trace)
    for lane in recording.lanes_of(0):
        spans = recording.events_of(0, lane)
        place = page.lane(0, lane)
        assert place["events"] == len(spans)
        page.key("Escape", "0")
        middle = page.x_of(spans[0][3] - origin + spans[0][4] / 2)
        page.press(middle, place["y"] + place["height"] / 2)
        for keys, span in (
            (["Home"], spans[0]),
            (["p"], spans[0]),
            (["End"], spans[-1]),
            (["n"], spans[-1]),
            (["]"], spans[-1]),
        ):
            page.key(*keys)
            assert page.selected["ts"] == span[3], (lane, keys)
        page.key("Home")
        for _, _, _, begin, _, _ in spans[1:]:
            page.key("n")
            assert page.selected["ts"] == begin
        for _, _, _, begin, _, _ in reversed(spans[:-1]):
            page.key("p")
            assert page.selected["ts"] == begin
        for span in (spans[0], spans[-1]):
            page.key("Escape", "0")
            page.move(page.x_of(span[3] - origin + span[4] / 2), place["y"] + place["height"] / 2)
            assert page.js("return tandem.hovered")["ts"] == span[3]
    # Up and down reach every lane of both ranks, and the row of calls.
    page.key("Escape", "0", "n")
    seen = set()
    for key in ["ArrowUp"] * 30 + ["ArrowDown"] * 30:
        page.key(key)
        seen.add((page.selected.get("pid", "calls"), page.selected.get("tid")))
    assert len(seen) == 1 + sum(len(recording.lanes_of(rank)) for rank in range(2))


def draws_every_event(open_page):
    recording = traces.many(100_000)
    trace = recording.trace()
    page = open_page(trace)
    num = len(recording.spans)
    stats = page.stats
    assert stats["events"] == num >= 100_000
    assert stats["drawn"] + stats["merged"] + stats["hidden"] == num, stats
    print(
        f"{num} events: ready {page.js('return performance.getEntriesByName(arguments[0])[0].startTime', 'tandem-ready'):.0f} ms "
        "after the page was asked for"
    )
    assert page.js("return document.querySelectorAll('*').length") < 3000  # no element an event
    page.js("model.ranks.forEach(collapse)")  # all lanes are on the screen
    page.settle()
    stats = page.stats
    assert stats["hidden"] == 0 and stats["drawn"] + stats["merged"] == num, stats
    # In a part of the trace: those that are in it, no others.
    page.js("setView(0.4 * model.total, 0.6 * model.total)")
    page.settle()
    begin, end = page.view
    origin = origin_of(trace)
    expected = sum(begin <= span[3] + span[4] - origin and span[3] - origin <= end for span in recording.spans)
    stats = page.stats
    assert stats["drawn"] + stats["merged"] == expected, (stats, expected)
    clean(page)


def counts_the_visible_range(open_page):
    recording = traces.pipelined_gathers(2, 3)
    trace = recording.trace()
    page = open_page(trace)
    origin = origin_of(trace)
    page.key("+", "+", "d")
    begin, end = (at + origin for at in page.view)
    for category in ("product", "copy", "wait", "other"):
        times = [
            min(event["ts"] + event["dur"], end) - max(event["ts"], begin)
            for event in spans_of(trace)
            if event["cat"] == category
        ]
        expected = sum(time for time in times if time > 0)
        assert near(time_in(page.text(f"#time-{category}")), expected, 1e-3), category
    page.key("0")
    before = page.stats
    page.click_on("#legend-copy")
    num_copies = sum(event["cat"] == "copy" for event in spans_of(trace))
    after = page.stats
    assert before["drawn"] + before["merged"] - after["drawn"] - after["merged"] == num_copies
    page.click_on("#legend-copy")
    assert page.stats == before


def paints_categories(open_page):
    recording = traces.with_all_categories()
    trace = recording.trace()
    for scheme, scale in (("light", 1), ("dark", 1), ("light", 2)):
        page = open_page(trace, scheme=scheme, scale=scale)
        page.move(2, 2)
        picture = page.screenshot()
        for _, lane, _, begin, duration, _ in recording.spans:
            category = traces.CATEGORY_OF_LANE.get(lane, "copy")
            page_color = page.color(category)
            place = page.lane(0, lane)
            y = place["y"] + 1  # above the label
            first, last = (int(page.x_of(begin + share * duration) * scale) for share in (0.04, 0.96))
            found = [picture.getpixel((x, int(y * scale))) for x in range(first, last)]
            share_right = sum(is_like(color, page_color) for color in found) / len(found)
            assert share_right >= (0.4 if category == "wait" else 1), (
                scheme,
                category,
                share_right,
            )  # waits are hatched
            for share in (-0.2, 1.2):  # beside the bar there is the empty lane
                x = page.x_of(begin + share * duration)
                if page.plot["left"] < x < page.plot["left"] + page.plot["width"]:
                    beside = picture.getpixel((int(x * scale), int((place["y"] + 3) * scale)))
                    assert is_like(beside, page.color("lane")) or is_like(beside, page.color("line")), (
                        scheme,
                        lane,
                        beside,
                    )


def shows_what_is_hidden(open_page):
    """A copy has an edge in the colour of waits where no product ran beside it; a product that waits does not run."""
    recording = traces.Recording(1)
    recording.add(0, "product", "first", 0.0, 100.0, stream="cur")
    recording.add(0, "product", "second", 150.0, 50.0, stream="bk")
    recording.add(0, "from rank 1", "copy", 50.0, 120.0, peer=1)
    recording.wait(0, 60.0, 20.0, "cur: chunk 1", waited_for=1, stream="cur", within_product=True)
    recording.wait(0, 90.0, 5.0, "bk: await 1", waited_for=1, stream="bk")  # beside the product, which runs
    recording.wait(0, 110.0, 20.0, "cur: barrier 1", waited_for=0, because="it came late", stream="cur")
    trace = recording.trace()
    assert near(trace["tandem"]["ranks"][0]["hidden_us"], 50)
    page = open_page(trace)
    place = page.lane(0, "from rank 1")
    page.move(page.x_of(100), place["y"] + 5)
    assert "42 % beside products" in page.tip()
    assert page.text("#tile-hidden .value") == "42 %"
    page.move(2, 2)
    picture = page.screenshot()
    for time, is_open in (
        (52, False),
        (58, False),
        (62, True),
        (78, True),
        (82, False),
        (92, False),
        (98, False),
        (102, True),
        (148, True),
        (152, False),
    ):
        color = picture.getpixel((int(page.x_of(time)), int(place["y"] + place["height"] - 2)))
        assert is_like(color, page.color("wait" if is_open else "copy")), (time, color)
    page.press(page.x_of(120), page.lane(0, "waits")["y"] + 5)
    assert "waited for rank 0: it came late" in page.text("#detail")


def is_like(some, other):
    return all(abs(a - b) <= 3 for a, b in zip(some, other))


def takes_events_in_any_order(open_page):
    recording = traces.pipelined_gathers(2, 3)
    trace = recording.trace()
    shuffled = {**trace, "traceEvents": random.Random(7).sample(trace["traceEvents"], len(trace["traceEvents"]))}
    pages = []
    for one in (trace, shuffled):
        page = open_page(one)
        page.move(2, 2)
        assert page.texts(".warning") == []
        plot = page.plot
        box = (plot["left"] + 2, plot["top"] + 2, plot["left"] + plot["width"] - 2, plot["top"] + plot["height"] - 2)
        pages.append((page.js("return tandem.lanes()"), page.stats, page.screenshot().crop(box).tobytes()))
    assert pages[0] == pages[1]
    # Lanes lie in the order that the trace gives them, below their ranks.
    page_lanes = [(lane["rank"], lane["name"]) for lane in pages[1][0]]
    assert page_lanes == [(rank, lane) for rank in range(2) for lane in recording.lanes_of(rank)]


def tells_of_overlaps(open_page):
    recording = traces.with_all_categories()
    recording.add(0, "product", "too early", 50.0, 100.0)
    page = open_page(recording.trace())
    told = page.texts(".warning")
    assert len(told) == 1 and "“product” of rank 0 overlaps itself 1 time" in told[0], told


def finds_events(open_page):
    recording = traces.pipelined_gathers(2, 12)
    trace = recording.trace()
    page = open_page(trace)
    page.key("/")
    field = page.driver.switch_to.active_element
    assert field.get_attribute("id") == "search"
    searches = {
        "cat:wait": lambda event: event["cat"] == "wait",
        "call:1": lambda event: event["args"]["call"] == 1,  # not 10, 11 or 12
        "rank:1 peer:0": lambda event: event["pid"] == 1 and event["args"].get("peer") == 0,
        "PUBLISHED": lambda event: "published" in event["args"]["step"],
        "no such event": lambda event: False,
    }
    for words, accepts in searches.items():
        field.clear()
        field.send_keys(words)
        page.settle()
        accepted = sorted((event for event in spans_of(trace) if accepts(event)), key=lambda event: event["ts"])
        assert page.text("#found") == f"{len(accepted)} of {len(spans_of(trace))}", words
    field.clear()
    field.send_keys("rank:1 peer:0")
    accepted = sorted(event["ts"] for event in spans_of(trace) if searches["rank:1 peer:0"](event))
    for expected in [*accepted, accepted[0]]:
        page.key("Enter")
        assert page.selected["ts"] == expected
    page.key("Escape")
    assert page.text("#found") == "" and page.js("return document.activeElement.id") == "lanes"


def measures(open_page):
    recording = traces.with_all_categories()
    page = open_page(recording.trace())
    place = page.lane(0, "sums")  # an event from 200 to 300 us
    y = place["y"] + place["height"] / 2
    page.key("m")
    assert page.js("return document.getElementById('button-measure').getAttribute('aria-pressed')") == "true"
    page.press(page.x_of(200) + 3, y)
    page.press(page.x_of(300) - 4, y)
    assert page.text("#measured") == "measured 100.0 µs"
    assert near(page.view, [0, 600])  # a measurement moves nothing
    page.key("m")
    x0, x1 = page.x_of(230), page.x_of(272)
    expected = page.time_of(x1) - page.time_of(x0)
    page.press(x1, y)
    page.press(x0, y)
    assert near(time_in(page.text("#measured")), expected, 1e-2)
    page.key("Escape")
    assert page.text("#measured") == ""
    # By keys: from the begin of one event to the end of another.
    page.key("n", "Home", ",", "ArrowDown", "ArrowDown", ".")
    assert page.text("#measured") == "measured 300.0 µs"


def folds_ranks(open_page):
    recording = traces.pipelined_gathers(2, 2)
    page = open_page(recording.trace())
    tall = page.lane(0, "product")["height"]
    page.press(page.plot["left"] - 60, page.lane(0, "product")["y"] - 10)
    assert page.lane(0, "product")["height"] < tall / 3 and page.lane(1, "product")["height"] == tall
    stats = page.stats
    assert stats["drawn"] + stats["merged"] == len(recording.spans)
    page.key("c")
    assert page.lane(0, "product")["height"] == tall


def helps(open_page):
    page = open_page(traces.pipelined_gathers(2).trace())
    page.key("?")
    assert page.js("return document.getElementById('help').open")
    keys = page.js("return KEYS.flatMap(([keys]) => keys.map((key) => SHORT_NAMES[key] ?? key))")
    assert len(set(keys)) == len(keys) >= 25
    shown = page.texts("#help-rows kbd")
    guide = (ROOT / "docs/guide/timeline.md").read_text(encoding="utf-8")
    assert [key for key in keys if key not in shown or f"`{key}`" not in guide] == []
    before = page.view
    page.key("+")
    assert page.view == before  # the help has the keys
    page.js("document.getElementById('help').close()")
    page.key("t")
    assert page.js("return document.documentElement.style.colorScheme") == "light"
    page.key("t")
    assert page.js("return document.documentElement.style.colorScheme") == "dark"


def serves_screen_readers(open_page):
    trace = traces.pipelined_gathers(4, stall=(2, 3, 5000)).trace()
    page = open_page(trace)
    loss = trace["tandem"]["losses"][0]
    account = page.text("#account")
    for part in (
        "4 ranks ran 6 calls",
        "lost to waiting",
        "of the communication was hidden",
        f"Rank {trace['tandem']['slowest_rank']} was the slowest",
        f"barrier 1 on rank {loss['rank']}",
        loss["because"],
    ):
        assert part in account, (part, account)
    nodes = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
    ]
    nameless = [
        role for role, name in named if role in ("button", "application", "searchbox", "table", "textbox") and not name
    ]
    assert nameless == []
    assert ("application", "Timeline of 4 ranks") in named
    page.driver.execute_cdp_cmd(
        "Input.dispatchKeyEvent", {"type": "keyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
    )
    page.js("document.getElementById('lanes').focus()")
    style = page.js(
        "const style = getComputedStyle(document.getElementById('lanes')); return [style.outlineStyle, style.outlineWidth]"
    )
    assert style == ["solid", "2px"], style


def keeps_colors_apart(open_page):
    """For eyes without one kind of cone too: fills at least 20 apart in CIE 1976, and texts at least 4.5 : 1 on them."""
    categories = ["product", "copy", "sum", "wait", "check", "other"]
    for scheme in ("light", "dark"):
        page = open_page(traces.with_all_categories().trace(), scheme=scheme)
        fills = {name: page.color(name) for name in categories}
        for eyes, matrix in EYES.items():
            seen = {name: lab(through(matrix, color)) for name, color in fills.items()}
            for a, b in itertools.combinations(categories, 2):
                apart = sum((x - y) ** 2 for x, y in zip(seen[a], seen[b])) ** 0.5
                assert apart >= 20, f"{scheme}, {eyes}: {a} and {b} are {apart:.0f} apart"
        for name in categories:
            ratio = contrast(fills[name], page.color(f"on-{name}"))
            assert ratio >= 4.5, f"{scheme}: text on {name}: {ratio:.1f}"
        for name, back in itertools.product(("text", "muted", "accent"), ("panel", "page", "lane")):
            assert contrast(page.color(name), page.color(back)) >= 4.5, (scheme, name, back)


# What is left of linear RGB without the cones for long, middle or short waves (Machado, Oliveira, Fernandes 2009).
EYES = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(color):
    return [(one / 255 / 12.92) if one <= 10 else ((one / 255 + 0.055) / 1.055) ** 2.4 for one in color]


def through(matrix, color):
    """Linear RGB as other eyes see it."""
    return [min(max(sum(a * b for a, b in zip(row, linear(color))), 0), 1) for row in matrix]


def lab(rgb):
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    white = [0.9505, 1.0, 1.089]
    x, y, z = (sum(a * b for a, b in zip(row, rgb)) / whole for row, whole in zip(to_xyz, white))
    x, y, z = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(some, other):
    some, other = (sum(a * b for a, b in zip((0.2126, 0.7152, 0.0722), linear(color))) for color in (some, other))
    return (max(some, other) + 0.05) / (min(some, other) + 0.05)


def takes_hostile_texts(open_page):
    """Names are shown as they are: none becomes markup or ends the script."""
    text = "</script><img src=x onerror='document.title=1'><!--<script> \u2028 \"'\\ __proto__ 名前 " + "long " * 60
    recording = traces.Recording(2, command=text, machine=text)
    recording.add(0, "product", text, 10.0, 50.0, step=text, __proto__=1, nothing=None, many=[1, {"a": text}])
    recording.wait(1, 10.0, 50.0, text, waited_for=0, because=text, call=1)
    recording.call(1, text, text, 10.0, 60.0, text)
    page = open_page(recording.trace())
    assert page.js("return document.querySelectorAll('img').length") == 0
    assert page.text("#command") == text
    page.key("n")
    assert text in page.text("#detail")
    assert text.strip() in page.text("#losses-table")
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    clean(page)


def shows_times(open_page):
    page = open_page(traces.with_all_categories().trace())
    expected = {
        0: "0",
        0.0004: "0.4 ns",
        0.012: "12.0 ns",
        0.9994: "999.4 ns",
        1: "1.000 µs",
        12.345: "12.35 µs",
        999.9: "999.9 µs",
        1000: "1.000 ms",
        5012.3: "5.012 ms",
        123456: "123.5 ms",
        1.5e6: "1.500 s",
        59e6: "59.00 s",
        60e6: "1 min 00.0 s",
        3599.96e6: "1 h 00 min 00.0 s",
        3723.4e6: "1 h 02 min 03.4 s",
        -12.345: "−12.35 µs",
    }
    for us, text in expected.items():
        assert page.js("return formatTime(arguments[0])", us) == text, us
    ticks = page.js(
        "return [tickLabels([0, 500, 1000, 1500], 500), tickLabels([3.6e9, 3.6e9 + 0.002], 0.002), tickLabels([1.2, 1.4], 0.2)]"
    )
    assert ticks[0] == {"base": None, "texts": ["0.0 ms", "0.5 ms", "1.0 ms", "1.5 ms"]}
    assert ticks[1] == {"base": 3.6e9, "texts": ["+0 ns", "+2 ns"]}
    assert ticks[2] == {"base": None, "texts": ["1.2 µs", "1.4 µs"]}
    assert page.js("return [formatBytes(0), formatBytes(1023), formatBytes(1 << 20), formatBytes(15 * 2 ** 30)]") == [
        "0 B",
        "1023 B",
        "1.00 MiB",
        "15.0 GiB",
    ]


def takes_any_trace(open_page):
    """What is missing, empty, huge or tiny is shown, or said to be missing; nothing fails."""
    empty = traces.Recording(0).trace()
    page = open_page(empty)
    assert page.texts(".warning") == ["The trace holds no events."]
    page.key("n", "p", "Home", "End", "Enter", "+", "l", "c", "ArrowDown", "m", ",", "0")
    clean(page)

    page = open_page(
        {"traceEvents": [{"ph": "X", "name": "bare", "pid": 0, "tid": 0, "ts": 5, "dur": 3}]}
    )  # of another program
    assert page.text("#tile-waiting .value") == "–" and page.stats["events"] == 1
    page.key("n")
    assert "bare" in page.text("#detail")
    clean(page)

    # No args, no duration, no category, an unknown one; and events without a time, which are counted.
    events = [
        {"ph": "X", "name": "point", "pid": 0, "tid": 1, "ts": 7.0},
        {"ph": "X", "pid": 0, "tid": 1, "ts": 9.0, "dur": 0, "cat": "?"},
        {"ph": "X", "name": "no time", "pid": 0, "tid": 1},
        None,
        {"ph": "i", "name": "instant", "ts": 3},
    ]
    page = open_page(
        {
            "traceEvents": events,
            "tandem": {"version": 2, "dropped_events": 12, "ranks": [None], "ops": [{}, None], "losses": [{}], "calls": [{}]},
        }
    )
    told = "\n".join(page.texts(".warning"))
    assert "2 events without a time" in told and "12 events were dropped" in told and "version 2" in told
    assert page.stats["events"] == 2 and page.stats["drawn"] + page.stats["merged"] == 2
    page.key("n", "n", "Enter", "l")
    clean(page)

    # Hours with an event of two nanoseconds at the end, which stays reachable.
    hour = 3600e6
    recording = traces.Recording(1)
    recording.add(0, "product", "long", 1e9, 5 * hour)
    recording.add(0, "product", "short", 1e9 + 5 * hour, 0.002)
    recording.add(0, "product", "last", 1e9 + 5 * hour + 0.002, 0)
    page = open_page(recording.trace())
    assert near(page.total, 5 * hour)
    page.key("n", "End", "p", "Enter")
    assert page.selected["name"] == "short" and page.view[1] - page.view[0] < 0.01
    assert page.text("#measured") == "" and "5 h 00 min" in page.text("#shown")
    clean(page)

    # All at one time.
    recording = traces.Recording(1)
    recording.add(0, "product", "now", 3.0, 0)
    page = open_page(recording.trace())
    assert page.stats["drawn"] + page.stats["merged"] == 1 and page.total > 0
    clean(page)

    for world in (1, 8):
        recording = traces.pipelined_gathers(world, 3)
        page = open_page(recording.trace())
        assert len(page.texts("#ranks-table tbody tr")) == world
        assert len({lane["rank"] for lane in page.js("return tandem.lanes()")}) == world
        for key in ["n", *["ArrowDown"] * 100]:  # the lanes scroll with the selection
            page.key(key)
        assert page.selected["pid"] == world - 1
        place = page.lane(world - 1, recording.lanes_of(world - 1)[-1])
        assert page.plot["top"] < place["y"] < page.plot["top"] + page.plot["height"] - 5
        clean(page)


def says_when_empty(open_page):
    page = open_page(None)
    assert (
        page.state == "empty" and "holds no trace" in page.text("#message") and "tandem trace" in page.text("#message")
    )
    clean(page)
    page = open_page(None, change=lambda text: text.replace(MARKER, '{"traceEvents": [{]}'))
    assert page.state == "empty" and "cannot be read" in page.text("#message")
    clean(page)


def is_self_contained(open_page):
    page = open_page(traces.with_all_categories().trace())
    found = page.js("return [...document.querySelectorAll('[src], link[href], a[href]')].map(one => one.outerHTML)")
    assert found == ['<link rel="icon" href="data:,">'], found
    policy = page.js("return document.querySelector('meta[http-equiv]').content")
    assert "default-src 'none'" in policy and "connect-src" not in policy
    # What is cut out of JSON and put back is the same.
    assert (
        json.loads(page.js("return document.getElementById('trace').textContent"))
        == traces.with_all_categories().trace()
    )


ALL = [
    loads_nothing,
    shows_the_numbers,
    sums_up_ops,
    names_the_planted_loss,
    zooms_by_keys,
    moves_by_keys,
    zooms_by_wheel,
    zooms_by_dragging,
    same_event_by_mouse_and_keys,
    marks_meetings,
    reaches_both_ends,
    draws_every_event,
    counts_the_visible_range,
    paints_categories,
    shows_what_is_hidden,
    takes_events_in_any_order,
    tells_of_overlaps,
    finds_events,
    measures,
    folds_ranks,
    helps,
    serves_screen_readers,
    keeps_colors_apart,
    takes_hostile_texts,
    shows_times,
    takes_any_trace,
    says_when_empty,
    is_self_contained,
]
