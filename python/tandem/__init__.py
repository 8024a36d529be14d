"""Tensor-parallel matrix products with their communication hidden inside.

    import numpy, tandem

    def work(rank, size):
        tandem.init()
        a = numpy.ones((2, 8), numpy.float32)
        b = numpy.ones((8, 4), numpy.float32)
        return tandem.fused_all_gather_matmul(a, b).out[0]

    print(tandem.launch(work, ranks=4)[0].shape)  # (8, 4)

Arrays are NumPy's or of any library that speaks DLPack; they are used where they are, with the strides they have.
"""

from importlib import metadata as _metadata

from . import graph, symm
from ._collectives import (
    Shard,
    all_gather,
    all_gather_with_progress,
    all_reduce,
    low_contention_all_gather,
    low_contention_barriers,
    low_contention_reduce_scatter,
    reduce_scatter,
    reduce_stack,
    shard_of,
)
from ._core import Array, Candidate, Device, Event, Group, OpReport, Packed4bitWeight, PackedB, Stream
from ._errors import Error, ErrorCode
from ._fused import (
    AllReduceResult,
    GatherResult,
    ScatterResult,
    fused_all_gather_block_scaled_matmul,
    fused_all_gather_matmul,
    fused_all_gather_scaled_matmul,
    fused_matmul_all_reduce,
    fused_matmul_reduce_scatter,
    fused_scaled_matmul_all_reduce,
    fused_scaled_matmul_reduce_scatter,
)
from ._group import default_group, finalize, init
from ._launch import launch
from ._products import (
    async_input_mm,
    matmul_4bit,
    mm,
    pack_4bit_weight,
    pack_b,
    quantize_rows,
    quantize_weight_4bit,
    scaled_matmul,
)
from ._timeline import Timeline

__version__ = _metadata.version("tandem")

__all__ = [
    "AllReduceResult",
    "Array",
    "Candidate",
    "Device",
    "Error",
    "ErrorCode",
    "Event",
    "GatherResult",
    "Group",
    "OpReport",
    "Packed4bitWeight",
    "PackedB",
    "ScatterResult",
    "Shard",
    "Stream",
    "Timeline",
    "all_gather",
    "all_gather_with_progress",
    "all_reduce",
    "async_input_mm",
    "default_group",
    "finalize",
    "fused_all_gather_block_scaled_matmul",
    "fused_all_gather_matmul",
    "fused_all_gather_scaled_matmul",
    "fused_matmul_all_reduce",
    "fused_matmul_reduce_scatter",
    "fused_scaled_matmul_all_reduce",
    "fused_scaled_matmul_reduce_scatter",
    "graph",
    "init",
    "launch",
    "low_contention_all_gather",
    "low_contention_barriers",
    "low_contention_reduce_scatter",
    "matmul_4bit",
    "mm",
    "pack_4bit_weight",
    "pack_b",
    "quantize_rows",
    "quantize_weight_4bit",
    "reduce_scatter",
    "reduce_stack",
    "scaled_matmul",
    "shard_of",
    "symm",
]
