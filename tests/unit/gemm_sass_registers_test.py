#!/usr/bin/env python3
"""Registers of the native kernels' warps, in their machine code: gemm_sass_registers_test.py CUOBJDUMP LIBRARY

A CTA's warp groups share the registers it was launched with: the producers give some back, and the consumers take them.
What a register holds, or does, that a warp has given back is undefined; consumers that ask for more than there is wait for
good. So in each kernel of LIBRARY every instruction that can
run behind the giving back may only name registers that are left, and what all groups have then may be no more than
what the CTA began with. First on machine code made for this test, and on the kernels changed so that they are wrong.
"""
import re
import subprocess
import sys
from dataclasses import dataclass, field

GROUP = 128  # threads
CONSUMER_GROUPS = 2
SKIPPED = 77


@dataclass
class Kernel:
    name: str
    source: str  # "bf16_t, 224 columns"
    registers: int  # a thread's, at the launch
    code: list = field(default_factory=list)  # (address, instruction)


def kernels_of(sass, resources):
    registers = dict(re.findall(r"^ Function (\S+):\n.*?REG:(\d+)", resources, flags=re.MULTILINE))
    kernels, source = [], ""
    for line in sass.splitlines():
        if found := re.match(r"member .*:(\w+)\.\S*:$", line):
            source = found[1]
        elif found := re.search(r"Function : (\S+)", line):
            tile = re.search(r"MMA_64x(\d+)x", found[1])
            of_tile = f", {tile[1]} columns" if tile else ""
            kernels.append(Kernel(found[1], source + of_tile, int(registers[found[1]])))
        elif found := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line):
            kernels[-1].code.append((int(found[1], 16), found[2]))
    return kernels


def split(instruction):
    """Predicate, name, operands."""
    found = re.match(r"(@!?U?P\w+\s+)?(\S+)\s*(.*)", instruction)
    return found[1] or "", found[2], found[3]


def highest_register(instruction):
    """As if all of its operands were as wide as the widest; -1 if it names none."""
    _, name, operands = split(instruction)
    width = 4 if ".128" in name else 2 if re.search(r"\.64|WIDE|^CS2R$|\.F64|^D[A-Z]+", name) else 1
    highest = -1
    for number, pair in re.findall(r"(?<![\w.])R(\d+)(\.64)?", operands):
        highest = max(highest, int(number) + max(width, 2 if pair else 1) - 1)
    return highest


def reachable(code, start):
    """The instructions that can run from index `start` on. A branch whose target cannot be read is an error."""
    index_of = {address: i for i, (address, _) in enumerate(code)}
    seen, todo = set(), [start]
    while todo:
        i = todo.pop()
        if i in seen or i >= len(code):
            continue
        seen.add(i)
        predicate, name, operands = split(code[i][1])
        if re.match(r"BRX|JMX|JMP|BMOV\.\S*PC|CALL\.ABS", name):
            raise ValueError(f"where '{code[i][1]}' goes is not known")
        if re.match(r"BRA|BSSY|CALL|WARPSYNC\.COLLECTIVE", name):
            todo.append(index_of[int(re.search(r"0x([0-9a-f]+)\)?$", operands)[1], 16)])
        always = not predicate and not re.match(r"!?U?P\d", operands)
        if not (always and re.match(r"BRA(\.U)?$|EXIT|RET", name)):
            todo.append(i + 1)
    return [code[i] for i in sorted(seen)]


def faults_of(kernel):
    given = [i for i, (_, text) in enumerate(kernel.code) if "USETMAXREG.DEALLOC" in text]
    taken = [text for _, text in kernel.code if "USETMAXREG.TRY_ALLOC" in text]
    if len(given) != 1 or len(taken) != 1:
        return [f"{len(given)} warp groups give registers back, {len(taken)} take some: need one and one"]

    def count_of(text):
        return int(re.search(r"0x([0-9a-f]+)", text)[1], 16)

    left, most = count_of(kernel.code[given[0]][1]), count_of(taken[0])
    faults = []
    if GROUP * (left + CONSUMER_GROUPS * most) > GROUP * (1 + CONSUMER_GROUPS) * kernel.registers:
        faults.append(f"groups have {left} and {CONSUMER_GROUPS} x {most} registers a thread, and began with {kernel.registers}")
    for address, text in reachable(kernel.code, given[0]):
        if highest_register(text) >= left:
            faults.append(f"{address:#x}: '{text}', and R{left - 1} is the last")
    return faults


def sass_of(*instructions):
    lines = [f"        /*{16 * i:04x}*/    {text} ;" for i, text in enumerate(instructions)]
    return "\n".join(["    Function : made", *lines])


def check_the_check():
    resources = " Function made:\n  REG:168 STACK:0"
    good = ["USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8", "@P0 BRA 0x40", "MOV R200, R7", "EXIT",
            "USETMAXREG.DEALLOC.CTAPOOL 0x28", "LDG.E.128 R36, desc[UR4][R2.64]", "@P1 BRA 0x90", "IMAD R39, R1, R2, RZ", "EXIT",
            "BSSY B0, 0xb0", "BRA 0xa0", "EXIT"]
    made = {
        "nothing wrong": (good, 0),
        "one too high": (good[:7] + ["IMAD R40, R1, R2, RZ"] + good[8:], 1),
        "one too high behind a branch": (good[:11] + ["MOV R1, R41"], 1),
        "four too high": (good[:5] + ["LDG.E.128 R37, desc[UR4][R2.64]"] + good[6:], 1),
        "an address too high": (good[:5] + ["LDG.E R3, desc[UR4][R39.64]"] + good[6:], 1),
        "more than there is": (["USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xf0", *good[1:]], 1),
        "nothing given back": (good[:4] + ["NOP"] + good[5:], 1),
    }
    for name, (code, expected) in made.items():
        got = faults_of(kernels_of(sass_of(*code), resources)[0])
        if len(got) != expected:
            sys.exit(f"made '{name}': got {got}, need {expected} faults")


def main():
    check_the_check()
    cuobjdump, library = sys.argv[1:]
    if not cuobjdump:
        print("there is no cuobjdump: machine code was not looked at")
        return SKIPPED

    def dump(what):
        return subprocess.run([cuobjdump, what, library], capture_output=True, text=True, check=True).stdout

    native = [kernel for kernel in kernels_of(dump("-sass"), dump("-res-usage")) if "async_input_product" in kernel.name]
    if not native:
        sys.exit("no native kernel was found")
    status = 0
    for kernel in native:
        faults = faults_of(kernel)
        start = next((i for i, (_, text) in enumerate(kernel.code) if "DEALLOC" in text), 0)
        behind = reachable(kernel.code, start)
        print(f"{kernel.source}: {len(behind)} of {len(kernel.code)} instructions behind the giving back, registers up to "
              f"R{max(highest_register(text) for _, text in behind)}: {'; '.join(faults) or 'no fault'}")
        status |= bool(faults)
        last = kernel.code.index(max(behind))
        for at in (start + 1, last):
            wrong = Kernel(kernel.name, kernel.source, kernel.registers, list(kernel.code))
            given_back = "R" + str(int(re.search(r"0x([0-9a-f]+)", kernel.code[start][1])[1], 16))
            wrong.code[at] = (wrong.code[at][0], f"MOV {given_back}, RZ")
            if not faults_of(wrong):
                sys.exit(f"{given_back} behind the giving back, at {wrong.code[at][0]:#x}, was not seen")
    return status


if __name__ == "__main__":
    sys.exit(main())
