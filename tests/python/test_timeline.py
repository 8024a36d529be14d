"""tandem.Timeline: what is noted, where it is written, and what is refused."""

import json

import numpy
import pytest

import tandem


def multiply(size, rows=8):
    a = numpy.ones((rows // size, 6), numpy.float32)
    b = numpy.ones((6, 5), numpy.float32)
    tandem.fused_all_gather_matmul(a, b, algorithm="pipelined")


def work(rank, size, folder):
    tandem.init()
    multiply(size)
    with tandem.Timeline() as timeline:
        multiply(size)
        summary = timeline.save(folder)
        multiply(size)
    multiply(size)
    return summary, timeline.save(f"{folder}/again")


def test_all_ranks_are_in_the_files(tmp_path):
    folder = str(tmp_path / "trace")
    results = tandem.launch(work, 2, folder)
    (summary, again), (other, _) = results
    written = json.loads((tmp_path / "trace" / "trace.json").read_text())
    assert written["tandem"] == {**summary, "date": written["tandem"]["date"]}
    assert other["ranks"] == summary["ranks"]
    assert {event["pid"] for event in written["traceEvents"]} == {0, 1}
    assert [call["op"] for call in summary["calls"]] == ["all_gather_matmul [8,5,6] f32"]
    assert summary["calls"][0]["schedule"].startswith("cur:mv cur:B1 cur>bk")
    assert [(op["algorithm"], op["calls"]) for op in summary["ops"]] == [("pipelined", 1)]
    assert len(again["calls"]) == 1
    assert "tandem" in (tmp_path / "trace" / "trace.html").read_text()


def test_a_folder_that_is_a_file_is_named(tmp_path):
    path = tmp_path / "taken"
    path.write_text("")
    tandem.init()
    with tandem.Timeline() as timeline, pytest.raises(tandem.Error, match="taken"):
        multiply(1)
        timeline.save(path)


def test_what_finds_no_room_is_counted(tmp_path):
    tandem.init()
    with tandem.Timeline(max_events=3) as timeline:
        multiply(1)
        assert timeline.save(tmp_path)["dropped_events"] > 0


@pytest.mark.parametrize("max_events", [0, -1, 500001])
def test_a_wrong_number_of_events_is_refused(max_events):
    tandem.init()
    with pytest.raises(tandem.Error) as caught:
        tandem.Timeline(max_events=max_events)
    assert caught.value.code is tandem.ErrorCode.INVALID_ARGUMENT


def test_a_group_is_needed():
    with pytest.raises(tandem.Error, match="tandem.init"):
        tandem.Timeline()
    with pytest.raises(TypeError, match="tandem.Group"):
        tandem.Timeline(3)
