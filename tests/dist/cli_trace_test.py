"""What `tandem trace` writes: JSON of the documented form, lanes that do not overlap themselves, steps in the order of their
schedule, and a summary that follows from the events."""

import collections
import json
import pathlib
import re
import statistics
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs/design/timeline.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}
TOLERANCE_US = 0.01  # of sums of times that are written in whole ns


def faults(value, schema, place="$"):
    """What is wrong with a value, by the keywords that the schema uses."""
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{place}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: {value!r} is none of {schema['enum']}")
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if isinstance(value, bool) or not any(isinstance(value, TYPES[kind]) for kind in kinds):
            return [f"{place}: {value!r} is no {kinds}"]
    if "oneOf" in schema:
        tries = [faults(value, one, place) for one in schema["oneOf"]]
        if sum(not one for one in tries) != 1:
            found += min(tries, key=len) or [f"{place}: fits several forms"]
    if isinstance(value, (int, float)):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            found.append(f"{place}: {value} is out of range")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{place}: no {key}" for key in schema.get("required", []) if key not in value]
        if schema.get("additionalProperties", True) is False:
            found += [f"{place}: unknown {key}" for key in value if key not in known]
        for key, one in known.items():
            if key in value:
                found += faults(value[key], one, f"{place}.{key}")
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            found.append(f"{place}: {len(value)} items")
        for i, one in enumerate(value):
            found += faults(one, schema.get("items", {}), f"{place}[{i}]")
    return found


# ---- sets of moments, as lists of (begin, end)


def union(intervals):
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif end > begin:
            merged.append((begin, end))
    return merged


def without(intervals, holes):
    left = []
    for begin, end in union(intervals):
        for first, last in union(holes):
            if first < end and last > begin:
                left.append((begin, max(begin, first)))
                begin = min(end, last)
        left.append((begin, end))
    return union(left)


def total(intervals):
    return sum(end - begin for begin, end in union(intervals))


class Trace:
    def __init__(self, folder):
        self.whole = json.loads((pathlib.Path(folder) / "trace.json").read_text())
        self.about = self.whole["tandem"]
        self.events = [event for event in self.whole["traceEvents"] if event["ph"] == "X"]
        names = [event for event in self.whole["traceEvents"] if event["name"] == "thread_name"]
        self.lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in names}

    def of_rank(self, rank):
        return [event for event in self.events if event["pid"] == rank]


def span(event):
    return event["ts"], event["ts"] + event["dur"]


def is_kernels_wait(event):
    return "the product waits for chunk" in event["args"]["step"]


def sums_of(events):
    """What the times of a rank's events sum up to; without_late_ranks() has split its collectives."""
    of = collections.defaultdict(list)
    in_products = []
    for event in events:
        of[event["cat"]].append(span(event))
        if is_kernels_wait(event):
            in_products.append(span(event))
    product = without(of["product"], in_products)
    busy = product + of["copy"] + of["sum"] + of["check"] + of["other"]
    return {
        "product_us": total(product),
        "communication_us": total(of["copy"]),
        "hidden_us": total(of["copy"]) - total(without(of["copy"], product)),
        "busy_us": total(busy),
        "waiting_us": total(without(of["wait"], busy)),
    }


class TraceCommand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cli_trace_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def trace(self, *arguments, env=None):
        out = self.folder / "trace"
        done = cli_tool.run("trace", *arguments, "--backend", "cpu", "--out", out, env=env)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stdout}{done.stderr}")
        self.report = done.stdout
        self.page = (out / "trace.html").read_text()
        trace = Trace(out)
        self.check(trace)
        return trace

    def run_problem(self, problem, **kwargs):
        outputs = ["--out", self.folder / "result.npy"]
        return self.trace("run", "--problem", problem, *outputs, **kwargs)

    def check(self, trace):
        self.assertEqual(faults(trace.whole, SCHEMA), [])
        self.assertEqual(len(trace.about["ranks"]), trace.about["world"])
        self.check_lanes(trace)
        events = [self.without_late_ranks(trace, rank["rank"]) for rank in trace.about["ranks"]]
        for rank, own in zip(trace.about["ranks"], events):
            self.check_sums(sums_of(own), rank)
        self.check_ops(trace, events)
        largest_first = sorted(trace.about["losses"], key=lambda loss: -loss["us"])
        self.assertEqual(trace.about["losses"], largest_first)

    def check_lanes(self, trace):
        lanes = collections.defaultdict(list)
        for event in trace.events:
            lanes[event["pid"], event["tid"]].append(span(event))
            self.assertIn((event["pid"], event["tid"]), trace.lanes)
        for lane, spans in lanes.items():
            spans.sort()
            for before, after in zip(spans, spans[1:]):
                self.assertLessEqual(before[1], after[0] + 1e-6, trace.lanes[lane])

    @staticmethod
    def without_late_ranks(trace, rank):
        """The events of a rank; a collective that is one event is a wait until all ranks have begun it."""
        collectives = [event for event in trace.events if event["cat"] == "copy" and "meeting" in event["args"]]
        last = collections.defaultdict(float)
        for event in collectives:
            key = event["args"]["call"], event["args"]["meeting"]
            last[key] = max(last[key], event["ts"])
        events = []
        for event in trace.of_rank(rank):
            if event not in collectives:
                events.append(event)
                continue
            waited = min(last[event["args"]["call"], event["args"]["meeting"]] - event["ts"], event["dur"])
            events.append({**event, "cat": "wait", "dur": waited})
            events.append({**event, "ts": event["ts"] + waited, "dur": event["dur"] - waited})
        return events

    def check_sums(self, sums, told):
        for key, expected in sums.items():
            self.assertAlmostEqual(told[key], expected, delta=TOLERANCE_US, msg=key)
        if sums["communication_us"] > TOLERANCE_US / 100:  # times are whole ns
            share = sums["hidden_us"] / sums["communication_us"]
            self.assertAlmostEqual(told["hidden_share"], share, delta=1e-3)
        else:
            self.assertIsNone(told["hidden_share"])

    def check_ops(self, trace, events):
        """The calls of each op and algorithm, in the order of their first calls: `events` of each rank."""
        groups = collections.defaultdict(list)
        for call in trace.about["calls"]:
            groups[call["op"], call["algorithm"]].append(call)
        told = trace.about["ops"]
        self.assertEqual([(op["op"], op["algorithm"]) for op in told], list(groups))
        for op, calls in zip(told, groups.values()):
            took = [call["end_us"] - call["begin_us"] for call in calls]
            self.assertEqual(op["calls"], len(calls))
            self.assertAlmostEqual(op["median_us"], statistics.median(took), delta=TOLERANCE_US)
            self.assertAlmostEqual(op["mean_us"], statistics.fmean(took), delta=TOLERANCE_US)
            numbers = {call["call"] for call in calls}
            sums = collections.Counter()
            for own in events:
                sums.update(sums_of(event for event in own if event["args"]["call"] in numbers))
            self.check_sums(sums, op)

    def check_schedule(self, trace):
        """The steps of each stream of rank 0 run in the order of the call's schedule."""
        for call in trace.about["calls"]:
            notations = call["schedule"].split()
            streams = collections.defaultdict(list)
            for event in trace.of_rank(0):
                if event["args"]["call"] == call["call"] and "notation" in event["args"]:
                    streams[event["args"]["stream"]].append((span(event), event["args"]["notation"]))
            noted = sorted(notation for steps in streams.values() for _, notation in steps)
            self.assertEqual(noted, sorted(notations))
            for steps in streams.values():
                mine = collections.Counter(notation for _, notation in steps)
                expected = []
                for notation in notations:
                    if mine[notation] > 0:
                        expected.append(notation)
                        mine[notation] -= 1
                steps.sort(key=lambda step: step[0])  # those at one moment stay as they were enqueued
                self.assertEqual([notation for _, notation in steps], expected)

    def test_every_schedule_of_two_and_four_processes(self):
        for ranks in (2, 4):
            for op in ("all_gather_matmul,a=64x48,n=40", "matmul_reduce_scatter,a=64x48,n=40", "matmul_all_reduce,a=64x48,n=40"):
                for algorithm in ("serial", "pipelined", "native"):
                    with self.subTest(op=op, algorithm=algorithm, ranks=ranks):
                        dim = "" if op.startswith("matmul_all") else ",dim=0"
                        trace = self.run_problem(f"{op},dtype=f32{dim},ranks={ranks},algorithm={algorithm},seed=3")
                        self.check_schedule(trace)
                        (call,) = trace.about["calls"]
                        self.assertEqual(call["algorithm"], algorithm)
                        self.assertEqual(trace.about["world"], ranks)
                        name = op.split(",")[0]
                        for event in trace.events:
                            self.assertRegex(event["name"], rf"^{name} \[\d+,\d+,\d+\] f32$")
                        self.assertIn("product", trace.lanes.values())
        self.assertIn("tandem", self.page)

    def test_pipelined_gather_is_appendix_a(self):
        trace = self.run_problem("all_gather_matmul,a=64x48,n=40,dtype=f32,dim=0,ranks=4,algorithm=pipelined,gathered=1,seed=3")
        self.assertEqual(
            trace.about["calls"][0]["schedule"],
            "cur:mv cur:B1 cur>bk cur:use0(own) bk:get1 bk:use1 cur:get2 cur:use2 bk:get3 bk:use3 cur:own->out0 bk>cur cur:B0",
        )
        copies = {name for name in trace.lanes.values() if name.startswith("from rank")}
        self.assertEqual(copies, {f"from rank {rank}" for rank in range(4)})

    def test_a_planted_stall_is_the_largest_loss(self):
        stall_ms = 400
        trace = self.run_problem(
            "all_gather_matmul,a=64x48,n=40,dtype=f32,dim=0,ranks=2,algorithm=pipelined,seed=3",
            env={"TANDEM_FAULT": f"get:1:1:delay:{stall_ms}"},
        )
        loss = trace.about["losses"][0]
        self.assertEqual((loss["rank"], loss["waited_for"], loss["what"]), (0, 1, "barrier 0"))
        self.assertGreater(loss["us"], 0.9 * stall_ms * 1000)
        self.assertRegex(loss["because"], r"^rank 1 came \d+ ms late: 'bk: get published a of rank 0 -> ")
        self.assertEqual(trace.about["slowest_rank"], 1)
        self.assertIn("# slowest rank: 1", self.report)
        self.assertRegex(self.report, r"# largest loss: \d+ ms of rank 0 in 'barrier 0' of call 0; rank 1 came")

    def test_bench_and_demo(self):
        trace = self.trace("bench", "all_gather_matmul", "--m", 64, "--n", 32, "--k", 24, "--ranks", 2, "--iterations", 2,
                           "--warmup", 1)
        self.assertGreater(len(trace.about["calls"]), 5)
        self.assertIn("all_gather bf16 [64, 24]", " ".join(call["op"] for call in trace.about["calls"]))
        self.assertIn("tandem trace bench all_gather_matmul", trace.about["command"])
        self.assertRegex(self.report, r"# trace +rank +busy +product +communication +hidden +waiting\n")
        self.assertRegex(self.report, r"# calls +median +busy +product +communication +hidden +waiting  over all ranks\n")
        of_gather = [op["algorithm"] for op in trace.about["ops"] if op["op"].startswith("all_gather_matmul ")]
        self.assertGreater(len(of_gather), 1)
        self.assertEqual(len(of_gather), len(set(of_gather)))
        for op in trace.about["ops"]:
            self.assertRegex(self.report, rf"\n +{op['calls']} .* {re.escape(op['op'])} {op['algorithm']}\n")
        trace = self.trace("demo", "--ranks", 2, "--seconds", 0.2, "--scale", 0.02)
        self.assertGreater(len(trace.about["calls"]), 10)

    def test_the_folder_is_that_of_the_out_before_the_command_or_of_the_last_one(self):
        problem = "all_gather_matmul,a=8x6,n=5,dtype=f32,dim=0,ranks=2,algorithm=serial,seed=3"
        result, out = self.folder / "result.npy", self.folder / "here"
        for arguments in (
            ["--out", out, "run", "--problem", problem, "--out", result],
            [f"--out={out}", "run", "--problem", problem, "--out", result],
            ["run", "--problem", problem, "--out", result, f"--out={out}"],
        ):
            done = cli_tool.run("trace", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue((out / "trace.html").exists() and result.exists())
            for path in (out / "trace.html", result):
                path.unlink()

    def test_errors_name_the_remedy(self):
        problem = "all_gather_matmul,a=8x6,n=5,dtype=f32,dim=0,ranks=2,algorithm=serial,seed=3"
        taken = self.folder / "taken"
        taken.write_text("a file")
        run = ["run", "--problem", problem, "--out", self.folder / "result.npy"]
        for arguments, words in (
            ([], ["trace: need a command", "--out DIR"]),
            (["doctor", "--out", self.folder], ["'doctor'", "only demo, run and bench"]),
            (["bench", "all_gather_matmul"], ["--out DIR"]),
            ([*run, "--out", taken], [str(taken), "Not a directory", "name a folder"]),
            ([*run, "--out", taken / "below"], [str(taken / "below"), "Not a directory"]),
        ):
            with self.subTest(arguments=arguments):
                done = cli_tool.run("trace", *arguments)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)
        product = ["bench", "mm", "--m", 8, "--n", 8, "--k", 8, "--ranks", 1, "--iterations", 1]
        done = cli_tool.run("trace", *product, "--out", self.folder / "x")
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertIn("nothing to show", done.stderr)

    def test_the_checks_can_fail(self):
        trace = self.run_problem("all_gather_matmul,a=8x6,n=5,dtype=f32,dim=0,ranks=2,algorithm=pipelined,seed=3")
        for spoil in (
            lambda t: t.events[0].pop("cat"),
            lambda t: t.about.update(version=2),
            lambda t: t.about["ranks"][0].update(product_us=t.about["ranks"][0]["product_us"] + 1),
            lambda t: t.about["ops"][0].update(hidden_us=t.about["ops"][0]["hidden_us"] + 1),
            lambda t: t.about["ops"][0].update(median_us=t.about["ops"][0]["median_us"] + 1),
            lambda t: t.about["ops"][0].update(calls=2),
            lambda t: t.about["ops"].clear(),
            lambda t: max(t.events, key=lambda e: e["dur"]).update(dur=1e9),
            lambda t: [e for e in t.events if e["pid"] == 0 and e["args"].get("notation") == "cur:B0"][0].update(ts=0.0, dur=0.0),
        ):
            spoiled = Trace(self.folder / "trace")
            spoil(spoiled)
            with self.assertRaises((AssertionError, KeyError)):
                self.check(spoiled)
                self.check_schedule(spoiled)
        self.check_schedule(trace)


if __name__ == "__main__":
    cli_tool.main(sys.modules[__name__])
