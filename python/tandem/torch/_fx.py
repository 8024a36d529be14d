"""FX graphs of PyTorch as graphs of tandem, and what tandem made of them back into FX.

A graph of tandem is the JSON of tandem.graph. Its nodes have the names of FX's, so a node that passes leave alone is
found again by its name. The rest is built anew, and its fake values are compared with the types that the passes state. In a
program for many sizes these are the types of one call, so what is built is also tried with other sizes.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import operator
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from tandem._errors import Error, ErrorCode

from ._fused_nodes import CALLS

_GETITEM = str(operator.getitem)
_SPLIT = "aten.split.Tensor"
_OWN_FORMS = ("symm_mem.", "tandem.")  # targets that graphs of tandem use in forms of their own
_SIZES = ("shape", "stride")
_FIRST_SIZES = (101, 211)  # of two other calls: a symbol has its captured value in one of them at most
_COLLECTIVES = (
    "_c10d_functional.all_gather_into_tensor.default",
    "_c10d_functional.all_gather_into_tensor_coalesced.default",
    "_c10d_functional.all_reduce.default",
    "_c10d_functional.all_reduce_coalesced.default",
    "_c10d_functional.reduce_scatter_tensor.default",
    "_c10d_functional.reduce_scatter_tensor_coalesced.default",
)

Json = Any


def collectives_in(graph: fx.Graph) -> Iterator[tuple[str, str]]:
    """The collectives of a graph, in its order: the op and the name of its process group."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if not str(node.target).startswith("_c10d_functional") or schema is None:
            continue
        for i, argument in enumerate(schema.arguments):
            if argument.name == "group_name":
                name = node.args[i] if i < len(node.args) else node.kwargs.get(argument.name)
                if isinstance(name, str):
                    yield str(node.target), name


def groups_in(graph: fx.Graph) -> list[str]:
    """The names of the process groups that gather, scatter or reduce in a graph, in order."""
    return sorted({name for op, name in collectives_in(graph) if op in _COLLECTIVES})


def name_of_graph() -> str:
    """What AOTAutograd calls the graph that is compiled: "0_forward", "0_backward" or "0_inference"."""
    from torch._dynamo import compiled_autograd
    from torch._functorch.aot_autograd import get_aot_graph_name

    # Behind the name, AOTAutograd counts what it compiles. There is no name where only Inductor is called.
    name, _, _ = get_aot_graph_name().removeprefix("model__").rpartition("_")
    if getattr(
        compiled_autograd, "in_compiled_autograd_region", False
    ):  # all of a backward as one graph that needs no gradients
        name = name.replace("_inference", "_backward")
    return name or "graph"


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or the first of NAME_1, NAME_2, ... that is not taken."""
    names = (name if i == 0 else f"{name}_{i}" for i in itertools.count())
    return next(each for each in names if each not in taken)


def attribute_of(node: fx.Node) -> Any:
    """What a get_attr node takes from its module: a tensor, a graph, or another object. None if it is missing."""
    owner: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        owner = getattr(owner, part, None)
    return owner


def number(value: float) -> Json:
    """A number in JSON, which has none that are not finite."""
    return {"float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _target(node: fx.Node) -> str:
    """The name of a node's op in a graph of tandem. Fused ops that the program calls itself are like unknown ops."""
    if isinstance(node.target, types.FunctionType):  # its text has an address
        return f"{node.target.__module__}.{node.target.__qualname__}"
    name = str(node.target)
    return f"torch.ops.{name}" if name.startswith(_OWN_FORMS) else name


def _is_symbol(value: object) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _symbol(value: Any) -> Json:
    """A symbol, and its value in the call that was compiled. int() of it would add a guard to the program."""
    hint = getattr(value.node, "hint", None)
    return {"sym": str(value), "hint": number(hint) if isinstance(hint, (bool, int, float)) else None}


def _tensor_type(value: object) -> Json:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    sizes = {"shape": value.shape, "stride": value.stride()}
    numbers = {name: [_symbol(each) if _is_symbol(each) else each for each in sizes[name]] for name in _SIZES}
    return {**numbers, "dtype": str(value.dtype).removeprefix("torch.")}


def _type(value: object) -> Json:
    if isinstance(value, (list, tuple)):
        return [_symbol(each) if _is_symbol(each) else _tensor_type(each) for each in value]
    return _symbol(value) if _is_symbol(value) else _tensor_type(value)


def _hinted(of_type: Json) -> Json:
    """The type with numbers in the place of symbols. None for what is no tensor, or has a size that nobody knows."""
    if isinstance(of_type, list):
        return [_hinted(each) for each in of_type]
    if of_type is None or "sym" in of_type:
        return None
    sizes = {part: [each["hint"] if isinstance(each, dict) else each for each in of_type[part]] for part in _SIZES}
    return None if any(None in each for each in sizes.values()) else {**of_type, **sizes}


def _value(node: fx.Node) -> object:
    """What a node makes, as a fake tensor or several; None if it makes none."""
    if node.op == "output":
        return fx.map_arg(node.args[0], lambda each: each.meta.get("val"))
    if node.op == "get_attr" and "val" not in node.meta:
        return attribute_of(node)
    return node.meta.get("val")


def has_calls(document: Json) -> bool:
    """Whether passes have made nodes that call ops of tandem.torch."""
    return any(node["target"] in CALLS for node in document["nodes"])


class CapturedGraph:
    """An FX graph in the JSON of tandem.graph. docs/design/graph.md has its forms."""

    def __init__(self, graph: fx.Graph, group: str, world_size: int) -> None:
        self._graph = graph
        self._nodes = {node.name: node for node in graph.nodes}
        self._group, self._world_size = group, world_size
        self._objects: dict[str, Any] = {}  # what the JSON names by its repr, or as a symbol
        self._targets = {_target(node): node.target for node in graph.nodes if node.op == "call_function"}
        values = {name: _value(node) for name, node in self._nodes.items()}
        self.document: Json = {
            "schema": 1,
            "source": f"torch {torch.__version__}, inductor post-grad graph",
            "world_size": world_size,
            "group": group,
            "pytorch_fuses": {},
            "nodes": [self._node(node, values[node.name]) for node in graph.nodes],
        }

    def text(self) -> str:
        """The document as tandem.graph.loads() takes it."""
        return json.dumps(self.document, allow_nan=False)

    def _node(self, node: fx.Node, value: object) -> Json:
        exact = _type(value)
        made = {
            "name": node.name,
            "op": node.op,
            "target": _target(node),
            "args": self._argument(node, node.args),
            "kwargs": {name: self._argument(node, each) for name, each in node.kwargs.items()},
            "out": _hinted(exact),
        }
        if made["out"] != exact:
            made["symbolic"] = exact
        return made

    def _argument(self, node: fx.Node, value: Any) -> Json:
        if isinstance(value, fx.Node):
            return {"node": value.name}
        if isinstance(value, (list, tuple)):
            return [self._argument(node, each) for each in value]
        if _is_symbol(value):
            self._objects.setdefault(str(value), value)
            return _symbol(value)
        if isinstance(value, float):
            return number(value)
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int) and -(2**63) <= value < 2**63:
            return value
        parts = _parts(value)
        return self._object(value) if parts is None else [self._argument(node, each) for each in parts]

    def _object(self, value: Any) -> Json:
        self._objects.setdefault(str(value), value)
        return {"repr": str(value)}

    # ---- back ----

    def rewrite(self, document: Json) -> None:
        """Makes the FX graph what a rewritten document says.

        Raises Error UNSUPPORTED where that fits only the sizes of this call. Then the graph is as it was.
        """
        if self.is_symbolic:
            _Rewriting(CapturedGraph(self._copy(), self._group, self._world_size), document).run()
        _Rewriting(self, document).run()

    def _copy(self) -> fx.Graph:
        copied = copy.deepcopy(self._graph)
        copied.owning_module = self._graph.owning_module
        return copied

    def object_named(self, text: str) -> Any:
        """The object of FX with this repr, or the symbol."""
        if text in self._objects:
            return self._objects[text]
        module, _, name = text.rpartition(".")
        if module == "torch" and hasattr(torch, name):
            return getattr(torch, name)
        raise Error(ErrorCode.INTERNAL, f"graph: there is no object '{text}'")

    def target_named(self, text: str) -> Any:
        """The op with this name."""
        if text in self._targets:
            return self._targets[text]
        if text == _GETITEM:
            return operator.getitem
        found: Any = torch.ops
        for part in text.split("."):
            found = getattr(found, part)
        return found

    @property
    def is_symbolic(self) -> bool:
        """Whether there are sizes that the program does not know."""
        return any("symbolic" in node for node in self.document["nodes"])

    @property
    def graph(self) -> fx.Graph:
        return self._graph

    @property
    def nodes(self) -> dict[str, fx.Node]:
        return self._nodes


def _parts(value: Any) -> Sequence[Any] | None:
    """The nodes and constants of a container that the JSON has no form for, if it has nodes."""
    found: list[Any] = []
    fx.map_arg(value, found.append)
    if not found:
        return None
    if isinstance(value, slice):
        return ["slice", value.start, value.stop, value.step]
    return ["dict", *map(list, value.items())] if isinstance(value, dict) else ["other", *found]


class _Rewriting:
    """Nodes of the same name, op and types stay, with new inputs; others are made. Order is the document's.

    Passes may give the name of a node that is gone to another one, which can have the same op.
    """

    def __init__(self, captured: CapturedGraph, document: Json) -> None:
        self._captured = captured
        self._graph = captured.graph
        self._old = {node["name"]: node for node in captured.document["nodes"]}
        self._new = document["nodes"]
        self._made: dict[str, fx.Node] = {}
        self._items: dict[str, Callable[[int], fx.Node]] = {}  # of fused nodes that make several tensors
        self._last: fx.Node | None = None
        fakes = [value for node in self._graph.nodes if isinstance(value := _value(node), torch.Tensor)]
        self._mode = detect_fake_mode(fakes)
        self._inputs = {node: node.all_input_nodes for node in self._graph.nodes}
        self._renewed: set[fx.Node] = set()  # kept nodes whose value is another one
        firsts = _FIRST_SIZES if captured.is_symbolic else ()
        self._elsewhere = [_Elsewhere(first, captured.document["world_size"]) for first in firsts]

    def run(self) -> None:
        kept = set()
        for item in self._new:
            old = self._old.get(item["name"])
            if item["target"] in CALLS:
                self._call(item)
            elif item["target"] == _GETITEM and item["args"][0]["node"] in self._items:
                self._made[item["name"]] = self._items[item["args"][0]["node"]](item["args"][1])
            elif old is not None and all(old[part] == item[part] for part in ("op", "target", "out")):
                kept.add(item["name"])
                self._keep(self._captured.nodes[item["name"]], old, item)
            else:
                target = self._captured.target_named(item["target"])
                named = {name: self._build(each) for name, each in item["kwargs"].items()}
                node = self._laid_out(self._add(target, self._arguments(item), named, item["name"]), item["out"])
                self._check(node, item["out"])
                self._made[item["name"]] = node
        for name, node in reversed(self._captured.nodes.items()):
            if name not in kept:
                self._graph.erase_node(node)

    def _place(self, node: fx.Node) -> None:
        if self._last is None:
            first = next(iter(self._graph.nodes))
            if first is not node:
                first.prepend(node)
        elif self._last.next is not node:
            self._last.append(node)
        self._last = node

    def _keep(self, node: fx.Node, old: Json, item: Json) -> None:
        is_same = _form_of([old["args"], old["kwargs"]]) == _form_of([item["args"], item["kwargs"]])
        if is_same:
            inputs = _nodes_in([item["args"], *(item["kwargs"][name] for name in node.kwargs)])
            node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), lambda _: self._made[next(inputs)])
        else:
            node.args = tuple(self._arguments(item))
            node.kwargs = {name: self._build(each) for name, each in item["kwargs"].items()}
        self._place(node)
        if node.op == "call_function" and not is_same:
            node.meta["val"] = self._fake(node)
            self._renewed.add(node)
        elif self._elsewhere:
            self._renew(node, old.get("symbolic", old["out"]))
        made = self._laid_out(node, item["out"])
        if node.op == "call_function" and not is_same:
            self._check(made, item["out"])
        self._made[item["name"]] = made

    def _laid_out(self, node: fx.Node, want: Json) -> fx.Node:
        """The node, or a copy of it: to its own sizes, which passes cannot know of symbols, a reshape keeps strides."""
        if not self._elsewhere or node.target not in (torch.ops.aten.reshape.default, torch.ops.aten.view.default):
            return node
        if _are_alike(_hinted(_type(node.meta.get("val"))), want):
            return node
        form = {"memory_format": torch.contiguous_format}
        return self._add(torch.ops.aten.clone.default, (node,), form, "clone")

    def _renew(self, node: fx.Node, before: Json) -> None:
        """Of a kept node that takes something new: its value, if it is another one for other sizes."""
        inputs = node.all_input_nodes
        if inputs == self._inputs[node] and self._renewed.isdisjoint(inputs):
            return
        value = _value(node) if node.op == "output" else self._fake(node)
        if _are_alike(_type(value), before):
            return
        if node.op == "output":
            raise _fits_only_here(node)
        node.meta["val"] = value
        self._renewed.add(node)

    def _arguments(self, item: Json) -> list[Any]:
        """Those of a node that is built anew. Passes write pieces of a split as in the captured call."""
        args = self._build(item["args"])
        if self._elsewhere and item["target"] == _SPLIT:
            whole, _, dim = args
            size = _value(whole).shape[dim]
            if _is_symbol(size):
                size = self._add(torch.ops.aten.sym_size.int, (whole, dim), {}, "sym_size")
                args[1] = self._add(operator.floordiv, (size, len(item["out"])), {}, "floordiv")
        return args

    def _build(self, argument: Json) -> Any:
        if isinstance(argument, list):
            return [self._build(each) for each in argument]
        if isinstance(argument, dict):
            if "node" in argument:
                return self._made[argument["node"]]
            if "float" in argument:
                return float(argument["float"])
            return self._captured.object_named(argument["repr"] if "repr" in argument else argument["sym"])
        return argument

    def _add(self, target: Any, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> fx.Node:
        node = self._graph.create_node("call_function", target, tuple(args), kwargs, name=name)
        self._place(node)
        node.meta["val"] = self._fake(node)
        return node

    def _fake(self, node: fx.Node) -> Any:
        args = fx.map_arg((node.args, node.kwargs), _value)
        if node.target is operator.getitem:
            return operator.getitem(*args[0])
        assert self._mode is not None and callable(node.target)
        if not self._elsewhere:
            with self._mode, torch.no_grad():
                return node.target(*args[0], **args[1])
        # Without guards: the program stays one for all sizes that it was one for.
        sizes = self._mode.shape_env
        with self._mode, torch.no_grad(), sizes.suppress_guards(), sizes.ignore_fresh_unbacked_symbols():
            value = node.target(*args[0], **args[1])
        for each in self._elsewhere:
            each.check(node, *args, value)
        return value

    def _call(self, item: Json) -> None:
        """A node that passes have made, as a call of an op of tandem.torch."""
        named = {name: self._build(each) for name, each in item["kwargs"].items()}
        call = CALLS[item["target"]](self._build(item["args"]), named)
        node = self._add(call.op, call.args, call.kwargs, item["name"])
        several = isinstance(item["out"], list)

        def item_at(index: int) -> fx.Node:
            made = node
            for step in call.path_of(index):
                made = self._item(made, step)
            self._check(made, item["out"][index] if several else item["out"])
            return made

        if several:
            self._items[item["name"]] = item_at
        else:
            self._made[item["name"]] = item_at(0)

    def _item(self, node: fx.Node, step: int) -> fx.Node:
        for user in node.users:
            if user.target is operator.getitem and user.args == (node, step):
                return user
        return self._add(operator.getitem, (node, step), {}, "getitem")

    def _check(self, node: fx.Node, want: Json) -> None:
        got = _hinted(_type(node.meta.get("val")))
        if not _are_alike(got, want):
            raise Error(ErrorCode.INTERNAL, f"graph: the rewritten node '{node.name}' makes {got}, need {want}")


class _Elsewhere:
    """Another call of a program of symbolic sizes: each symbol has another value.

    It finds what passes wrote as a number, although it is one in the captured call only.
    """

    def __init__(self, first: int, world_size: int) -> None:
        self._mode = FakeTensorMode()
        self._first = first
        self._step = 48 * world_size  # models divide sizes by numbers of heads and ranks
        self._values: dict[Any, int] = {}

    def check(self, node: fx.Node, args: Any, kwargs: Any, value: Any) -> None:
        """Whether the node makes of these arguments what its symbolic value says. Error UNSUPPORTED if not."""
        args, kwargs, want = pytree.tree_map(self._here, (args, kwargs, value))
        assert callable(node.target)
        try:
            with self._mode, torch.no_grad():
                got = node.target(*args, **kwargs)
        except Exception as error:
            raise _fits_only_here(node) from error
        if not _are_alike(_type(got), _type(want)):
            raise _fits_only_here(node)

    def _here(self, value: Any) -> Any:
        """The value in this call."""
        if _is_symbol(value):
            return self._number(value)
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        shape, stride = ([self._number(each) for each in sizes] for sizes in (value.shape, value.stride()))
        with self._mode:
            return torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)

    def _number(self, size: Any) -> Any:
        if not _is_symbol(size):
            return size
        expression = size.node.expr
        for symbol in sorted(expression.free_symbols, key=str):
            self._values.setdefault(symbol, (self._first + len(self._values)) * self._step)
        number = expression.xreplace(self._values)
        return bool(number) if isinstance(size, torch.SymBool) else size.node.pytype(number)


def _fits_only_here(node: fx.Node) -> Error:
    return Error(
        ErrorCode.UNSUPPORTED,
        f"graph: '{node.name}' of the rewritten program fits only the sizes of this call: compile with dynamic=False, "
        "or call torch._dynamo.mark_static() on the inputs, also on weights that are inputs",
    )


def _are_alike(got: Json, want: Json) -> bool:
    """Whether types are the same. Strides have no meaning for a dim of one element, and in a tensor without any."""
    if isinstance(got, list) and isinstance(want, list):
        return len(got) == len(want) and all(map(_are_alike, got, want))
    are_tensors = all(isinstance(each, dict) and "shape" in each for each in (got, want))
    if not are_tensors or got["shape"] != want["shape"] or got["dtype"] != want["dtype"]:
        return got == want
    steps = zip(got["shape"], got["stride"], want["stride"], strict=True)
    return 0 in got["shape"] or all(size == 1 or a == b for size, a, b in steps)


def _form_of(argument: Json) -> Json:
    """The argument without the names of its nodes."""
    if isinstance(argument, list):
        return [_form_of(each) for each in argument]
    if isinstance(argument, dict) and "repr" not in argument:
        return "a node" if "node" in argument else {name: _form_of(each) for name, each in argument.items()}
    return (argument, type(argument).__name__)


def _nodes_in(argument: Json) -> Iterator[str]:
    """The names of the nodes in an argument, in order."""
    if isinstance(argument, dict) and "node" in argument:
        yield argument["node"]
    for each in argument if isinstance(argument, list) else ():
        yield from _nodes_in(each)
