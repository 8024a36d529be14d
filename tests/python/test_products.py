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
