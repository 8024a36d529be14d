"""A captured graph as JSON has it, for tests: its nodes, and what PyTorch's documentation says of their ops."""

GATHERS = {"_c10d_functional.all_gather_into_tensor.default", "tandem.all_gather.default"}
SCATTERS = {"_c10d_functional.reduce_scatter_tensor.default", "tandem.reduce_scatter.default"}
ALL_REDUCE = "_c10d_functional.all_reduce.default"
WAIT = "_c10d_functional.wait_tensor.default"
GETITEM = "<built-in function getitem>"
CONVERT = "prims.convert_element_type.default"
VIEWS = {
    "aten.reshape.default", "aten.view.default", "aten._unsafe_view.default", "aten.squeeze.dim",
    "aten.unsqueeze.default", "aten.clone.default", "aten.view.dtype",
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
BY_RECIPE = "aten._scaled_mm_v2.default"
# Of a product: where its operands stand.
SLOTS = {
    "aten.mm.default": {"a": 0, "b": 1},
    "aten.bmm.default": {"a": 0, "b": 1},
    "aten.addmm.default": {"bias": 0, "a": 1, "b": 2},
    "aten._scaled_mm.default": {"a": 0, "b": 1, "a_scale": 2, "b_scale": 3, "bias": 4, "result_scale": 5},
}


def is_by_tensor_or_rows(args):
    """Whether a product by recipes has one scale for each operand, of the whole (0) or of rows (1), in plain order."""
    return all(
        len(args[at]) == 1 and args[at + 1] in ([0], [1]) and args[at + 2] in ([0], []) for at in (2, 5)
    ) and (len(args) < 11 or not args[10])


class Node:
    def __init__(self, place, raw):
        self.place, self.name, self.op, self.target = place, raw["name"], raw["op"], raw["target"]
        self.args, self.kwargs, self.out = raw["args"], raw["kwargs"], raw["out"]
        if self.target == BY_RECIPE and is_by_tensor_or_rows(self.args):  # _scaled_mm in other words
            self.target = "aten._scaled_mm.default"
            self.args = [*self.args[:2], self.args[2][0], self.args[5][0], *self.args[8:9], None, *self.args[9:10]]
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
        """By node one of those that may lie in the same memory: all that an opaque op takes, and all that an op takes
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
