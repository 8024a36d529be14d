"""Derives from a captured graph alone which collectives can be fused, and which reasons are true of the others.

This is a second opinion on `tandem graph fuse`: it shares no code with it, is slow, and follows all paths. What it
knows is what docs/design/graph.md and the public headers state. It works on the graph as captured, before any pass.

A gather is followed down. Each value on the way has a *layout*: for each of its dims the digits of the gathered
tensor's index that it runs over. So views, permutes, slices and cats are judged by what they do to elements. A scatter
or an all-reduce is followed up, through views and sums, to what is added.

A finding says of each reason that is true which ops may be named for it. The ops that may be named:

* kOpBetween, kBlocks, kReshape, kOpaqueBetween, kMixedTypes: an op on a path between the collective and a product;
* kTransposedOperand: the permute; kScaleOfWhole: the op that takes the whole;
* kDependentOperand: what makes the other operand; kProductUsed: what else uses the product;
* kNoProducer: what is reduced instead of a product, if the program has it from outside;
* kProductTaken: the fused op;
* kBatchedProduct, kRightOperand, kBiasOperand, kFactors, kUnsupportedType: the product, whose own property it is.
"""

import collections
import math

from captured_graph import (
    ALL_REDUCE, BLOCKS, BY_RECIPE, BYTES, CONVERT, F8, FACTORS, GATHERS, GETITEM, PERMUTE, PRODUCT_TYPES, WAIT,
)
from gather_paths import (
    GatherPaths, end_of, is_multiple, is_of_all, is_padded_as_shards, runs_of, size_of,
)

# ---- what is true of a collective


class Finding:
    """`reasons`: each that is true, with the ops that may be named for it. `legal`: for each product that can be fused
    the reasons for which tandem may leave it nevertheless. `may_fuse`: products that are legal or not by their numbers.
    `products`: all that read what is gathered, or that are summed."""

    def __init__(self):
        self.reasons = collections.defaultdict(set)
        self.legal, self.may_fuse = [], []
        self.products = set()

    def add(self, reason, *nodes):
        """`nodes` may be texts."""
        self.reasons[reason].update([str(node) for node in nodes] or [""])


class GatherJudge:
    """`taken`: by product the names of fused ops of scatters that compute it."""

    def __init__(self, graph, gather, taken):
        self.graph, self.gather, self.taken, self.finding = graph, gather, taken, Finding()
        self.only = []  # reasons that hold if no product takes what is gathered as left operand, row by row
        self.is_left = False

    def run(self):
        if not is_of_all(self.graph, self.gather):
            self.finding.add("kOtherGroup", f"'{self.gather.args[-1]}'")
            return self.finding
        self.paths = GatherPaths(self.graph, self.gather)
        if not self.paths.has_form:
            self.finding.add("kUnusualForm")
            return self.finding
        takers = 0
        for product in self.graph.nodes:
            if not product.is_product:
                continue
            for slot, operand in self.graph.slots(product).items():
                values = self.paths.values.get(operand, ())
                if any(not value.ops & {"other", "keeps", "scales"} for value in values):
                    self.finding.products.add(product)
                if slot in ("a", "b", "bias"):
                    takers += len(values)
                    for value in values:
                        self.judge(product, slot, operand, value)
        if not self.is_left:
            for reason, nodes in self.only:
                self.finding.add(reason, *nodes, *[name for node in nodes for name in self.taken.get(node, ())])
        if takers == 0:
            self.finding.add("kNoProduct")
        return self.finding

    def note_legal(self, product, reasons):
        if product in self.taken:
            self.finding.add("kProductTaken", *self.taken[product])
        else:
            self.finding.legal.append((product, reasons))

    def judge(self, product, slot, operand, value):
        """What is true of one value in one place of one product."""
        on_way = self.between(product)
        ops = [node for node in on_way if not node.is_view and node not in self.paths.ladders]
        is_batched = product.target == "aten.bmm.default" and product.shape[0] != 1
        if "other" in value.ops or (is_batched and "keeps" in value.ops):
            self.finding.add("kOpBetween", *ops)
        elif is_batched:
            self.only.append(("kBatchedProduct", [product]))
        elif "whole" in value.ops:
            if slot == "a":
                self.finding.add("kScaleOfWhole", *self.takers_of_whole(operand))
        elif "scales" in value.ops:
            self.finding.add("kOpBetween", *ops)
        elif slot == "b":
            self.only.append(("kRightOperand", [product]))
        elif slot == "bias":
            self.only.append(("kBiasOperand", [product]))
        else:
            self.judge_left(product, operand, value, on_way, ops)

    def between(self, product):
        """What is on paths from the gather to a product."""
        above, open_ = set(), [product]
        while open_:
            for one in open_.pop().inputs:
                if one in self.paths.values and one not in above and one not in self.paths.sources:
                    above.add(one)
                    open_.append(one)
        return above

    def takers_of_whole(self, node):
        """The ops above a node that take what is gathered not row by row."""
        found, open_ = [], [node]
        while open_:
            one = open_.pop()
            if one in found or one not in self.paths.depends or one in self.paths.local:
                continue
            found.append(one)
            open_ += one.inputs
        return [one for one in found if not one.is_view]

    def judge_left(self, product, operand, value, on_way, ops):
        add, legal = self.finding.add, self.note_legal
        blocks = [node for node in on_way if node.target in BLOCKS or node.target == GETITEM]
        permutes = [node for node in ops if node.target == PERMUTE]
        mixing = [node for node in on_way if node.is_view and not node.keeps_rows]
        layout = value.layout
        if "shuffled" in value.ops or value.ops & {"blocks", "columns"}:
            add("kBlocks", *blocks)
        if layout is not None and product.target == "aten.bmm.default":
            layout = layout[1:]
        if "reshape" in value.ops:
            add("kReshape", *mixing)
            if value.ops & {"keeps", "cast", "factor"}:
                add("kOpBetween", *ops)
            return
        if layout is None or size_of(digit for dim in layout for digit in dim) != self.whole_size(layout):
            self.is_left |= bool(blocks)
            add("kBlocks", *blocks)
            add("kOpBetween", *ops)
            is_of_rows = "blocks" in value.ops if layout is None else layout[-1] == self.paths.layout[-1]
            if is_of_rows and value.ops <= {"blocks", "shuffled", "factor"} and not value.is_permuted:
                if not self.faults_of(product, operand, value):
                    legal(product, {"kBlocks", "kOpBetween"})
            return
        rows, columns = [digit for dim in layout[:-1] for digit in dim], layout[-1]
        last = [digit for digit in self.paths.layout[-1] if digit[0] != "ranks"]
        is_trimmed = [digit[0] for digit in columns] == ["shards"] and not set(last) & set(rows)
        ranks = ("ranks", 1, self.paths.world, 0)
        is_last = is_trimmed or columns in (self.paths.layout[-1], (ranks, *self.paths.layout[-1]))
        if not is_last and "column" not in value.ops:
            is_transposed = value.is_permuted and set(last) <= set(rows)
            if is_transposed and any(digit[0] in ("ranks", "shards") for digit in columns):
                self.only.append(("kTransposedOperand", permutes))
                return
            add("kOpBetween", *ops)
            add("kReshape", *mixing)
            self.judge_views(product, operand, value, rows)
            return
        self.is_left = True
        is_moved = not is_in_order(rows)
        if is_moved or value.ops & {"keeps", "column", "shuffled"}:
            add("kOpBetween", *ops)
            add("kBlocks", *blocks)
            if not value.ops & {"keeps", "column", "cast"} and not self.faults_of(product, operand, value):
                legal(product, {"kOpBetween", "kBlocks"})
            return
        faults = self.faults_of(product, operand, value)
        if value.ops & {"cast", "factor"} and not self.can_cast_before(operand):
            add("kOpBetween", *ops)
            if "cast" not in value.ops and not faults:
                if operand.dtype == "float16":
                    self.finding.may_fuse.append((product, {"kOpBetween"}))
                else:
                    legal(product, {"kOpBetween"})
            return
        if value.ops and (self.graph.has_symbols or product.target == "aten.bmm.default"):
            add("kOpBetween", *ops)
            return
        if not faults:
            legal(product, set())
        elif faults <= {"kFactors", "kSymbolicSizes"}:
            legal(product, faults)

    def judge_views(self, product, operand, value, rows):
        """Views can be taken of the shard instead, if the gathered dim stays among the rows."""
        is_whole = any(digit[0] == "ranks" and digit[2] == self.paths.world for digit in rows)
        if is_whole and value.ops <= {"factor"} and not self.faults_of(product, operand, value):
            self.note_legal(product, {"kOpBetween", "kReshape"})

    def whole_size(self, layout):
        """The elements of what is gathered; without the end of the last shard if `layout` is so."""
        size = math.prod(self.gather.shape)
        for _, _, length, _ in (digit for dim in layout for digit in dim if digit[0] == "shards"):
            size = size // (-(-length // self.paths.world) * self.paths.world) * length
        return size

    def can_cast_before(self, operand):
        unknown = 8
        return operand in self.paths.local and BYTES.get(operand.dtype, unknown) < BYTES.get(self.gather.dtype, 0)

    def faults_of(self, product, operand, value):
        """What keeps a product from being fused whose left operand comes as it must."""
        slots, depends = self.graph.slots(product), self.paths.depends
        faults = set()

        def fault(reason, *nodes):
            self.finding.add(reason, *nodes)
            faults.add(reason)

        opaque = self.graph.opaque_between(self.gather, product, [self.gather, product, *slots.values()])
        if opaque:
            fault("kOpaqueBetween", *opaque)
        if product.target == "aten.addmm.default" and has_factors(product, slots):
            fault("kFactors", product)
        for slot in ("b", "bias", "b_scale", "result_scale"):
            if slots.get(slot) in depends and not is_addend(product, slots, slot):
                maker = below_views(slots[slot])
                fault("kDependentOperand", product if maker in self.paths.sources else maker)
        scale = slots.get("a_scale")
        if scale in depends and scale not in self.paths.local:
            fault("kScaleOfWhole", *self.takers_of_whole(scale))
        if operand.dtype not in (F8 if scale else PRODUCT_TYPES):
            fault("kUnsupportedType", product)
        if self.graph.has_symbols:
            fault("kSymbolicSizes", *self.graph.nodes)
        if not product.users:
            faults.add("unused")
        return faults


def is_in_order(rows):
    """Whether all dims but that of the shards come in their order, and none is cut by the shards."""
    dims = [dim for dim, *_ in rows if dim not in ("ranks", "shards")]
    return dims == sorted(set(dims))


def is_addend(product, slots, slot):
    return slot == "bias" and product.target == "aten.addmm.default" and slots[slot].shape == product.shape


def has_factors(product, slots):
    """Whether an addmm adds neither row nor matrix, or has factors in f16, whose range is small."""
    if product.dtype == "float16" and any(factor != 1 for factor in product.kwargs.values()):
        return True
    bias = slots["bias"].shape
    return not (bias == product.shape or bias == product.shape[1:] or bias == (1, product.shape[1]))


def below_views(node):
    while node.is_view or node.target == PERMUTE:
        node = node.inputs[0]
    return node


# ---- scatters and all-reduces


NOT_FUSED = {"_c10d_functional.all_to_all_single.default", "_c10d_functional.broadcast.default"}


def find_of(graph, name, taken):
    """What is true of a collective. `taken`: by product the names of fused ops that compute it: of a gather those of scatters,
    and the other way round."""
    node = graph.by_name[name]
    finding = Finding()
    if node.target in NOT_FUSED:
        finding.add("kNoFusedOp")
        return finding
    together = [one for one in graph.nodes if "[" in name and one.name.split("[")[0] == name.split("[")[0]]
    if any(user.target != WAIT for one in together for user in one.users):
        finding.add("kUnusualForm")
        return finding
    return GatherJudge(graph, node, taken).run() if node.target in GATHERS else ReductionJudge(graph, node, taken).run()


class ReductionJudge:
    """`taken`: by product the names of fused ops of gathers that compute it."""

    def __init__(self, graph, collective, taken):
        self.graph, self.collective, self.taken, self.finding = graph, collective, taken, Finding()
        self.faults = set()
        self.terms, self.rows = [], []
        self.stuck = []  # terms that are no products

    def fault(self, reason, *nodes):
        self.finding.add(reason, *nodes)
        self.faults.add(reason)

    def run(self):
        graph, collective, finding = self.graph, self.collective, self.finding
        waits = [user for user in collective.users if user.target == WAIT]
        others = [user for user in collective.users if user not in waits]
        if collective.target != ALL_REDUCE:
            others = [user for user in others if user.op != "output"]
        if collective.target != "tandem.reduce_scatter.default" and (not waits or others):
            finding.add("kUnusualForm")
        elif not is_of_all(graph, collective):
            finding.add("kOtherGroup", f"'{collective.args[-1]}'")
        elif collective.argument(1) not in ("sum", "avg"):
            finding.add("kReduction")
        else:
            self.judge(collective.inputs[0])
        return finding

    def judge(self, reduced):
        node = self.without_ladders(reduced)
        while node.is_view and node.keeps_rows:
            node = node.inputs[0]
        if node.target == BY_RECIPE:  # by another one than those of a tensor and of rows
            self.fault("kUnsupportedType", node)
            return
        self.collect(node, True)
        if not has_product_above(reduced):
            for reason in ("kMixedTypes", "kReshape", "kBlocks", "kOpBetween"):
                self.finding.reasons["kNoProducer"] |= self.finding.reasons.pop(reason, set())
        if len(reduced.shape) < 2:
            self.fault("kNoProducer")
        if len(self.rows) > sum(term.target != "aten.addmm.default" for term in self.terms):
            self.fault("kOpBetween", *self.rows)
        if self.stuck:
            self.judge_stuck()
        for product in self.terms:
            if product in self.taken:
                self.fault("kProductTaken", *self.taken[product])
            opaque = self.graph.opaque_between(product, self.collective, [product, *self.above(product)])
            if opaque:
                self.fault("kOpaqueBetween", *opaque)
        if self.terms and reduced.dtype not in PRODUCT_TYPES:
            self.fault("kUnsupportedType", *self.terms)
        if self.terms and self.graph.has_symbols:
            self.fault("kSymbolicSizes", *self.graph.nodes)
        self.finding.products.update(self.terms)
        if self.terms and self.faults <= {"kProductUsed", "kFactors", "kSymbolicSizes", "ladder"}:
            self.finding.legal.append((self.terms[0], self.reasons_to_leave()))

    def above(self, product):
        """What a product reads, and what is between it and the collective."""
        below = [node for node in self.graph.nodes if product.place < node.place <= self.collective.place]
        made = {product}
        for node in below:
            if made & set(node.inputs):
                made.add(node)
        return made | set(product.inputs)

    def reasons_to_leave(self):
        of_ladder = {"kOpBetween", "kBlocks"} if "ladder" in self.faults else set()
        return of_ladder | (self.faults - {"ladder"})

    def without_ladders(self, node):
        below = self.without_ladder(node)
        while below is not node:
            node = below
            below = self.without_ladder(below)
        return node

    def without_ladder(self, node):
        """What is scattered, below a cat of its blocks in their order, each padded to the size of the first."""
        if is_padded_as_shards(node, self.graph.world) and len(node.users) == 1:
            return node.inputs[0]
        runs = runs_of(self.graph, node) if node.target == "aten.cat.default" and len(node.users) == 1 else []
        if not runs:
            return node
        source, from_, to = runs[0].source, runs[0].dim, node.argument(1, 0) % len(node.shape)
        is_ladder = to == 0 and len(runs) == self.graph.world and self.collective.target.startswith("_c10d")
        if end_of(sorted(runs)) != source.shape[from_] or not (from_ == to or is_ladder):
            return node
        is_cut = any(run.is_padded for run in runs) or any(run.length != runs[0].length for run in runs[:-1])
        if end_of(runs) is None or is_cut:
            self.fault("ladder")
            self.finding.add("kOpBetween", node)
            self.finding.add("kBlocks", node)
        return source

    def collect(self, node, is_top):
        while not is_top and node.is_view and len(node.users) == 1 and node.keeps_rows:
            node = node.inputs[0]
        if not is_top and len(node.users) > 1:
            is_sum = node.target == "aten.add.Tensor"
            if is_sum or node.is_product or scaled_afterwards(self.graph, node) or widened(node):
                self.fault("kProductUsed", *node.users)
            else:
                self.stick(node)
            return
        if node.target == "aten.add.Tensor" and not node.kwargs and len(node.inputs) == 2:
            left, right = node.inputs
            if left.dtype != right.dtype:
                self.fault("kMixedTypes", node)
                return
            if left.shape == right.shape:
                self.collect(left, False)
                self.collect(right, False)
                return
            for row, other in ((left, right), (right, left)):
                if other.shape == node.shape and row.shape and math.prod(row.shape) == row.shape[-1] == node.shape[-1]:
                    self.rows.append(node)
                    self.collect(other, False)
                    return
        self.term(node)

    def stick(self, node):
        self.stuck.append(node)
        self.faults.add("stuck")

    def term(self, node):
        product = scaled_afterwards(self.graph, node) or widened(node) or node
        if not product.is_product:
            self.stick(node)
            return
        if product.target == "aten.bmm.default" and product.shape[0] != 1:
            self.fault("kOpBetween", product)
            self.fault("kBatchedProduct", product)
            return
        self.terms.append(product)
        slots = self.graph.slots(product)
        if product.target != "aten.addmm.default":
            return
        if has_factors(product, slots):
            self.fault("kFactors", product)
        elif slots["bias"].shape == product.shape:
            if slots["bias"] in (slots["a"], slots["b"]):
                self.fault("kProductUsed", product)
            self.collect(slots["bias"], False)

    def judge_stuck(self):
        """Terms that are none: an op is in the way of a product above it, or stands beside the products."""
        add = self.finding.add
        is_product_near = has_product_above(self.collective)
        for node in self.stuck:
            if not node.is_call:
                add("kNoProducer", node)
            elif not is_product_near:
                add("kNoProducer", node.inputs[0] if node.target == WAIT else node)
            elif node.is_view:
                add("kReshape", node)
            else:
                shown = node.inputs[0] if node.target == WAIT else node
                add("kOpBetween", shown)
                if node.target == "aten.cat.default":
                    add("kBlocks", node)
        multiplied = [self.multiplied_by(node) for node in self.stuck]
        if all(multiplied):
            self.faults -= {"stuck"}
            self.finding.products.update(multiplied)
            if self.faults <= {"kProductUsed", "kFactors"}:
                is_f16 = any(product.dtype == "float16" for product in multiplied)  # a small range: the order matters
                legal = self.finding.may_fuse if is_f16 else self.finding.legal
                legal.append((multiplied[0], {"kOpBetween", *self.faults}))

    def multiplied_by(self, node):
        """The product that a node multiplies by a number, or each row by one of its own; else None."""
        if node.target not in FACTORS:
            return None
        for above in node.inputs:
            product = widened(above) or below_views(above)
            others = [one for one in node.inputs if one is not above]
            if product.is_product and is_multiple(node, above, others) and node.argument(0) == {"node": above.name}:
                if product in self.taken:
                    self.fault("kProductTaken", *self.taken[product])
                if len(above.users) > 1 or len(product.users) > 1:
                    self.fault("kProductUsed", *product.users, *above.users)
                return product
        return None


def has_product_above(node):
    open_, seen = [node], {node}
    while open_:
        one = open_.pop()
        if one.is_product:
            return True
        open_ += [above for above in one.inputs if above not in seen]
        seen.update(one.inputs)
    return False


def widened(node):
    """The plain product that a node casts to f32, or None."""
    if node.target != CONVERT or node.dtype != "float32":
        return None
    inner = node.inputs[0]
    while inner.is_view and len(inner.users) == 1 and inner.keeps_rows:
        inner = inner.inputs[0]
    is_plain = inner.is_product and inner.target != "aten._scaled_mm.default" and inner.dtype in PRODUCT_TYPES
    return inner if is_plain and len(inner.users) == 1 else None


def scaled_afterwards(graph, node):
    """The scaled product with unit scales that a node multiplies by a column times a row, or None."""
    if node.target != CONVERT or node.inputs[0].target != "aten.mul.Tensor" or len(node.inputs[0].users) != 1:
        return None
    for product in node.inputs[0].inputs:
        others = [one for one in node.inputs[0].inputs if one is not product]
        if product.target != "aten._scaled_mm.default" or len(product.users) != 1 or len(others) != 1:
            continue
        slots = graph.slots(product)
        units = [slots["a_scale"], slots["b_scale"]]
        if others[0].target != "aten.mul.Tensor" or "bias" in slots or "result_scale" in slots:
            continue
        shapes = {one.shape for one in others[0].inputs}
        if shapes == {(product.shape[0], 1), (1, product.shape[1])} and all(
            one.target == "aten.full.default" and one.argument(1) == 1 for one in units
        ):
            return product
    return None
