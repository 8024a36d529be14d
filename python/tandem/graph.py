"""Captured PyTorch programs: read them, put fused ops into them, say what became of each collective."""

from __future__ import annotations

import os
from pathlib import Path

from . import _core
from ._core import CollectiveReport, FuseReport, Graph

__all__ = ["CollectiveReport", "FuseReport", "Graph", "fuse", "load", "loads"]


def loads(text: str) -> Graph:
    """Reads a graph from its JSON or its text form.

    Raises Error PARSE with the node or line; INVALID_ARGUMENT if the graph is not consistent.
    """
    return _core.parse_graph(text)


def load(path: str | os.PathLike[str]) -> Graph:
    """Reads a graph from a file, in JSON or in the text form. Raises as loads(), and OSError."""
    return loads(Path(path).read_text(encoding="utf-8"))


def fuse(
    graph: Graph,
    *,
    strict: bool = False,
    cost: bool = False,
    share_maxima: bool = False,
    low_contention: bool = False,
) -> FuseReport:
    """Rewrites the graph in place with fused ops, and reports what became of each collective.

    Args:
        strict: an unfused legal pair, or no fusion at all, is an error.
        cost: do not fuse where the cost model expects no gain.
        share_maxima: compute scales that need the maximum of the gathered tensor from the shards' maxima.

        low_contention: run gathers and scatters that are not fused beside products, where these take longer.

    Raises:
        Error: UNSUPPORTED with every reason, with `strict`; the graph is rewritten all the same.
    """
    return _core.fuse_graph(graph, strict, cost, share_maxima, low_contention)
