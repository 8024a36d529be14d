"""What the tests of the command-line tool share: running it, its files, and what it must not leave behind."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

TOOL = None  # path of the binary: the first argument of every test program


def main(module):
    """Runs a test module's cases; the tool's path is taken off the command line."""
    global TOOL

    TOOL = os.path.abspath(sys.argv.pop(1))
    unittest.main(module=module, verbosity=1)


def environment_with(env):
    """The caller's, but for his settings of tandem and what he has tuned."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
    return {**own, "TANDEM_TUNE_FOLDER": "", **(env or {})}


def run(*arguments, cwd=None, env=None, timeout=120):
    """The finished process of `tandem arguments...`, with text output."""
    environment = environment_with(env)
    return subprocess.run(
        [TOOL, *map(str, arguments)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout
    )


def start(*arguments, cwd=None, env=None):
    environment = environment_with(env)
    return subprocess.Popen(
        [TOOL, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# ---- numbers


def to_bf16_bits(value):
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


def from_bf16_bits(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def rounded(value, dtype):
    """`value` as an element of this type holds it."""
    if dtype == "bf16":
        return from_bf16_bits(to_bf16_bits(value))
    code = {"f16": "<e", "f32": "<f", "f64": "<d"}[dtype]
    return struct.unpack(code, struct.pack(code, value))[0]


UNIT_ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


def pseudo_random(count, seed):
    """Values in [-1, 1)."""
    state = (seed * 2654435761 + 12345) & 0xFFFFFFFF
    values = []
    for _ in range(count):
        state = (1664525 * state + 1013904223) & 0xFFFFFFFF
        values.append(state / 2.0**31 - 1.0)
    return values


def product(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


# ---- files


def npy_bytes(sizes, values, descr="<f4", fortran=False, header=None):
    if header is None:
        shape = "(" + "".join(f"{size}, " for size in sizes) + ")"
        header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    text = header.encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    code = {"f2": "e", "f4": "f", "f8": "d", "i4": "i"}[descr[1:]]
    order = ">" if descr[0] == ">" else "<"
    data = struct.pack(order + code * len(values), *values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def write_npy(path, sizes, values, descr="<f4"):
    pathlib.Path(path).write_bytes(npy_bytes(sizes, values, descr))


def read_npy(path):
    """(sizes, values) of an f32 file."""
    data = pathlib.Path(path).read_bytes()
    assert data[:6] == b"\x93NUMPY", data[:6]
    (length,) = struct.unpack_from("<H", data, 8)
    header = eval(data[10 : 10 + length].decode())  # our own writer's literal
    assert header["descr"] == "<f4" and not header["fortran_order"], header
    count = product(header["shape"])
    return list(header["shape"]), list(struct.unpack_from(f"<{count}f", data, 10 + length))


def safetensors_bytes(tensors, header=None):
    """tensors: name -> (type name, sizes, bytes)."""
    entries = {}
    data = b""
    for name, (kind, sizes, content) in tensors.items():
        entries[name] = {"dtype": kind, "shape": list(sizes), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(entries if header is None else header).encode()
    return struct.pack("<Q", len(text)) + text + data


def packed(values, dtype):
    if dtype == "bf16":
        return struct.pack(f"<{len(values)}H", *map(to_bf16_bits, values))
    return struct.pack(f"<{len(values)}" + {"f16": "e", "f32": "f"}[dtype], *values)


def read_safetensors(path):
    """name -> (type name, sizes, values)."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        content = data[8 + length + begin : 8 + length + end]
        count = product(entry["shape"])
        if entry["dtype"] == "BF16":
            values = [from_bf16_bits(bits) for bits in struct.unpack(f"<{count}H", content)]
        else:
            values = list(struct.unpack(f"<{count}" + {"F16": "e", "F32": "f"}[entry["dtype"]], content))
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return tensors


# ---- what must not be left behind


def processes():
    """Process ids of all running copies of the tool."""
    found = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if os.path.samefile(f"/proc/{entry}/exe", TOOL):
                found.add(int(entry))
        except OSError:
            continue
    return found


def ranks_of(launcher_pid):
    """Process ids of a launcher's ranks, in rank order."""
    children = []
    try:
        for thread in os.listdir(f"/proc/{launcher_pid}/task"):
            with open(f"/proc/{launcher_pid}/task/{thread}/children") as file:
                children += map(int, file.read().split())
        ranks = {}
        for pid in children:
            with open(f"/proc/{pid}/cmdline") as file:
                argument = file.read().split("\0")[1]  # --tandem-rank=<fd>:<rank>:<size>
            ranks[int(argument.split(":")[1])] = pid
        return [ranks[rank] for rank in sorted(ranks)]
    except (OSError, IndexError, ValueError):
        return []  # one of them is just starting or ending


class LeftBehind:
    """Compares /dev/shm and the temporary folder before and after. That folder is the test's own from here on:
    in the usual one other tests' ranks come and go."""

    def __init__(self, test):
        temporary = tempfile.TemporaryDirectory(prefix="left_")
        test.addCleanup(temporary.cleanup)
        patch = unittest.mock.patch.dict(os.environ, TMPDIR=temporary.name)
        patch.start()
        test.addCleanup(patch.stop)
        self.folders = ("/dev/shm", temporary.name)
        self.before = self.listing()

    def listing(self):
        return {folder: set(os.listdir(folder)) for folder in self.folders}

    def new_names(self):
        """New names; in /dev/shm those of any program are counted."""
        after = self.listing()
        return sorted(
            os.path.join(folder, name)
            for folder in after
            for name in after[folder] - self.before[folder]
        )


def expected_product(left, columns, dtype, ranks, scatters, bias=None, average=False):
    """[(value, tolerance)] in row-major order of a product of values of dtype, left by rows of k and the right factor by its
    columns, of k each, on so many ranks."""
    k = len(columns[0])
    u, u32, chunk = UNIT_ROUNDOFF[dtype], 2.0**-24, -(-k // ranks)
    results = []
    for row in range(len(left) // k):
        for i, column in enumerate(columns):
            terms = [x * y for x, y in zip(left[row * k : (row + 1) * k], column)]
            value = sum(terms)
            tolerance = (k + ranks + 4) * u32 * (sum(map(abs, terms)) + 1)
            if scatters:
                tolerance += 1.01 * u * sum(abs(sum(terms[r * chunk : (r + 1) * chunk])) for r in range(ranks))
            if average:
                value, tolerance = value / ranks, tolerance / ranks
            if bias is not None:
                value += bias[i]
            results.append((value, tolerance + 1.01 * u * abs(value) + 2.0**-25))
    return results


def signal_if_there(pid, number):
    """To one of several processes, of which a signal to another may have ended this one already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def wait_until(condition, seconds=20.0):
    """Whether `condition()` became true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
