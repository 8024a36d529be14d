"""FX graphs from the text form of graphs, and values for their inputs."""

import json
import operator

import tandem


def _types(out):
    return out if isinstance(out, list) else [out]


class Builder:
    """Makes the FX graph of a document of tandem.graph, with fake values, as Inductor has them."""

    def __init__(self, document):
        import torch
        from torch import fx
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.graph = fx.Graph()
        self.root = torch.nn.Module()
        self.mode = FakeTensorMode()
        self.made = {}
        self.torch = torch
        for item in document["nodes"]:
            self.add(item)
        self.module = fx.GraphModule(self.root, self.graph)

    def fake(self, out):
        if isinstance(out, list):
            return [self.fake(each) for each in out]
        if out is None:
            return None
        with self.mode:
            dtype = getattr(self.torch, out["dtype"])
            return self.torch.empty_strided(out["shape"], out["stride"], dtype=dtype)

    def value(self, argument):
        if isinstance(argument, list):
            return [self.value(each) for each in argument]
        if not isinstance(argument, dict):
            return argument
        if "node" in argument:
            return self.made[argument["node"]]
        if "float" in argument:
            return float(argument["float"])
        text = argument["repr"]
        if text.startswith("torch."):
            return getattr(self.torch, text.removeprefix("torch."))
        return self.op(text) if text.startswith("aten.") else self.torch.device(text)

    def op(self, name):
        if name == str(operator.getitem):
            return operator.getitem
        found = self.torch.ops.higher_order if "." not in name else self.torch.ops
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def call(self, op, args, kwargs, name, out):
        node = self.graph.create_node("call_function", op, tuple(args), kwargs, name=name)
        node.meta["val"] = self.fake(out)
        return node

    def add(self, item):
        name, args = item["name"], self.value(item["args"])
        if item["op"] == "placeholder":
            node = self.graph.placeholder(name)
            node.meta["val"] = self.fake(item["out"])
        elif item["op"] == "get_attr":
            node = self.graph.create_node("get_attr", item["target"], name=name)
            node.meta["val"] = self.fake(item["out"])
            setattr(self.root, item["target"], value_of(node.meta["val"], 1))
        elif item["op"] == "output":
            node = self.graph.output(tuple(args[0]))
        elif item["target"] in ("tandem.all_gather.default", "tandem.reduce_scatter.default"):
            node = self.collective(item, args)
        else:
            kwargs = {key: self.value(each) for key, each in item["kwargs"].items()}
            node = self.call(self.op(item["target"]), args, kwargs, name, item["out"])
        self.made[name] = node

    def collective(self, item, args):
        """In the form that PyTorch has for other dims than the first: pieces that are moved."""
        c10d, aten = self.torch.ops._c10d_functional, self.torch.ops.aten
        is_gather = item["target"].startswith("tandem.all_gather")
        shard, dim, world, group = args if is_gather else (args[0], *args[2:])
        shape, dtype = list(shard.meta["val"].shape), item["out"]["dtype"]

        def type_of(sizes):
            with self.mode:
                made = self.torch.empty(sizes)
            return {"shape": sizes, "stride": list(made.stride()), "dtype": dtype}

        def moved(node, sizes, from_dim, to_dim):
            if from_dim == to_dim:
                return node
            piece = [n // world if d == from_dim else n for d, n in enumerate(sizes)]
            strides = list(node.meta["val"].stride())
            out = [{"shape": piece, "stride": strides, "dtype": dtype}] * world
            split = self.call(aten.split.Tensor, (node, piece[from_dim], from_dim), {}, "split", out)
            parts = [self.call(operator.getitem, (split, i), {}, "getitem", out[i]) for i in range(world)]
            as_bytes = is_gather and "float8" in dtype
            if as_bytes:
                parts = [self.viewed(part, "uint8") for part in parts]
            joined = [n * world if d == to_dim else n for d, n in enumerate(piece)]
            out = type_of(joined) | ({"dtype": "uint8"} if as_bytes else {})
            cat = self.call(aten.cat.default, (parts, to_dim), {}, "cat", out)
            return self.viewed(cat, dtype) if as_bytes else cat

        if is_gather:
            stacked = [shape[0] * world, *shape[1:]]
            made = self.call(
                c10d.all_gather_into_tensor.default, (shard, world, group), {}, item["name"], type_of(stacked)
            )
            wait = self.call(c10d.wait_tensor.default, (made,), {}, "wait_tensor", type_of(stacked))
            return moved(wait, stacked, 0, dim)
        whole = moved(shard, shape, dim, 0)
        made = self.call(
            c10d.reduce_scatter_tensor.default, (whole, args[1], world, group), {}, item["name"], item["out"]
        )
        return self.call(c10d.wait_tensor.default, (made,), {}, "wait_tensor", item["out"])

    def viewed(self, node, dtype):
        value = node.meta["val"]
        out = {"shape": list(value.shape), "stride": list(value.stride()), "dtype": dtype}
        return self.call(self.torch.ops.aten.view.dtype, (node, getattr(self.torch, dtype)), {}, "view", out)


def build(text):
    """The FX module of a graph in the text form."""
    return Builder(json.loads(tandem.graph.loads(text).to_json())).module


def _scaled_mm(a, b, a_scale, b_scale, bias=None, result_scale=None, out_dtype=None, fast=False):
    """aten._scaled_mm, whose scales can be rows and columns on GPUs only."""
    out = a.float() @ b.float() * a_scale * b_scale
    if bias is not None:
        out = out + bias.float()
    if result_scale is not None:
        out = out * result_scale
    return out.to(out_dtype)


def _scaled_mm_by_recipe(a, b, a_scales, a_recipe, a_swizzle, b_scales, *others):
    """aten._scaled_mm_v2 with one scale for each operand, of the whole or of rows; CPUs have none."""
    bias, out_dtype = (*others[2:], None, None)[:2]
    return _scaled_mm(a, b, *a_scales, *b_scales, bias, None, out_dtype)


def _all_gather(shard, world, group):
    """all_gather_into_tensor, which gloo has for no 8-bit floats."""
    import torch

    op = torch.ops._c10d_functional.all_gather_into_tensor
    if shard.element_size() > 1:
        return op(shard, world, group)
    return torch.ops._c10d_functional.wait_tensor(op(shard.view(torch.uint8), world, group)).view(shard.dtype)


def run(module, inputs):
    """What the graph computes."""
    import torch

    instead = {
        torch.ops.aten._scaled_mm.default: _scaled_mm,
        torch.ops.aten._scaled_mm_v2.default: _scaled_mm_by_recipe,
        torch.ops._c10d_functional.all_gather_into_tensor.default: _all_gather,
    }
    for node in module.graph.nodes:
        node.target = instead.get(node.target, node.target)
    module.recompile()
    with torch.no_grad():
        return module(*inputs)


def value_of(fake, seed):
    """Random values of the type of a fake tensor."""
    import torch

    value = torch.rand(fake.shape, generator=torch.Generator().manual_seed(seed)) - 0.5
    if "float32" in str(fake.dtype):  # a scale
        value = value.abs() + 0.5
    memory = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
    return memory.copy_(value.to(fake.dtype))


def inputs_of(module, seed):
    """A value for each placeholder; numbers and vectors are the same on every rank."""
    values = []
    for idx, node in enumerate(node for node in module.graph.nodes if node.op == "placeholder"):
        fake = node.meta["val"]
        is_shared = fake.dim() < 2 or min(fake.shape[-2:]) == 1
        values.append(value_of(fake, 1000 * idx + (0 if is_shared else seed)))
    return values
