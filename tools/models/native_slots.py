#!/usr/bin/env python3
"""Every interleaving of a few native gathers, with their slots and words (src/symm/inbox.hpp); and of exchanges, whose
mailboxes are such slots, of each block of threads (src/coll/cuda/mailboxes.hpp); and of native scatters, whose words have
to be the op's number, not to have reached it (src/symm/kernel_inbox.hpp).

Each rank has two threads. The caller's runs the ops: awaits each peer's word of the op, reads the slot, ends the op once
the side thread is done with it. The side thread starts an op's pushes when the caller's thread has come to the op, and per
peer writes data into the peer's slot, then the peer's word. The model keeps what every slot holds and which ops were
read; data that is overwritten before it was read, a word that is there without its data, and a state in which nothing
can move are failures. Words are the op's number on a small circle, so that their wrap is passed too.

Products of few rows send to their own rank too, and a rank may have no rows: it still writes its words, and the others
await them.

The protocol must pass; every mutant must fail: a model that cannot fail proves nothing.
"""
import sys

from slot_words import CIRCLE, explore, has_reached


class Protocol:
    def __init__(self, ranks, ops, first=1, mutant="", exact=False):
        self.ranks, self.ops, self.first, self.mutant, self.exact = ranks, ops, first, mutant, exact
        self.slots = 1 if mutant == "one_slot" else 2

    def is_there(self, seen, expected):
        return seen == expected if self.exact else has_reached(seen, expected)

    def peers(self, rank):
        """Whom a rank sends to, and whose words it awaits."""
        first = 0 if self.mutant in ("few_rows", "empty", "empty_is_silent") else 1
        return [(rank - step) % self.ranks for step in range(first, self.ranks)]

    def is_empty(self, rank):
        """A rank without rows."""
        return rank == 0 and self.mutant in ("empty", "empty_is_silent")

    def awaited(self, rank):
        return [peer for peer in self.peers(rank) if not (self.mutant == "empty_is_silent" and self.is_empty(peer))]

    def writes(self, rank):
        """Of an op."""
        return 2 * len(self.peers(rank))

    def start(self):
        # Per rank: op of the caller's thread, sources read in it, next write of the side thread.
        threads = tuple((0, 0, 0) for _ in range(self.ranks))
        # Per receiver, slot and sender: the op whose data lies there, and whether it was read; per receiver and
        # sender the word of each slot. A word of a block that is not used yet is zero, one behind the first.
        data = tuple((-1, True) for _ in range(self.ranks * self.slots * self.ranks))
        words = tuple((self.first - 1) % CIRCLE for _ in range(self.ranks * self.slots * self.ranks))
        return threads, data, words

    def place(self, receiver, op, sender):
        return (receiver * self.slots + op % self.slots) * self.ranks + sender

    def steps(self, state):
        """What can happen next: states, or texts of failures."""
        for rank in range(self.ranks):
            yield from self.side_steps(state, rank)
            yield from self.caller_steps(state, rank)

    def side_steps(self, state, rank):
        threads, data, words = state
        op, read, done = threads[rank]
        # Two writes a peer and op, in order; those of an op only once the caller's thread is there.
        pushed, write = divmod(done, self.writes(rank))
        ahead = 1 if self.mutant == "pushes_before_the_op" else 0
        if pushed >= self.ops or pushed > op + ahead:
            return
        peer = self.peers(rank)[write // 2]
        is_word = write % 2 == (0 if self.mutant == "word_before_data" else 1)
        place = self.place(peer, pushed, rank)
        after = (op, read, done + 1)
        threads = threads[:rank] + (after,) + threads[rank + 1:]
        if self.is_empty(rank) and (not is_word or self.mutant == "empty_is_silent"):
            yield threads, data, words
            return
        if is_word:
            yield threads, data, words[:place] + ((self.first + pushed) % CIRCLE,) + words[place + 1:]
            return
        if not data[place][1]:
            yield f"rank {rank} overwrites what rank {peer} has not read of op {data[place][0]}"
            return
        # A rank that does not read leaves nothing unread.
        unread = not self.is_idle(peer)
        yield threads, data[:place] + ((pushed, not unread),) + data[place + 1:], words

    def is_idle(self, rank):
        """A rank without a product; it reads nothing, but awaits every word."""
        return rank == 0 and self.mutant in ("idle", "idle_does_not_wait")

    def caller_steps(self, state, rank):
        threads, data, words = state
        op, read, done = threads[rank]
        if op >= self.ops:
            return
        everybody = sum(1 << peer for peer in self.awaited(rank))
        if self.is_idle(rank) and self.mutant == "idle_does_not_wait":
            read = everybody
        for peer in self.awaited(rank):
            place = self.place(rank, op, peer)
            if read >> peer & 1 or not self.is_there(words[place], (self.first + op) % CIRCLE):
                continue
            if not self.is_idle(rank) and not self.is_empty(peer) and data[place][0] != op:
                yield f"rank {rank} reads op {data[place][0]} of rank {peer} for op {op}"
                return
            after = (op, read | 1 << peer, done)
            yield (threads[:rank] + (after,) + threads[rank + 1:],
                   data[:place] + ((data[place][0], True),) + data[place + 1:], words)
        if read == everybody and done >= (op + 1) * self.writes(rank):
            yield threads[:rank] + ((op + 1, 0, done),) + threads[rank + 1:], data, words

    def explore(self):
        """(states, None or the failure)."""
        return explore(self.start(), self.steps, self.ops)


VARIANTS = ["", "idle", "few_rows", "empty"]
MUTANTS = ["one_slot", "word_before_data", "idle_does_not_wait", "pushes_before_the_op", "empty_is_silent"]
SIZES = [(2, 6, 1), (2, 6, CIRCLE - 2), (3, 4, 1)]


def main():
    ok = True
    # A rank without rows of its own is refused where words have to be exact.
    for variant, exact in [(one, False) for one in VARIANTS] + [("", True)]:
        for ranks, ops, first in SIZES:
            states, failure = Protocol(ranks, ops, first, variant, exact).explore()
            print(f"{variant or 'all multiply'}{', exact words' if exact else ''}, {ranks} ranks, {ops} ops from word {first}: {states} states, "
                  f"{failure or 'ok'}")
            ok = ok and failure is None
    for mutant in MUTANTS:
        failures = [failure for size in SIZES if (failure := Protocol(*size, mutant).explore()[1])]
        print(f"mutant {mutant}: {failures[0] if failures else 'NOT FOUND'}")
        ok = ok and bool(failures)
    print("native slots model:", "ok" if ok else "FAILED")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
