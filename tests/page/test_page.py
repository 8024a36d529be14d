"""The page of `tandem trace` in headless Chromium; and that its checks can fail, on mutants of the page."""

import functools

import checks
import pytest


@pytest.mark.parametrize("check", checks.ALL, ids=lambda check: check.__name__)
def test_page(check, open_page):
    check(open_page)


# (check that has to refuse it, what the page has, what the mutant has instead)
MUTANTS = [
    (checks.loads_nothing, "<main>", "<main><img src='http://127.0.0.1:9/x.png'>"),
    (checks.loads_nothing, '"use strict";', '"use strict"; setTimeout(() => { throw new Error("late"); }, 1);'),
    (checks.is_self_contained, "default-src 'none'", "default-src *"),
    (
        checks.shows_the_numbers,
        'const hidden = sumOf(ranks, "hidden_us");',
        'const hidden = sumOf(ranks, "product_us");',
    ),
    (checks.shows_the_numbers, "row.rank === slowest &&", "row.rank !== slowest &&"),
    (checks.names_the_planted_loss, "onclick: () => { showLoss(0);", "onclick: () => { showLoss(1);"),
    (checks.sums_up_ops, "of: (row) => formatTime(row.median_us)", "of: (row) => formatTime(row.mean_us)"),
    (checks.sums_up_ops, "model.total * ranks.length;", "model.total;"),
    (checks.sums_up_ops, "], model.ops);", "], model.ops.slice(1));"),
    (checks.sums_up_ops, "...columnsOfSums(all_us),", "...columnsOfSums(all_us).reverse(),"),
    (
        checks.names_the_planted_loss,
        "const around = Math.max((end - begin) / 2, SHORTEST);",
        "const around = (end - begin) / 3;",
    ),
    (checks.zooms_by_keys, "() => zoom(1 / 1.5)]", "() => zoom(1 / 1.6)]"),
    (checks.moves_by_keys, "const first = clamp(from, 0, model.total - span);", "const first = from;"),
    (checks.zooms_by_wheel, "zoom(1.25 ** (dy / WHEEL_NOTCH), timeOf(x))", "zoom(1.25 ** (dy / WHEEL_NOTCH))"),
    (checks.moves_by_keys, "() => pan(0.25)]", "() => pan(0.2)]"),
    (
        checks.zooms_by_dragging,
        'if (kind === "select") setView(range.begin, range.end, true);',
        'if (kind === "select") setView(range.begin, range.begin + range.end, true);',
    ),
    (checks.same_event_by_mouse_and_keys, "isWalking ? selected : -1)", "isWalking ? Math.max(selected - 1, 0) : -1)"),
    (
        checks.same_event_by_mouse_and_keys,
        "(i) => this.reach[i] >= time)",
        "(i) => this.reach[i] > time + 300)",
    ),
    (
        checks.reaches_both_ends,
        "i < lane.last; i += step) if (isShown(i)) return",
        "i < lane.last - 1; i += step) if (isShown(i)) return",
    ),
    (
        checks.reaches_both_ends,
        "i >= lane.first && i < lane.last; i += step",
        "i > lane.first && i < lane.last; i += step",
    ),
    (
        checks.draws_every_event,
        "i < lane.last && model.begin[i] <= range.end; ++i",
        "i < lane.last - 1 && model.begin[i] <= range.end; ++i",
    ),
    (checks.draws_every_event, "if (own !== column) flush();", "if (own !== column) shares.fill(merged = 0);"),
    (checks.counts_the_visible_range, "Math.min(model.end[i], view.end) - Math.max", "model.end[i] - Math.max"),
    (
        checks.paints_categories,
        'colors.category = [...CATEGORIES, "call"]',
        "colors.category = [...CATEGORIES].reverse()",
    ),
    (
        checks.paints_categories,
        "Math.max(x0, -2), Math.min(x1, num + 2)",
        "Math.max(x0 + 30, -2), Math.min(x1 + 30, num + 2)",
    ),
    (checks.shows_what_is_hidden, "spans[WAIT].get(stream) || []", "[...spans[WAIT].values()].flat()"),
    (checks.shows_what_is_hidden, "spans[WAIT].get(stream) || []", "[]"),
    (checks.marks_meetings, "args.call === call && args.meeting", "args.meeting"),
    (checks.shows_what_is_hidden, "percent(1 - open / took)", "percent(open / took)"),
    (
        checks.takes_events_in_any_order,
        "lane.events.sort((a, b) => beginOf(a) - beginOf(b) || endOf(a) - endOf(b));",
        "",
    ),
    (checks.takes_events_in_any_order, "a.order - b.order ||", "b.order - a.order ||"),
    (checks.tells_of_overlaps, "lane.overlaps += 1;", ""),
    (checks.finds_events, "? ` ${word} ` : word", "? ` ${word}` : word"),
    (checks.measures, "<= 6);", "<= 1);"),
    (checks.folds_ranks, "rank.collapsed = !rank.collapsed;", "rank.collapsed = true;"),
    (checks.helps, '[["t"], "colours', '[["+"], "colours'),
    (checks.serves_screen_readers, '$("lanes").setAttribute("aria-label"', '$("lanes").setAttribute("data-label"'),
    (
        checks.serves_screen_readers,
        "The largest loss is ${formatTime(loss.us)}, ${nameOfLoss(loss)}",
        "The largest loss is ${formatTime(loss.us)}",
    ),
    (checks.keeps_colors_apart, "--sum: light-dark(#048658,", "--sum: light-dark(#be5014,"),
    (
        checks.takes_hostile_texts,
        "element.append(...children.filter((child) => child !== null));",
        "for (const child of children) child instanceof Node ? element.append(child) : child !== null && (element.innerHTML += child);",
    ),
    (checks.shows_times, '["ns", 1e-3] : size < 999.95 ?', '["ns", 1e-2] : size < 999.95 ?'),
    (checks.takes_any_trace, "if (!model.lanes.length) return;\n  if (selected < 0)", "if (selected < 0)"),
    (checks.says_when_empty, "return { why: error.message };", "return { why: null };"),
]


@pytest.mark.parametrize(
    ("check", "right", "wrong"), MUTANTS, ids=[f"{check.__name__}-{i}" for i, (check, _, _) in enumerate(MUTANTS)]
)
def test_mutant(check, right, wrong, open_page):
    def change(text):
        assert text.count(right) >= 1, f"the page has no {right!r}"
        return text.replace(right, wrong, 1)

    with pytest.raises(AssertionError):
        check(functools.partial(open_changed, open_page, change))


def open_changed(open_page, mutate, trace, change=lambda text: text, **more):
    return open_page(trace, change=lambda text: change(mutate(text)), **more)


def test_every_check_has_a_mutant():
    assert {check for check, _, _ in MUTANTS} == set(checks.ALL)
