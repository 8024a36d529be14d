"""Every reason that `tandem graph fuse` reports is true, and every pair that can be fused is, or `--strict` says so: judged
by derived_reasons.py, which derives both anew. For the programs of captured and fusions, and of further folders:

    python3 tests/golden/cli_reasons_test.py TANDEM [FOLDER...]
"""

import copy
import functools
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool
import captured_graph
import derived_reasons

HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = [HERE / "captured", HERE / "fusions"]


def programs():
    return [path for folder in FOLDERS for path in sorted(folder.iterdir()) if path.suffix in (".json", ".txt")]


@functools.cache
def case_of(path):
    with tempfile.TemporaryDirectory(prefix="cli_reasons_") as folder:
        return Case(path, pathlib.Path(folder))


class Case:
    """A program, and what the tool says of it."""

    def __init__(self, path, folder):
        program, report = folder / path.name, folder / "report.json"
        program.write_text(path.read_text().split("\n=>\n")[0] + "\n")
        shown = cli_tool.run("graph", "show", program, "--form", "json")
        assert shown.returncode == 0, shown.stderr
        done = cli_tool.run("graph", "fuse", program, "--strict", "--json", report)
        assert done.returncode in (0, 3), done.stderr
        self.graph = captured_graph.Graph(json.loads(shown.stdout))
        report = json.loads(report.read_text())
        self.rows, self.fused_ops = report["collectives"], sorted(report["fused"])
        self.is_strict_content = done.returncode == 0
        self.complaint = done.stderr
        self.findings = {}

    def alone(self, name):
        """What is true of a collective whatever became of the others."""
        if name not in self.findings:
            self.findings[name] = derived_reasons.find_of(self.graph, name, {})
        return self.findings[name]


def taken_by(case, is_by_gathers):
    """By product the names that the fused op of its gather, or of what sums it, may have in a detail."""
    taken = {}
    others = taken_by(case, False) if is_by_gathers else {}
    for row in case.rows:
        if row["fused_into"] and (row["kind"] == "all_gather") == is_by_gathers:
            finding = case.alone(row["node"])
            products = {product for product, _ in finding.legal} if is_by_gathers else finding.products
            for product in products - set(others):
                taken[product] = [f"{row['fused_into']} ({op})" for op in case.fused_ops]
    return taken


def objections(case):
    """What is wrong in a report, a sentence each."""
    found = []
    is_legal_left = False
    by_gathers, by_scatters = taken_by(case, True), taken_by(case, False)
    for row in case.rows:
        taken = by_scatters if row["kind"] == "all_gather" else by_gathers
        finding = derived_reasons.find_of(case.graph, row["node"], taken) if taken else case.alone(row["node"])
        say = lambda text: found.append(f"{row['node']}: {text}")
        if (row["reason"] is None) != (row["fused_into"] is not None):
            say("needs either a reason or a fused op")
        if row["fused_into"]:
            if not finding.legal and not finding.may_fuse and not brings_scale(case, row):
                say(f"is fused into {row['fused_into']}, but only these are true: {dict(finding.reasons)}")
            if row["is_legal"] or row["detail"]:
                say("is fused, and nothing is in its way")
            products = {product for one in together(case, row) for product in case.alone(one["node"]).products}
            if row["num_products"] < 1 or row["num_products"] + len(row["products_left"]) != len(products):
                say(f"has {row['num_products']} products and left {row['products_left']}, of {sorted(map(repr, products))}")
            names = {name for product in products for name in (repr(product), *by_scatters.get(product, ()))}
            if not set(row["products_left"]) <= names:
                say(f"left {row['products_left']}, which are not of {sorted(map(repr, products))}")
            continue
        details = finding.reasons.get(row["reason"])
        named = row["detail"].split(") ")[0] + ")" if ") " in row["detail"] else row["detail"]
        if details is None:
            say(f"{row['reason']} is not true, but {dict(finding.reasons)}; legal: {finding.legal}")
        elif named not in details:
            say(f"{row['reason']} names {named or 'nothing'}, not one of {sorted(details)}")
        if row["is_legal"] != bool(finding.legal):
            say(f"is said to be {'' if row['is_legal'] else 'not '}legal: {row}, {finding.legal}")
        if finding.legal:
            is_legal_left = True
            if not any(row["reason"] in reasons for _, reasons in finding.legal):
                say(f"can be fused with {finding.legal}, but is left for {row['reason']}")
            if row["node"] not in case.complaint:
                say("is a legal pair, but --strict does not name it")
    is_nothing = not any(row["fused_into"] for row in case.rows)
    if case.is_strict_content == (is_legal_left or is_nothing):
        found.append(f"--strict is {'content' if case.is_strict_content else 'not content: ' + case.complaint}")
    return found


def together(case, row):
    """The rows of all collectives that one fused op does."""
    return [other for other in case.rows if other["fused_into"] == row["fused_into"]]


def brings_scale(case, row):
    """Whether a gather's values are the scale of a product whose left operand the same fused op gathers."""
    return any(
        other is not row and case.alone(other["node"]).products & case.alone(row["node"]).products
        for other in together(case, row)
    )


def changed(case, idx, **changes):
    other = copy.copy(case)
    other.rows = copy.deepcopy(case.rows)
    other.rows[idx].update(changes)
    return other


FUSED = {"fused_into": "fused_all_gather_matmul", "reason": None, "detail": "", "num_products": 1, "is_legal": False}
# By program, of its first collective: reports that are wrong.
WRONG = {
    "refuse_kTransposedOperand": [
        {"reason": "kRightOperand", "detail": "p (aten.mm.default)"},
        {"reason": "kReshape", "detail": "t (aten.permute.default)"},
        {"detail": "p (aten.mm.default)"},
        {"is_legal": True},
        FUSED,
    ],
    "refuse_kOpBetween_gather": [
        {"reason": "kTransposedOperand"},
        {"reason": "kNoProduct", "detail": ""},
        {"detail": "p (aten.mm.default)"},
        {"detail": "g (tandem.all_gather.default)"},
        {"detail": ""},
        FUSED,
    ],
    "refuse_kReshape_gather": [
        {"reason": "kTransposedOperand"},
        {"detail": "p (aten.mm.default)"},
        {"is_legal": False},
        FUSED,
    ],
    "refuse_kRightOperand": [{"reason": "kTransposedOperand"}, {"reason": "kBiasOperand"}, FUSED],
    "refuse_kDependentOperand": [{"reason": "kOpBetween"}, {"detail": "g (tandem.all_gather.default)"}, FUSED],
    "refuse_kScaleOfWhole": [{"reason": "kDependentOperand"}, {"detail": "p (aten._scaled_mm.default)"}],
    "refuse_kFactors": [{"is_legal": False}, {"reason": "kOpBetween"}, FUSED],
    "refuse_kUnsupportedType": [{"reason": "kOpBetween"}, FUSED],
    "refuse_kOtherGroup_gather": [{"reason": "kNoProduct"}, FUSED],
    "refuse_kNoProduct": [{"reason": "kRightOperand"}, FUSED],
    "refuse_kBatchedProduct": [{"reason": "kRightOperand"}, {"reason": "kNoProduct"}, FUSED],
    "refuse_kOpaqueBetween_gather": [{"reason": "kOpBetween"}, {"detail": "p (aten.mm.default)"}, FUSED],
    "refuse_kOpBetween_scatter": [{"reason": "kNoProducer"}, {"detail": "p (aten.mm.default)"}, FUSED],
    "refuse_kNoProducer": [{"reason": "kOpBetween"}, {"detail": ""}, FUSED],
    "refuse_kMixedTypes": [{"reason": "kReshape"}, FUSED],
    "refuse_kReduction": [{"reason": "kOtherGroup"}, FUSED],
    "gather_2d": [
        {"reason": "kOpBetween", "detail": "p (aten.mm.default)", "fused_into": None},
        {"reason": "kRightOperand", "detail": "p (aten.mm.default)", "fused_into": None},
        {"reason": "kNoProduct", "fused_into": None},
        {"num_products": 2},
        {"num_products": 0},
        {"is_legal": True},
        {"reason": "kNoProduct"},
        {"fused_into": None},
    ],
    "scatter_sum_of_three": [{"reason": "kProductUsed", "fused_into": None}, {"num_products": 2}],
    "gather_one_product_depends_on_it": [{"products_left": []}, {"products_left": ["x (placeholder)"]}],
}


class Reasons(unittest.TestCase):
    def test_are_true_and_nothing_legal_is_left_in_silence(self):
        for path in programs():
            with self.subTest(path.name):
                self.assertEqual(objections(case_of(path)), [])

    def test_wrong_reports_are_noticed(self):
        for name, reports in WRONG.items():
            case = case_of(HERE / "fusions" / f"{name}.txt")
            for report in reports:
                with self.subTest(name, report=report):
                    self.assertNotEqual(objections(changed(case, 0, **report)), [])

    def test_strict_that_says_the_contrary_is_noticed(self):
        for path in programs():
            case = copy.copy(case_of(path))
            case.is_strict_content = not case.is_strict_content
            with self.subTest(path.name):
                self.assertNotEqual(objections(case), [])


if __name__ == "__main__":
    FOLDERS += map(pathlib.Path, sys.argv[2:])
    del sys.argv[2:]
    cli_tool.main("__main__")
