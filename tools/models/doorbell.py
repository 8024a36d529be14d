#!/usr/bin/env python3
"""Exhaustive model of the doorbell (src/bootstrap/doorbell.hpp, docs/design/waiting.md).

Explores every interleaving of ringers, waiting threads of one rank and a monitor on a machine with store buffers (x86):
a plain store waits in its processor's buffer and drains at any later moment; a load sees the own buffer first; a
read-modify-write and a system call need an empty buffer. A state where nothing can move while a thread is asleep in the
futex is a lost wake-up. The protocol as written must have none; every mutant below must have some, otherwise the model
would prove nothing. The first form is read from the sources (doorbell_source.py).

Usage: doorbell.py [--verbose]
"""
import sys
from dataclasses import dataclass

import doorbell_source

WORDS = ["sig0", "sig1", "sleepers", "bell", "poison"]
INDEX = {name: i for i, name in enumerate(WORDS)}


@dataclass(frozen=True)
class Protocol:
    """What the mutants change. The defaults are the protocol as written."""

    num_waiters: int = 1
    num_signals: int = 1  # waiter i waits for signal i % num_signals; one ringer per signal
    monitor: bool = False  # poisons the group at any moment
    ringers_may_die: bool = False
    ringer_fence: bool = True  # the ringer reads `sleepers` by a read-modify-write
    ringer_bumps: bool = True
    register: str = "add"  # "add": counter, read-modify-write; "flag": plain store of 1 and of 0; "fenced flag"
    register_before_look: bool = True
    bell_before_look: bool = True
    look_again: bool = True  # look once more between registering and sleeping
    monitor_bumps: bool = True
    wake_all: bool = True


def ringer(p, signal):
    code = [("store", f"sig{signal}", 1)]
    code += [("add", "sleepers", 0)] if p.ringer_fence else [("load", "sleepers")]
    code += [("if0", "end")]
    code += [("add", "bell", 1)] if p.ringer_bumps else []
    return code + [("wake",), ("label", "end"), ("halt",)]


def waiter(p, signal):
    def register(value):
        if p.register == "add":
            return [("add", "sleepers", 1 if value else -1)]
        store = [("store", "sleepers", value)]
        return store + ([("fence",)] if p.register == "fenced flag" else [])

    def look(target):
        return [("load", f"sig{signal}"), ("if", target), ("load", "poison"), ("if", target)]

    read_bell = [("load_bell",)]
    code = [("label", "top")] + look("done")
    last_look = look("leave") if p.look_again else []
    if not p.register_before_look:
        code += read_bell + look("done") + register(1)
    elif p.bell_before_look:
        code += register(1) + read_bell + last_look
    else:
        code += register(1) + last_look + read_bell
    code += [("sleep",)] + register(0) + [("jump", "top")]
    return code + [("label", "leave")] + register(0) + [("label", "done"), ("halt",)]


def monitor(p):
    return [("store", "poison", 1), ("fence",)] + ([("add", "bell", 1)] if p.monitor_bumps else []) + [("wake",), ("halt",)]


def explore(p):
    """(states, ends where all are awake, ends with a thread asleep for ever)"""
    programs = [ringer(p, s) for s in range(p.num_signals)]
    num_ringers = len(programs)
    programs += [waiter(p, i % p.num_signals) for i in range(p.num_waiters)]
    if p.monitor:
        programs.append(monitor(p))
    labels = [{op[1]: pc for pc, op in enumerate(code) if op[0] == "label"} for code in programs]

    # memory, program counters, accumulator and bell value by thread, store buffers, threads asleep
    start = ((0,) * len(WORDS), (0,) * len(programs), ((0, 0),) * len(programs), ((),) * len(programs), frozenset())
    seen = {start}
    todo = [start]
    good = bad = 0

    def put(tup, i, value):
        return tup[:i] + (value,) + tup[i + 1 :]

    while todo:
        memory, pcs, registers, buffers, asleep = todo.pop()
        moves = []
        for t, code in enumerate(programs):
            buffer = buffers[t]
            if buffer:  # the oldest store reaches memory
                word, value = buffer[0]
                moves.append((put(memory, word, value), pcs, registers, put(buffers, t, buffer[1:]), asleep))
            if t in asleep:
                continue
            pc = pcs[t]
            op = code[pc]
            kind = op[0]
            halt = len(code) - 1
            if p.ringers_may_die and t < num_ringers and pc < halt:
                moves.append((memory, put(pcs, t, halt), registers, buffers, asleep))
            acc, bell = registers[t]
            following = put(pcs, t, pc + 1)
            if kind == "label":
                moves.append((memory, following, registers, buffers, asleep))
            elif kind == "store":
                moves.append((memory, following, registers, put(buffers, t, buffer + ((INDEX[op[1]], op[2]),)), asleep))
            elif kind in ("load", "load_bell"):
                word = INDEX["bell" if kind == "load_bell" else op[1]]
                value = memory[word]
                for stored_word, stored in buffer:
                    if stored_word == word:
                        value = stored
                loaded = (acc, value) if kind == "load_bell" else (value, bell)
                moves.append((memory, following, put(registers, t, loaded), buffers, asleep))
            elif kind in ("if", "if0", "jump"):
                taken = kind == "jump" or (acc != 0) == (kind == "if")
                moves.append((memory, put(pcs, t, labels[t][op[1]]) if taken else following, registers, buffers, asleep))
            elif buffer or kind == "halt":
                continue  # what is left needs an empty store buffer
            elif kind == "fence":
                moves.append((memory, following, registers, buffers, asleep))
            elif kind == "add":
                word = INDEX[op[1]]
                changed = put(memory, word, memory[word] + op[2])
                moves.append((changed, following, put(registers, t, (memory[word], bell)), buffers, asleep))
            elif kind == "wake":
                for woken in [asleep] if p.wake_all or not asleep else [frozenset([w]) for w in asleep]:
                    moves.append((memory, following, registers, buffers, asleep - woken))
            elif kind == "sleep":
                stays_awake = memory[INDEX["bell"]] != bell
                moves.append((memory, following, registers, buffers, asleep if stays_awake else asleep | {t}))
        if not moves:
            bad += bool(asleep)
            good += not asleep
        for state in moves:
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return len(seen), good, bad


SOUND = {
    "the sources, one waiter": doorbell_source.protocol(Protocol),
    "the sources, two waiters, two signals": doorbell_source.protocol(
        lambda **choices: Protocol(num_waiters=2, num_signals=2, **choices)
    ),
    "the sources, with a monitor": doorbell_source.protocol(
        lambda **choices: Protocol(monitor=True, ringers_may_die=True, **choices)
    ),
    "one waiter": Protocol(),
    "two waiters of one rank, one signal": Protocol(num_waiters=2),
    "two waiters of one rank, two signals": Protocol(num_waiters=2, num_signals=2),
    "monitor poisons, ringer may die anywhere": Protocol(monitor=True, ringers_may_die=True),
    "the same with two waiters": Protocol(num_waiters=2, monitor=True, ringers_may_die=True),
    "registering by a fenced flag, one waiter": Protocol(register="fenced flag"),
}

MUTANTS = {
    "ringer reads sleepers without a fence": Protocol(ringer_fence=False),
    "waiter registers by a plain store": Protocol(register="flag"),
    "neither has a fence": Protocol(ringer_fence=False, register="flag"),
    "waiter registers after its last look": Protocol(register_before_look=False),
    "waiter does not look again": Protocol(look_again=False),
    "waiter reads the bell after its last look": Protocol(bell_before_look=False),
    "ringer wakes without bumping the bell": Protocol(ringer_bumps=False),
    "flag instead of a counter, two waiters": Protocol(num_waiters=2, num_signals=2, register="fenced flag"),
    "wakes one of two waiters": Protocol(num_waiters=2, num_signals=2, wake_all=False),
    "monitor wakes without bumping the bell": Protocol(monitor=True, ringers_may_die=True, monitor_bumps=False),
    "ringer may die and nobody monitors": Protocol(ringers_may_die=True),
}


def main():
    verbose = "--verbose" in sys.argv[1:]
    wrong = []
    for must_hold, cases in ((True, SOUND), (False, MUTANTS)):
        for name, protocol in cases.items():
            states, good, bad = explore(protocol)
            as_expected = (bad == 0 and good > 0) if must_hold else bad > 0
            if verbose or not as_expected:
                kind = "protocol" if must_hold else "mutant"
                print(f"{kind:9s}{name:45s} {states:7d} states, {good:4d} good ends, {bad:4d} asleep for ever")
            if not as_expected:
                wrong.append(name)
    if wrong:
        print("not as expected: " + "; ".join(wrong))
        return 1
    print(f"{len(SOUND)} forms of the protocol lose no wake-up; all {len(MUTANTS)} mutants do")
    return 0


if __name__ == "__main__":
    sys.exit(main())
