"""Graphs captured from torch.compile: nothing of them is lost, and what is watched is as without."""

import contextlib
import json
import logging

import pytest
from torch_ranks import compiled, mlp, needs_torch

import tandem

pytestmark = needs_torch


@pytest.fixture(autouse=True)
def anew(caplog):
    """Nothing is compiled, and warnings are seen."""
    import torch

    torch._dynamo.reset()
    caplog.set_level(logging.WARNING, "tandem")


def no_json(word):
    raise ValueError(f"{word} is not JSON")


def read(file):
    """The document of a file, which is JSON by the letter of the standard."""
    return json.loads(file.read_text(encoding="utf-8"), parse_constant=no_json)


def nodes_of(file):
    return {node["name"]: node for node in read(file)["nodes"]}


def capturing(path, group=None):
    return tandem.torch.capture_graphs(path, group)


def see(graph):
    """Shows a graph to the passes of Inductor, without compiling it."""
    from torch._inductor import config

    config.post_grad_custom_pre_pass(graph)


def graph_of(targets, value=None):
    """A graph of the calls, each (op, args, kwargs) of a function of the first node."""
    import torch
    from torch import fx

    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(4, 8) if value is None else value
    for target, args, kwargs in targets:
        node = graph.call_function(target, (x, *args), kwargs)
        node.meta["val"] = torch.empty(8 if target is gather()[0] else 4, 8)
    graph.output((x,))
    fx.GraphModule(torch.nn.Module(), graph)
    return graph


def gather(group="0"):
    """A call of a collective, in whose graph a group is certain."""
    import torch

    return torch.ops._c10d_functional.all_gather_into_tensor.default, (2, group), {}


def sequence_parallel(group):
    """A gather, two products and a scatter. Inductor needs no C++ for them."""
    import torch.distributed._functional_collectives as functional

    def step(x, up, down):
        hidden = functional.all_gather_tensor_autograd(x, 0, group) @ up
        return functional.reduce_scatter_tensor_autograd(hidden @ down, "sum", 0, group)

    return step


def weights():
    import torch

    return torch.randn(16, 32, requires_grad=True), torch.randn(32, 16, requires_grad=True)


def test_capture(fake_group, tmp_path):
    import torch

    fake_group(2)
    with capturing(tmp_path / "a" / "mlp") as files:
        compiled(mlp(2))(torch.randn(16, 32)).sum().backward()
    forward, backward = files
    assert forward.parent == tmp_path / "a" and "forward" in forward.name and "backward" in backward.name
    assert sorted(forward.parent.iterdir()) == sorted(files)
    graph = tandem.graph.load(forward)
    assert graph.world_size == 2
    assert tandem.graph.fuse(graph, strict=True).fused


def test_constants(fake_group, tmp_path):
    """Every constant is JSON, and says what it was."""
    import torch

    fake_group(2)
    aten = torch.ops.aten
    values = {
        "numbers": [0, -(2**63), 0.5, True, None, "text"],
        "not_finite": [float("inf"), float("-inf"), float("nan")],
        "words": [2**64, 1 + 2j, torch.bfloat16, torch.device("cpu"), torch.channels_last, torch.strided, slice(1, 2)],
    }
    with capturing(tmp_path / "constants") as files:
        see(graph_of([gather(), *((aten.sin.default, (value,), {"named": value}) for value in values.values())]))
    sines = [node for node in read(files[0])["nodes"] if node["target"] == "aten.sin.default"]
    assert all(node["args"][1] == node["kwargs"]["named"] for node in sines)
    numbers, not_finite, words = (node["args"][1] for node in sines)
    assert numbers == values["numbers"] and [type(each) for each in numbers[:4]] == [int, int, float, bool]
    assert not_finite == [{"float": "inf"}, {"float": "-inf"}, {"float": "nan"}]
    assert words == [
        {"repr": text}
        for text in (
            "18446744073709551616",
            "(1+2j)",
            "torch.bfloat16",
            "cpu",
            "torch.channels_last",
            "torch.strided",
            "slice(1, 2, None)",
        )
    ]


def test_containers_and_functions(fake_group, tmp_path):
    """Keys of a dict with nodes are kept. A function is named, not its address."""
    import torch
    from torch import fx

    fake_group(2)
    graph = graph_of([gather(), (torch.sym_max, (1,), {})])
    x = next(iter(graph.nodes))
    with graph.inserting_before(graph.output_node()):
        graph.call_function(torch.ops.aten.sin.default, ({"first": x, "second": 2.0}, slice(x, 3)))
    assert isinstance(graph.owning_module, fx.GraphModule)
    with capturing(tmp_path / "containers") as files:
        see(graph)
    nodes = {node["target"]: node for node in read(files[0])["nodes"]}
    a_dict, a_slice = nodes["aten.sin.default"]["args"]
    assert a_dict == ["dict", ["first", {"node": "x"}], ["second", 2.0]]
    assert a_slice == ["slice", {"node": "x"}, 3, None]
    assert "torch.sym_max" in nodes


def compiles(capture, path):
    """How many programs torch.compile makes for four lengths, and their files."""
    import torch
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    step = compiled(sequence_parallel("0"))
    with capturing(path) if capture else contextlib.nullcontext([]) as files, torch.no_grad():
        for length in (8, 12, 20, 28):
            step(torch.randn(length, 16), *weights())
    return counters["stats"]["unique_graphs"], files


def test_symbolic_sizes(fake_group, tmp_path):
    """No length is compiled that would not be without. The symbols are there, with the sizes of the call."""
    fake_group(2)
    assert compiles(False, None)[0] == 2
    count, files = compiles(True, tmp_path / "lengths")
    assert count == 2 and len(files) == 2
    fixed, symbolic = map(nodes_of, files)
    assert not any("symbolic" in node for node in fixed.values())
    gathers = [node for node in symbolic.values() if "all_gather" in node["target"]]
    (number,) = (node for node in symbolic.values() if "sym" in (node.get("symbolic") or ()))
    assert number["op"] == "placeholder" and number["out"] is None and number["symbolic"]["hint"] == 12
    name = number["symbolic"]["sym"]
    (made,) = gathers
    assert made["out"] == {"shape": [24, 16], "stride": [16, 1], "dtype": "float32"}
    assert made["symbolic"] == {
        "shape": [{"sym": f"2*{name}", "hint": 24}, 16],
        "stride": [16, 1],
        "dtype": "float32",
    }


def test_symbols_as_arguments(fake_group, tmp_path):
    """Also of sizes that nobody knows; asking for them would add guards."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    fake_group(2)
    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    dynamic = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    known = mode.from_tensor(torch.empty(6, 3), symbolic_context=dynamic)
    unknown = env.create_unbacked_symint()
    with mode:
        of_unknown = torch.empty(unknown, 3)
    guards = len(env.guards)
    size = known.shape[0]
    graph = graph_of([gather(), (torch.ops.aten.sin.default, ([size * 2, unknown, size > 3],), {})], known)
    nodes = iter(graph.nodes)
    next(nodes), next(nodes)
    next(nodes).meta["val"] = [of_unknown, known, unknown, None]
    with capturing(tmp_path / "symbols") as files:
        see(graph)
    assert len(env.guards) == guards
    x, _, sine, _ = read(files[0])["nodes"]
    symbol = x["symbolic"]["shape"][0]["sym"]
    assert x["out"]["shape"] == [6, 3] and x["symbolic"]["shape"] == [{"sym": symbol, "hint": 6}, 3]
    assert sine["args"][1] == [
        {"sym": f"2*{symbol}", "hint": 12},
        {"sym": str(unknown), "hint": None},
        {"sym": f"{symbol} > 3", "hint": True},
    ]
    assert sine["out"] == [None, x["out"], None, None]
    of_nobody, of_x, alone, none = sine["symbolic"]
    assert of_nobody["shape"] == [{"sym": str(unknown), "hint": None}, 3]
    assert of_x == x["symbolic"] and alone == {"sym": str(unknown), "hint": None} and none is None


def is_backward(file):
    """Gradients come in, as "tangents" of AOTAutograd."""
    return any(name.startswith("tangents") for name in nodes_of(file))


def kinds(files):
    """How many are called forward and backward, each of which is one."""
    words = [file.name.split(".")[1].split("_") for file in files]
    for file, (_, word) in zip(files, words, strict=True):
        assert word == ("backward" if is_backward(file) else "forward"), file
    for number in {each for each, _ in words}:
        assert [word for each, word in words if each == number] == ["forward", "backward"]
    return len(words)


def test_names(fake_group, tmp_path):
    """Forward and backward, also of a recompiled function that is cut in two."""
    import torch

    fake_group(2)

    def twice(x, up, down):
        x = sequence_parallel("0")(x, up, down)
        torch._dynamo.graph_break()
        return sequence_parallel("0")(x, up, down)

    with capturing(tmp_path / "names") as files:
        step = compiled(twice, dynamic=False)
        for length in (8, 12):
            step(torch.randn(length, 16), *weights()).sum().backward()
    assert kinds(files) == 8
    torch._dynamo.reset()
    with capturing(tmp_path / "names") as files, torch.no_grad():
        compiled(sequence_parallel("0"))(torch.randn(8, 16), *weights())
    assert [file.name.split("_")[1] for file in files] == ["inference.json"]


def test_name_of_compiled_autograd(fake_group, tmp_path):
    """All of a backward as one graph is a backward too."""
    import torch
    from torch._dynamo import compiled_autograd

    fake_group(2)
    with capturing(tmp_path / "names") as files:
        y = compiled(sequence_parallel("0"))(torch.randn(8, 16), *weights()).sum()
        with compiled_autograd._enable(compiled):
            y.backward()
    assert [file.name.split("_")[1] for file in files][0] == "forward.json"
    assert all("backward" in file.name for file in files[1:]) and len(files) > 1


def test_caches(fake_group, tmp_path):
    """What Inductor has in its cache is captured too."""
    import torch

    fake_group(2)
    x, *both = torch.randn(8, 16), *weights()
    for capture in (False, True, True):
        torch._dynamo.reset()
        with capturing(tmp_path / "again") if capture else contextlib.nullcontext([]) as files:
            compiled(sequence_parallel("0"))(x, *both).sum().backward()
        assert kinds(files) == 2 * capture


def test_passes_of_the_program(fake_group, tmp_path):
    """They run as without, behind it."""
    from torch._inductor import config

    fake_group(2)
    seen = []
    with config.patch(post_grad_custom_pre_pass=seen.append), capturing(tmp_path / "passes") as files:
        see(graph := graph_of([gather()]))
    assert seen == [graph] and len(files) == 1


def mesh_of(fake_group, shape, names=None):
    """Process groups of a mesh: data-parallel ones, then tensor-parallel ones."""
    from torch.distributed.device_mesh import init_device_mesh

    fake_group(shape[0] * shape[1])
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    return mesh.get_group(0), mesh.get_group(1)


def sharded(data, tensor):
    """Sequence parallelism whose second weight is sharded over data-parallel ranks."""
    import torch.distributed._functional_collectives as functional

    def step(x, up, down):
        return sequence_parallel(tensor)(x, up, functional.all_gather_tensor_autograd(down, 0, data))

    return step


def captured_of(step, path, data, group=None, grad=False):
    import torch

    torch._dynamo.reset()
    up, down = weights()
    with capturing(path, group) as files, contextlib.nullcontext() if grad else torch.no_grad():
        y = compiled(step)(torch.randn(8, 16), up, down[: 32 // data.size()])
        if grad:
            y.sum().backward()
    return files


@pytest.mark.parametrize("shape, names", [((4, 2), ("dp", "tp")), ((2, 2), None)], ids=["named", "fused"])
def test_groups(fake_group, tmp_path, caplog, shape, names):
    """The group is that of the mesh dim "tp", or the one of which most is fused; gradients' scatters do not count."""
    data, tensor = mesh_of(fake_group, shape, names)
    files = captured_of(sharded(data, tensor), tmp_path / "mesh", data, grad=True)
    assert kinds(files) == 2
    for file in files:
        document = read(file)
        assert (document["group"], document["world_size"]) == (tensor.group_name, 2)
        assert set(document["groups"]) == {data.group_name, tensor.group_name}
        about = document["groups"][data.group_name]
        assert about["ranks"] == shape[0] and about["description"] == data.group_desc
        assert about["collectives"] == {
            "_c10d_functional.all_gather_into_tensor.default": 1,
            "_c10d_functional.reduce_scatter_tensor.default": 1,
        }
    assert f"captured for process group '{tensor.group_name}'" in caplog.text and data.group_desc in caplog.text


def test_group_of_gradients(fake_group, tmp_path):
    """In the backward most can be fused of the data-parallel group, which scatters two gradients."""
    import torch
    import torch.distributed._functional_collectives as functional

    data, tensor = mesh_of(fake_group, (2, 2))

    def step(x, up, down):
        hidden = functional.all_gather_tensor(x, 0, tensor) @ functional.all_gather_tensor_autograd(up, 0, data)
        return hidden @ functional.all_gather_tensor_autograd(down, 0, data)

    up, down = weights()
    with capturing(tmp_path / "gradients") as files:
        compiled(step)(torch.randn(8, 16), up[:8], down[:16]).sum().backward()
    assert kinds(files) == 2 and all(read(file)["group"] == tensor.group_name for file in files)


def test_group_by_name(fake_group, tmp_path):
    """A mesh dim that is named so decides before what can be fused."""
    data, tensor = mesh_of(fake_group, (2, 2), ("dp", "tp"))
    with capturing(tmp_path / "named") as files:
        see(graph_of([gather(data.group_name), gather(tensor.group_name)]))
    assert read(files[0])["group"] == tensor.group_name


def test_group_that_is_asked_for(fake_group, tmp_path, caplog):
    data, tensor = mesh_of(fake_group, (4, 2), ("dp", "tp"))
    for group in (data, data.group_name):
        (file,) = captured_of(sharded(data, tensor), tmp_path / "asked", data, group)
        assert (read(file)["group"], read(file)["world_size"]) == (data.group_name, 4)
    assert not caplog.text
    captured_of(sharded(data, tensor), tmp_path / "world", data, "0")
    assert f"no collective of group '0', but of '{data.group_name}' (mesh_dp, 4 ranks: 1 all_gather" in caplog.text
    with pytest.raises(tandem.Error, match="no process group 'tp'") as error, capturing(tmp_path / "none", "tp"):
        pass
    assert error.value.code is tandem.ErrorCode.INVALID_ARGUMENT


def test_group_that_is_not_certain(fake_group, tmp_path):
    """Nothing says which of two is meant: an error lists them, and no file is written."""
    data, tensor = mesh_of(fake_group, (2, 2))
    with pytest.raises(tandem.Error, match="need group=") as error, capturing(tmp_path / "both"):
        see(graph_of([gather(data.group_name), gather(tensor.group_name)]))
    assert error.value.code is tandem.ErrorCode.INVALID_ARGUMENT
    for group in (data, tensor):
        assert f"'{group.group_name}' ({group.group_desc}, 2 ranks: 1 all_gather_into_tensor)" in str(error.value)
    assert not list(tmp_path.glob("both*"))


def test_no_process_group(tmp_path):
    with pytest.raises(tandem.Error, match="init_process_group") as error, capturing(tmp_path / "none"):
        pass
    assert error.value.code is tandem.ErrorCode.INVALID_ARGUMENT


def test_no_collective(fake_group, tmp_path, caplog):
    fake_group(2)
    with capturing(tmp_path / "plain") as files:
        see(graph_of([]))
    assert len(files) == 1 and read(files[0])["group"] == "0"
    assert "no collective" in caplog.text and "parallelize" in caplog.text


def test_no_backward(fake_group, tmp_path, caplog):
    """A forward whose backward is not compiled in the block."""
    import torch

    fake_group(2)
    with capturing(tmp_path / "half") as files:
        compiled(sequence_parallel("0"))(torch.randn(8, 16), *weights())
    assert len(files) == 1 and "without its backward" in caplog.text


@pytest.mark.parametrize(
    "options, reason",
    [
        (None, "torch._dynamo.reset()"),
        ({"backend": "eager"}, "take the backend 'inductor'"),
        ({"options": {"post_grad_custom_pre_pass": str}}, "leave 'post_grad_custom_pre_pass' out"),
        ({"disable": True}, "call the compiled function in the block"),
    ],
    ids=["nothing", "backend", "options", "disabled"],
)
def test_nothing(fake_group, tmp_path, options, reason):
    """An error says why there is no graph, and what to do."""
    import torch

    fake_group(2)
    with pytest.raises(tandem.Error, match="nothing was captured") as error, capturing(tmp_path / "nothing"):
        if options is not None:
            with torch.no_grad():
                compiled(sequence_parallel("0"), **options)(torch.randn(8, 16), *weights())
    assert error.value.code is tandem.ErrorCode.UNSUPPORTED and reason in str(error.value)


def test_compiled_before(fake_group, tmp_path):
    import torch

    fake_group(2)
    step, x, both = compiled(sequence_parallel("0")), torch.randn(8, 16), weights()
    with torch.no_grad():
        step(x, *both)
        with pytest.raises(tandem.Error, match="compiled before"), capturing(tmp_path / "before"):
            step(x, *both)
    with torch._dynamo.config.patch(disable=True), pytest.raises(tandem.Error, match="is disabled"):
        with capturing(tmp_path / "disabled"):
            step(x, *both)


def test_error_inside(fake_group, tmp_path):
    """It is the caller's. The graphs until then are written."""
    fake_group(2)
    with pytest.raises(KeyError, match="mine") as error, capturing(tmp_path / "error") as files:
        see(graph_of([gather()]))
        raise KeyError("mine")
    assert len(files) == 1 and files[0].exists() and not getattr(error.value, "__notes__", None)
    with pytest.raises(KeyError, match="mine"), capturing(tmp_path / "empty") as files:
        raise KeyError("mine")
    assert not files


def test_attributes(fake_group, tmp_path):
    """Constants have their elements, graphs in a graph their nodes; those have no file of their own."""
    import torch
    from torch import fx

    fake_group(2)
    inner = fx.GraphModule(torch.nn.Module(), graph_of([(torch.ops.aten.relu.default, (), {})]))
    constants = {
        "whole": torch.tensor([[1, -2], [3, 4]]),
        "real": torch.tensor([0.5, float("-inf"), float("nan")], dtype=torch.bfloat16),
        "truth": torch.tensor([True, False]),
        "pairs": torch.tensor([1 + 2j]),
        "large": torch.zeros(1 << 17),
        "packed": torch.empty(2, dtype=torch.bits8),
        "inner": inner,
        "words": "text",
    }
    outer = torch.nn.Module()
    graph = graph_of([gather()])
    for name, value in constants.items():
        setattr(outer, name, value)
        with graph.inserting_before(graph.output_node()):
            graph.get_attr(name)
    module = fx.GraphModule(outer, graph)
    with capturing(tmp_path / "attributes") as files:
        see(module.inner.graph)
        for node in module.inner.graph.nodes:  # what Inductor does afterwards is not captured
            node.name = f"changed_{node.name}"
        see(module.graph)
    (file,) = files
    nodes = nodes_of(file)
    assert nodes["whole"]["op"] == "get_attr" and nodes["whole"]["out"]["shape"] == [2, 2]
    assert {name: nodes[name]["constant"] for name in constants if name not in ("inner", "words")} == {
        "whole": {"elements": [1, -2, 3, 4]},
        "real": {"elements": [0.5, {"float": "-inf"}, {"float": "nan"}]},
        "truth": {"elements": [True, False]},
        "pairs": {"elements": [{"repr": "(1+2j)"}]},
        "large": {"elements": None},
        "packed": {"elements": None},
    }
    assert nodes["words"]["constant"] == {"repr": "text"}
    inside = nodes["inner"]["constant"]["nodes"]
    assert [node["target"] for node in inside] == ["x", "aten.relu.default", "output"]
    assert inside[0]["name"] == "x"
    assert tandem.graph.load(file).world_size == 2
