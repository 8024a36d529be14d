"""What the tests of tandem.torch share: ranks with a gloo process group, references, comparisons."""

import importlib
import os
import tempfile

import pytest

import tandem

WORLDS = [1, 2]
# The types of products, by name, since a test is also collected where PyTorch is missing.
TYPES = ("float32", "bfloat16", "float16")


def _why_not():
    try:
        importlib.import_module("tandem.torch")
    except (ImportError, OSError) as error:
        return f"PyTorch cannot be imported: {error}"
    return None


_REASON = _why_not()
needs_torch = pytest.mark.skipif(_REASON is not None, reason=str(_REASON))


def compiled(work, **options):
    """torch.compile(). C++ code includes headers as they are: compiling them takes longer."""
    import torch
    from torch._inductor import config

    config.cpp_cache_precompile_headers = False
    return torch.compile(work, **options)


def _rank(rank, size, work, folder, args):
    # In a cache of all ranks, a rank would find what another one has compiled, and its passes would see no graph.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor{rank}"
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    result = work(rank, size, *args)
    tandem.torch.close_groups()
    dist.destroy_process_group()
    return result


def run(work, ranks, *args):
    """Calls work(rank, size, *args) on ranks that have a process group; returns the results in rank order."""
    with tempfile.TemporaryDirectory() as folder:
        return tandem.launch(_rank, ranks, work, folder, args)


def mlp(size, device_type="cpu"):
    """Two products of DTensor with sequence parallelism. Without other ops, nothing has to be compiled to C++."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64, bias=False), torch.nn.Linear(64, 32, bias=False))
    plan = {"0": ColwiseParallel(input_layouts=Shard(0)), "1": RowwiseParallel(output_layouts=Shard(0))}
    return parallelize_module(model, init_device_mesh(device_type, (size,)), plan)


def world():
    """The name of the group of all ranks."""
    import torch.distributed as dist

    return dist.group.WORLD.group_name


def random(shape, dtype, *seed):
    """Values in [-1, 1), the same on every rank for the same seed."""
    import torch

    generator = torch.Generator().manual_seed(hash((tuple(shape), *seed)))
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1
    return values.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)


def with_holes(tensor):
    """The same values in memory with holes between them."""
    import torch

    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1] + 1, dtype=torch.float32).to(tensor.dtype)
    view = wide[..., : 2 * tensor.shape[-1] : 2]
    view.copy_(tensor)
    return view


def product(a, b):
    """a @ b and the sum of magnitudes, in float64."""
    a, b = a.detach().double(), b.detach().double()
    return a @ b, a.abs() @ b.abs()


def rounded(rows, dtype):
    """The rows in float64 as fp8 has them: each by a scale that makes its largest value the largest of the type."""
    import torch

    rows = rows.float()
    largest = rows.abs().amax(-1, keepdim=True)
    scale = torch.where(largest == 0, 1, largest / torch.finfo(dtype).max)
    return (rows / scale).to(dtype).double() * scale.double()


def rounded_product(a, b, dtype):
    return product(rounded(a, dtype), rounded(b.t(), dtype).t())


def check(got, want, magnitude, steps=1, where=""):
    """Whether `got` is `want` but for rounding: of sums in f32, and `steps` times to its own type."""
    import torch

    assert got.shape == want.shape, (got.shape, want.shape, where)
    error = (got.detach().double() - want).abs()
    of_type = torch.finfo(got.dtype)
    rounding = of_type.eps * (want.abs() + magnitude * (steps > 1) + of_type.smallest_normal)
    bound = magnitude * 2.0**-18 + steps * rounding + 1e-30
    assert (error <= bound).all(), f"{where}: off by {error.max()}, may be {bound[error > bound].min()}"


def caught(call, *args, **named):
    """The tandem.Error of a call."""
    with pytest.raises(tandem.Error) as error:
        call(*args, **named)
    return error.value
