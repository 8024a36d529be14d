"""Derives from a captured graph alone which collectives can be fused, and which reasons are true of the others.

This is a second opinion on `tandem graph fuse`: it shares no code with it, is slow, and follows all paths. What it knows
is what docs/design/graph.md and the public headers state. It works on the graph as captured, before any pass.

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

GATHERS = {"_c10d_functional.all_gather_into_tensor.default", "tandem.all_gather.default"}
SCATTERS = {"_c10d_functional.reduce_scatter_tensor.default", "tandem.reduce_scatter.default"}
ALL_REDUCE = "_c10d_functional.all_reduce.default"
WAIT = "_c10d_functional.wait_tensor.default"
GETITEM = "<built-in function getitem>"
CONVERT = "prims.convert_element_type.default"
VIEWS = {
    "aten.reshape.default", "aten.view.default", "aten._unsafe_view.default", "aten.squeeze.dim", "aten.unsqueeze.default",
    "aten.clone.default", "aten.view.dtype",
}
PERMUTE = "aten.permute.default"
SPLITS = {"aten.split.Tensor", "aten.split_with_sizes.default"}
BLOCKS = {*SPLITS, "aten.slice.Tensor", "aten.cat.default", "aten.constant_pad_nd.default"}
# What casts consist of; other element-wise ops are the program's work.
CASTS = {
    "aten.abs.default", "aten.add.Tensor", "aten.clamp_max.default", "aten.clamp_min.default", "aten.div.Tensor",
    "aten.exp2.default", "aten.floor.default", "aten.log2.default", "aten.mul.Tensor", "aten.pow.Tensor_Scalar",
    "aten.reciprocal.default", "aten.sub.Tensor", CONVERT,
}
FACTORS = {"aten.mul.Tensor", "aten.mul.Scalar", "aten.div.Tensor", "aten.div.Scalar"}
MAKES_MEMORY = {
    *CASTS, *FACTORS, *GATHERS, *SCATTERS, ALL_REDUCE, "aten.cat.default", "aten.clone.default", "aten.relu.default",
    "aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten._scaled_mm.default", "aten.max.default",
    "aten.amax.default",
}
BYTES = {
    "float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int16": 2, "float8_e4m3fn": 1,
    "float8_e5m2": 1, "uint8": 1, "int8": 1, "bool": 1,
}
PRODUCT_TYPES = {"float32", "bfloat16", "float16"}
F8 = {"float8_e4m3fn", "float8_e5m2"}
# Of a product: where its operands stand.
SLOTS = {
    "aten.mm.default": {"a": 0, "b": 1},
    "aten.bmm.default": {"a": 0, "b": 1},
    "aten.addmm.default": {"bias": 0, "a": 1, "b": 2},
    "aten._scaled_mm.default": {"a": 0, "b": 1, "a_scale": 2, "b_scale": 3, "bias": 4, "result_scale": 5},
}


class Node:
    def __init__(self, place, raw):
        self.place, self.name, self.op, self.target = place, raw["name"], raw["op"], raw["target"]
        self.args, self.kwargs, self.out = raw["args"], raw["kwargs"], raw["out"]
        self.inputs, self.users = [], []

    @property
    def shape(self):
        return tuple(self.out["shape"]) if isinstance(self.out, dict) else None

    @property
    def dtype(self):
        return self.out["dtype"] if isinstance(self.out, dict) else None

    @property
    def is_call(self):
        return self.op == "call_function"

    @property
    def is_product(self):
        return self.is_call and self.target in SLOTS

    @property
    def is_view(self):
        """Whether it makes the elements of its input, in their order."""
        return self.is_call and (
            self.target in VIEWS or (self.target == "aten.expand.default" and self.shape == self.inputs[0].shape)
        )

    @property
    def keeps_rows(self):
        above, below = self.inputs[0].shape, self.shape
        return bool(above) and bool(below) and above[-1] == below[-1]

    def argument(self, idx, otherwise=None):
        value = self.args[idx] if idx < len(self.args) else None
        return otherwise if value is None else value

    def __repr__(self):
        return f"{self.name} ({self.target if self.is_call else self.op})"


def nodes_in(argument):
    if isinstance(argument, dict):
        return [argument["node"]] if "node" in argument else []
    if isinstance(argument, list):
        return [name for one in argument for name in nodes_in(one)]
    return []


def with_single_collectives(raw_nodes):
    """A collective of several tensors is one of each: "c[0]", "c[1]" and so on. So is a wait for several."""
    made, parts, names = [], {}, {}
    for raw in raw_nodes:
        args = renamed(raw["args"], names)
        target, source = raw["target"], nodes_in(args[0]) if args else []
        if target == "_c10d_functional.wait_tensors.default":
            parts[raw["name"]] = [(f"{raw['name']}[{i}]", one) for i, one in enumerate(args[0])]
            single, rest = WAIT, []
        elif target.startswith("_c10d_functional.") and "_coalesced" in target:
            parts[raw["name"]] = [(f"{raw['name']}[{i}]", one) for i, one in enumerate(args[0])]
            single, rest = target.replace("_coalesced", ""), args[1:]
        elif target == GETITEM and source[0] in parts:
            names[raw["name"]] = parts[source[0]][args[1]][0]
            continue
        else:
            made.append({**raw, "args": args, "kwargs": renamed(raw["kwargs"], names)})
            continue
        for (name, one), out in zip(parts[raw["name"]], raw["out"]):
            made.append({**raw, "name": name, "target": single, "args": [one, *rest], "out": out})
    return made


def renamed(argument, names):
    if isinstance(argument, list):
        return [renamed(one, names) for one in argument]
    if isinstance(argument, dict):
        return {key: names.get(one, one) if key == "node" else renamed(one, names) for key, one in argument.items()}
    return argument


class Graph:
    def __init__(self, raw):
        self.world, self.group = raw["world_size"], raw["group"]
        self.nodes = [Node(place, one) for place, one in enumerate(with_single_collectives(raw["nodes"]))]
        self.by_name = {node.name: node for node in self.nodes}
        for node in self.nodes:
            names = nodes_in(node.args) + nodes_in(list(node.kwargs.values()))
            node.inputs = [self.by_name[name] for name in dict.fromkeys(names)]
            for one in node.inputs:
                one.users.append(node)
        self.opaque = [node for node in self.nodes if node.is_call and is_opaque(node)]
        self.has_symbols = any(
            "sym" in size or self.by_name.get(size.get("node"), node).out is None
            for node in self.nodes if node.is_call
            for sizes in node.args if isinstance(sizes, list)
            for size in sizes if isinstance(size, dict)
        )

    def tensor(self, argument):
        names = nodes_in(argument) if isinstance(argument, dict) else []
        return self.by_name[names[0]] if names else None

    def slots(self, product):
        found = {slot: self.tensor(product.argument(idx)) for slot, idx in SLOTS[product.target].items()}
        return {slot: node for slot, node in found.items() if node is not None}

    def memories(self):
        """By node the first of those that may lie in the same memory: all that an opaque op takes, and all that an op takes
        which may return a view of it."""
        roots = {}

        def root_of(node):
            while roots.setdefault(node, node) is not node:
                node = roots[node]
            return node

        for node in self.nodes:
            if node.is_call and node.target not in MAKES_MEMORY:
                for one in node.inputs:
                    roots[root_of(one)] = root_of(node)
        return {node: root_of(node) for node in self.nodes}

    def opaque_between(self, first, second, values):
        """Ops between two nodes that may change what these values, or the second node, read."""
        memories = self.memories()
        touched = {memories[one] for value in values for one in (value, *value.inputs)}
        return [node for node in self.opaque if first.place < node.place < second.place and memories[node] in touched]


def is_opaque(node):
    """Whether an op may do more than compute, by PyTorch's conventions for names."""
    target = node.target
    if target.startswith(("tandem.", "symm_mem.", "_c10d_functional.", "prims.", "<built-in function ", "graphsafe_")):
        return False
    if not target.startswith("aten."):
        return True
    name = target[len("aten.") :].split(".")[0]
    writes = name.endswith("_") or target.endswith("out") or any(nodes_in(one) for one in node.kwargs.values())
    return writes or "batch_norm" in name or "with_noise" in name


# ---- layouts: of each dim the digits (of which dim of what is gathered, step, count, first) that it runs over, outermost
# first. "ranks" is the number of the shard; "shards" runs over all shards, but for the end of the last one.


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
    runs = [run_of(graph.by_name[name]) for name in nodes_in(cat.argument(0, []))]
    if any(run is None or run[:2] != runs[0][:2] for run in runs):
        return []
    return runs


def end_of(runs):
    """Where parts end that follow each other from the begin of a tensor on; None for others."""
    end = 0
    for run in runs:
        if run.begin != end:
            return None
        end += run.length
    return end


# A value that comes of a gather. What was crossed on the way, `ops`: "cast", "factor", "keeps" (another op that keeps
# the shape), "column" (a row's maximum), "whole" (the maximum of all), "scales" (something else is multiplied by it), "shuffled" (blocks in another order), "blocks" (other
# blocks, of rows), "columns" (the same of columns), "reshape", "other".
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
            if self.is_local(node):
                self.local.add(node)
            if not node.is_product and not is_wait_of(node, gather):
                found = self.beyond(node)
                if found:
                    self.values[node] = found

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
            return value._replace(layout=after) if after is not None else Value(None, ops | {"reshape"}, value.is_permuted)
        if node.target == PERMUTE:
            if layout is None:
                return value
            return Value(tuple(layout[dim] for dim in node.argument(1)), ops, True)
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
        if others and (len(others) > 1 or others[0] in self.depends):
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
    is_of_rows = node.shape is not None and len(node.shape) == len(shape) and node.shape[-1] == shape[-1]
    return value._replace(layout=None, ops=value.ops | {"blocks" if is_of_rows else "columns"})


def is_multiple(node, above, others):
    """Whether each row, or each column, is multiplied by a number. In f16 the order matters: it has a small range."""
    if node.dtype != above.dtype or node.dtype == "float16" or node.shape != above.shape:
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


# ---- what is true of a collective


class Finding:
    """`reasons`: each that is true, with the ops that may be named for it. `legal`: for each product that can be fused the
    reasons for which tandem may leave it nevertheless. `products`: all that read what is gathered, or that are summed."""

    def __init__(self):
        self.reasons = collections.defaultdict(set)
        self.legal = []
        self.products = set()

    def add(self, reason, *nodes):
        """`nodes` may be texts."""
        self.reasons[reason].update([str(node) for node in nodes] or [""])


class GatherJudge:
    def __init__(self, graph, gather):
        self.graph, self.gather, self.finding = graph, gather, Finding()
        self.only = []  # reasons that hold if no product takes what is gathered as left operand, row by row
        self.is_left = False

    def run(self):
        if not is_of_all(self.graph, self.gather):
            self.finding.add("kOtherGroup")
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
                self.finding.add(reason, *nodes)
        if takers == 0:
            self.finding.add("kNoProduct")
        return self.finding

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
        add, legal = self.finding.add, self.finding.legal
        blocks = [node for node in ops if node.target in BLOCKS or node.target == GETITEM]
        permutes = [node for node in ops if node.target == PERMUTE]
        mixing = [node for node in on_way if node.is_view and not node.keeps_rows]
        layout = value.layout
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
            if is_of_rows and value.ops <= {"blocks", "factor"} and not value.is_permuted:
                if not self.faults_of(product, operand, value):
                    legal.append((product, {"kBlocks", "kOpBetween"}))
            return
        rows, columns = [digit for dim in layout[:-1] for digit in dim], layout[-1]
        last = [digit for digit in self.paths.layout[-1] if digit[0] != "ranks"]
        if [digit for digit in columns if digit[0] not in ("ranks", "shards")] != last and "column" not in value.ops:
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
        if is_moved or value.ops & {"keeps", "column", "shuffled"} or any(one[0] == "shards" for one in (*rows, *columns)):
            add("kOpBetween", *ops)
            add("kBlocks", *blocks)
            if not value.ops & {"keeps", "column", "cast"} and not self.faults_of(product, operand, value):
                legal.append((product, {"kOpBetween", "kBlocks"}))
            return
        faults = self.faults_of(product, operand, value)
        if value.ops & {"cast", "factor"} and not self.can_cast_before(operand):
            add("kOpBetween", *ops)
            if "cast" not in value.ops and not faults:
                legal.append((product, {"kOpBetween"}))
            return
        if value.ops and (self.graph.has_symbols or product.target == "aten.bmm.default"):
            add("kOpBetween", *ops)
            return
        if not faults:
            legal.append((product, set()))
        elif faults <= {"kFactors", "kSymbolicSizes"}:
            legal.append((product, faults))

    def judge_views(self, product, operand, value, rows):
        """Views can be taken of the shard instead, if the gathered dim stays among the rows."""
        is_whole = any(digit[0] == "ranks" and digit[2] == self.paths.world for digit in rows)
        if is_whole and not value.ops and not self.faults_of(product, operand, value):
            self.finding.legal.append((product, {"kOpBetween", "kReshape"}))

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
    if any(factor != 1 for factor in product.kwargs.values()):
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
    """What is true of a collective. `taken`: by product the names of fused ops of gathers that compute it."""
    node = graph.by_name[name]
    if node.target in NOT_FUSED:
        finding = Finding()
        finding.add("kNoFusedOp")
        return finding
    return GatherJudge(graph, node).run() if node.target in GATHERS else ReductionJudge(graph, node, taken).run()


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
            finding.add("kOtherGroup")
        elif collective.argument(1) not in ("sum", "avg"):
            finding.add("kReduction")
        else:
            self.judge(collective.inputs[0])
        return finding

    def judge(self, reduced):
        node = self.without_ladders(reduced)
        while node.is_view and node.keeps_rows:
            node = node.inputs[0]
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
        return {reason for fault in self.faults for reason in ({"kOpBetween", "kBlocks"} if fault == "ladder" else {fault})}

    def without_ladders(self, node):
        below = self.without_ladder(node)
        while below is not node:
            node = below
            below = self.without_ladder(below)
        return node

    def without_ladder(self, node):
        """What is scattered, below a cat of its blocks in their order, each padded to the size of the first."""
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
        """Terms that are none: an op is in the way of a product above it, or keeps the other products from being all."""
        add = self.finding.add
        is_product_near = bool(self.terms) or any(has_product_above(node) for node in self.stuck)
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
                self.finding.legal.append((multiplied[0], {"kOpBetween", *self.faults}))

    def multiplied_by(self, node):
        """The product that a node multiplies by a number, or each row by one of its own; else None."""
        if node.target not in FACTORS:
            return None
        for above in node.inputs:
            product = below_views(above)
            others = [one for one in node.inputs if one is not above]
            if product.is_product and is_multiple(node, above, others) and node.argument(0) == {"node": above.name}:
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
