"""tandem's ops as custom ops of PyTorch, with the schemas of torch.ops.symm_mem.

    import torch.distributed as dist
    import tandem.torch

    dist.init_process_group("gloo")
    y, (z,) = tandem.torch.fused_all_gather_matmul(a, [b], 0, dist.group.WORLD)
    y, (z,) = torch.ops.tandem.fused_all_gather_matmul(a, [b], 0, dist.group.WORLD.group_name)  # the same

Importing this module makes torch.ops.tandem. It needs PyTorch 2.11 or later, of any build. torch.compile can trace
through the ops, and autograd through those without scales.
"""

from . import _gradients  # registers
from ._functions import (
    async_input_mm,
    fused_all_gather_matmul,
    fused_all_gather_scaled_matmul,
    fused_matmul_reduce_scatter,
    fused_matmuls_reduce_scatter,
    fused_scaled_matmul_reduce_scatter,
)
from ._groups import close_groups, group_of

__all__ = [
    "async_input_mm",
    "close_groups",
    "fused_all_gather_matmul",
    "fused_all_gather_scaled_matmul",
    "fused_matmul_reduce_scatter",
    "fused_matmuls_reduce_scatter",
    "fused_scaled_matmul_reduce_scatter",
    "group_of",
]
