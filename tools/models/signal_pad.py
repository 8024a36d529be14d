#!/usr/bin/env python3
"""Every interleaving of small programs over a signal pad, with a race detector inside.

The protocol (docs/design/symmetric_memory.md): the word `W*c + s` of d's pad is the signal from s to d on channel c;
put is a compare-and-swap 0 -> 1 with release, wait one of 1 -> 0 with acquire. Data is ordered by the words alone.

Threads carry vector clocks. A release stores the thread's clock in the word, an acquire joins it; reads and writes
of data check that whatever they could conflict with happened before. A state with no step left is an end: it is good
if all threads are done and all words are 0.

The protocol must pass every scenario; every mutant must fail at least one: a model that cannot fail proves nothing.
"""
import sys

# ---- operations: tuples, the first item is the name ----


def write(location):
    return ("write", location)


def read(location):
    return ("read", location)


def put(rank, dst, channel):
    return ("put", rank, dst, channel)


def wait(rank, src, channel):
    return ("wait", rank, src, channel)


def barrier(rank, world, channel, mutant=""):
    """As the library enqueues it: puts to all others, then waits for all others."""
    others = [(rank + step) % world for step in range(1, world)]
    puts = [put(rank, q, channel) for q in others]
    waits = [wait(rank, q, channel) for q in others]
    if mutant == "barrier_waits_first":
        return waits + puts
    if mutant == "barrier_skips_a_wait":
        return puts + waits[1:]
    return puts + waits


# ---- scenarios: name -> (world, one program a thread) ----


def scenarios(mutant):
    def barriers(world, rounds):
        programs = []
        for rank in range(world):
            program = []
            for _ in range(rounds):
                program += [write(rank)] + barrier(rank, world, 0, mutant)
                program += [read((rank + 1) % world)] + barrier(rank, world, 0, mutant)
            programs.append(program)
        return world, programs

    def two_streams():
        # Each rank has two streams with a channel each and data of its own.
        programs = []
        for rank in range(2):
            for channel in range(2):
                own, other = 2 * channel + rank, 2 * channel + 1 - rank
                programs.append([write(own)] + barrier(rank, 2, channel, mutant) + [read(other)])
        return 2, programs

    def stream_of_signals(count):
        # The second put has to wait for the first one to be consumed.
        return 2, [[write(i) if j == 0 else put(0, 1, 0) for i in range(count) for j in range(2)],
                   [wait(1, 0, 0) if j == 0 else read(i) for i in range(count) for j in range(2)]]

    def reused_buffer(rounds):
        # A buffer that the reader hands back by a signal in the other direction.
        sender = [op for _ in range(rounds) for op in (write(0), put(0, 1, 0), wait(0, 1, 0))]
        reader = [op for _ in range(rounds) for op in (wait(1, 0, 0), read(0), put(1, 0, 0))]
        return 2, [sender, reader]

    def fan_in():
        return 3, [[wait(0, 1, 0), read(1), wait(0, 2, 0), read(2)], [write(1), put(1, 0, 0)], [write(2), put(2, 0, 0)]]

    def fan_in_to_two_streams():
        return 3, [[wait(0, 2, 0), read(2)], [wait(0, 1, 1), read(1)], [write(1), put(1, 0, 1)], [write(2), put(2, 0, 0)]]

    return {
        "barriers, 2 ranks, 3 rounds": barriers(2, 3),
        "barriers, 3 ranks": barriers(3, 1),
        "two streams on two channels": two_streams(),
        "three signals in a row": stream_of_signals(3),
        "a buffer handed to and fro": reused_buffer(2),
        "two senders": fan_in(),
        "two senders to two streams": fan_in_to_two_streams(),
    }


# ---- the machine ----


def join(x, y):
    return tuple(max(a, b) for a, b in zip(x, y))


def word_index(world, channel, src, mutant):
    if mutant == "index_without_source":
        return world * channel
    if mutant == "index_without_stride":
        return channel + src
    return world * channel + src


def access_data(op, thread, clocks, data):
    """The data's new (writes, reads) clocks, or None for a race. Both are a vector of the last access of each thread."""
    writes, reads = data
    clock = clocks[thread]
    seen = all(w <= c for w, c in zip(writes, clock))
    if op == "write":
        seen = seen and all(r <= c for r, c in zip(reads, clock))
    if not seen:
        return None
    stamp = tuple(clock[t] if t == thread else 0 for t in range(len(clock)))
    return (join(writes, stamp), reads) if op == "write" else (writes, join(reads, stamp))


def step(state, thread, programs, world, mutant):
    """The state after the thread's next operation; None if it cannot go on, a text for a failure."""
    counters, clocks, words, datas = state
    if counters[thread] == len(programs[thread]):
        return None
    op = programs[thread][counters[thread]]
    clock, words, datas = clocks[thread], dict(words), dict(datas)
    if op[0] in ("put", "wait"):
        _, rank, peer, channel = op
        dst, src = (peer, rank) if op[0] == "put" else (rank, peer)
        key = (dst, word_index(world, channel, src, mutant))
        value, published = words.get(key, (0, (0,) * len(clock)))
        if op[0] == "put":
            if value == 1 and mutant != "put_stores":
                return None
            # A read-modify-write continues the release sequence: an older publication stays.
            words[key] = (1, published if mutant == "put_relaxed" else join(published, clock))
        else:
            if value == 0:
                return None
            if mutant != "wait_relaxed":
                clock = join(clock, published)
            words[key] = (1 if mutant == "wait_leaves_it" else 0, published)
    else:
        data = access_data(op[0], thread, clocks, datas.get(op[1], ((0,) * len(clock),) * 2))
        if data is None:
            return f"race: thread {thread}, {op[0]} of {op[1]}"
        datas[op[1]] = data
    clock = tuple(c + 1 if t == thread else c for t, c in enumerate(clock))
    return (counters[:thread] + (counters[thread] + 1,) + counters[thread + 1:],
            clocks[:thread] + (clock,) + clocks[thread + 1:], frozenset(words.items()), frozenset(datas.items()))


def explore(world, programs, mutant):
    """(number of states, first failure or None)."""
    n = len(programs)
    first_clocks = tuple(tuple(1 if t == thread else 0 for t in range(n)) for thread in range(n))
    start = ((0,) * n, first_clocks, frozenset(), frozenset())
    seen, pending = {start}, [start]
    while pending:
        state = pending.pop()
        is_end = True
        for thread in range(n):
            after = step(state, thread, programs, world, mutant)
            if after is None:
                continue
            if isinstance(after, str):
                return len(seen), after
            is_end = False
            if after not in seen:
                seen.add(after)
                pending.append(after)
        if is_end:
            if any(state[0][t] < len(programs[t]) for t in range(n)):
                return len(seen), f"stuck at {state[0]}"
            if any(value for _, (value, _) in state[2]):
                return len(seen), "a word is not 0 at the end"
    return len(seen), None


MUTANTS = ["put_relaxed", "wait_relaxed", "put_stores", "wait_leaves_it", "barrier_waits_first",
           "barrier_skips_a_wait", "index_without_source", "index_without_stride"]


def main():
    ok = True
    for name, (world, programs) in scenarios("").items():
        states, failure = explore(world, programs, "")
        print(f"protocol, {name}: {states} states, {failure or 'ok'}")
        ok = ok and failure is None
    for mutant in MUTANTS:
        failures = []
        for name, (world, programs) in scenarios(mutant).items():
            _, failure = explore(world, programs, mutant)
            if failure:
                failures.append(f"{name}: {failure}")
        print(f"mutant {mutant}: {failures[0] if failures else 'NOT FOUND'} ({len(failures)} scenarios fail)")
        ok = ok and bool(failures)
    print("signal pad model:", "ok" if ok else "FAILED")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
