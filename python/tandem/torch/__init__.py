"""tandem's ops as custom ops of PyTorch, with the schemas of torch.ops.symm_mem.

    import torch.distributed as dist
    import tandem.torch

    dist.init_process_group("gloo")
    y, (z,) = tandem.torch.fused_all_gather_matmul(a, [b], 0, dist.group.WORLD)
    y, (z,) = torch.ops.tandem.fused_all_gather_matmul(a, [b], 0, dist.group.WORLD.group_name)  # the same

Importing this module makes torch.ops.tandem. It needs PyTorch 2.11 or later, of any build, and is tested with 2.11 and
2.15. torch.compile can trace through the ops, and autograd through those that take no fp8 tensors. fusion_pass() puts
them into compiled models.
"""

from typing import TYPE_CHECKING, Any

from . import _gradients, _low_contention_ops, _quantized_ops  # register
from ._functions import (
    async_input_mm,
    fused_all_gather_addmm,
    fused_all_gather_matmul,
    fused_all_gather_quantized_matmul,
    fused_all_gather_scaled_matmul,
    fused_all_gathers_scaled_matmul,
    fused_matmul_all_reduce,
    fused_matmul_reduce_scatter,
    fused_matmuls_all_reduce,
    fused_matmuls_reduce_scatter,
    fused_quantized_matmul_reduce_scatter,
    fused_scaled_matmul_reduce_scatter,
    fused_scaled_matmuls_all_reduce,
    fused_scaled_matmuls_reduce_scatter,
    low_contention_all_gather,
    low_contention_reduce_scatter,
    recent_reports,
)
from ._groups import close_groups, group_of

if TYPE_CHECKING:
    from ._capture import capture_graphs
    from ._fusion_pass import FusionPass, PassedGraph, fusion_pass

__all__ = [
    "FusionPass",
    "PassedGraph",
    "async_input_mm",
    "capture_graphs",
    "close_groups",
    "fused_all_gather_addmm",
    "fused_all_gather_matmul",
    "fused_all_gather_quantized_matmul",
    "fused_all_gather_scaled_matmul",
    "fused_all_gathers_scaled_matmul",
    "fused_matmul_all_reduce",
    "fused_matmul_reduce_scatter",
    "fused_matmuls_all_reduce",
    "fused_matmuls_reduce_scatter",
    "fused_quantized_matmul_reduce_scatter",
    "fused_scaled_matmul_reduce_scatter",
    "fused_scaled_matmuls_all_reduce",
    "fused_scaled_matmuls_reduce_scatter",
    "fusion_pass",
    "group_of",
    "low_contention_all_gather",
    "low_contention_reduce_scatter",
    "recent_reports",
]


def __getattr__(name: str) -> Any:
    """What compiles is imported when it is used: it imports Inductor, which takes a second."""
    if name == "capture_graphs":
        from ._capture import capture_graphs

        return capture_graphs
    if name in ("FusionPass", "PassedGraph", "fusion_pass"):
        from . import _fusion_pass

        return getattr(_fusion_pass, name)
    raise AttributeError(f"module 'tandem.torch' has no attribute '{name}'")
