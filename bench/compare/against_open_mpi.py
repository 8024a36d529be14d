#!/usr/bin/env python3
"""All-gather + matmul on CPU cores: tandem beside Open MPI's allgather and OpenBLAS's product, f32.

against_open_mpi.py --tandem build/cpu/bin/tandem [--m 1024 --n 1792 --k 1024] [--ranks 2] [--out FILE]

The two run in processes of their own, which take turns: in each alternation `tandem bench` and then mpirun, or the other
way round. Open MPI binds each rank to a core, and OpenBLAS has one thread a rank. Both libraries are called through ctypes.
Prints one JSON object, and adds it to FILE: for each side the median over alternations of its medians of the slowest rank, in
us, and the median of the ratios of each alternation. "quietest" has the least median of each side, for machines that others
use too. Before OpenBLAS's product is timed, elements of it are compared with f64.
"""
import argparse
import array
import ctypes
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

MPI, BLAS = "libmpi.so.40", "libopenblas.so.0"


class Mpi:
    """As much of Open MPI as is called here. Its constants are addresses of variables of the library."""

    def __init__(self):
        self.library = ctypes.CDLL(MPI, mode=ctypes.RTLD_GLOBAL)
        self.world, self.float, self.double, self.max = map(
            self.constant, ("ompi_mpi_comm_world", "ompi_mpi_float", "ompi_mpi_double", "ompi_mpi_op_max"))
        self.library.MPI_Init(None, None)
        number = ctypes.c_int()
        self.library.MPI_Comm_rank(self.world, ctypes.byref(number))
        self.rank = number.value
        self.library.MPI_Comm_size(self.world, ctypes.byref(number))
        self.size = number.value

    def constant(self, name):
        return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self.library, name)))

    def version(self):
        text, length = ctypes.create_string_buffer(256), ctypes.c_int()
        self.library.MPI_Get_library_version(text, ctypes.byref(length))
        return text.value.decode().split(",")[0]

    def barrier(self):
        self.library.MPI_Barrier(self.world)

    def all_gather(self, shard, whole):
        self.library.MPI_Allgather(shard, len(shard), self.float, whole, len(shard), self.float, self.world)

    def slowest(self, us):
        mine, most = ctypes.c_double(us), ctypes.c_double()
        self.library.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(most), 1, self.double, self.max, self.world)
        return most.value


def floats(count, seed):
    """Numbers from -0.5 to 0.5, the same for every rank that gives the same seed."""
    values = array.array("f", bytes(4 * count))
    state = seed
    for i in range(count):
        state = (state * 1103515245 + 12345) & 0x7fffffff
        values[i] = (state >> 8) / (1 << 23) - 0.5
    return (ctypes.c_float * count).from_buffer(values)


def run_rank(args):
    """In a process that mpirun started."""
    mpi = Mpi()
    blas = ctypes.CDLL(BLAS)
    blas.openblas_set_num_threads(1)
    blas.openblas_get_config.restype = ctypes.c_char_p
    m, n, k, world = args.m, args.n, args.k, mpi.size
    assert m % world == 0, "the rows have to be a multiple of the ranks"
    shard = floats(m // world * k, 1 + mpi.rank)
    b = floats(k * n, 100 + mpi.rank)
    whole = (ctypes.c_float * (m * k))()
    out = (ctypes.c_float * (m * n))(*[float("nan")] * (m * n))
    one, zero = ctypes.c_float(1), ctypes.c_float(0)

    def product():
        blas.cblas_sgemm(101, 111, 111, m, n, k, one, whole, k, b, n, zero, out, n)

    def gather():
        mpi.all_gather(shard, whole)

    def both():
        gather()
        product()
    both()
    for row, column in ((0, 0), (m - 1, n - 1), (m // 2, n // 3), (m // 3, n // 2)):
        need = sum(whole[row * k + i] * b[i * n + column] for i in range(k))
        assert abs(out[row * n + column] - need) <= 1e-4, (row, column, out[row * n + column], need)
    calls = {"t_product_us": product, "t_gather_us": gather, "t_both_us": both}
    times = {name: [] for name in calls}
    for step in range(-3, args.rounds):
        for i in range(len(calls)):
            name = list(calls)[(i + step) % len(calls)]
            mpi.barrier()
            begin = time.perf_counter()
            calls[name]()
            us = mpi.slowest((time.perf_counter() - begin) * 1e6)
            if step >= 0:
                times[name].append(us)
    if mpi.rank == 0:
        print(json.dumps({"medians": {name: statistics.median(values) for name, values in times.items()},
                          "mpi": mpi.version(), "blas": blas.openblas_get_config().decode()}))
    mpi.library.MPI_Finalize()


def time_peer(args):
    command = ["mpirun", "--allow-run-as-root", "--bind-to", "core", "-n", str(args.ranks), sys.executable, __file__, "--as-rank",
               "--m", str(args.m), "--n", str(args.n), "--k", str(args.k), "--rounds", str(args.rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def time_tandem(args):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rows.json"
        command = [args.tandem, "bench", "all_gather_matmul", "--m", args.m, "--n", args.n, "--k", args.k, "--dtype", "f32",
                   "--ranks", args.ranks, "--backend", "cpu", "--algorithm", args.algorithm, "--iterations", args.rounds,
                   "--warmup", 3, "--check-samples", "--json", file]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return json.loads(file.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandem", default="tandem", help="the command")
    parser.add_argument("--m", type=int, default=1024)
    parser.add_argument("--n", type=int, default=1792, help="columns of one rank")
    parser.add_argument("--k", type=int, default=1024)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--algorithm", default="native")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--alternations", type=int, default=9)
    parser.add_argument("--out", help="file that gets the row")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_rank:
        run_rank(args)
        return
    own, peer = [], []
    for i in range(args.alternations):
        for side in ("own", "peer") if i % 2 == 0 else ("peer", "own"):
            if side == "own":
                own.append(time_tandem(args))
            else:
                peer.append(time_peer(args))

    def median(rows, key):
        return statistics.median(row[key] for row in rows)
    medians = [row["medians"] for row in peer]
    ratios = [theirs["t_both_us"] / ours["t_fused_us"] for ours, theirs in zip(own, medians)]
    row = {"op": "all_gather_matmul", "m": args.m, "n": args.n, "k": args.k, "dtype": "f32", "world": args.ranks,
           "algorithm": own[0]["algorithm"],
           **{key: median(own, key) for key in ("t_fused_us", "t_gemm_us", "t_own_mm_us", "t_serial_us", "t_comm_us")},
           "open_mpi": {key: median(medians, key) for key in ("t_both_us", "t_product_us", "t_gather_us")},
           "times_tandem": statistics.median(ratios), "times_tandem_least": min(ratios), "times_tandem_most": max(ratios),
           "quietest": {"t_fused_us": min(row["t_fused_us"] for row in own),
                        "open_mpi_t_both_us": min(row["t_both_us"] for row in medians)},
           "mpi": peer[0]["mpi"], "blas": peer[0]["blas"], "alternations": args.alternations, "rounds": args.rounds,
           **{key: own[0][key] for key in ("cpu", "cores", "commit")}, "kernel": platform.release()}
    line = json.dumps(row)
    print(line)
    if args.out:
        with open(args.out, "a", encoding="utf-8") as file:
            file.write(line + os.linesep)


if __name__ == "__main__":
    main()
