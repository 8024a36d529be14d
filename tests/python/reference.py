"""What the ranks' programs of the tests share: operands, references in float64, comparisons."""

import ml_dtypes
import numpy

import tandem

F32 = numpy.dtype("float32")
F16 = numpy.dtype("float16")
BF16 = numpy.dtype(ml_dtypes.bfloat16)
E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)
E5M2 = numpy.dtype(ml_dtypes.float8_e5m2)
ROUNDING = {F32: 2**-23, F16: 2**-11, BF16: 2**-8, E4M3: 2**-4, E5M2: 2**-3, numpy.dtype("float64"): 2**-52}


def random(shape, dtype, *seed):
    """Values in [-1, 1), the same for the same seed."""
    return numpy.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def shard(array, dim, size, rank):
    """The rank's part along a dim, as a view."""
    offset, length = tandem.shard_of(array.shape[dim], size, rank)
    return numpy.take(array, range(offset, offset + length), dim)


def product(a, b):
    """a @ b and the sum of magnitudes, in float64."""
    a, b = a.astype(numpy.float64), b.astype(numpy.float64)
    return a @ b, numpy.abs(a) @ numpy.abs(b)


def check(got, want, magnitude, steps=1, where=""):
    """Whether `got` is `want` but for rounding: of sums in f32, and `steps` times to its own type."""
    assert got.shape == want.shape, (got.shape, want.shape, where)
    error = numpy.abs(got.astype(numpy.float64) - want)
    bound = magnitude * 2.0**-18 + steps * ROUNDING[got.dtype] * (numpy.abs(want) + magnitude * (steps > 1)) + 1e-30
    assert (error <= bound).all(), f"{where}: off by {error.max()}, may be {bound[error > bound].min()}"


def in_other_order(array):
    """The same values, column-major."""
    return numpy.asfortranarray(array)


def with_holes(array):
    """The same values in memory with holes between them."""
    wide = numpy.zeros((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    view = wide[..., : 2 * array.shape[-1] : 2]
    view[...] = array
    return view
