"""The pass that puts tandem's ops into the graphs that torch.compile makes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import shutil
import subprocess

from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass

from tandem import _core
from tandem import graph as graphs
from tandem._errors import Error, ErrorCode

from . import _fx, _groups
from ._groups import GroupLike

_log = logging.getLogger("tandem")


@dataclasses.dataclass(frozen=True)
class PassedGraph:
    """A graph that the pass saw."""

    name: str  #: as AOTAutograd calls it: "0_forward", "0_backward" or "0_inference"
    before: graphs.Graph  #: as Inductor had it
    after: graphs.Graph  #: as the pass left it; fused ops have the names of PyTorch's
    report: graphs.FuseReport  #: what became of each collective

    def draw(self, folder: str | os.PathLike[str]) -> list[pathlib.Path]:
        """Writes a picture from before the pass and one from after it, with fused ops in green.

        They are Graphviz's text, `NAME.before.dot` and `NAME.after.dot`, and SVG beside them where the command `dot` is
        installed. Returns the files.
        """
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for when, graph in (("before", self.before), ("after", self.after)):
            file = folder / f"{self.name}.{when}.dot"
            file.write_text(graph.to_dot(), encoding="utf-8")
            files.append(file)
            if (dot := shutil.which("dot")) is not None:
                subprocess.run([dot, "-Tsvg", "-O", file], check=True)
                files.append(file.with_name(f"{file.name}.svg"))
        return files


class FusionPass(CustomGraphPass):
    """What fusion_pass() returns."""

    def __init__(self, group: str | None, strict: bool, options: dict[str, bool]) -> None:
        self.graphs: list[PassedGraph] = []  #: the graphs with gathers or scatters that were compiled, in order
        self.refused: list[str] = []  #: for each of them that was left as it was, its name and why
        self._group = group
        self._options = options
        self._strict = strict

    def __call__(self, graph: fx.Graph) -> None:
        """Rewrites a graph in place."""
        groups = _fx.groups_in(graph)
        if not groups:
            return
        tried = [self._fused(graph, group) for group in ([self._group] if self._group else groups)]
        captured, passed = max(tried, key=lambda each: sum(each[1].report.fused.values()))
        try:
            if self._strict and (complaint := passed.report.complaint) is not None:
                raise Error(ErrorCode.UNSUPPORTED, f"{passed.name}: {complaint}")
            document = json.loads(passed.after.to_json())
            if _fx.has_calls(document):
                captured.rewrite(document)
                graph.lint()
        except Error as error:
            if self._strict or error.code is not ErrorCode.UNSUPPORTED:
                raise
            self.refused.append(f"{passed.name}: {error.text}")
            _log.warning("tandem fused nothing in %s", self.refused[-1])
            return
        self.graphs.append(passed)
        _log.info("tandem fused %s in %s", passed.report.fused or "nothing", passed.name)

    def _name_of_graph(self) -> str:
        return _fx.free_name(_fx.name_of_graph(), [each.name for each in self.graphs])

    def _fused(self, graph: fx.Graph, group: str) -> tuple[_fx.CapturedGraph, PassedGraph]:
        captured = _fx.CapturedGraph(graph, group, _groups.size_of(group))
        before, after = graphs.loads(captured.text()), graphs.loads(captured.text())
        report = graphs.fuse(after, **self._options)
        return captured, PassedGraph(self._name_of_graph(), before, after, report)

    def uuid(self) -> bytes:
        """The key of this pass in Inductor's caches: tandem's code and the options."""
        hashed = hashlib.sha256(repr((self._group, self._strict, self._options)).encode())
        folder = pathlib.Path(__file__).parent
        for file in [*sorted(folder.glob("*.py")), pathlib.Path(_core.__file__)]:
            hashed.update(file.read_bytes())
        return hashed.digest()

    def report(self) -> str:
        """A table for each graph: what became of each collective, and why.

        A graph whose code Inductor takes from its cache is not compiled, so the pass does not see it.
        TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 makes Inductor compile again.
        """
        if not self.graphs and not self.refused:
            return (
                "No graph with a gather or a scatter was compiled. Code from Inductor's cache is not compiled again: "
                "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 prevents that.\n"
            )
        tables = [f"{each.name}\n{each.report.to_table()}" for each in self.graphs]
        return "\n".join([*tables, *(f"{text}\n" for text in self.refused)])


def fusion_pass(
    group: GroupLike | None = None,
    *,
    strict: bool = False,
    cost: bool = False,
    share_maxima: bool = False,
    low_contention: bool = False,
) -> FusionPass:
    """Makes the pass that fuses collectives and products in torch.compile.

        fusion = tandem.torch.fusion_pass()
        step = torch.compile(model, options={"post_grad_custom_pre_pass": fusion})
        step(x).sum().backward()
        print(fusion.report())

    The pass gives each graph to tandem.graph.fuse() and writes its decisions into it. The ops that then run are those
    of torch.ops.tandem. Collectives are functional ones, as DTensor and torch.distributed.tensor.parallel make them.
    PyTorch's own pass comes later, and finds what is left.

    Args:
        group: the process group, or its name, whose collectives are fused. By default it is, in each graph, the one of
            which most can be fused. Its ranks are on one host.
        strict: a graph in which a pair that could be fused is left, or nothing is fused, is an error. Graphs without
            gathers and scatters are none.
        cost, share_maxima, low_contention: as for tandem.graph.fuse().

    Raises:
        tandem.Error: when a graph is compiled. With `strict`: UNSUPPORTED with every reason, also if the rewritten graph
            of a program with symbolic sizes would fit one call only. Without it, such a graph is left as it is, and
            report() says so. INTERNAL if the rewritten graph is not consistent.
    """
    options = {"cost": cost, "share_maxima": share_maxima}
    if low_contention:
        options["low_contention"] = True
    return FusionPass(None if group is None else _groups.name_of(group), strict, options)
