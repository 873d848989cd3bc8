"""Trajectory records: what is written is read back, and a bad line is named by file, line and field."""

import copy
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Crop, Frame
from agentic_video.types.record import Record, RecordError, load_records, read_records, record_lines, write_record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Aside, ClipRef, EndReason, FrameRef, RecordedMessage, Trajectory, Turn

QA = VideoQA(id="q1", video="/videos/a.mp4", question="What?", answer="B", options=("red", "blue"), data_source="test")


def make(*turns: Turn, end: EndReason = EndReason.ANSWER) -> Record:
    opening = (RecordedMessage("user", ("<frame0>", FrameRef(3, 0.3, 28, 56), "What?")),)
    trajectory = Trajectory("q1", "videozoomer", opening, turns, end, num_tokens=40)
    return Record(QA, trajectory, {"reward": 1.5, "acc": 1}, {"source": "teacher", "model": "m"})


CALL = Calls((ToolCall("zoom", {"segment": [1, 2], "note": None}),))
FULL = make(
    Turn("<zoom>", CALL, 3, observation=("here: ", FrameRef(9, 0.9, 28, 28)), legal_calls=1, token_ids=(5, 6, 7)),
    Turn("?", Illegal("neither"), 1, finished=False, observation=("ERROR",), illegal_calls=1),
    Turn("<answer>B</answer>", Answer("B"), 4),
)


def line_of(record: Record) -> dict[str, Any]:
    file = io.StringIO()
    write_record(file, record)
    raw: dict[str, Any] = json.loads(file.getvalue())
    return raw


def test_a_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with path.open("w", encoding="utf-8") as file:
        write_record(file, FULL)
        file.write("\n")
        write_record(file, make(Turn("x", Answer("x"), 1)))
    first, second = read_records(path)
    assert first == FULL
    assert second.trajectory.answer == "x"


def test_the_file_holds_the_documented_fields() -> None:
    raw = line_of(FULL)
    assert set(raw) == {"version", "video_qa", "trajectory", "reward_extra_info", "provenance"}
    assert raw["version"] == 2
    assert raw["reward_extra_info"] == {"reward": 1.5, "acc": 1.0}
    assert raw["trajectory"]["opening"][0]["parts"][1] == {"index": 3, "time": 0.3, "width": 28, "height": 56}
    assert raw["trajectory"]["turns"][0]["action"]["kind"] == "calls"


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_whatever_a_model_wrote_comes_back(text: str) -> None:
    record = make(Turn(text, Calls((ToolCall(text, {text: text}),)), 1), end=EndReason.TURN_LIMIT)
    file = io.StringIO()
    write_record(file, record)
    line = file.getvalue()
    assert line.encode("utf-8").count(b"\n") == 1
    assert Record.from_dict(json.loads(line)) == record


def test_a_relative_video_starts_at_the_files_folder(tmp_path: Path) -> None:
    raw = line_of(FULL)
    raw["video_qa"]["video"] = "videos/a.mp4"
    (tmp_path / "r.jsonl").write_text(json.dumps(raw))
    (record,) = read_records(tmp_path / "r.jsonl")
    assert record.qa.video == str(tmp_path / "videos/a.mp4")


def test_a_relative_video_that_leads_nowhere_stays_one(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    for video in ("circle", "circle/a.mp4", "x" * 5_000, "a/" * 5_000):
        raw = line_of(FULL)
        raw["video_qa"]["video"] = video
        (tmp_path / "r.jsonl").write_text(json.dumps(raw))
        (record,), problems = load_records([tmp_path / "r.jsonl"])
        assert problems == [] and Path(record.qa.video).name == Path(video).name


def test_rewards_and_provenance_may_be_left_out() -> None:
    raw = line_of(FULL)
    del raw["reward_extra_info"], raw["provenance"], raw["trajectory"]["turns"][0]["token_ids"]
    record = Record.from_dict(raw)
    assert (record.rewards, record.provenance, record.trajectory.turns[0].token_ids) == ({}, {}, ())


def version_1(record: Record, *taught: bool) -> dict[str, Any]:
    """A line as it was written when ``loss_mask`` was ``taught``: only where it was false."""
    raw = line_of(record)
    raw["version"] = 1
    for turn, value in zip(raw["trajectory"]["turns"], taught, strict=True):
        turn.pop("loss_mask", None)
        if not value:
            turn["taught"] = False
    return raw


def test_records_of_version_1_are_read(tmp_path: Path) -> None:
    first, mistake, last = FULL.trajectory.turns
    turns = (first, replace(mistake, loss_mask=False), last)
    masked = replace(FULL, trajectory=replace(FULL.trajectory, turns=turns))
    old = version_1(FULL, True, False, True)
    assert "loss_mask" not in json.dumps(old) and old["trajectory"]["turns"][1]["taught"] is False
    before = copy.deepcopy(old)
    assert Record.from_dict(old) == masked
    assert old == before, "what was handed over isn't changed"
    assert Record.from_dict(version_1(FULL, True, True, True)) == FULL
    path = tmp_path / "both.jsonl"
    path.write_text(json.dumps(old) + "\n" + json.dumps(line_of(masked)) + "\n")
    assert list(read_records(path)) == [masked, masked]
    assert line_of(Record.from_dict(old)) == line_of(masked), "it is written as version 2"


@pytest.mark.parametrize(
    ("version", "change", "field"),
    [(1, {"taught": "no"}, "taught"), (1, {"surprise": 1}, "surprise"), (2, {"loss_mask": 1}, "loss_mask")],
)
def test_fields_of_either_version_are_checked(version: int, change: dict[str, Any], field: str) -> None:
    raw = version_1(FULL, True, True, True) if version == 1 else line_of(FULL)
    raw["trajectory"]["turns"][0] |= change
    with pytest.raises(RecordError, match=rf"'trajectory\.turns\[0\]\.{field}'"):
        Record.from_dict(raw)


ASIDE = Aside(
    (RecordedMessage("user", ("What is this?", FrameRef(9, 0.9, 28, 28))),),
    "<a>red</a>",
    3,
    prompt_tokens=7,
    finished=False,
    prefix="<a>",
    stop=("</a>",),
    token_ids=(4, 5, 6),
)
CLIP = ClipRef((FrameRef(3, 0.3, 28, 28), FrameRef(6, 0.6, 28, 28), FrameRef(6, 0.6, 28, 28)))
CROPPED = FrameRef(9, 0.9, 56, 28, Crop((1, 2, 15, 9), 28, 14))
DRAWN = FrameRef.of(Frame(9, 0.9, np.full((28, 28, 3), 200, np.uint8)))
ALL = replace(
    FULL,
    trajectory=replace(
        FULL.trajectory,
        turns=(
            replace(FULL.trajectory.turns[0], observation=(CLIP, CROPPED, DRAWN), asides=(ASIDE, ASIDE)),
            *FULL.trajectory.turns[1:],
        ),
        asides=(ASIDE,),
        forced=True,
        notes={"verdict": [True, None, {"score": 0.5}]},
    ),
)
"""A record with everything that records can have."""
MISSING = object()
FIRST = "trajectory.turns.0"
SHOWN = f"{FIRST}.observation"


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("version", 3, "version"),
        ("version", MISSING, "version"),
        ("surprise", 1, "surprise"),
        ("video_qa", [], "video_qa"),
        ("video_qa.answer", "Z", "answer"),
        ("video_qa.video", "a\0b", "video"),
        ("video_qa.video", "\ud800", "video"),
        ("video_qa.options", 5, "options"),
        ("trajectory.qa_id", "q2", "trajectory.qa_id"),
        ("trajectory.end", "bored", "trajectory.end"),
        ("trajectory.turns", MISSING, "trajectory.turns"),
        ("trajectory.num_tokens", True, "trajectory.num_tokens"),
        ("trajectory.num_tokens", 10**400, "trajectory.num_tokens"),
        ("trajectory.opening.0.role", "assistant", "trajectory.opening[0].role"),
        ("trajectory.opening.0.parts.1.width", 0, "trajectory.opening[0].parts[1].width"),
        ("trajectory.opening.0.parts.1.time", "1", "trajectory.opening[0].parts[1].time"),
        ("trajectory.opening.0.parts.1.time", -(10**400), "trajectory.opening[0].parts[1].time"),
        (f"{FIRST}.text", None, "trajectory.turns[0].text"),
        (f"{FIRST}.finished", 1, "trajectory.turns[0].finished"),
        (f"{FIRST}.surprise", 1, "trajectory.turns[0].surprise"),
        (f"{FIRST}.token_ids", [-1], "trajectory.turns[0].token_ids[0]"),
        (f"{FIRST}.action.kind", "sleep", "trajectory.turns[0].action"),
        (f"{FIRST}.action.calls.0.name", 7, "trajectory.turns[0].action.calls[0].name"),
        (f"{FIRST}.asides.0.more", 1, "trajectory.turns[0].asides[0].more"),
        ("trajectory.asides.0.stop", [1], "trajectory.asides[0].stop[0]"),
        ("trajectory.asides.0.messages.0.parts.1.time", MISSING, "trajectory.asides[0].messages[0].parts[1].time"),
        (f"{SHOWN}.0", 7, "trajectory.turns[0].observation[0]"),
        (f"{SHOWN}.0.frames", [], "trajectory.turns[0].observation[0]"),
        (f"{SHOWN}.0.frames.0.time", 0.9, "trajectory.turns[0].observation[0]"),
        (f"{SHOWN}.0.frames.1.width", 56, "trajectory.turns[0].observation[0]"),
        (f"{SHOWN}.0.frames.1.index", -1, "trajectory.turns[0].observation[0].frames[1].index"),
        (f"{SHOWN}.0.fps", 2, "trajectory.turns[0].observation[0].fps"),
        (f"{SHOWN}.1.crop.box", [1, 2, 3], "trajectory.turns[0].observation[1].crop.box[3]"),
        (f"{SHOWN}.1.crop.box", [1, 2, 29, 9], "trajectory.turns[0].observation[1].crop"),
        (f"{SHOWN}.1.crop.box", [5, 2, 5, 9], "trajectory.turns[0].observation[1].crop"),
        (f"{SHOWN}.1.crop.frame_width", "28", "trajectory.turns[0].observation[1].crop.frame_width"),
        (f"{SHOWN}.2.picture", "no base64!", "trajectory.turns[0].observation[2].picture"),
        (f"{SHOWN}.2.picture", "", "trajectory.turns[0].observation[2].picture"),
        (f"{SHOWN}.2.picture", 7, "trajectory.turns[0].observation[2].picture"),
        (f"{SHOWN}.2.made", "", "trajectory.turns[0].observation[2]"),
        ("reward_extra_info.acc", 10**400, "reward_extra_info.acc"),
        ("reward_extra_info.acc", "high", "reward_extra_info.acc"),
    ],
)
def test_a_bad_field_is_named(field: str, value: object, named: str) -> None:
    raw = line_of(ALL)
    place: Any = raw
    *path, last = field.split(".")
    for step in path:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if value is MISSING:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    with pytest.raises(RecordError, match=r"^file line 3: ") as caught:
        Record.from_dict(raw, "file line 3")
    assert f"field '{named}' " in str(caught.value)


def test_bad_lines_are_counted_and_the_rest_is_kept(tmp_path: Path) -> None:
    good = line_of(FULL)
    bad = copy.deepcopy(good)
    del bad["trajectory"]
    cut = json.dumps(good)[:50]
    path = tmp_path / "r.jsonl"
    lines = [json.dumps(good), json.dumps(bad), cut, "[" * 100_000, "7"]
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n" + json.dumps(good).encode())
    records, problems = load_records([path])
    assert records == [FULL, FULL]
    assert [problem.split(": ")[0] for problem in problems] == [f"{path} line {n}" for n in (2, 3, 4, 5, 6)]
    assert "field 'trajectory' is missing" in problems[0]
    with pytest.raises(RecordError, match="line 2"):
        list(read_records(path))
    first, second, *_, last = record_lines([path])
    path.unlink()  # what was read isn't read again
    assert first.read() == last.read() == FULL
    with pytest.raises(RecordError, match="line 2: field 'trajectory' is missing"):
        second.read()


def test_a_byte_order_mark_is_no_part_of_a_record(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(line_of(FULL)).encode() + b"\r\n")
    assert load_records([path]) == ([FULL], [])


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="can't be read"):
        load_records([tmp_path / "no.jsonl"])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*line_of(FULL), "end"]), inner),
    )
)
def test_no_json_value_breaks_the_reader(raw: Any) -> None:
    with pytest.raises(RecordError):
        Record.from_dict(raw)


def test_all_that_records_can_have_comes_back(tmp_path: Path) -> None:
    raw = line_of(ALL)
    assert Record.from_dict(raw) == ALL and ALL.trajectory.all_asides == (ASIDE,) * 3 and ASIDE.reply == "red</a>"
    _, cropped, drawn = raw["trajectory"]["turns"][0]["observation"]
    assert cropped["crop"] == {"box": [1, 2, 15, 9], "frame_width": 28, "frame_height": 14}
    (again,) = (ref for ref in Record.from_dict(raw).trajectory.frames if ref.made)
    assert int(again.recorded()[0, 0, 0]) == 200
    # what few systems have isn't written for others
    plain = line_of(FULL)["trajectory"]
    assert not {"asides", "notes", "forced"} & {*plain, *plain["turns"][0]}
    # a picture that wasn't recorded stays marked
    del drawn["picture"]
    assert Record.from_dict(raw).trajectory.frames[-1].unrecorded


def test_numpy_s_numbers_are_written_as_plain_ones(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {}
    record = make(Turn("x", Calls((ToolCall("zoom", arguments),)), 1))
    arguments["at"] = np.float32(0.5)  # after the call was made
    assert line_of(record)["trajectory"]["turns"][0]["action"]["calls"][0]["arguments"] == {"at": 0.5}


def test_a_record_that_no_file_holds_is_named_and_not_begun() -> None:
    arguments: dict[str, Any] = {}
    record = make(Turn("x", Calls((ToolCall("zoom", arguments),)), 1))
    arguments["at"] = [{1}]
    file, where = io.StringIO(), r"record\.trajectory\.turns\[0\]\.action\.calls\[0\]\.arguments\.at\[0\]"
    message = rf"^the episode of 'q1' can't be written as a record: {where} "
    with pytest.raises(RecordError, match=message):
        write_record(file, record)
    assert file.getvalue() == ""
