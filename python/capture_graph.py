#!/usr/bin/env python3
"""Captures what Inductor compiles of a PyTorch function, as JSON for `tandem graph`.

    from capture_graph import capture
    with capture("out/block"):          # writes out/block.fwd.json, and .bwd.json once backward is compiled
        torch.compile(block)(x).sum().backward()

Call it on one rank, after init_process_group(). Collectives must be functional ones (DTensor, tensor parallel).
"""
import contextlib
import json
import pathlib

import torch
import torch.distributed as dist
from torch._inductor import config
from torch.utils._pytree import tree_map_only


def as_argument(value):
    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    if isinstance(value, (list, tuple)):
        return [as_argument(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else {"repr": str(value)}


def as_type(value):
    if isinstance(value, (list, tuple)):
        return [as_type(one) for one in value]
    if not isinstance(value, torch.Tensor):
        return None
    return {"shape": [int(size) for size in value.shape], "stride": [int(step) for step in value.stride()],
            "dtype": str(value.dtype).removeprefix("torch.")}


def as_program(graph, group):
    nodes = [{"name": node.name, "op": node.op, "target": str(node.target), "args": as_argument(node.args),
              "kwargs": {name: as_argument(value) for name, value in node.kwargs.items()},
              "out": as_type(tree_map_only(torch.fx.Node, lambda one: one.meta.get("val"), node.args[0])
                             if node.op == "output" else node.meta.get("val"))} for node in graph.nodes]
    return {"schema": 1, "source": f"torch {torch.__version__}, inductor post-grad graph", "world_size": group.size(),
            "group": group.group_name, "pytorch_fuses": {}, "nodes": nodes}


@contextlib.contextmanager
def capture(path, group=None):
    """Programs that are compiled inside go to PATH.fwd.json, PATH.bwd.json, PATH.2.json, ..."""
    group = group or dist.group.WORLD
    written = []

    def write(graph):
        names = ("fwd", "bwd")
        name = names[len(written)] if len(written) < len(names) else str(len(written))
        file = pathlib.Path(f"{path}.{name}.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(as_program(graph, group)))
        written.append(file)

    with config.patch(post_grad_custom_pre_pass=write):
        yield written
