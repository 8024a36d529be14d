#!/usr/bin/env python3
"""The memory orders of kernels that signal, in what nvcc makes of them: symm_ptx_orders_test.py NVCC SOURCE_ROOT

No race detector sees device code, so this reads it: every compare-and-swap of a put must be a release, of a wait an
acquire, and a stream's word write a release, at system scope; who gives up stores its record and then the word that tells the
rank's other waits, both released, and whoever finds that word, or loses the race to write it, acquires it. Then the same check on mutants, each of which it must refuse: else it proves nothing.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import ptx_mutants

KERNELS = "src/symm/cuda/signal_kernels.cu"
WORD_KERNELS = "src/device/cuda/word_kernel.cu"
WORDS = "include/tandem/cuda/device_words.cuh"
DEVICE_HEADER = "include/tandem/symm/kernel_device.cuh"
RECORD = "store_release(&fault.state, KernelFault::kSet);"
WORD = "store_release(control.has_given_up, KernelControl::kTold);"
# The next kernel may begin; words; all threads meet; then the first put.
RESET_STEPS = {"let begin": r"griddepcontrol\.launch_dependents", "zero": r"\bst\.(global\.)?[ub]32\s", "meet": r"\bbar\.sync",
               "put": r"\batom\.release\.sys"}
# Name -> file, text, replacement.
MUTANTS = {
    "relaxed put": (WORDS, "atom.release.sys", "atom.relaxed.sys"),
    "relaxed wait": (WORDS, "atom.acquire.sys", "atom.relaxed.sys"),
    "put for this GPU only": (WORDS, "atom.release.sys", "atom.release.gpu"),
    "wait for this GPU only": (WORDS, "atom.acquire.sys", "atom.acquire.gpu"),
    "relaxed stores": (DEVICE_HEADER, "store_release(", "store_relaxed("),
    "relaxed record": (DEVICE_HEADER, "store_release(&fault.state", "store_relaxed(&fault.state"),
    "word of who gave up before the record": (DEVICE_HEADER, RECORD + "\n  " + WORD, WORD + "\n  " + RECORD),
    "relaxed word of who gave up": (DEVICE_HEADER, "store_release(control.has_given_up", "store_relaxed(control.has_given_up"),
    "who gave up seen relaxed": (DEVICE_HEADER, "return load_acquire(control.has_given_up)", "return load_relaxed(control.has_given_up)"),
    "give-ups that do not await the first": (DEVICE_HEADER, "while (!has_given_up(control)) {\n    }", ""),
    "kernels that ask for a relaxed put": (KERNELS, "PutOrder::kRelease", "PutOrder::kRelaxed"),
    "kernels that ask for a relaxed wait": (KERNELS, "WaitOrder::kAcquire", "WaitOrder::kRelaxed"),
    "relaxed word": (WORD_KERNELS, "store_release(word", "store_relaxed(word"),
    "puts before all words are reset": (KERNELS, "  __syncthreads();\n", ""),
    "resets that hold up the next kernel": (KERNELS, "tandem::cuda::let_next_kernel_begin();", ""),
    "word for this GPU only": (WORD_KERNELS, "store_release(word, value);",
                               'asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");'),
}


def kernel_bodies(ptx):
    """Kernel name -> its PTX."""
    bodies = {}
    for entry in ptx_mutants.entries_of(ptx):
        name = re.search(r"\d+([a-z_]+_kernel|store_word)E", entry.split("(")[0])
        if name:
            bodies[name.group(1)] = entry
    return bodies


def orders_of(body, instruction):
    return set(re.findall(instruction, body))


def released_values(body):
    """What a kernel's release stores write, in order, where it is a constant."""
    constants = {}
    values = []
    for line in body.splitlines():
        if move := re.search(r"\bmov\.[bu]32\s+(%r\d+), (\d+);", line):
            constants[move.group(1)] = move.group(2)
        if store := re.search(r"\bst\.release\.sys\.global\.u32 \[[^]]*\], (\S+);", line):
            values.append(constants.get(store.group(1), store.group(1)))
    return values


def faults_in(nvcc, root):
    bodies = kernel_bodies(ptx_mutants.compile_to_ptx(nvcc, root, KERNELS) + ptx_mutants.compile_to_ptx(nvcc, root, WORD_KERNELS))
    faults = []
    stores = orders_of(bodies.get("store_word", ""), r"\bst\.([a-z]+\.[a-z]+)\.global\.u32")
    if stores != {"release.sys"}:
        faults.append(f"store_word: stores {sorted(stores)}, need release.sys")
    for name, want in (("put_signal_kernel", {"release.sys"}), ("wait_signal_kernel", {"acquire.sys"}),
                       ("barrier_kernel", {"release.sys", "acquire.sys"}), ("reset_words_kernel", {"release.sys", "acquire.sys"})):
        if name not in bodies:
            faults.append(f"no {name}")
            continue
        swaps = orders_of(bodies[name], r"\batom\.([a-z_]+\.[a-z]+)\.global\.cas\.b32")
        if swaps != want:
            faults.append(f"{name}: compare-and-swap {sorted(swaps)}, need {sorted(want)}")
        polls = orders_of(bodies[name], r"\bld\.(relaxed\.[a-z]+)\.global\.u32")
        if polls != {"relaxed.sys"}:
            faults.append(f"{name}: polls {sorted(polls)}, need relaxed.sys")
        # Of each place that gives up: the claim; the record's state, 1, then the word, 2; the word seen by the loop and by who
        # lost the claim, and the word of who has left.
        claims, seen = (len(re.findall(instruction, bodies[name])) for instruction in (r"\batom\.cas\.b32", r"\bld\.acquire\.sys"))
        told = released_values(bodies[name])
        if claims == 0 or told != claims * ["1", "2"] or seen != 3 * claims:
            faults.append(f"{name}: {claims} claims to give up, releases {told}, {seen} acquires: need one or more claims, for each 1 then 2, "
                          "and three acquires")
    steps = ptx_mutants.steps_of(bodies.get("reset_words_kernel", ""), RESET_STEPS)
    if steps[:4] != list(RESET_STEPS):
        faults.append(f"reset_words_kernel: {steps}, need {list(RESET_STEPS)}")
    return faults


def main(nvcc, root):
    folders = ("include/tandem", "src/symm/cuda", "src/device/cuda")
    return ptx_mutants.check_mutants(Path(root), folders, MUTANTS, lambda copy: faults_in(nvcc, copy))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
