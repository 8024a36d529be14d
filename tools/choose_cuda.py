#!/usr/bin/env python3
"""Says what TANDEM_CUDA to configure a build folder with, and why: choose_cuda.py [--to-run-here] FOLDER

Prints two lines: ON, OFF or AUTO, and the reason, which is empty where the choice is AUTO's own. CUDA=1 or CUDA=0 in the
environment decides. Else it is AUTO, but for a build --to-run-here: that leaves out the CUDA part, which takes minutes to
compile, where no GPU driver could run it. A folder whose tool has its CUDA part already keeps it.
"""
import argparse
import ctypes
import os
import sys
from pathlib import Path

NO_GPU = 100  # CUDA_ERROR_NO_DEVICE


def why_no_gpu():
    """Asks the driver as the tool does. None where it finds a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        status = driver.cuInit(0)
        num_gpus = ctypes.c_int(0)
        if status == 0:
            status = driver.cuDeviceGetCount(ctypes.byref(num_gpus))
    except (OSError, AttributeError):
        return "no GPU driver here"
    if status not in (0, NO_GPU):
        return f"the GPU driver here does not start (CUDA error {status})"
    return None if num_gpus.value > 0 else "no GPU here"


def has_tool_with_cuda(folder):
    tool = folder / "bin" / "tandem"
    return tool.exists() and b".nv_fatbin" in tool.read_bytes()  # the section that kernels are in


def choose(folder, to_run_here, asked):
    """(setting, reason) where `asked` is the value of the environment's CUDA."""
    if asked in ("0", "1"):
        return ("ON" if asked == "1" else "OFF"), f"CUDA={asked}"
    # Environments name the toolkit's folder in a variable of this name too.
    if asked and not asked.startswith("/"):
        sys.exit(f"CUDA='{asked}': need 1 (with the CUDA part), 0 (without), or nothing (as this machine is)")
    if not to_run_here:
        return "AUTO", ""
    why_not = why_no_gpu()
    if why_not is None:
        return "AUTO", "a GPU is here"
    if has_tool_with_cuda(folder):
        return "AUTO", f"{why_not}, but it was built already; CUDA=0 builds without"
    return "OFF", f"{why_not}; CUDA=1 builds it"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to-run-here", action="store_true")
    parser.add_argument("folder", type=Path)
    flags = parser.parse_args()
    print(*choose(flags.folder, flags.to_run_here, os.environ.get("CUDA", "")), sep="\n")


if __name__ == "__main__":
    main()
