#!/usr/bin/env python3
"""Every interleaving of a few ops whose data peers read where it is held: native gathers and told scatters on CPUs
(src/fused/gather/native.cpp, src/fused/scatter/told.cpp), with the slots and words of src/symm/inbox.hpp.

Each rank's thread runs the ops in turn. In op e it writes its data into its own slot e mod 2, part by part, and tells
the peer that reads a part by the peer's word of that slot. It reads each peer's part once the word has come, and ends
the op when it has read all. What a rank writes over data that a peer has not read, what it reads of another op, and a
state in which nothing can move are failures. Words are the op's number on a small circle, so that their wrap is passed
too.

A rank may have a side thread, over a simulated link: it awaits the peers' words, and passes each on by a word of its
own after a while. The op ends when it is done.

The protocol must pass; every mutant must fail: a model that cannot fail proves nothing.
"""
import sys

from slot_words import CIRCLE, explore, has_reached


class Protocol:
    def __init__(self, ranks, ops, first=1, link=False, mutant=""):
        self.ranks, self.ops, self.first, self.link, self.mutant = ranks, ops, first, link, mutant
        self.slots = 1 if mutant == "one_slot" else 2

    def peers(self, rank):
        return [(rank + step) % self.ranks for step in range(1, self.ranks)]

    def start(self):
        # Per rank: op, writes done in it (data and word of each peer in turn), peers read, peers passed on by the
        # side thread.
        threads = tuple((0, 0, 0, 0) for _ in range(self.ranks))
        # Per holder, slot and reader: the op whose part lies there, and whether it was read; per reader, slot and
        # holder the word, and the word that the side thread writes.
        cells = self.ranks * self.slots * self.ranks
        data = tuple((-1, True) for _ in range(cells))
        zero = (self.first - 1) % CIRCLE
        return threads, data, (zero,) * cells, (zero,) * cells

    def place(self, of, op, other):
        return (of * self.slots + op % self.slots) * self.ranks + other

    def number(self, op):
        return (self.first + op) % CIRCLE

    def steps(self, state):
        for rank in range(self.ranks):
            yield from self.write(state, rank)
            yield from self.read(state, rank)
            if self.link:
                yield from self.pass_on(state, rank)
            yield from self.end(state, rank)

    def write(self, state, rank):
        threads, data, words, passed = state
        op, done, read, sent = threads[rank]
        if op >= self.ops or done >= 2 * (self.ranks - 1):
            return
        peer = self.peers(rank)[done // 2]
        is_word = done % 2 == (0 if self.mutant == "word_before_data" else 1)
        threads = threads[:rank] + ((op, done + 1, read, sent),) + threads[rank + 1:]
        if is_word:
            at = self.place(peer, op, rank)
            yield threads, data, words[:at] + (self.number(op),) + words[at + 1:], passed
            return
        at = self.place(rank, op, peer)
        if not data[at][1]:
            yield f"rank {rank} writes over op {data[at][0]}, which rank {peer} has not read"
            return
        yield threads, data[:at] + ((op, self.mutant == "idle" and peer == 0),) + data[at + 1:], words, passed

    def read(self, state, rank):
        threads, data, words, passed = state
        op, done, read, sent = threads[rank]
        if op >= self.ops:
            return
        idle = self.mutant in ("idle", "idle_does_not_wait") and rank == 0
        # The own part comes first: a rank writes before it reads, but may read while it writes.
        for idx, peer in enumerate(self.peers(rank)):
            if read >> idx & 1:
                continue
            at = self.place(rank, op, peer)
            looks_at = passed if self.link else words
            waits = not (self.mutant == "idle_does_not_wait" and rank == 0) and self.mutant != "reads_at_once"
            if waits and not has_reached(looks_at[at], self.number(op)):
                continue
            after = threads[:rank] + ((op, done, read | 1 << idx, sent),) + threads[rank + 1:]
            if idle:
                yield after, data, words, passed
                continue
            held = self.place(peer, op, rank)
            if data[held][0] != op:
                yield f"rank {rank} reads op {data[held][0]} of rank {peer} for op {op}"
                return
            yield after, data[:held] + ((op, True),) + data[held + 1:], words, passed

    def pass_on(self, state, rank):
        threads, data, words, passed = state
        op, done, read, sent = threads[rank]
        if op >= self.ops or sent >= self.ranks - 1:
            return
        peer = self.peers(rank)[sent]
        at = self.place(rank, op, peer)
        if self.mutant != "passes_on_at_once" and not has_reached(words[at], self.number(op)):
            return
        yield (threads[:rank] + ((op, done, read, sent + 1),) + threads[rank + 1:], data, words,
               passed[:at] + (self.number(op),) + passed[at + 1:])

    def end(self, state, rank):
        threads, data, words, passed = state
        op, done, read, sent = threads[rank]
        if op >= self.ops or done < 2 * (self.ranks - 1):
            return
        everybody = (1 << (self.ranks - 1)) - 1
        if read != everybody and self.mutant != "ends_before_it_has_read":
            return
        if self.link and sent < self.ranks - 1:
            return
        yield threads[:rank] + ((op + 1, 0, 0, 0),) + threads[rank + 1:], data, words, passed

    def explore(self):
        """(states, None or the failure)."""
        return explore(self.start(), self.steps, self.ops)


MUTANTS = ["one_slot", "word_before_data", "idle_does_not_wait", "reads_at_once", "ends_before_it_has_read"]
SIZES = [(2, 6, 1), (2, 6, CIRCLE - 2), (3, 3, 1)]


def main():
    ok = True
    for variant, link in [("", False), ("idle", False), ("", True)]:
        for size in SIZES:
            if link and size[0] > 2:
                size = (3, 2, 1)
            states, failure = Protocol(*size, link=link, mutant=variant).explore()
            print(f"{variant or 'all read'}{', over a link' if link else ''}, {size[0]} ranks, {size[1]} ops from word "
                  f"{size[2]}: {states} states, {failure or 'ok'}")
            ok = ok and failure is None
    for mutant, link in [(one, False) for one in MUTANTS] + [("passes_on_at_once", True)]:
        failures = [failure for size in SIZES[:2] if (failure := Protocol(*size, link=link, mutant=mutant).explore()[1])]
        print(f"mutant {mutant}: {failures[0] if failures else 'NOT FOUND'}")
        ok = ok and bool(failures)
    print("pulled slots model:", "ok" if ok else "FAILED")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
