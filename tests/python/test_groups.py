"""How ranks find each other, and more than one group."""

import os
import subprocess
import sys

import numpy
import pytest

import tandem

RANK_PROGRAM = """
import sys, numpy, tandem
arguments = eval(sys.argv[1])
group = tandem.init(**arguments)
out = tandem.all_gather(numpy.full((1, 1), float(group.rank)))
print(group.rank, group.size, *out.ravel())
"""


def run_ranks(environments, arguments=None, parents=1):
    """The outputs of processes with these environments, each started by this process."""
    base = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK_PROGRAM, repr(given)],
            env=base | {"TANDEM_RENDEZVOUS_TIMEOUT_MS": "20000"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment, given in zip(environments, arguments or [{}] * len(environments), strict=True)
    ]
    return [(*process.communicate(timeout=60), process.returncode) for process in processes]


@pytest.mark.parametrize(
    "names",
    [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")],
    ids=["torchrun", "openmpi", "mpich"],
)
def test_ranks_from_the_environment(names):
    done = run_ranks([{names[0]: str(rank), names[1]: "3", "MASTER_PORT": "29999"} for rank in range(3)])
    assert [out for out, _, _ in done] == [f"{rank} 3 0.0 1.0 2.0\n" for rank in range(3)], done


def test_explicit_ranks():
    done = run_ranks([{}, {}], [{"rank": rank, "size": 2, "job": "explicit"} for rank in range(2)])
    assert [out for out, _, _ in done] == ["0 2 0.0 1.0\n", "1 2 0.0 1.0\n"], done


def test_ranks_that_do_not_come():
    waiting = {"rendezvous_timeout": 0.3, "job": "nobody"}
    done = run_ranks([{}, {}], [{"rank": 1, "size": 2, **waiting}, {"rank": 0, "size": 3, **waiting, "job": "other"}])
    assert "Timeout: rank 1: rank 0 of 2 did not come within 0.3 s" in done[0][1]
    assert "Timeout" in done[1][1] and all(code == 1 for _, _, code in done), done


def test_several_hosts(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(tandem.Error, match="one host") as caught:
        tandem.init()
    assert caught.value.code is tandem.ErrorCode.UNSUPPORTED


@pytest.mark.parametrize("arguments", [{"rank": 0}, {"size": 2}, {"rank": 2, "size": 2}, {"rank": -1, "size": 2}])
def test_wrong_ranks(arguments):
    with pytest.raises(tandem.Error) as caught:
        tandem.init(**arguments)
    assert caught.value.code is tandem.ErrorCode.INVALID_ARGUMENT


def test_one_rank_without_a_launcher():
    with tandem.init() as group:
        assert (group.rank, group.size, group.name) == (0, 1, "world") and "cpu:0" in repr(group)
        assert tandem.default_group() is group
        group.meet()
        assert group.all_gather_bytes(b"abc") == [b"abc"]
    with pytest.raises(tandem.Error, match="closed"):
        group.meet()


def test_no_group():
    with pytest.raises(tandem.Error, match="call tandem.init"):
        tandem.all_gather(numpy.zeros((2, 2)))


@pytest.mark.parametrize("device, code", [("gpu", "INVALID_ARGUMENT"), ("cuda:x", "INVALID_ARGUMENT")])
def test_wrong_devices(device, code):
    with pytest.raises(tandem.Error, match="need cpu, cuda") as caught:
        tandem.init(device=device)
    assert caught.value.code is tandem.ErrorCode[code]


def two_groups(rank, size):
    world = tandem.init()
    evens = world.subgroup(list(range(rank % 2, size, 2)), f"half {rank % 2}")
    second = tandem.init(name="second")
    assert tandem.default_group() is second and evens.size == size // 2
    mine = numpy.full((1, 1), float(rank))
    half = tandem.all_gather(mine, group=evens)
    both = [tandem.all_gather(mine, group=group) for group in (world, second)]
    assert world.all_gather_bytes(bytes([rank])) == [bytes([r]) for r in range(size)]
    # Calls of two groups that are under way together.
    streams = [group.create_stream() for group in (world, second)]
    order = [0, 1] if rank % 2 else [1, 0]
    results = {i: tandem.all_gather(mine, group=(world, second)[i], stream=streams[i]) for i in order}
    for stream in streams:
        stream.synchronize()
    for out in [*both, *results.values()]:
        assert (out.ravel() == range(size)).all()
    assert (half.ravel() == range(rank % 2, size, 2)).all()
    with pytest.raises(tandem.Error) as caught:
        world.subgroup([(rank + 1) % size], "others")
    assert caught.value.code is tandem.ErrorCode.INVALID_ARGUMENT
    second.close()
    evens.close()
    world.close()
    world.close()
    again = tandem.init()  # the name is free again
    again.meet()


def test_two_groups():
    tandem.launch(two_groups, 4)


def test_flight_record():
    def run(rank, size):
        group = tandem.init()
        tandem.all_gather(numpy.zeros((1, 2)))
        with pytest.raises(tandem.Error, match="ranks disagree"):
            if group.rank == 1:
                tandem.all_reduce(numpy.zeros(3, "f4"))
            else:
                tandem.all_gather(numpy.zeros((4, 1)))
        record = group.flight_record()
        ends = [rank["calls"][-1]["op"].split(" ")[0] for rank in record["ranks"]]
        has_ended = any(rank["calls"][-1]["state"] == "ended" for rank in record["ranks"])
        return record["schema"], "ranks disagree" in record["error"], ends, has_ended

    for result in tandem.launch(run, 3):
        assert result == (1, True, ["all_gather", "all_reduce", "all_gather"], False)
