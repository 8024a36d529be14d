"""Arrays of other libraries, and tandem's own."""

import gc
import weakref

import numpy
import pytest
from reference import BF16, F32, check, product, random

import tandem


class OnlyDlpack:
    """An array that is known by DLPack alone, from before or after version 1."""

    def __init__(self, array, is_old=False):
        self.array = array
        self.is_old = is_old
        self.shape, self.dtype = array.shape, array.dtype

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        if self.is_old and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("is_old", [False, True])
def test_dlpack(is_old):
    a, b = random((5, 8), F32, 1), random((8, 3), F32, 2)
    out = numpy.zeros((5, 3), F32)
    tandem.mm(OnlyDlpack(a.T.copy().T, is_old), OnlyDlpack(b, is_old), out=OnlyDlpack(out, is_old))
    check(out, *product(a, b))


def test_an_array_of_tandem():
    with tandem.init() as group:
        array = tandem.symm.empty((2, 3), "f32", group, library="tandem")
        assert isinstance(array, tandem.Array)
        assert (array.shape, array.strides, array.dtype, array.device) == ((2, 3), (3, 1), "f32", "cpu:0")
        assert array.nbytes == 24 and "f32 [2, 3]" in repr(array)
        one, other = numpy.asarray(array), numpy.from_dlpack(array)
        one[1, 2] = 5
        assert other[1, 2] == 5
        with pytest.raises(AttributeError):
            array.__cuda_array_interface__
        capsule = array.__dlpack__()
        del array, one, other, capsule
        gc.collect()


def test_bf16_is_of_ml_dtypes():
    out = tandem.mm(random((4, 4), BF16, 1), random((4, 4), BF16, 2))
    assert out.dtype == BF16 and isinstance(out, numpy.ndarray) and out.flags.writeable


def test_memory_goes_with_the_last_view():
    out = tandem.mm(random((4, 4), F32, 1), random((4, 4), F32, 2))
    root = out
    while isinstance(root, numpy.ndarray) and root.base is not None:
        root = root.base
    assert isinstance(root, tandem.Array)
    row = out[1]
    expected = row.copy()
    del out, root
    gc.collect()
    assert (row == expected).all()


def test_inputs_are_released():
    a = random((4, 4), F32, 1)
    gone = weakref.ref(a)
    tandem.mm(a, random((4, 4), F32, 2))
    del a
    gc.collect()
    assert gone() is None


def test_empty_and_one_element():
    assert tandem.mm(numpy.zeros((0, 4), F32), numpy.zeros((4, 3), F32)).shape == (0, 3)
    with tandem.init():
        assert tandem.fused_all_gather_matmul(numpy.zeros((0, 4), F32), numpy.zeros((4, 3), F32)).out[0].shape == (0, 3)


@pytest.mark.parametrize("dtype", ["bfloat16", "bf16", BF16, BF16.type])
def test_names_of_types(dtype):
    assert tandem.mm(random((2, 2), F32, 1), random((2, 2), F32, 2), out_dtype="float32").dtype == F32
    with tandem.init():
        assert tandem.symm.empty(3, dtype).dtype == BF16
