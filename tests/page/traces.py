"""Synthetic traces of `tandem trace`: what the tests of the page feed it.

A Recording collects spans per rank and lane, in us. `trace()` gives the JSON of docs/design/timeline.md, with a summary that
is computed here from the spans, so that the page's numbers have an independent source.
"""

import random
import statistics

LANES = ["product", "sums", "waits", "NaN check", "other"]
CATEGORY_OF_LANE = {"product": "product", "sums": "sum", "waits": "wait", "NaN check": "check", "other": "other"}


class Recording:
    """Spans of every rank, and what was told about them."""

    def __init__(self, world, **facts):
        self.world = world
        self.facts = facts
        self.spans = []  # (rank, lane, name, begin, duration, args)
        self.calls = []
        self.within_products = []  # (rank, call, begin, end) of waits of kernels: the product does not run meanwhile
        self.causes = {}  # (rank, begin) of a wait: (rank that was waited for, because)

    def add(self, rank, lane, name, begin, duration, **args):
        self.spans.append((rank, lane, name, begin, duration, args))
        return begin + duration

    def wait(self, rank, begin, duration, step, *, waited_for, because="", within_product=False, **args):
        self.causes[rank, begin] = (waited_for, because)
        if within_product:
            self.within_products.append((rank, args.get("call"), begin, begin + duration))
        return self.add(rank, "waits", "wait", begin, duration, step=step, **args)

    def call(self, number, op, algorithm, begin, end, schedule=""):
        self.calls.append(
            {"call": number, "op": op, "algorithm": algorithm, "begin_us": begin, "end_us": end, "schedule": schedule}
        )

    def lanes_of(self, rank):
        """Names of a rank's lanes in the order in which the page shows them."""
        used = {lane for other, lane, *_ in self.spans if other == rank}
        copies = sorted(
            (lane for lane in used if lane not in LANES), key=lambda lane: (lane.split()[0], int(lane.split()[-1]))
        )
        return [lane for lane in ["product", *copies, *LANES[1:]] if lane in used]

    def events_of(self, rank, lane):
        return sorted((span for span in self.spans if span[:2] == (rank, lane)), key=lambda span: (span[3], span[4]))

    def trace(self):
        events = []
        for rank in range(self.world):
            events.append({"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}})
            for tid, lane in enumerate(self.lanes_of(rank), 1):
                events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": lane}})
                events.append(
                    {"ph": "M", "name": "thread_sort_index", "pid": rank, "tid": tid, "args": {"sort_index": tid}}
                )
        tids = {(rank, lane): tid for rank in range(self.world) for tid, lane in enumerate(self.lanes_of(rank), 1)}
        for rank, lane, name, begin, duration, args in self.spans:
            events.append(
                {
                    "ph": "X",
                    "name": name,
                    "cat": CATEGORY_OF_LANE.get(lane, "copy"),
                    "pid": rank,
                    "tid": tids[rank, lane],
                    "ts": begin,
                    "dur": duration,
                    "args": args,
                }
            )
        return {"traceEvents": events, "tandem": self.summary()}

    def summary(self):
        ranks = [{"rank": rank, **self.sums_of(rank)} for rank in range(self.world)]
        told = {
            "version": 1,
            "command": "tandem trace run all_gather_matmul",
            "date": "2026-01-02T03:04:05Z",
            "machine": "a machine",
            "device": "2 cores",
            "backend": "cpu",
            "world": self.world,
            "clock": {"source": "CLOCK_MONOTONIC", "uncertainty_us": 0.1},
            "dropped_events": 0,
            "calls": self.calls,
            "ranks": ranks,
            "ops": self.ops(),
            "losses": self.losses(),
            "slowest_rank": max(range(self.world), key=lambda rank: ranks[rank]["busy_us"]) if ranks else 0,
        }
        return {**told, **self.facts}

    def sums_of(self, rank, calls=None):
        """What the times of a rank sum up to; of the spans of some calls."""

        def counts(call):
            return calls is None or call in calls

        parts = {}
        for other, lane, _, begin, duration, args in self.spans:
            if other == rank and counts(args.get("call")):
                parts.setdefault(CATEGORY_OF_LANE.get(lane, "copy"), []).append((begin, begin + duration))
        products, copies = union(parts.get("product", [])), union(parts.get("copy", []))
        stops = [(begin, end) for other, call, begin, end in self.within_products if other == rank and counts(call)]
        stopped = overlap(products, union(stops))
        communication, hidden = length(copies), length(overlap(products, copies)) - length(overlap(stopped, copies))
        busy = union([span for category, spans in parts.items() if category != "wait" for span in spans])
        return {
            "busy_us": length(busy),
            "product_us": length(products) - length(stopped),
            "communication_us": communication,
            "hidden_us": hidden,
            "hidden_share": hidden / communication if communication else None,
            "waiting_us": length(parts.get("wait", [])),
        }

    def ops(self):
        """What the calls of each op and algorithm sum up to, over all ranks."""
        groups = {}
        for call in self.calls:
            groups.setdefault((call["op"], call["algorithm"]), []).append(call)
        found = []
        for (op, algorithm), calls in groups.items():
            took = [call["end_us"] - call["begin_us"] for call in calls]
            times = {"median_us": statistics.median(took), "mean_us": statistics.fmean(took)}
            ranks = [self.sums_of(rank, {call["call"] for call in calls}) for rank in range(self.world)]
            sums = {key: sum(rank[key] or 0 for rank in ranks) for key in self.sums_of(0)}
            share = sums["hidden_us"] / sums["communication_us"] if sums["communication_us"] else None
            names = {"op": op, "algorithm": algorithm, "calls": len(calls)}
            found.append({**names, **times, **sums, "hidden_share": share})
        return found

    def losses(self):
        waits = sorted((span for span in self.spans if span[1] == "waits"), key=lambda span: -span[4])[:20]
        found = []
        for rank, _, name, begin, duration, args in waits:
            waited_for, because = self.causes.get((rank, begin), (None, ""))
            what = args.get("step", name).split(": ")[-1]
            found.append(
                {
                    "rank": rank,
                    "call": args.get("call"),
                    "what": what,
                    "us": duration,
                    "waited_for": waited_for,
                    "because": because,
                    "ts": begin,
                    "dur": duration,
                }
            )
        return found


def union(spans):
    """Spans that cover the same times without overlapping."""
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def overlap(some, others):
    """What two lists of sorted, separate spans have in common."""
    found, at = [], 0
    for begin, end in some:
        while at < len(others) and others[at][1] <= begin:
            at += 1
        for other in others[at:]:
            if other[0] >= end:
                break
            found.append((max(begin, other[0]), min(end, other[1])))
    return found


def length(spans):
    return sum(end - begin for begin, end in spans)


def pipelined_gathers(world=4, calls=6, seed=1, stall=None, start=1000.0, **facts):
    """Calls of a pipelined gather as docs/design/schedules.md has them; `stall` = (rank, call, us) delays that rank there."""
    random_of = random.Random(seed)
    recording = Recording(world, **facts)
    name = f"all_gather_matmul [{1024 * world},7168,{8192 // world}] bf16"
    now = [start + random_of.uniform(0, 20) for _ in range(world)]
    for call in range(1, calls + 1):
        told = {"call": call, "algorithm": "pipelined"}
        begin = min(now)
        for rank in range(world):
            now[rank] = recording.add(
                rank,
                "other",
                name,
                now[rank],
                random_of.uniform(20, 30),
                step="cur: copy a -> published a",
                stream="cur",
                **told,
            )
        if stall and stall[1] == call:
            now[stall[0]] += stall[2]
        meet(recording, now, "cur: barrier 1", told)
        for rank in range(world):
            cur = recording.add(
                rank,
                "product",
                name,
                now[rank],
                random_of.uniform(250, 280),
                stream="cur",
                chunk=rank,
                step=f"cur: out0 = all of a[{rank}] * b0",
                notation=f"cur:use{rank}(own)",
                **told,
            )
            get = [now[rank], now[rank]]
            for step in range(1, world):
                source = (rank + step) % world
                stream = "bk" if step % 2 else "cur"
                ready = recording.add(
                    rank,
                    f"from rank {source}",
                    name,
                    get[step % 2],
                    random_of.uniform(150, 330),
                    peer=source,
                    step=f"{stream}: get published a of rank {source} -> all of a[{source}]",
                    notation=f"{stream}:get{source}",
                    chunk=source,
                    bytes=1024 * 7168 * 2,
                    stream=stream,
                    **told,
                )
                if ready > cur:
                    recording.wait(
                        rank,
                        cur,
                        ready - cur,
                        f"cur: await chunk {source}",
                        waited_for=source,
                        chunk=source,
                        because=f"the copy from rank {source} took longer than the product",
                        **told,
                    )
                cur = recording.add(
                    rank,
                    "product",
                    name,
                    max(cur, ready),
                    random_of.uniform(250, 280),
                    stream=stream,
                    chunk=source,
                    step=f"{stream}: out0 = all of a[{source}] * b0",
                    notation=f"{stream}:use{source}",
                    **told,
                )
                get[step % 2] = cur
            now[rank] = cur
        meet(recording, now, "cur: barrier 0", told)
        recording.call(
            call,
            "all_gather_matmul",
            "pipelined",
            begin,
            max(now),
            "cur:mv cur:B1 cur>bk cur:use0(own) bk:get1 bk:use1 cur:own->out0 bk>cur cur:B0",
        )
    return recording


def two_algorithms():
    """Calls of one op by two algorithms and of one without communication; spans of the first two overlap in time."""
    recording = Recording(2)
    for rank in range(2):
        for call, begin in ((0, 0.0), (2, 400.0), (3, 900.0)):
            told = {"call": call, "stream": "cur", "step": "cur: step"}
            recording.add(rank, "product", "gather", begin, 100.0, **told)
            recording.add(rank, f"from rank {1 - rank}", "gather", begin + 50, 80.0 + 10 * rank, **told)
        told = {"call": 1, "stream": "bk", "step": "bk: step"}
        recording.add(rank, f"from rank {1 - rank}", "gather", 200.0, 60.0, **told)
        recording.add(rank, "product", "gather", 260.0, 90.0, **told)
        recording.wait(rank, 350.0, 10.0 + 20 * rank, "bk: barrier 1", waited_for=0, call=1, stream="bk")
        recording.add(rank, "product", "mm", 600.0, 50.0, call=4, stream="cur", step="cur: product")
    recording.call(0, "all_gather_matmul [8,8,8] f32", "pipelined", 0.0, 140.0)
    recording.call(1, "all_gather_matmul [8,8,8] f32", "serial", 200.0, 380.0)
    recording.call(2, "all_gather_matmul [8,8,8] f32", "pipelined", 400.0, 560.0)
    recording.call(4, "mm [8,8,8] f32", "native", 600.0, 650.0)
    recording.call(3, "all_gather_matmul [8,8,8] f32", "pipelined", 900.0, 1840.0)
    return recording


def meet(recording, now, step, told):
    """All ranks wait for the last one."""
    last = max(range(recording.world), key=lambda rank: now[rank])
    for rank in range(recording.world):
        if rank != last:
            late = now[last] - now[rank]
            recording.wait(
                rank, now[rank], late, step, waited_for=last, because=f"rank {last} came {late:.1f} us late", **told
            )
    now[:] = [now[last] + 0.5] * recording.world


def many(num_events=100_000, world=4):
    """About `num_events` events, as the pipelined gather makes them."""
    per_call = len(pipelined_gathers(world, 1).spans)
    return pipelined_gathers(world, -(-num_events // per_call))


def with_all_categories():
    """One wide event of each category at known times, on one rank."""
    recording = Recording(1)
    for index, lane in enumerate(["product", "from rank 1", "sums", "waits", "NaN check", "other"]):
        args = {"step": f"bk: step {index}", "call": 1, "stream": "bk"}
        if lane == "from rank 1":
            args.update(peer=1, chunk=3, bytes=1 << 20)
        recording.add(0, lane, f"event of {lane}", 100.0 * index, 100.0, **args)
    recording.call(1, "all_gather_matmul", "native", 0.0, 600.0)
    return recording
