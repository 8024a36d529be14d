"""Products on one rank, without a group."""

import numpy
import pytest
from reference import BF16, E4M3, E5M2, F16, F32, check, in_other_order, product, random, with_holes

import tandem


@pytest.mark.parametrize("dtype", [F32, BF16, F16], ids=str)
def test_mm(dtype):
    a, b, bias = random((13, 17), dtype, 1), random((17, 9), dtype, 2), random((9,), dtype, 3)
    want, magnitude = product(a, b)
    check(tandem.mm(a, b), want, magnitude)
    check(tandem.mm(with_holes(a), in_other_order(b), bias=bias), want + bias.astype(numpy.float64), magnitude + 1)
    out = numpy.ones((13, 9), F32)
    assert tandem.mm(a, b, out=out, accumulate=True) is out
    check(out, want + 1, magnitude + 1)
    assert tandem.mm(a, b, out_dtype=numpy.float32).dtype == F32


def test_scaled_matmul():
    a, b = random((3, 5, 16), E4M3, 1), random((16, 6), E5M2, 2)
    rows, columns = random((3, 5, 1), F32, 3), random((1, 6), F32, 4)
    want, magnitude = product(a, b)
    factor = numpy.abs(rows * columns).astype(numpy.float64)
    got = tandem.scaled_matmul(a, b, rows, columns, out_dtype="f32", result_scale=numpy.full(1, 2, F32))
    check(got, want * rows * columns * 2, magnitude * factor * 2)
    assert tandem.scaled_matmul(a, b, rows, columns).dtype == BF16
    got = tandem.scaled_matmul(a, b, None, None, out_dtype="f8e4m3")
    assert got.dtype == E4M3


@pytest.mark.parametrize(("dtype", "largest"), [("f8e4m3", 448), ("f8e5m2", 57344)])
@pytest.mark.parametrize("block", [False, True])
def test_quantize_rows(dtype, largest, block):
    a = random((2, 3, 260), BF16, 1)
    a[0, 1] = 0
    wide = a.astype(F32)
    got, scale = tandem.quantize_rows(a, dtype, block=block)
    assert got.shape == a.shape
    assert scale.shape == (2, 3, 3 if block else 1)
    for i, first in enumerate(range(0, 260, 128 if block else 260)):
        part = slice(first, first + 128 if block else None)
        amax = numpy.abs(wide[..., part]).max(axis=-1)
        want = numpy.where(amax == 0, numpy.float32(1), amax / numpy.float32(largest))
        assert (scale[..., i] == want).all()
        assert (got[..., part] == (wide[..., part] / want[..., None]).astype(got.dtype)).all()
    out, rows = numpy.zeros_like(got), numpy.zeros((2, 3, 1), F32)
    mine = tandem.quantize_rows(a, dtype, out=out, scale=rows)
    assert mine[0] is out
    assert mine[1] is rows
    assert rows[0, 1, 0] == 1
    b = random((260, 4), E4M3, 2)
    multiplied = tandem.scaled_matmul(got, b, scale, numpy.ones((scale.shape[-1], 4), F32), out_dtype="f32")
    check(multiplied, *product(got.astype(F32) * scale.repeat(128 if block else 260, -1)[..., :260], b), steps=4)


def test_a_product_of_what_still_arrives():
    device = tandem.Device()
    products, copies = device.create_stream(), device.create_stream()
    source, b = random((8, 16), F32, 1), random((16, 4), F32, 2)
    a, signals, out = numpy.full((8, 16), numpy.nan, F32), numpy.zeros(4, numpy.uint32), numpy.zeros((8, 4), F32)
    tandem.async_input_mm(a, b, signals, 1, out=out, device=device, stream=products)
    for chunk in (1, 2, 3, 0):
        copies.copy(source[2 * chunk : 2 * chunk + 2], a[2 * chunk : 2 * chunk + 2])
        copies.write_value32(signals, chunk, 1)
    products.synchronize()
    copies.synchronize()
    check(out, *product(source, b))
    copies.memset32(signals, 0, 7, 4)
    copies.synchronize()
    assert (signals == 7).all()


def test_a_signal_that_never_comes(monkeypatch):
    monkeypatch.setenv("TANDEM_OP_TIMEOUT_MS", "100")
    device = tandem.Device()
    with pytest.raises(tandem.Error, match="chunk 0") as caught:
        tandem.async_input_mm(
            random((8, 16), F32, 1), random((16, 4), F32, 2), numpy.zeros(4, numpy.uint32), device=device
        )
    assert caught.value.code is tandem.ErrorCode.TIMEOUT


def test_arrays_stay_alive_until_their_work_is_done():
    device = tandem.Device()
    stream = device.create_stream()
    outs = [tandem.mm(random((64, 64), F32, i), random((64, 64), F32, i + 1), device=device, stream=stream)
            for i in range(20)]
    stream.synchronize()
    for i, out in enumerate(outs):
        check(out, *product(random((64, 64), F32, i), random((64, 64), F32, i + 1)))


def rounded_to_4_bits(weight, group):
    """Nibbles [n, k], scales [n, k / group], and the weight that they stand for, by NumPy alone."""
    groups = weight.reshape(weight.shape[0], -1, group)
    scales = numpy.abs(groups).max(-1, keepdims=True) / numpy.float32(7)
    nibbles = numpy.minimum(numpy.floor(groups / scales + numpy.float32(8.5)), 15)
    stored = (nibbles.astype(numpy.float64) - 8) * scales
    return nibbles.astype(numpy.uint8).reshape(weight.shape), scales[..., 0], stored.reshape(weight.shape)


def rounded_to_8_bits(rows):
    """What rows are taken for when each is rounded to asymmetric 8-bit integers, in float64."""
    rows = rows.astype(numpy.float64)
    low, high = numpy.minimum(rows.min(-1, keepdims=True), 0), numpy.maximum(rows.max(-1, keepdims=True), 0)
    step = (high - low) / 255
    zero = numpy.rint(-128 - low / step)
    return (numpy.clip(numpy.rint(rows / step) + zero, -128, 127) - zero) * step


def error_of(got, want):
    return numpy.linalg.norm(got.astype(numpy.float64) - want) / numpy.linalg.norm(want)


def packed_nibbles(nibbles):
    return nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)


@pytest.mark.parametrize("group", [32, 64, 192])
def test_matmul_4bit(group):
    a, weight, bias = random((2, 3, 192), F32, 1), random((33, 192), F32, 2), random((33,), F32, 3)
    nibbles, scales = tandem.quantize_weight_4bit(weight, group)
    mine, mine_scales, stored = rounded_to_4_bits(weight, group)
    assert (nibbles == packed_nibbles(mine)).all()
    assert nibbles.dtype == numpy.uint8
    assert (scales == mine_scales).all()
    for given in (None, bias):
        added = 0 if given is None else given
        packed = tandem.pack_4bit_weight(nibbles, scales, given, group, 192, 33)
        assert (packed.in_features, packed.out_features, packed.group_size) == (192, 33, group)
        assert packed.num_bytes >= nibbles.size + 4 * scales.size
        got = tandem.matmul_4bit(a, packed)
        assert got.shape == (2, 3, 33)
        assert got.dtype == F32
        assert error_of(got, a.astype(numpy.float64) @ stored.T + added) <= 0.02
        # The error against the weight as it was is that of an independent rounding of both operands.
        want = a.astype(numpy.float64) @ weight.T.astype(numpy.float64) + added
        independent = error_of(rounded_to_8_bits(a) @ stored.T + added, want)
        assert abs(error_of(got, want) - independent) <= 0.01 * independent
    out = numpy.zeros((2, 3, 33), BF16)
    assert tandem.matmul_4bit(with_holes(a.astype(BF16)), packed, out=out) is out
    assert error_of(out, want) <= independent + 0.02
    assert tandem.matmul_4bit(a, packed, out_dtype="bf16").dtype == BF16
    by_groups = tandem.pack_4bit_weight(
        nibbles.reshape(-1, group // 2), in_other_order(scales).reshape(-1), bias, group, 192, 33
    )
    assert (tandem.matmul_4bit(a, by_groups) == got).all()


def test_what_is_no_4bit_product():
    a, weight = random((2, 64), F32, 1), random((3, 64), F32, 2)
    nibbles, scales = tandem.quantize_weight_4bit(weight, 32)
    packed = tandem.pack_4bit_weight(nibbles, scales, None, 32, 64, 3)
    weight[1, 2] = numpy.inf
    for call, code, text in (
        (lambda: tandem.quantize_weight_4bit(weight, 32), "NUMERIC", r"weight\[1, 2\] is inf"),
        (lambda: tandem.quantize_weight_4bit(a[0], 32), "INVALID_ARGUMENT", r"weight is f32 \[64\], need f32 \[n, k\]"),
        (lambda: tandem.quantize_weight_4bit(a, 48), "INVALID_ARGUMENT", "group_size is 48, need 64"),
        (lambda: tandem.pack_4bit_weight(nibbles, scales, None, 64, 64, 3), "INVALID_ARGUMENT", r"\[3, 1\] or \[3\]"),
        (lambda: tandem.pack_4bit_weight(a, scales, None, 32, 64, 3), "INVALID_ARGUMENT", "need u8"),
        (lambda: tandem.pack_4bit_weight(nibbles, scales, a[0], 32, 64, 3), "INVALID_ARGUMENT", r"need f32 \[3\]"),
        (lambda: tandem.matmul_4bit(a[:, :32], packed), "INVALID_ARGUMENT", r"need f32 or bf16 \[..., 64\]"),
        (lambda: tandem.matmul_4bit(a, packed, out=numpy.zeros((2, 4), F32)), "INVALID_ARGUMENT", r"need .* \[2, 3\]"),
        (lambda: tandem.matmul_4bit(a, packed, out=a[:, :3]), "INVALID_ARGUMENT", "overlap"),
    ):
        with pytest.raises(tandem.Error, match=text) as caught:
            call()
        assert caught.value.code is getattr(tandem.ErrorCode, code)
    with pytest.raises(TypeError, match="packed: got a ndarray, need what pack_4bit_weight"):
        tandem.matmul_4bit(a, nibbles)


def test_a_4bit_weight_stays_until_its_products_are_done():
    device = tandem.Device()
    stream = device.create_stream()
    a = random((64, 256), F32, 1)

    def packed_of(seed):
        rounded = tandem.quantize_weight_4bit(random((96, 256), F32, seed), 32)
        return tandem.pack_4bit_weight(*rounded, None, 32, 256, 96)

    outs = [tandem.matmul_4bit(a, packed_of(seed), device=device, stream=stream) for seed in range(20)]
    stream.synchronize()
    for seed, out in enumerate(outs):
        assert (out == tandem.matmul_4bit(a, packed_of(seed), device=device)).all()


def test_a_packed_b_gives_the_same_bits():
    device = tandem.Device()
    stream = device.create_stream()
    for dtype in (F32, BF16):
        a = random((7, 90), F32, 1).astype(dtype)
        b = random((90, 70), F32, 2).astype(dtype)
        packed = tandem.pack_b(b.T.copy().T, device=device)
        assert (packed.k, packed.n) == (90, 70)
        assert packed.num_bytes >= b.nbytes and packed.implementation.startswith("cpu/tile_")
        assert (tandem.mm(a, packed, device=device) == tandem.mm(a, b, device=device)).all()
        out = numpy.ones((7, 70), F32)
        assert tandem.mm(a, packed, out=out, accumulate=True, device=device) is out
        assert (out == tandem.mm(a, b, out=numpy.ones((7, 70), F32), accumulate=True, device=device)).all()
        outs = [tandem.mm(a, tandem.pack_b(b, device=device), device=device, stream=stream) for _ in range(20)]
        stream.synchronize()
        assert all((one == tandem.mm(a, b, device=device)).all() for one in outs)
    with pytest.raises(tandem.Error, match="80 columns of a, 90 rows of b"):
        tandem.mm(random((7, 80), F32, 1).astype(BF16), packed, device=device)
    with pytest.raises(tandem.Error, match="need f32, bf16 or f16"):
        tandem.pack_b(numpy.ones((4, 4), numpy.int32), device=device)
