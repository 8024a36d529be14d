"""Products on one rank."""

from __future__ import annotations

from typing import Any

from . import _arrays, _core
from ._group import default_device
from ._streams import stream_of

AnyDevice = _core.Device | _core.Group | None


def _name_if(dtype: Any) -> str | None:
    return None if dtype is None else _arrays.type_name(dtype)


def pack_b(b: Any, *, device: AnyDevice = None) -> _core.PackedB:
    """Packs the right operand of mm() once for many products, on CPUs. b is not needed afterwards.

    Args:
        b: [k, n]; f32, bf16 or f16; any strides. Its values are there: work on other streams is done.
        device: as for mm().

    Raises:
        Error: INVALID_ARGUMENT with the values; UNSUPPORTED on GPUs, whose products read b as it is.
    """
    return _core.pack_b(default_device(device), b)


def mm(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    accumulate: bool = False,
    device: AnyDevice = None,
    stream: Any = None,
) -> Any:
    """a @ b (+ bias), or out += a @ b. No other rank takes part.

    Args:
        a: [m, k]; f32, bf16 or f16; any strides.
        b: [k, n], of a's type, or what pack_b() returns. Calls in flight keep its memory alive.
        bias: [n], of the result's type.
        out: [m, n] to write, of a's type or f32.
        out_dtype: type of a new result: a's (default) or f32.
        accumulate: adds to `out`, which is f32.
        device: a Device or a Group. The default is that of the default group, or else the CPU.
        stream: as for fused_all_gather_matmul().

    Raises:
        Error: INVALID_ARGUMENT with the values when they do not fit together.
    """
    library = _arrays.library_of(a)
    with stream_of(default_device(device), stream, library) as on:
        made = _core.mm(on, a, b, out, _name_if(out_dtype), bias, accumulate)
    return out if made is None else _arrays.to_library(made, library)


def scaled_matmul(
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    *,
    out_dtype: Any = "bf16",
    bias: Any = None,
    result_scale: Any = None,
    addend: Any = None,
    out: Any = None,
    fast_accum: bool = False,
    device: AnyDevice = None,
    stream: Any = None,
) -> Any:
    """(a @ b * a_scale * b_scale + bias) * result_scale (+ addend), rounded once. No other rank takes part.

    Args:
        a: [..., k], f8e4m3 or f8e5m2, or f32, bf16 or f16; any strides.
        b: [k, n]; f8 of either kind, or a's type.
        a_scale: f32: one element, a.shape[:-1] + [1 or kb], or [rows, 1 or kb]. kb is k by 128, rounded up. None is 1.
        b_scale: f32: one element, [1, n], [kb, n] or [kb, n by 128, rounded up]. None is 1.
        out_dtype: type of a new result: f32, bf16, f16 or f8, which saturates.
        bias: [n], any of these types.
        result_scale: f32, one element.
        addend: f32 [..., n].
        out: [..., n] to write.
        device, stream: as for mm().

    Raises:
        Error: INVALID_ARGUMENT with the values; UNSUPPORTED with each implementation's reason.
    """
    library = _arrays.library_of(a)
    with stream_of(default_device(device), stream, library) as on:
        made = _core.scaled_matmul(
            on, a, b, a_scale, b_scale, out, _name_if(out_dtype), bias, result_scale, fast_accum, addend
        )
    return out if made is None else _arrays.to_library(made, library)


def quantize_rows(
    a: Any,
    dtype: Any = "f8e4m3",
    *,
    block: bool = False,
    out: Any = None,
    scale: Any = None,
    device: AnyDevice = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Rounds rows of a to f8, each by a scale of its own: out * scale is a. No other rank takes part.

    Args:
        a: [..., k]; f32, bf16 or f16; any strides.
        dtype: type of a new out: f8e4m3 or f8e5m2.
        block: one scale for each row and 128 of k, as scaled_matmul() takes them; else one for each row.
        out: a.shape to write.
        scale: f32 to write, a.shape[:-1] + [1], or with block [k by 128, rounded up] in its place.
        device, stream: as for mm().

    Returns:
        (out, scale). A row of zeros has scale 1; infinities saturate, and NaN stays NaN.

    Raises:
        Error: INVALID_ARGUMENT with the values when they do not fit together.
    """
    library = _arrays.library_of(a)
    with stream_of(default_device(device), stream, library) as on:
        made = _core.quantize_rows(on, a, _arrays.type_name(dtype), block, out, scale)
    given = (out, scale)
    return tuple(
        mine if one is None else _arrays.to_library(one, library) for mine, one in zip(given, made, strict=True)
    )


def async_input_mm(
    a: Any,
    b: Any,
    a_chunk_signals: Any,
    a_chunk_pivot: int = 0,
    *,
    expected: int = 1,
    chunks_together: int = 1,
    in_order: bool = True,
    out: Any = None,
    device: AnyDevice = None,
    stream: Any = None,
) -> Any:
    """a @ b, while the rows of a still arrive.

    Args:
        a: [m, k], contiguous; bf16, f16, on CPUs also f32. Rows of a chunk may hold anything until its signal is there.
        b: [k, n], row-major or column-major.
        a_chunk_signals: u32 [C]. Chunk i of a is shard i of its rows over C. Another stream writes its word by
            Stream.write_value32() when the chunk is there.
        a_chunk_pivot: the chunk that is taken first.
        expected: a signal s is there once s >= expected, modulo 2^32.
        chunks_together, in_order: how far chunks may be taken in another order.
        out: [m, n] to write, contiguous.
        device: as for mm().
        stream: pass a tandem.Stream where the chunks do not arrive yet, since on CPUs the call waits without one.

    Raises:
        Error: INVALID_ARGUMENT, UNSUPPORTED at once; TIMEOUT with the chunk when a signal does not come in time.
    """
    library = _arrays.library_of(a)
    with stream_of(default_device(device), stream, library) as on:
        made = _core.async_input_mm(
            on, a, b, a_chunk_signals, out, a_chunk_pivot, expected, chunks_together, in_order
        )
    return out if made is None else _arrays.to_library(made, library)


def quantize_weight_4bit(weight: Any, group_size: int) -> tuple[Any, Any]:
    """Rounds a weight to 4 bits: (nibbles - 8) * scales is the weight. Runs on the CPU at once.

    Args:
        weight: f32 [n, k], any strides; 32 divides k.
        group_size: how many of k share a scale: k, or a multiple of 32 that divides k; at most 131072.

    Returns:
        (nibbles, scales): u8 [n, k / 2], the even k in the low half of a byte, and f32 [n, k / group_size].

    Raises:
        Error: INVALID_ARGUMENT with the values; NUMERIC for an element that is not finite, with its place.
    """
    library = _arrays.library_of(weight)
    nibbles, scales = _core.quantize_weight_4bit(weight, group_size)
    return _arrays.to_library(nibbles, library), _arrays.to_library(scales, library)


def pack_4bit_weight(
    weight: Any, scales: Any, bias: Any, group_size: int, in_features: int, out_features: int
) -> _core.Packed4bitWeight:
    """Packs a 4-bit weight for matmul_4bit(). The arguments are not needed afterwards.

    Args:
        weight: the nibbles of quantize_weight_4bit(), u8 [n, k / 2], [n * k / group_size, group_size / 2] or flat.
        scales: f32 or bf16 [n, k / group_size], [n * k / group_size, 1] or flat.
        bias: f32 [out_features], or None.
        group_size: as for quantize_weight_4bit().
        in_features: k, a multiple of 32.
        out_features: n.

    Raises:
        Error: INVALID_ARGUMENT with the values when they do not fit together.
    """
    return _core.pack_4bit_weight(weight, scales, bias, group_size, in_features, out_features)


def matmul_4bit(
    input: Any,
    packed: _core.Packed4bitWeight,
    *,
    out: Any = None,
    out_dtype: Any = None,
    device: AnyDevice = None,
    stream: Any = None,
) -> Any:
    """input @ weight.T (+ bias), with each row of input rounded to 8 bits, on CPUs. No other rank takes part.

    Args:
        input: [..., in_features]; f32 or bf16; any strides.
        packed: what pack_4bit_weight() returns. Calls in flight keep its memory alive.
        out: [..., out_features] to write, f32 or bf16.
        out_dtype: type of a new result: input's (default), f32 or bf16.
        device, stream: as for mm().

    Raises:
        Error: INVALID_ARGUMENT with the values; UNSUPPORTED with each implementation's reason.
    """
    if not isinstance(packed, _core.Packed4bitWeight):
        raise TypeError(f"packed: got a {type(packed).__qualname__}, need what pack_4bit_weight() returns")
    library = _arrays.library_of(input)
    with stream_of(default_device(device), stream, library) as on:
        made = _core.matmul_4bit(on, input, packed, out, _name_if(out_dtype))
    return out if made is None else _arrays.to_library(made, library)
