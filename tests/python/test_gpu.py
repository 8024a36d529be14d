"""Arrays of PyTorch and CuPy on GPUs, one a rank: streams, memory and results. Skipped where there are none."""

import importlib.util
import subprocess
import sys

import pytest

import tandem


def num_gpus(module="torch"):
    """How many GPUs there are. Asked in a process of its own: ranks are started from this one."""
    if importlib.util.find_spec(module) is None:
        return 0
    code = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


@pytest.fixture(scope="module")
def world():
    count = num_gpus()
    if count == 0:
        pytest.skip("no GPU that PyTorch can use")
    try:
        subprocess.run([sys.executable, "-c", "import tandem; tandem.Device('cuda')"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(error.stderr.decode().splitlines()[-1])
    return min(count, 2)


def on_streams(rank, size):
    import torch

    torch.cuda.set_device(rank)
    tandem.init(device="cuda")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for round in range(20):
                generator = torch.Generator("cuda").manual_seed(round)
                whole = torch.randn(64 * size, 96, generator=generator, device="cuda").to(torch.bfloat16)
                b = torch.randn(48, 96, generator=generator, device="cuda").to(torch.bfloat16).t()
                torch.cuda._sleep(2_000_000)  # what is read is not there yet
                a = whole[64 * rank : 64 * (rank + 1)] * 2
                out = tandem.fused_all_gather_matmul(a, b).out[0]
                got = (out.float() - (whole.float() * 2) @ b.float()).abs().max()
                assert isinstance(out, torch.Tensor) and out.device.index == rank
                assert float(got) < 0.5, (stream, round, float(got))
                part = tandem.fused_matmul_reduce_scatter(whole[:, :32], b[:32], reduce_op="avg").out
                want = (whole[:, :32].float() @ b[:32].float())[64 * rank : 64 * (rank + 1)]
                assert float((part.float() - want).abs().max()) < 0.5
    explicit = torch.cuda.Stream()
    explicit.wait_stream(torch.cuda.current_stream())
    gathered = tandem.all_gather(torch.full((2, 2), float(rank), device="cuda"), stream=explicit)
    explicit.synchronize()
    assert gathered[::2, 0].tolist() == list(range(size))
    assert float(tandem.mm(torch.ones(8, 8, device="cuda"), torch.ones(8, 8, device="cuda")).sum()) == 512


def memory(rank, size):
    import torch

    torch.cuda.set_device(rank)
    tandem.init(device="cuda")
    tensor = tandem.symm.empty((4,), torch.float32)
    assert isinstance(tensor, torch.Tensor) and tensor.is_cuda
    tensor.fill_(rank)
    handle = tandem.symm.rendezvous(tensor)
    handle.barrier()
    assert handle.buffer((rank + 1) % size, (4,), "f32").tolist() == [(rank + 1) % size] * 4
    handle.barrier()
    with pytest.raises(tandem.Error, match="a is on cpu:0, need cuda"):
        tandem.fused_all_gather_matmul(torch.ones(4, 4), torch.ones(4, 4))


def of_cupy(rank, size):
    import cupy

    cupy.cuda.Device(rank).use()
    tandem.init(device="cuda")
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            a = cupy.full((32, 16), rank + 1, cupy.float32)
            out = tandem.fused_all_gather_matmul(a, cupy.ones((16, 8), cupy.float32)).out[0]
            assert isinstance(out, cupy.ndarray)
            assert [float(out[32 * r, 0]) for r in range(size)] == [16.0 * (r + 1) for r in range(size)]


@pytest.mark.parametrize("program", [on_streams, memory])
def test_pytorch(world, program):
    tandem.launch(program, world)


def test_cupy(world):
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("no CuPy")
    tandem.launch(of_cupy, world)
