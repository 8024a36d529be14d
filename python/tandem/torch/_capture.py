"""The graphs that torch.compile makes, as files for tandem.graph and the command `tandem graph`."""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch._dynamo.utils import counters
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from tandem import graph as graphs
from tandem._errors import Error, ErrorCode

from . import _fx, _groups
from ._fx import Json
from ._groups import GroupLike

_log = logging.getLogger("tandem")

_MOST_ELEMENTS = 1 << 16  # of a constant that is written
_TENSOR_PARALLEL = ("mesh_tp", "mesh_tensor", "mesh_tensor_parallel")  # descriptions of groups, from names of mesh dims


class _Captured:
    """A graph that Inductor was about to change."""

    def __init__(self, name: str, graph: fx.Graph, inner: Callable[[fx.Graph], list[Json]]) -> None:
        self.name = name  # not unique
        self.graph = graph
        self.collectives = collections.Counter(_fx.collectives_in(graph))
        self.document = _fx.CapturedGraph(graph, "", 1).document
        for node, item in zip(graph.nodes, self.document["nodes"], strict=True):
            if node.op == "get_attr":
                item["constant"] = _constant(_fx.attribute_of(node), inner)

    def fused(self, group: str) -> int:
        """How many ops can be fused for a process group. Errors: those of tandem.graph.loads()."""
        return sum(graphs.fuse(graphs.loads(self.text(group, {}))).fused.values())

    def text(self, group: str, groups: Json) -> str:
        """The document for a process group, one of those that it lists."""
        header = {**self.document, "group": group, "world_size": _groups.size_of(group), "groups": groups}
        return json.dumps(header, allow_nan=False)


def _constant(value: Any, inner: Callable[[fx.Graph], list[Json]]) -> Json:
    """What a program has as an attribute."""
    if isinstance(value, fx.GraphModule):
        return {"nodes": inner(value.graph)}
    if not isinstance(value, torch.Tensor):
        return {"repr": str(value)}
    if isinstance(value, FakeTensor) or value.layout is not torch.strided or value.numel() > _MOST_ELEMENTS:
        return {"elements": None}
    try:
        with unset_fake_temporarily():
            elements = value.detach().cpu().flatten().tolist()
    except RuntimeError:  # of a type that has no numbers, as packed ones
        return {"elements": None}
    return {"elements": [{"repr": str(each)} if isinstance(each, complex) else _fx.number(each) for each in elements]}


class _Capture(CustomGraphPass):
    """Sees the graphs. What Inductor makes of them is as without it."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._next = config.post_grad_custom_pre_pass  # the program's own passes
        self._captured: dict[fx.Graph, _Captured] = {}
        self._inner: set[fx.Graph] = set()  # those that are in others
        self._compiled = counters["stats"]["unique_graphs"]

    def __call__(self, graph: fx.Graph) -> None:
        self._captured[graph] = _Captured(_fx.name_of_graph(), graph, self._nodes_of)
        passes = self._next if isinstance(self._next, (list, tuple)) else [self._next]
        for each in passes:
            if each is not None:
                each(graph)

    def uuid(self) -> None:
        """No key, so Inductor's caches are not asked: a graph from them would not come here."""

    def _nodes_of(self, graph: fx.Graph) -> list[Json]:
        """The nodes of a graph in another one. Inductor's passes see it first, so it may be another one by now."""
        self._inner.add(graph)
        if graph not in self._captured:
            self._captured[graph] = _Captured("", graph, self._nodes_of)
        return self._captured[graph].document["nodes"]

    @property
    def kept(self) -> list[_Captured]:
        """The graphs that are in no other one, in order."""
        return [each for graph, each in self._captured.items() if graph not in self._inner]

    def save(self, path: str | os.PathLike[str]) -> list[pathlib.Path]:
        """Writes the files. Errors: as _group_of()."""
        if not self.kept:
            return []
        uses = _uses(self.kept)
        group = self._group_of(uses)
        groups = {name: _about(name, ops) for name, ops in sorted({group: {}, **uses}.items())}
        names: list[str] = []
        files = []
        for each in self.kept:
            names.append(_fx.free_name(each.name, names))
            file = pathlib.Path(f"{path}.{names[-1]}.json")
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_name(f"{file.name}.{os.getpid()}.part")
            part.write_text(each.text(group, groups), encoding="utf-8")
            part.replace(file)
            files.append(file)
        for name in names:
            if name.endswith("_forward") and name.replace("_forward", "_backward") not in names:
                _log.warning("tandem captured %s without its backward: call backward() inside capture_graphs()", name)
        return files

    def _group_of(self, uses: dict[str, Json]) -> str:
        """The group that was asked for, or that of tensor parallelism. Error INVALID_ARGUMENT if it is not certain."""
        listed = _listed(uses)
        if not uses:
            _log.warning(
                "tandem captured no collective: parallelize the model, with functional collectives as those of DTensor"
            )
        if self._group is not None:
            if uses and self._group not in uses:
                _log.warning("tandem captured no collective of group '%s', but of %s", self._group, listed)
            return self._group
        if len(uses) < 2:
            return next(iter(uses), torch.distributed.group.WORLD.group_name)
        named = [name for name in uses if _groups.process_group_of(name).group_desc in _TENSOR_PARALLEL]
        found = named if len(named) == 1 else self._most_fused(uses)
        if len(found) != 1:
            text = f"capture_graphs: which process group? need group=, one of {listed}"
            raise Error(ErrorCode.INVALID_ARGUMENT, text)
        _log.warning("tandem captured for process group '%s', of %s; group= takes another one", found[0], listed)
        return found[0]

    def _most_fused(self, uses: dict[str, Json]) -> list[str]:
        """The groups of which most can be fused. Gradients are scattered over data-parallel ranks too."""
        forward = [each for each in self.kept if not each.name.endswith("_backward")] or self.kept
        try:
            counts = {name: sum(each.fused(name) for each in forward) for name in uses}
        except Error:  # a graph that cannot be read: the user says
            return []
        most = max(counts.values())
        return [name for name, count in counts.items() if count == most]

    def why_nothing(self) -> str:
        """Why no graph came, and what to do."""
        compiled = max(counters["stats"]["unique_graphs"] - self._compiled, 0)
        if getattr(torch._dynamo.config, "disable", False):
            return "torch.compile is disabled, as TORCH_COMPILE_DISABLE=1 does"
        if compiled > 0:
            return (
                f"torch.compile made {compiled} graphs that Inductor's passes did not see: take the backend "
                "'inductor', and leave 'post_grad_custom_pre_pass' out of the options of torch.compile()"
            )
        return (
            "torch.compile() compiled nothing: call the compiled function in the block, in this thread; one that was "
            "compiled before is compiled again after torch._dynamo.reset()"
        )


def _uses(captured: list[_Captured]) -> dict[str, Json]:
    """How often each collective is in the graphs, by process group."""
    uses: dict[str, Json] = {}
    for (op, name), count in sum((each.collectives for each in captured), collections.Counter()).items():
        uses.setdefault(name, {})[op] = count
    return uses


def _about(name: str, ops: Json) -> Json:
    process_group = _groups.process_group_of(name)
    return {"ranks": process_group.size(), "description": process_group.group_desc, "collectives": ops}


def _listed(uses: dict[str, Json]) -> str:
    """'1' (mesh_dp, 4 ranks: 2 all_gather_into_tensor), ..."""
    parts = []
    for name, ops in sorted(uses.items()):
        about = _about(name, ops)
        counts = ", ".join(f"{count} {op.split('.')[1]}" for op, count in sorted(ops.items()))
        parts.append(f"'{name}' ({about['description']}, {about['ranks']} ranks: {counts})")
    return ", ".join(parts)


@contextlib.contextmanager
def capture_graphs(path: str | os.PathLike[str], group: GroupLike | None = None) -> Iterator[list[pathlib.Path]]:
    """Writes the graphs that are compiled inside as JSON for tandem.graph.load() and the command `tandem graph`.

        with tandem.torch.capture_graphs("out/block"):  # out/block.0_forward.json, out/block.0_backward.json
            torch.compile(block)(x).sum().backward()

    Graphs are those of Inductor, before any pass that fuses. A fake process group suffices; call it on one rank. What
    is compiled is as without it, except that Inductor's caches are not asked. It is tested with PyTorch 2.11 and 2.15.

    The files are written at the end of the block, also if it raises; then the list has them. A file's name says what
    AOTAutograd says of the graph: its number, and `forward`, `backward`, or `inference` for one without gradients. The
    logger "tandem" warns of a forward without a backward, and of graphs without collectives.

    Args:
        path: the files begin with it.
        group: the process group of the graphs, or its name. By default it is the only one with collectives, that of the
            mesh dim "tp", or the one of which most can be fused. The logger says which one of several it is.

    Raises:
        tandem.Error: INVALID_ARGUMENT without a process group, or if none of several is the obvious one, with a list of
            them; UNSUPPORTED if nothing was captured, and why.
    """
    if not torch.distributed.is_initialized():
        raise Error(ErrorCode.INVALID_ARGUMENT, "capture_graphs: call torch.distributed.init_process_group() before")
    name = None if group is None else _groups.name_of(group)
    if name is not None:
        _groups.process_group_of(name)
    capture = _Capture(name)
    written: list[pathlib.Path] = []
    try:
        with config.patch(post_grad_custom_pre_pass=capture):
            yield written
    except BaseException as error:
        try:
            written.extend(capture.save(path))
        except Error as another:
            error.add_note(str(another))
        raise
    written.extend(capture.save(path))
    if not written:
        raise Error(ErrorCode.UNSUPPORTED, f"capture_graphs: nothing was captured: {capture.why_nothing()}")
