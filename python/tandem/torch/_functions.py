"""The ops as functions, which take a process group or its name."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import tandem

from . import _ops
from ._groups import GroupLike, name_of

_ops_of = getattr(torch.ops, _ops.NAMESPACE)

Tensors = Sequence[torch.Tensor]
MaybeTensors = Sequence[torch.Tensor | None]


def fused_all_gather_matmul(
    A: torch.Tensor,
    Bs: Tensors,
    gather_dim: int,
    group: GroupLike,
    *,
    return_A: bool = True,
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """Gathers A along a dim and multiplies it with each B. A collective call.

    Args:
        A: this rank's shard [..., k]; float32, bfloat16 or float16; any strides. All shards have the same sizes. It is
            not copied for its layout if `A.movedim(gather_dim, 0)` is contiguous.
        Bs: [k, n_i] each, of A's type; [W * k, n_i] if the last dim is gathered.
        gather_dim: in [0, A.dim()).
        group: a ProcessGroup, or its name.
        return_A: whether the result has all of A.

    Returns:
        All of A, or None; and `all_gather(A) @ B` for each B, of A's type. The gathered dim is the outermost in memory,
        unless it is the last: then results are contiguous.

    Gradients:
        A's gradient is fused_matmuls_reduce_scatter() of the results' gradients. Those of Bs take all of A: that of the
        result with `return_A`, else A is gathered again.

    Graphs:
        torch.cuda.graph can capture the call. First run it once with tensors of the same sizes, types and strides on
        the stream that captures: this makes the group and allocates what a capture cannot. Every rank captures the same
        calls in the same order, and replays them in the same order. On GPUs the host waits for the other ranks in the
        first call of a problem, and never for the GPU.

    Raises:
        tandem.Error: INVALID_ARGUMENT at once, with the values; the other ranks then get MISMATCH. TIMEOUT or PEER_LOST
            when the work is waited for, on CPUs at once. See also group_of(), for the first call of a group.
    """
    return _ops_of.fused_all_gather_matmul(A, Bs, gather_dim, name_of(group), return_A=return_A)


def fused_all_gather_addmm(
    A: torch.Tensor,
    Bs: Tensors,
    biases: MaybeTensors,
    gather_dim: int,
    group: GroupLike,
    *,
    return_A: bool = True,
    gather_size: int | None = None,
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """Gathers A along a dim and computes `all_gather(A) @ B_i + bias_i` for each B. A collective call.

    Args:
        biases: [n_i] or None for each B, of A's type.
        gather_size: the size of gather_dim over all ranks, if W shards have more. Rank r then has `ceil(gather_size /
            W)` of them from `r` times that on, as far as there are so many. The rest of its shard is padding.
        A, Bs, gather_dim, group, return_A: as for fused_all_gather_matmul().

    Gradients: none. With gradients, add the biases to the results of fused_all_gather_matmul().

    Returns, Graphs, Raises: as fused_all_gather_matmul().
    """
    return _ops_of.fused_all_gather_addmm(
        A, Bs, biases, gather_dim, name_of(group), return_A=return_A, gather_size=gather_size
    )


def fused_all_gather_scaled_matmul(
    A: torch.Tensor,
    Bs: Tensors,
    A_scale: torch.Tensor,
    B_scales: Tensors,
    gather_dim: int,
    group: GroupLike,
    biases: MaybeTensors,
    result_scales: MaybeTensors,
    out_dtypes: Sequence[torch.dtype | None],
    use_fast_accum: Sequence[bool],
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Gathers an fp8 A along a dim and multiplies it with each B:
    out_i = (all_gather(A) @ B_i * scales + bias_i) * result_scale_i. A collective call.

    Args:
        A: this rank's shard [..., k], float8_e4m3fn or float8_e5m2; any strides. All shards have the same sizes.
        Bs: fp8 [k, n_i] each; [W * k, n_i] if the last dim is gathered. Row-major or column-major.
        A_scale: float32: one element; or the shard's rows, A.shape[:-1] + [1]; or all rows, the same on every rank.
        B_scales: float32 for each B: one element, or [1, n_i].
        gather_dim, group: as for fused_all_gather_matmul().
        biases: [n_i] or None for each B.
        result_scales: float32, one element or None for each B.
        out_dtypes: for each B float32, bfloat16, float16 or fp8, which saturates. None is B's type.
        use_fast_accum: for each B. Less exact sums are allowed if all allow them; the CPU has none.

    Returns:
        All of A, and a product for each B, with the strides of fused_all_gather_matmul().

    Gradients: none, see fused_all_gather_quantized_matmul().

    Graphs: as for fused_all_gather_matmul().

    Raises:
        tandem.Error: as fused_all_gather_matmul(). UNSUPPORTED, with each reason, where the device cannot multiply them.
    """
    return _ops_of.fused_all_gather_scaled_matmul(
        A, Bs, A_scale, B_scales, gather_dim, name_of(group), biases, result_scales, out_dtypes, use_fast_accum
    )


def fused_all_gathers_scaled_matmul(
    A: torch.Tensor,
    Bs: Tensors,
    A_scale: torch.Tensor,
    B_scales: Tensors,
    gather_dim: int,
    group: GroupLike,
    biases: MaybeTensors,
    result_scales: MaybeTensors,
    out_dtypes: Sequence[torch.dtype | None],
    use_fast_accum: Sequence[bool],
    also_gather: Tensors,
    *,
    return_A: bool = True,
    scale_mode: str = "detect",
    gather_size: int | None = None,
) -> tuple[torch.Tensor | None, list[torch.Tensor], list[torch.Tensor]]:
    """As fused_all_gather_scaled_matmul(); the same schedule gathers further shards. A collective call.

    Args:
        also_gather: further shards, of any type, with A's sizes but for the last.
        return_A: whether the result has all of A.
        scale_mode: what A_scale is: "tensorwise", "rowwise_sharded", "rowwise_replicated", or "detect" by its sizes. Or
            "blockwise_sharded", "blockwise_replicated": scales by blocks of 128, as for
            tandem.fused_all_gather_block_scaled_matmul().
        gather_size: as for fused_all_gather_addmm(). Pass scale_mode with it, if a shard of scales has padding too.
        others: as for fused_all_gather_scaled_matmul().

    Returns:
        All of A, or None; a product for each B; and each of also_gather gathered. Strides are those of
        fused_all_gather_matmul().

    Gradients, Graphs, Raises: as fused_all_gather_scaled_matmul().
    """
    return _ops_of.fused_all_gathers_scaled_matmul(
        A,
        Bs,
        A_scale,
        B_scales,
        gather_dim,
        name_of(group),
        biases,
        result_scales,
        out_dtypes,
        use_fast_accum,
        also_gather,
        return_A=return_A,
        scale_mode=scale_mode,
        gather_size=gather_size,
    )


def fused_all_gather_quantized_matmul(
    A: torch.Tensor,
    Bs: Tensors,
    gather_dim: int,
    group: GroupLike,
    *,
    quantize: torch.dtype = torch.float8_e4m3fn,
    use_fast_accum: bool = False,
    return_A: bool = True,
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    """As fused_all_gather_matmul(), with operands that are rounded to fp8 for the products. A collective call.

    Each row of A and each column of a B has a scale of its own, which tandem.quantize_rows() chooses in every call. For
    weights that stay as they are, round them once and call fused_all_gather_scaled_matmul().

    Args:
        A, Bs, gather_dim, group: as for fused_all_gather_matmul(), but the last dim of A cannot be gathered.
        quantize: float8_e4m3fn or float8_e5m2.
        use_fast_accum: allows less exact sums; the CPU has none.
        return_A: whether the result has all of A, as it was before it is rounded. Without, A travels as fp8.

    Returns:
        As fused_all_gather_matmul(): all of A, or None; and a product for each B, of A's type.

    Gradients:
        Those of fused_all_gather_matmul(): rounding counts as the identity, and the backward's products take A, Bs and
        the results' gradients as they are, in A's type.

    Graphs: as for fused_all_gather_matmul().

    Raises:
        tandem.Error: as fused_all_gather_scaled_matmul().
    """
    return _ops_of.fused_all_gather_quantized_matmul(
        A, Bs, gather_dim, name_of(group), quantize=quantize, use_fast_accum=use_fast_accum, return_A=return_A
    )


def fused_matmul_reduce_scatter(
    A: torch.Tensor, B: torch.Tensor, reduce_op: str, scatter_dim: int, group: GroupLike
) -> torch.Tensor:
    """Sums A @ B over the group and leaves this rank's shard of scatter_dim. A collective call.

    Args:
        A: [..., k]; float32, bfloat16 or float16; any strides. It is not copied for its layout if
            `A.movedim(scatter_dim, 0)` is contiguous.
        B: [k, n], of A's type.
        reduce_op: "sum" or "avg".
        scatter_dim: in [0, A.dim()); the last dim scatters n. Its size is a multiple of W.
        group: a ProcessGroup, or its name.

    Returns:
        A's sizes with n last and scatter_dim divided by W; contiguous; of A's type.

    Gradients:
        A's gradient is fused_all_gather_matmul() of the result's gradient. The same call gathers what B's takes.

    Graphs: as for fused_all_gather_matmul().

    Raises:
        tandem.Error: as fused_all_gather_matmul().
    """
    return _ops_of.fused_matmul_reduce_scatter(A, B, reduce_op, scatter_dim, name_of(group))


def fused_matmuls_reduce_scatter(
    As: Tensors, Bs: Tensors, reduce_op: str, scatter_dim: int, group: GroupLike, *, return_product: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Sums A_j @ B_j over j and over the group, and leaves this rank's shard. A collective call.

    Args:
        As: [..., k_j] each, equal in all sizes but the last.
        Bs: [k_j, n] each; as many as As.
        reduce_op, scatter_dim, group: as for fused_matmul_reduce_scatter().
        return_product: whether the result has this rank's own sum of products.

    Returns:
        This rank's shard, as fused_matmul_reduce_scatter(); and its own sum [..., n], or None.

    Gradients, Graphs, Raises: as fused_matmul_reduce_scatter().
    """
    group_name = name_of(group)
    return _ops_of.fused_matmuls_reduce_scatter(
        As, Bs, reduce_op, scatter_dim, group_name, return_product=return_product
    )


def fused_scaled_matmul_reduce_scatter(
    A: torch.Tensor,
    B: torch.Tensor,
    A_scale: torch.Tensor,
    B_scale: torch.Tensor,
    reduce_op: str,
    orig_scatter_dim: int,
    scatter_dim_after_maybe_reshape: int,
    group: GroupLike,
    output_shape: Sequence[int] | None,
    bias: torch.Tensor | None = None,
    result_scale: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """Sums (A @ B * scales + bias) * result_scale over the group and leaves this rank's shard. A collective call.

    Args:
        A: fp8, float8_e4m3fn or float8_e5m2: [..., k], or the same rows as a matrix [rows, k].
        B: fp8 [k, n]. Row-major or column-major.
        A_scale: float32: one element, or A.shape[:-1] + [1].
        B_scale: float32: one element, or [1, n].
        reduce_op: "sum" or "avg".
        orig_scatter_dim: the dim of output_shape that is scattered. Its size is a multiple of W.
        scatter_dim_after_maybe_reshape: that dim in A as it is passed. It is checked, and else not needed.
        group: a ProcessGroup, or its name.
        output_shape: sizes of the product before it is scattered, n last. None is A's sizes with n last.
        bias: [n]. It is added on every rank before the sum over ranks: a sum holds it W times.
        result_scale: float32, one element.
        out_dtype: float32, bfloat16, float16 or fp8, which saturates. None is A's type.
        use_fast_accum: allows less exact sums; the CPU has none.

    Returns:
        output_shape with orig_scatter_dim divided by W; contiguous.

    Gradients: none, see fused_quantized_matmul_reduce_scatter().

    Graphs: as for fused_all_gather_matmul().

    Raises:
        tandem.Error: as fused_all_gather_matmul(). UNSUPPORTED, with each reason, where the device cannot multiply them.
    """
    return _ops_of.fused_scaled_matmul_reduce_scatter(
        A,
        B,
        A_scale,
        B_scale,
        reduce_op,
        orig_scatter_dim,
        scatter_dim_after_maybe_reshape,
        name_of(group),
        output_shape,
        bias,
        result_scale,
        out_dtype,
        use_fast_accum,
    )


def fused_scaled_matmuls_reduce_scatter(
    As: Tensors,
    Bs: Tensors,
    A_scales: MaybeTensors,
    B_scales: MaybeTensors,
    reduce_op: str,
    scatter_dim: int,
    group: GroupLike,
    biases: MaybeTensors | None = None,
    result_scales: MaybeTensors | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    return_product: bool = False,
    padded: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Sums (A_j @ B_j * scales_j + bias_j) * result_scale_j over j and over the group; leaves this rank's shard.

    A collective call.

    Args:
        As: [..., k_j] each, equal in all sizes but the last: fp8 with scales; float32, bfloat16 or float16 without.
        Bs: [k_j, n] each; as many as As.
        A_scales: float32 for each A: one element, or A_j.shape[:-1] + [1]. A product has both scales, or None for both.
        B_scales: float32 for each B: one element, or [1, n].
        reduce_op, scatter_dim, group: as for fused_matmul_reduce_scatter().
        biases: [n] or None for each product. Each rank adds its own before the sum over ranks.
        result_scales: float32, one element or None for each product.
        out_dtype: float32, bfloat16, float16 or fp8, which saturates. None is the type of the first A.
        use_fast_accum: allows less exact sums; the CPU has none.
        return_product: whether the result has this rank's own sum of products.
        padded: allows a size of scatter_dim that W does not divide. Every rank then gets `ceil(size / W)` rows, and
            zeros behind the rows that are its own.

    Returns:
        This rank's shard, as fused_matmul_reduce_scatter(); and its own sum [..., n], or None.

    Gradients: none, see fused_quantized_matmul_reduce_scatter().

    Graphs: as for fused_all_gather_matmul().

    Raises:
        tandem.Error: as fused_all_gather_matmul(). UNSUPPORTED, with each reason, where the device cannot multiply them.
    """
    return _ops_of.fused_scaled_matmuls_reduce_scatter(
        As,
        Bs,
        A_scales,
        B_scales,
        reduce_op,
        scatter_dim,
        name_of(group),
        biases,
        result_scales,
        out_dtype=out_dtype,
        use_fast_accum=use_fast_accum,
        return_product=return_product,
        padded=padded,
    )


def fused_quantized_matmul_reduce_scatter(
    A: torch.Tensor,
    B: torch.Tensor,
    reduce_op: str,
    scatter_dim: int,
    group: GroupLike,
    *,
    quantize: torch.dtype = torch.float8_e4m3fn,
    use_fast_accum: bool = False,
) -> torch.Tensor:
    """As fused_matmul_reduce_scatter(), with operands that are rounded to fp8 for the product. A collective call.

    Scales are those of fused_all_gather_quantized_matmul().

    Args:
        A, B, reduce_op, scatter_dim, group: as for fused_matmul_reduce_scatter().
        quantize, use_fast_accum: as for fused_all_gather_quantized_matmul().

    Returns:
        As fused_matmul_reduce_scatter(), of A's type.

    Gradients:
        Those of fused_matmul_reduce_scatter(), of A and B as they are.

    Graphs: as for fused_all_gather_matmul().

    Raises:
        tandem.Error: as fused_scaled_matmul_reduce_scatter().
    """
    return _ops_of.fused_quantized_matmul_reduce_scatter(
        A, B, reduce_op, scatter_dim, name_of(group), quantize=quantize, use_fast_accum=use_fast_accum
    )


def fused_matmul_all_reduce(
    A: torch.Tensor, B: torch.Tensor, reduce_op: str, group: GroupLike, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Sums A @ B over the group; every rank gets all of it, with the same bits. A collective call.

    Args:
        A: [..., k]; float32, bfloat16 or float16. It is not copied for its layout if its rows lie evenly in memory.
        B: [k, n], of A's type.
        reduce_op: "sum" or "avg".
        group: a ProcessGroup, or its name.
        bias: [n], of A's type, the same on every rank. It is added once, after the sum over ranks.

    Returns:
        A's sizes with n last; contiguous; of A's type.

    Gradients:
        The loss is the sum of the ranks' losses: so A's and B's take the sum over ranks of the results' gradients, by
        all_reduce(). Where all ranks compute one loss from equal results, divide it by the group's size. That of bias
        is of the rank's own result.

    Graphs: as for fused_all_gather_matmul().

    Raises:
        tandem.Error: as fused_all_gather_matmul().
    """
    return _ops_of.fused_matmul_all_reduce(A, B, reduce_op, name_of(group), bias)


def fused_matmuls_all_reduce(
    As: Tensors,
    Bs: Tensors,
    reduce_op: str,
    group: GroupLike,
    bias: torch.Tensor | None = None,
    *,
    return_product: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Sums A_j @ B_j over j and over the group; every rank gets all of it. A collective call.

    Args:
        As: [..., k_j] each, equal in all sizes but the last.
        Bs: [k_j, n] each; as many as As.
        reduce_op, group, bias: as for fused_matmul_all_reduce().
        return_product: whether the result has this rank's own sum of products.

    Returns:
        The sum, as fused_matmul_all_reduce(); and the own sum [..., n], or None.

    Gradients, Graphs, Raises: as fused_matmul_all_reduce().
    """
    return _ops_of.fused_matmuls_all_reduce(As, Bs, reduce_op, name_of(group), bias, return_product=return_product)


def fused_scaled_matmuls_all_reduce(
    As: Tensors,
    Bs: Tensors,
    A_scales: MaybeTensors,
    B_scales: MaybeTensors,
    reduce_op: str,
    group: GroupLike,
    biases: MaybeTensors | None = None,
    result_scales: MaybeTensors | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    return_product: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Sums (A_j @ B_j * scales_j + bias_j) * result_scale_j over j and over the group; every rank gets all of it.

    A collective call.

    Args:
        As, Bs, A_scales, B_scales, biases, result_scales, out_dtype, use_fast_accum: as for
            fused_scaled_matmuls_reduce_scatter().
        reduce_op, group, return_product: as for fused_matmuls_all_reduce().

    Returns:
        As fused_matmuls_all_reduce().

    Gradients: none.

    Graphs: as for fused_all_gather_matmul().

    Raises:
        tandem.Error: as fused_scaled_matmul_reduce_scatter().
    """
    return _ops_of.fused_scaled_matmuls_all_reduce(
        As,
        Bs,
        A_scales,
        B_scales,
        reduce_op,
        name_of(group),
        biases,
        result_scales,
        out_dtype=out_dtype,
        use_fast_accum=use_fast_accum,
        return_product=return_product,
    )


def async_input_mm(a: torch.Tensor, b: torch.Tensor, a_chunk_signals: torch.Tensor, a_chunk_pivot: int) -> torch.Tensor:
    """a @ b, while the rows of a still arrive. No other rank takes part.

    Args:
        a: [m, k], contiguous; bfloat16, float16, on CPUs also float32. Rows of a chunk may hold anything until its
            signal is there.
        b: [k, n], of a's type, row-major or column-major.
        a_chunk_signals: uint32 [C]. Chunk i is rows [i * c, (i + 1) * c) of a, with c = ceil(m / C). It is there once
            its word is 1. On CPUs the call waits for its result, so all words come from elsewhere or are there.
        a_chunk_pivot: the chunk that is taken first, in [0, C).

    Returns:
        [m, n], contiguous, of a's type.

    Gradients: none.

    Graphs: as for fused_all_gather_matmul(), with no other rank.

    Raises:
        tandem.Error: INVALID_ARGUMENT or UNSUPPORTED at once; TIMEOUT with the chunk whose signal did not come.
    """
    return _ops_of.async_input_mm(a, b, a_chunk_signals, a_chunk_pivot)


def low_contention_all_gather(
    tensor: torch.Tensor, gather_dim: int, group: GroupLike, *, total: int | None = None
) -> torch.Tensor:
    """Gathers a tensor along a dim while the current stream goes on, with products for example. A collective call.

        whole = tandem.torch.low_contention_all_gather(shard, 0, group)
        y = a @ b  # beside it
        z = torch.ops._c10d_functional.wait_tensor(whole) @ c

    It returns at once. Until `wait_tensor` has the result, nothing may read the result, or write the tensor. Copy
    engines move the data, with barriers that need no multiprocessor. On CPUs a thread of the group copies.

    Args:
        tensor: this rank's shard, of any type and strides. It is copied first if it is not contiguous. Its size in
            gather_dim follows the shard rule over `total`: ceil(total / W), and what is left for the last ranks.
        gather_dim: the dim; negative numbers count from the end.
        group: a ProcessGroup, or its name.
        total: the size of gather_dim over all ranks. By default it is W times this rank's: right where all shards are
            equal.

    Returns:
        All of the tensor, contiguous, of its type. `torch.ops._c10d_functional.wait_tensor` makes the stream that is
        current then wait for it, on CPUs the host. Waiting again does nothing.

    Gradients:
        The gradient is low_contention_reduce_scatter() of the result's gradient, complete when the backward returns.

    Without a wait:
        The result must not be read. The memory of both tensors stays until the call has run. Later calls of the group
        come behind it and raise its error. close_groups() and the end of the process wait for it, and log its error.
        PyTorch warns of it when the process ends.

    Graphs:
        As for fused_all_gather_matmul(). `wait_tensor` is called inside of what is captured.

    Raises:
        tandem.Error: INVALID_ARGUMENT at once, with the values; the other ranks then get MISMATCH. On CPUs `wait_tensor`
            raises MISMATCH, TIMEOUT or PEER_LOST. On GPUs it raises them if they are known by then.
    """
    return _ops_of.low_contention_all_gather(tensor, gather_dim, name_of(group), total=total)


def low_contention_reduce_scatter(
    tensor: torch.Tensor, reduce_op: str, scatter_dim: int, group: GroupLike
) -> torch.Tensor:
    """Sums the ranks' tensors while the current stream goes on. This rank keeps its shard. A collective call.

    It returns at once, and is waited for as low_contention_all_gather() is. Copy engines move the data, and one
    small kernel adds them. On CPUs a thread of the group does both.

    Args:
        tensor: this rank's summand; float32, bfloat16, float16 or fp8; any strides. It is copied first if it is not
            contiguous.
        reduce_op: "sum" or "avg".
        scatter_dim: the dim; negative numbers count from the end. Where its size is no multiple of W, shards follow the
            shard rule: ceil(size / W), and what is left for the last ranks.
        group: a ProcessGroup, or its name.

    Returns:
        This rank's shard, contiguous, of the tensor's type, with the bits of tandem.reduce_scatter().

    Gradients:
        The gradient is low_contention_all_gather() of the result's, divided by W for "avg", complete when the backward
        returns.

    Without a wait, Graphs, Raises: as low_contention_all_gather().
    """
    return _ops_of.low_contention_reduce_scatter(tensor, reduce_op, scatter_dim, name_of(group))


def recent_reports() -> list[tandem.OpReport]:
    """What the last fused ops of this process ran, and why, oldest first; 64 at most.

    Compiled models call the ops too. A replay of a CUDA graph does not.
    """
    return list(_ops.reports)
