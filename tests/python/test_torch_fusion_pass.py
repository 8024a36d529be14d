"""The pass of torch.compile: what tandem.graph decides is what FX has afterwards, and computes the same."""

import contextlib
import json
import pathlib

import pytest
from fx_graphs import build, inputs_of
from fx_graphs import run as execute
from torch_ranks import check, compiled, mlp, needs_torch, run

import tandem

pytestmark = needs_torch

FUSED = ("= symm_mem.", "= tandem.fused_")  # in a text
LEFT_OUT = ("inductor_seeds", ": null = placeholder", "= my.", ".wait_tensors.")
GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


def goldens(size):
    """The graphs of so many ranks before the passes, by name. Those of ops that not every PyTorch has, that draw
    seeds, or whose sizes are symbolic are left out."""
    found = {}
    for file in sorted((GOLDEN / "fusions").glob("*.txt")):
        before, after, _ = file.read_text(encoding="utf-8").split("=>\n")
        is_of_all = before.startswith(f"graph world {size} ")
        if is_of_all and any(fused in after for fused in FUSED) and not any(one in before for one in LEFT_OUT):
            found[file.stem] = before
    return found


def options_of(name):
    return {"share_maxima": "shared_maximum" in name}


def computes_the_same(rank, size):
    """Runs each graph as it was, and as the pass leaves it, and compares the results."""
    import copy

    import torch

    done = []
    for name, text in goldens(size).items():
        before = build(text)
        after = copy.deepcopy(before)
        fusion = tandem.torch.fusion_pass(**options_of(name))
        fusion(after.graph)
        (passed,) = fusion.graphs
        ops = [str(node.target) for node in after.graph.nodes if str(node.target).startswith("tandem.")]
        assert len(ops) == sum(passed.after.to_text().count(fused) for fused in FUSED), (name, ops)
        want, got = (execute(each, inputs_of(each, rank)) for each in (before, after))
        for i, (one, other) in enumerate(zip(got, want, strict=True)):
            assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype), (name, i)
            wide = other.double()
            # The program rounds what it widens then, and the op does not.
            seen = one.bfloat16() if "widened" in name else one
            check(seen, wide, wide.abs().max() + torch.zeros_like(wide), 4, f"{name} output {i}")
        done.append(name)
    return done


@pytest.mark.parametrize(("size", "least"), [(2, 70), (4, 8)])
def test_computes_the_same(size, least):
    """Every golden graph that is fused, executed by PyTorch."""
    done = run(computes_the_same, size)
    assert all(each == done[0] for each in done) and len(done[0]) >= least


def captured():
    return sorted((GOLDEN / "captured").glob("*.txt"))


@pytest.mark.parametrize("path", captured(), ids=lambda path: path.stem)
def test_captured_graphs(path, fake_group):
    """FX graphs of real models: the ops are those that tandem.graph.fuse() says, and every type is as before."""
    text = path.read_text(encoding="utf-8")
    graph = tandem.graph.loads(text)
    fake_group(graph.world_size)
    module = build(text)
    report = tandem.graph.fuse(graph)
    outputs = [node.meta["val"].shape for node in module.graph.output_node().args[0] if node is not None]
    fusion = tandem.torch.fusion_pass()
    fusion(module.graph)
    (passed,) = fusion.graphs
    assert passed.report.fused == report.fused
    assert passed.after.to_text().splitlines()[1:] == graph.to_text().splitlines()[1 + text.count("\nfuses") :]
    assert outputs == [node.meta["val"].shape for node in module.graph.output_node().args[0] if node is not None]


def trains(rank, size, folder):
    """A step of the compiled feed-forward against eager: output and every gradient."""
    import torch

    fusion = tandem.torch.fusion_pass(strict=True)
    results = []
    for fused in (False, True):
        model = mlp(size)
        step = compiled(model, options={"post_grad_custom_pre_pass": fusion}) if fused else model
        x = torch.randn(16, 32, generator=torch.Generator().manual_seed(rank)).requires_grad_()
        y = step(x)
        y.sum().backward()
        grads = [parameter.grad.to_local() for parameter in model.parameters()]
        results.append([y.detach(), x.grad, *grads])
    for i, (want, got) in enumerate(zip(*results, strict=True)):
        wide = want.double()
        check(got, wide, wide.abs().max() + torch.zeros_like(wide), 8, f"result {i}")
    files = [path.name for passed in fusion.graphs for path in passed.draw(f"{folder}/{rank}")]
    return {passed.name: passed.report.fused for passed in fusion.graphs}, fusion.report(), files


def test_compiled_model(tmp_path):
    gather, scatter = "symm_mem.fused_all_gather_matmul.default", "symm_mem.fused_matmul_reduce_scatter.default"
    for fused, report, files in run(trains, 2, str(tmp_path)):
        (forward, of_forward), (backward, of_backward) = fused.items()
        assert "forward" in forward and of_forward == {gather: 1, scatter: 1}
        assert "backward" in backward and of_backward == {gather: 1, scatter: 1}
        assert forward in report and backward in report and "fused_all_gather_matmul" in report
        dots = [name for name in files if name.endswith(".dot")]
        assert dots == [f"{name}.{when}.dot" for name in (forward, backward) for when in ("before", "after")]
        before, after = ((tmp_path / "0" / f"{forward}.{when}.dot").read_text() for when in ("before", "after"))
        assert "palegreen" in after and "palegreen" not in before


SCATTER_OF_NOTHING = """graph world 2 group "0" source ""
%a: float32[4, 8] = placeholder
%r: float32[2, 8] = tandem.reduce_scatter.default(%a, "sum", 0, 2, "0")
%output: (float32[2, 8]) = output([%r])
"""


def test_strict(fake_group):
    fake_group(2)
    module = build(SCATTER_OF_NOTHING)
    fusion = tandem.torch.fusion_pass()
    fusion(module.graph)
    assert fusion.graphs[0].report.fused == {} and "kNoProducer" in fusion.report()
    with pytest.raises(tandem.Error, match="NOTHING WAS FUSED.*kNoProducer") as error:
        tandem.torch.fusion_pass(strict=True)(module.graph)
    assert error.value.code is tandem.ErrorCode.UNSUPPORTED


GATHER_BESIDE_MASKS = """graph world 2 group "0" source ""
%a: float32[4, 8] = placeholder
%b: float32[8, 6] = placeholder
%g: float32[8, 8] = _c10d_functional.all_gather_into_tensor.default(%a, 2, "0")
%w: float32[8, 8] = _c10d_functional.wait_tensor.default(%g)
%p: float32[8, 6] = aten.mm.default(%w, %b)
%k: bool[8, 6] = placeholder
%m: float32[8, 6] = aten.masked_fill.Scalar(%p, %k, -infinity)
%n: float32[8, 6] = aten.masked_fill.Scalar(%p, %k, nan)
%output: (float32[8, 6], float32[8, 6]) = output([%m, %n])
"""


def test_numbers_that_are_not_finite(fake_group):
    """They are the same numbers in the rewritten graph, in nodes that stay and in those that are made anew."""
    import torch

    from tandem.torch import _fx

    fake_group(2)
    module = build(GATHER_BESIDE_MASKS)

    def numbers():
        fill = torch.ops.aten.masked_fill.Scalar
        return [str(node.args[2]) for node in module.graph.nodes if node.target is fill]

    fusion = tandem.torch.fusion_pass()
    fusion(module.graph)
    assert sum(fusion.graphs[0].report.fused.values()) == 1 and numbers() == ["-inf", "nan"]
    captured = _fx.CapturedGraph(module.graph, "0", 2)
    captured.rewrite(json.loads(captured.text().replace('"m"', '"another"').replace('"n"', '"one"')))
    assert numbers() == ["-inf", "nan"] and {"another", "one"} < {node.name for node in module.graph.nodes}


def test_graphs_without_collectives(fake_group):
    fake_group(2)
    module = build('graph world 2 group "0" source ""\n%a: float32[4] = placeholder\n%o: (float32[4]) = output([%a])\n')
    fusion = tandem.torch.fusion_pass(strict=True)
    fusion(module.graph)
    assert not fusion.graphs and "No graph" in fusion.report()


def test_another_group(fake_group):
    """Collectives of other groups stay; the group with most fusions is taken."""
    fake_group(2)
    text = (GOLDEN / "fusions" / "gather_2d.txt").read_text(encoding="utf-8").split("=>\n")[0]
    module = build(text)
    fusion = tandem.torch.fusion_pass(group="another")
    with pytest.raises(tandem.Error, match="no process group 'another'"):
        fusion(module.graph)
    fusion = tandem.torch.fusion_pass(group="0")
    fusion(module.graph)
    assert sum(fusion.graphs[0].report.fused.values()) == 1


LENGTHS = (8, 12, 20, 28)  # the first is the one that is compiled


def along(dim):
    """Sequence parallelism along a dim, and a scatter that stays, because no product makes what it takes."""

    def step(x, up, down):
        import torch.distributed._functional_collectives as functional

        whole = functional.all_gather_tensor_autograd(x, dim, "0")
        y = functional.reduce_scatter_tensor_autograd(whole @ up @ down, "sum", dim, "0")
        return y, functional.reduce_scatter_tensor_autograd(whole, "sum", dim, "0")

    return step


def each_length(step, dim, rank):
    """For each length: results; and gradients, but along other dims, whose kernels take long to compile."""
    import torch

    generator = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((16, 32), (32, 16))]
    done = []
    for length in LENGTHS:
        generator = torch.Generator().manual_seed(100 * length + rank)
        x = torch.randn(*[2] * dim, length, 16, generator=generator).requires_grad_()
        torch._dynamo.mark_dynamic(x, dim)
        results = step(x, *parameters)
        of_results = [torch.full_like(each, rank + 1) for each in results]
        gradients = torch.autograd.grad(results, [x, *parameters], of_results) if dim == 0 else ()
        done.append([*(each.detach() for each in results), *gradients])
    return done


def compares_lengths(rank, size, dim):
    """Compiled for any length against eager. How many programs there are, and what is fused in each of their graphs."""
    import torch
    from torch._dynamo.utils import counters

    fusion = tandem.torch.fusion_pass()
    step = compiled(along(dim), options={"post_grad_custom_pre_pass": fusion})
    with contextlib.nullcontext() if dim == 0 else torch.no_grad():
        results = [each_length(each, dim, rank) for each in (along(dim), step)]
    for length, *of_length in zip(LENGTHS, *results, strict=True):
        for i, (want, got) in enumerate(zip(*of_length, strict=True)):
            wide = want.double()
            check(got, wide, wide.abs().max() + torch.zeros_like(wide), 16, f"length {length}, result {i}")
    fused = [list(passed.report.fused.values()) for passed in fusion.graphs]
    return counters["stats"]["unique_graphs"], fused, fusion.refused


@pytest.mark.parametrize("dim", [0, 1])
def test_symbolic_sizes(dim):
    """They are fused as numbers are, with results that are right for each length, and no more programs."""
    for programs, fused, refused in run(compares_lengths, 2, dim):
        assert programs == 1 and not refused
        assert fused == ([[1, 1], [1]] if dim == 0 else [[1, 1]])


@pytest.mark.parametrize("strict", [False, True])
def test_sizes_of_one_call(fake_group, strict):
    """A graph stays as it was where the rewritten one would fit one call only, and the report says so."""
    import torch

    fake_group(2)
    fusion = tandem.torch.fusion_pass(strict=strict)

    def see(graph):
        before = str(graph)
        fusion(graph)
        assert str(graph) == before
        raise RuntimeError("it was seen")

    # The last dim of the product is a symbol too, which passes write as a number.
    step = compiled(along(1), dynamic=True, options={"post_grad_custom_pre_pass": see})
    with pytest.raises(Exception, match="mark_static" if strict else "it was seen"), torch.no_grad():
        step(torch.randn(2, 8, 16), torch.randn(16, 32), torch.randn(32, 16))
    if not strict:
        assert not fusion.graphs and "mark_static" in fusion.report()


# ---- collectives beside products ----


def beside(shard, a, b, c, whole):
    """A gather whose result is a right operand, and a scatter that no product makes: each with a product before its
    wait."""
    import torch

    ops = torch.ops._c10d_functional
    gathered = ops.all_gather_into_tensor(shard, 2, "0")
    hidden = a @ b
    y = hidden @ ops.wait_tensor(gathered)
    scattered = ops.reduce_scatter_tensor(whole, "avg", 2, "0")
    z = y @ c
    return z, ops.wait_tensor(scattered)


def with_low_contention(graph):
    """A pass that makes low-contention nodes of all gathers and scatters, as those of graphs write them."""
    from tandem.torch import _fx

    captured = _fx.CapturedGraph(graph, "0", 2)
    document = json.loads(captured.text())
    for node in document["nodes"]:
        args = node["args"]
        if node["target"] == "_c10d_functional.all_gather_into_tensor.default":
            node.update(target="symm_mem._low_contention_all_gather.default", args=[args[0], args[2]])
        elif node["target"] == "_c10d_functional.reduce_scatter_tensor.default":
            node.update(target="symm_mem._low_contention_reduce_scatter.default", args=[*args[:2], args[3]])
    assert _fx.has_calls(document)
    captured.rewrite(document)
    graph.lint()
    ops = [str(node.target) for node in graph.nodes if str(node.target).startswith("tandem.")]
    assert ops == ["tandem.low_contention_all_gather.default", "tandem.low_contention_reduce_scatter.default"]


def inputs_beside(rank, length):
    """The contracted dim is the gathered one."""
    import torch

    generator = torch.Generator().manual_seed(100 * length + rank)
    shapes = ((length, 8), (6, 4), (4, 2 * length), (8, 4), (2 * length, 3))
    return [torch.randn(shape, generator=generator) for shape in shapes]


def runs_beside(rank, size, dynamic):
    """Compiled with low-contention ops against eager."""
    import torch

    step = compiled(beside, dynamic=dynamic, options={"post_grad_custom_pre_pass": with_low_contention})
    with torch.no_grad():
        for length in (8, 12):
            for want, got in zip(*(each(*inputs_beside(rank, length)) for each in (beside, step)), strict=True):
                wide = want.double()
                check(got, wide, wide.abs().max() + torch.zeros_like(wide), 16, f"length {length}")


@pytest.mark.parametrize("dynamic", [False, True])
def test_low_contention_nodes(dynamic):
    run(runs_beside, 2, dynamic)


@pytest.mark.parametrize("low_contention", [False, True])
def test_low_contention_pass(fake_group, low_contention):
    """The pass makes such nodes where it is asked to, of products that take long enough, and they become our ops."""
    import torch

    fake_group(2)
    fusion = tandem.torch.fusion_pass(low_contention=low_contention)
    names = []

    def see(graph):
        fusion(graph)
        names.extend(node.target.name().partition("::")[2] for node in graph.nodes if node.op == "call_function")
        raise RuntimeError("it was seen")

    step = compiled(beside, options={"post_grad_custom_pre_pass": see})
    n = 2048
    inputs = [torch.empty(shape) for shape in ((n // 2, n // 2), (n, n), (n, n), (n // 2, n), (n, n // 2))]
    with pytest.raises(Exception, match="it was seen"), torch.no_grad():
        step(*inputs)
    kinds = ["low_contention_all_gather", "low_contention_reduce_scatter"]
    if not low_contention:
        kinds = ["all_gather_into_tensor", "reduce_scatter_tensor"]
    assert [name for name in names if "gather" in name or "scatter" in name] == kinds, names
    gather, scatter = map(names.index, kinds)
    waits = [i for i, name in enumerate(names) if name == "wait_tensor"]
    assert len(waits) == 2 and "mm" in names[gather : waits[0]] and "mm" in names[scatter : waits[1]], names
    assert fusion.graphs and not fusion.refused


def keeps_inputs(rank, size):
    """Inductor gives an input's memory to no other tensor before the wait, however late the other rank is."""
    import time

    import torch

    def step(x, up, other, down):
        hidden = x @ up  # in memory that Inductor plans
        whole = tandem.torch.low_contention_all_gather(hidden, 0, "0")
        beside = x @ other @ down  # of the same sizes
        return beside, torch.ops._c10d_functional.wait_tensor(whole)

    square = [torch.randn(8, 8, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    fast = compiled(step)
    with torch.no_grad():
        for late in range(3):
            x = [square[0] * (each + late + 1) for each in range(size)]
            want = torch.cat([each @ square[1] for each in x])
            if late > 0 and rank == 1:
                time.sleep(0.3)
            beside, whole = fast(x[rank], *square[1:])
            torch.testing.assert_close(whole, want)
            torch.testing.assert_close(beside, x[rank] @ square[2] @ square[3])


def test_memory_of_inputs():
    run(keeps_inputs, 2)


def test_key():
    """Passes of other options, or of other code, have other keys in Inductor's caches."""
    all_options = ({}, {"strict": True}, {"cost": True}, {"low_contention": True})
    keys = {tandem.torch.fusion_pass(**options).uuid() for options in all_options}
    assert len(keys) == 4 and tandem.torch.fusion_pass().uuid() in keys
