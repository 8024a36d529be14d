"""What comes of a gather: every value behind it, and what was crossed on the way. Each value has a layout, so views,
permutes, slices and cats are judged by what they do to elements.
"""

import collections
import math

from captured_graph import (
    ALL_REDUCE, BLOCKS, CASTS, FACTORS, GATHERS, GETITEM, PERMUTE, SCATTERS, SPLITS, WAIT, is_opaque, nodes_in,
)

# ---- layouts: of each dim the digits (of which dim of what is gathered, step, count, first) that it runs over,
# outermost first. "ranks" is the number of the shard; "shards" runs over all shards, but for the end of the last one.


def merged(digits):
    """Digits without those of one value, and without cuts that are none."""
    kept = []
    for dim, step, count, first in digits:
        if count == 1 and first == 0:
            continue
        if kept and kept[-1][0] == dim and kept[-1][1] == step * count and first == 0:
            kept[-1] = (dim, step, kept[-1][2] * count, kept[-1][3] * count)
        else:
            kept.append((dim, step, count, first))
    return tuple(kept)


def size_of(digits):
    return math.prod(digit[2] for digit in digits)


def reshaped(layout, shape):
    """The layout after a reshape, or None where no digits make a dim."""
    rest = [digit for dim in layout for digit in dim]
    made = []
    for size in shape:
        dim = []
        while size > 1:
            if not rest:
                return None
            of, step, count, first = rest.pop(0)
            if count > size:
                if count % size or first:
                    return None
                inner = count // size
                rest.insert(0, (of, step, inner, 0))
                step, count = step * inner, size
            if size % count:
                return None
            dim.append((of, step, count, first))
            size //= count
        made.append(dim)
    if size_of(rest) != 1 or (rest and not made):
        return None
    if made:
        made[-1] += rest
    return tuple(merged(dim) for dim in made)


def sliced(digits, begin, length, world):
    """The run [begin, begin + length) of a dim, or None where it is no run of its outer digit."""
    if begin == 0 and length == size_of(digits):
        return digits
    if not digits:
        return None
    of, step, count, first = digits[0]
    inner = size_of(digits[1:])
    if of == "ranks" and count == world and begin == 0 and -(-length // world) == inner:
        return (("shards", 1, length, 0),)
    if begin % inner or length % inner:
        return None
    return merged([(of, step, length // inner, first + begin // inner), *digits[1:]])


# A part of a tensor along a dim, as a slice or an item of a split takes it; the rest of `length` may be zeros.
Run = collections.namedtuple("Run", "source dim begin length is_padded")


def run_of(node):
    """What part of which tensor a node is, or None."""
    while node.target == "aten.view.dtype":
        node = node.inputs[0]
    if node.target == "aten.constant_pad_nd.default":
        run = run_of(node.inputs[0])
        return run and run._replace(is_padded=True)
    above = node.inputs[0] if node.is_call and node.inputs else None
    source = above.inputs[0] if above and above.target in SPLITS else above
    if source is None or node.shape is None or len(node.shape) != len(source.shape or ()):
        return None
    if node.target == GETITEM and above is not source:
        dim = above.argument(2, 0) % len(node.shape)
        begin = sum(one["shape"][dim] for one in above.out[: node.argument(1)])
        return Run(source, dim, begin, node.shape[dim], False)
    if node.target == "aten.slice.Tensor" and node.argument(4, 1) == 1 and len(node.inputs) == 1:
        dim = node.argument(1, 0) % len(node.shape)
        begin, size = node.argument(2, 0), above.shape[dim]
        return Run(source, dim, min(begin + size if begin < 0 else begin, size), node.shape[dim], False)
    return None


def runs_of(graph, cat):
    """The parts that a cat joins, if all are of one tensor along one dim; else nothing."""
    parts = [graph.by_name[name] for name in nodes_in(cat.argument(0, []))]
    runs = [run_of(part) for part in parts if not is_nothing_padded(part)]
    if len(runs) < len(parts):
        runs = [run and run._replace(is_padded=True) for run in runs]
    if not runs or any(run is None or run[:2] != runs[0][:2] for run in runs):
        return []
    return runs


def is_nothing_padded(node):
    """Whether it is zeros: the block of a rank that has no rows."""
    return node.target == "aten.constant_pad_nd.default" and math.prod(node.inputs[0].shape) == 0


def is_padded_as_shards(node, world):
    """Whether zeros follow a tensor along one dim, as many as the shards of all ranks need."""
    if node.target != "aten.constant_pad_nd.default" or node.argument(2, 0) != 0:
        return False
    pads = node.argument(1)
    before = node.inputs[0].shape
    grown = [dim for dim, size in enumerate(node.shape) if size != before[dim]]
    if any(pads[::2]) or min(pads) < 0 or len(grown) != 1:
        return False
    return node.shape[grown[0]] == -(-before[grown[0]] // world) * world


def end_of(runs):
    """Where parts end that follow each other from the begin of a tensor on; None for others."""
    end = 0
    for run in runs:
        if run.begin != end:
            return None
        end += run.length
    return end


# A value that comes of a gather. `ops` says what was crossed on the way:
#   cast, factor        ops of casts; a multiplication by numbers that do not come of the gather
#   keeps, other        other ops that keep the shape, and that do not
#   column, whole       the maximum of each row, and of all
#   scales              something else is multiplied by it
#   shuffled            blocks in another order
#   blocks, columns     other blocks of rows; of columns, or joined with other tensors
#   reshape             a reshape that cuts the digits of a layout
Value = collections.namedtuple("Value", "layout ops is_permuted")


class GatherPaths:
    """All that comes of a gather, and how."""

    def __init__(self, graph, gather):
        self.graph, self.gather = graph, gather
        self.world = gather.argument(2 if gather.target.startswith("tandem.") else 1)
        self.start()
        self.values = {node: {Value(self.layout, frozenset(), False)} for node in self.sources}
        self.depends = set(self.sources)
        self.local = set(self.sources)
        self.ladders = set()  # slices and cats that only move shards along another dim
        for node in graph.nodes:
            if node in self.values or not node.is_call or not any(one in self.depends for one in node.inputs):
                continue
            self.depends.add(node)
            if not node.is_product and not is_wait_of(node, gather):
                found = self.beyond(node)
                if found:
                    self.values[node] = found
            if self.is_local(node):
                self.local.add(node)

    def start(self):
        """The nodes that hold what is gathered, and its layout."""
        shape, gather = self.gather.shape, self.gather
        dim = 0
        if gather.target.startswith("tandem."):
            dim = gather.argument(1) % len(shape)
            self.sources = [gather]
        else:
            self.sources = [user for user in gather.users if user.target == WAIT]
        self.has_form = bool(self.sources) and (self.sources == [gather] or len(self.sources) == len(gather.users))
        layout = [merged([(idx, 1, size, 0)]) for idx, size in enumerate(shape)]
        if shape and shape[dim] and self.world:
            layout[dim] = merged([("ranks", 1, self.world, 0), (dim, 1, shape[dim] // self.world, 0)])
        self.layout = tuple(layout)
        self.rank = len(shape)

    def beyond(self, node):
        """What a node makes of each of its inputs' values."""
        found = set()
        runs = runs_of(self.graph, node) if node.target == "aten.cat.default" else []
        if runs:
            for value in self.values.get(runs[0].source, ()):
                found.add(self.joined(node, runs, value))
            return found
        for above in node.inputs:
            for value in self.values.get(above, ()):
                found.add(self.step(node, above, value))
        return found

    def step(self, node, above, value):
        layout, ops = value.layout, value.ops
        if node.is_view:
            if layout is None or node.shape is None:
                return value._replace(layout=None)
            after = layout if node.target == "aten.view.dtype" else reshaped(layout, node.shape)
            return value._replace(layout=after, ops=ops | {"reshape"} if after is None else ops)
        if node.target == PERMUTE:
            if layout is None:
                return value
            return Value(tuple(layout[dim] for dim in node.argument(1)), ops, True)
        if node.target == "aten.cat.default" and not all(one in self.values for one in node.inputs):
            return value._replace(layout=None, ops=ops | {"columns"})
        if node.target in BLOCKS or node.target == GETITEM:
            return self.block(node, above, value)
        if node.target in ("aten.max.default", "aten.amax.default") and not is_row_maximum(node):
            return Value(None, ops | {"whole"}, value.is_permuted)
        if is_row_maximum(node):
            after = None if layout is None else (*layout[:-1], ())
            return Value(after, ops | {"column"}, value.is_permuted)
        is_kept = node.shape is not None and node.shape == above.shape
        if node.target in FACTORS and is_kept and self.is_factor(node, above):
            return value._replace(ops=ops | {"factor"})
        if node.target in CASTS:
            return Value(layout, ops | {"cast"}, value.is_permuted) if is_kept else Value(None, ops | {"scales"}, False)
        if is_kept:
            return value._replace(ops=ops | {"keeps"})
        return Value(None, ops | {"other"}, value.is_permuted)

    def is_factor(self, node, above):
        """Whether it is multiplied by a number, or each row by a number, that does not come of the gather."""
        if self.graph.tensor(node.argument(0)) is not above and node.target.startswith("aten.div"):
            return False
        others = [one for one in node.inputs if one is not above]
        tensors = [one for one in node.args if isinstance(one, dict)]
        if len(tensors) != 1 + len(others) or len(others) > 1 or any(one in self.depends for one in others):
            return False
        return is_multiple(node, above, others)

    def block(self, node, above, value):
        if node.target in SPLITS:
            return value  # its items say what they are
        if node.target == GETITEM and above.target not in SPLITS:
            return value._replace(layout=None, ops=value.ops | {"other"})
        run = run_of(node)
        if run is None or value.layout is None:
            return cut(value, node, above)
        after = sliced(value.layout[run.dim], run.begin, run.length, self.world)
        if after is None:
            return cut(value, node, above)
        return value._replace(layout=(*value.layout[: run.dim], after, *value.layout[run.dim + 1 :]))

    def joined(self, node, runs, value):
        """What a cat makes of parts of a value."""
        source, from_, to = runs[0].source, runs[0].dim, node.argument(1, 0) % len(node.shape)
        end = end_of(sorted(runs))
        if value.layout is None or end is None or any(run.is_padded for run in runs):
            return cut(value, node, source)
        is_in_order = end_of(runs) is not None
        size, layout = source.shape[from_], list(value.layout)
        if from_ == to:
            if is_in_order and end == size:
                self.note_ladder(node, runs)
            layout[from_] = sliced(layout[from_], 0, end, self.world)
            if layout[from_] is None:
                return cut(value, node, source)
        else:
            shape = list(source.shape)
            shape[from_ : from_ + 1] = [len(runs), size // len(runs)]
            layout = reshaped(layout, shape) if end == size and size % len(runs) == 0 else None
            if layout is None or any(run.length != size // len(runs) for run in runs):
                return cut(value, node, source)
            outer, layout = layout[from_], [*layout[:from_], *layout[from_ + 1 :]]
            if is_in_order and [digit[0] for digit in outer] == ["ranks"]:
                self.note_ladder(node, runs)
            layout[to] = merged([*outer, *layout[to]])
        return value._replace(layout=tuple(layout), ops=value.ops if is_in_order else value.ops | {"shuffled"})

    def note_ladder(self, cat, runs):
        open_ = [cat]
        while open_:
            one = open_.pop()
            if one is not runs[0].source:
                self.ladders.add(one)
                open_ += one.inputs

    # ---- casts that can move before the gather

    def is_local(self, node):
        if node.is_view:
            return node.inputs[0] in self.local and node.shape is not None and node.keeps_rows
        if node.target == "aten.slice.Tensor":  # of the end of the last shard
            layouts = [value.layout for value in self.values.get(node, ()) if value.layout]
            is_trim = any(digit[0] == "shards" for layout in layouts for dim in layout for digit in dim)
            return is_trim and node.inputs[0] in self.local
        if node.target in SPLITS or node.target in (GETITEM, "aten.cat.default"):
            return all(one in self.local for one in node.inputs)
        if is_row_maximum(node):
            return node.inputs[0] in self.local and not self.has_part_rows(node.inputs[0])
        if node.target not in CASTS or node.shape is None:
            return False
        for one in node.inputs:
            if one in self.local:
                if not one.shape or one.shape[:-1] != node.shape[:-1]:
                    return False
            elif one in self.depends or one.shape is None or math.prod(one.shape[:-1]) != 1:
                return False
            elif not is_replicated(self.graph, one) or len(one.shape) > self.rank:
                return False
            elif one.shape and one.shape[-1] != 1 and any(self.has_part_rows(other) for other in node.inputs):
                return False
        return True

    def has_part_rows(self, node):
        """Whether a shard has parts of rows only: the last dim is gathered."""
        layouts = [value.layout for value in self.values.get(node, ()) if value.layout]
        return any(digit[0] == "ranks" for layout in layouts for digit in layout[-1])


def cut(value, node, above):
    """What of a value is left when parts of it are taken."""
    shape = above.shape or tuple(above.out[0]["shape"])
    is_known = node.shape is not None and (node.target != GETITEM or run_of(node) is not None)
    is_of_rows = is_known and len(node.shape) == len(shape) and node.shape[-1] == shape[-1]
    return value._replace(layout=None, ops=value.ops | {"blocks" if is_of_rows else "columns"})


def is_multiple(node, above, others):
    """Whether each row, or each column, is multiplied by a number."""
    if node.dtype != above.dtype or node.shape != above.shape:
        return False
    if not others or math.prod(others[0].shape) == 1:
        return True
    is_row = bool(others[0].shape) and others[0].shape[-1] == math.prod(others[0].shape) == node.shape[-1]
    return is_row or others[0].shape == (*node.shape[:-1], 1)


def is_wait_of(node, gather):
    return node.target == WAIT and gather in node.inputs


def is_row_maximum(node):
    if node.target != "aten.amax.default" or node.argument(2) is not True:
        return False
    return node.argument(1) in ([-1], [len(node.inputs[0].shape) - 1])


def is_replicated(graph, node):
    """Whether it is computed from constants, numbers and results of collectives of the whole group alone."""
    open_, seen = [node], {node}
    while open_:
        one = open_.pop()
        if one.target in GATHERS or one.target == ALL_REDUCE:
            if not is_of_all(graph, one):
                return False
            continue
        if not one.is_call:
            if one.shape is None or math.prod(one.shape) != 1 or any(user.target in GATHERS for user in one.users):
                return False
            continue
        if one.target in SCATTERS or is_opaque(one) or one.target.startswith(("graphsafe_", "prims.inductor")):
            return False
        open_ += [above for above in one.inputs if above not in seen]
        seen.update(one.inputs)
    return True


def is_of_all(graph, node):
    if node.target == ALL_REDUCE:
        return node.argument(2) == graph.group
    world, group = node.args[-2:]
    return world == graph.world and group == graph.group
