"""Captured programs from Python."""

import json

import pytest

import tandem

TEXT = """graph world 2 group "0" source "made up"
%a: bfloat16[8, 64] = placeholder
%b: bfloat16[64, 32] = placeholder
%ag: bfloat16[16, 64] = _c10d_functional.all_gather_into_tensor.default(%a, 2, "0")
%w: bfloat16[16, 64] = _c10d_functional.wait_tensor.default(%ag)
%c: bfloat16[16, 32] = aten.mm.default(%w, %b)
%output: (bfloat16[16, 32]) = output([%c])
"""


def test_load_fuse_report(tmp_path):
    path = tmp_path / "program.txt"
    path.write_text(TEXT)
    graph = tandem.graph.load(path)
    assert (graph.world_size, graph.group, graph.source, len(graph)) == (2, "0", "made up", 6)
    assert tandem.graph.loads(graph.to_json()).to_text() == graph.to_text()
    report = tandem.graph.fuse(graph, strict=True)
    assert report.fused == {"symm_mem.fused_all_gather_matmul.default": 1} and report.complaint is None
    (collective,) = report.collectives
    assert (collective.node, collective.kind, collective.reason, collective.why) == ("ag", "all_gather", None, None)
    assert collective.fused_into in graph.to_text() and collective.bytes > 0
    assert "fused_all_gather_matmul" in graph.to_text() and graph.to_dot().startswith("digraph")
    assert json.loads(report.to_json())["collectives"][0]["node"] == "ag" and "ag" in str(report)


def test_why_not():
    graph = tandem.graph.loads(TEXT.replace("aten.mm.default(%w, %b)", "my.op.default(%w, %b)"))
    report = tandem.graph.fuse(graph)
    assert report.collectives[0].reason == "kNoProduct" and report.collectives[0].why
    with pytest.raises(tandem.Error) as caught:
        tandem.graph.fuse(graph, strict=True)
    assert caught.value.code is tandem.ErrorCode.UNSUPPORTED


@pytest.mark.parametrize("text", ["", "{", "graph world 2\n%a = nothing", '{"schema": 9}'])
def test_malformed(text):
    with pytest.raises(tandem.Error) as caught:
        tandem.graph.loads(text)
    assert caught.value.code is tandem.ErrorCode.PARSE


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        tandem.graph.load(tmp_path / "none")
