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


@pytest.mark.parametrize("trajectory", [None, 7, {}, {"turns": 7}, {"turns": [7, None]}])
def test_a_broken_record_of_version_1_is_reported(trajectory: Any) -> None:
    with pytest.raises(RecordError):
        Record.from_dict({**line_of(FULL), "version": 1, "trajectory": trajectory})


MISSING = object()
BAD = [
    ("version", 3, "field 'version' is 3, this program reads version 2"),
    ("version", MISSING, "field 'version' is missing"),
    ("surprise", 1, "field 'surprise' is unknown"),
    ("video_qa", [], "field 'video_qa'"),
    ("video_qa.answer", "Z", "video_qa: field 'answer' must be a letter from A to B"),
    ("trajectory.qa_id", "q2", "field 'trajectory.qa_id' is 'q2', but 'video_qa.id' 'q1'"),
    ("trajectory.end", "bored", "field 'trajectory.end'"),
    ("trajectory.turns", MISSING, "field 'trajectory.turns' is missing"),
    ("trajectory.num_tokens", True, "field 'trajectory.num_tokens'"),
    ("trajectory.opening.0.role", "assistant", "field 'trajectory.opening[0].role'"),
    ("trajectory.opening.0.parts.1.width", 0, "field 'trajectory.opening[0].parts[1].width'"),
    ("trajectory.opening.0.parts.1.time", "1", "field 'trajectory.opening[0].parts[1].time'"),
    ("trajectory.turns.0.text", None, "field 'trajectory.turns[0].text'"),
    ("trajectory.turns.0.finished", 1, "field 'trajectory.turns[0].finished'"),
    ("trajectory.turns.0.action.kind", "sleep", "field 'trajectory.turns[0].action'"),
    ("trajectory.turns.0.action.calls.0.name", 7, "field 'trajectory.turns[0].action.calls[0].name'"),
    ("trajectory.turns.0.observation.0", 7, "field 'trajectory.turns[0].observation[0]'"),
    ("trajectory.turns.0.token_ids", [-1], "field 'trajectory.turns[0].token_ids[0]'"),
    ("reward_extra_info.acc", 10**400, "field 'reward_extra_info.acc'"),
    ("trajectory.num_tokens", 10**400, "field 'trajectory.num_tokens'"),
    ("trajectory.opening.0.parts.1.time", -(10**400), "field 'trajectory.opening[0].parts[1].time'"),
    ("trajectory.turns.0.token_ids", [10**400], "field 'trajectory.turns[0].token_ids[0]'"),
    ("video_qa.video", "a\0b", "field 'video' is no path"),
    ("video_qa.video", "\ud800", "field 'video' holds half of a surrogate pair"),
    ("video_qa.options", 5, "field 'options' must be a list"),
    ("reward_extra_info.acc", "high", "field 'reward_extra_info.acc'"),
]


@pytest.mark.parametrize(("field", "value", "message"), BAD, ids=range(len(BAD)))
def test_a_bad_field_is_named(field: str, value: object, message: str) -> None:
    raw = line_of(FULL)
    place: Any = raw
    *path, last = field.split(".")
    for step in path:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if value is MISSING:
        del place[last]
    elif isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    with pytest.raises(RecordError, match=r"^file line 3: ") as caught:
        Record.from_dict(raw, "file line 3")
    assert message in str(caught.value)


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


CLIP = ClipRef((FrameRef(3, 0.3, 28, 28), FrameRef(6, 0.6, 28, 28), FrameRef(6, 0.6, 28, 28)))


def test_clips_are_read_back_as_they_were(tmp_path: Path) -> None:
    shown = make(Turn("<zoom>", CALL, 3, observation=("here: ", CLIP, "and", FrameRef(9, 0.9, 28, 28)), legal_calls=1))
    path = tmp_path / "r.jsonl"
    with path.open("w", encoding="utf-8") as file:
        write_record(file, shown)
        write_record(file, FULL)  # as files were written before there were clips
    assert list(read_records(path)) == [shown, FULL]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda clip: clip["frames"].clear(), r"observation\[1\]' is no clip: at least 2 frames"),
        (lambda clip: clip["frames"].pop(0) and clip["frames"].pop(0), "is no clip"),
        (lambda clip: clip["frames"].reverse(), "in order of time"),
        (lambda clip: clip["frames"][1].update(width=56), "of one size"),
        (lambda clip: clip["frames"][1].update(index=-1), r"observation\[1\].frames\[1\]\.index'"),
        (lambda clip: clip["frames"][2].pop("time"), r"frames\[2\].time' is missing"),
        (lambda clip: clip.update(fps=2), r"observation\[1\].fps' is unknown"),
        (lambda clip: clip.update(frames=7), r"observation\[1\]\.frames'"),
    ],
)
def test_a_bad_clip_is_named(change: Any, message: str) -> None:
    raw = line_of(make(Turn("<zoom>", CALL, 3, observation=("here: ", CLIP), legal_calls=1)))
    change(raw["trajectory"]["turns"][0]["observation"][1])
    with pytest.raises(RecordError, match=message):
        Record.from_dict(raw, "line")


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
WITH_ASIDES = replace(
    FULL,
    trajectory=replace(
        FULL.trajectory,
        turns=(replace(FULL.trajectory.turns[0], asides=(ASIDE, ASIDE)), *FULL.trajectory.turns[1:]),
        asides=(ASIDE,),
        forced=True,
        notes={"verdict": [True, None, {"score": 0.5}]},
    ),
)


def test_asides_and_notes_come_back() -> None:
    assert Record.from_dict(line_of(WITH_ASIDES)) == WITH_ASIDES
    assert WITH_ASIDES.trajectory.all_asides == (ASIDE,) * 3 and ASIDE.reply == "red</a>"


def test_what_few_systems_have_is_not_written_for_others() -> None:
    raw = line_of(FULL)["trajectory"]
    assert not {"asides", "notes", "forced"} & {*raw, *raw["turns"][0]}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"text": 3}, r"asides\[0\]\.text'"),
        ({"messages": [{"role": "assistant", "parts": []}]}, r"asides\[0\]\.messages\[0\]\.role'"),
        ({"messages": [{"role": "user", "parts": [{"index": 1}]}]}, r"asides\[0\]\.messages\[0\]\.parts\[0\]\.time'"),
        ({"token_ids": [-1]}, r"asides\[0\]\.token_ids\[0\]'"),
        ({"stop": [1]}, r"asides\[0\]\.stop\[0\]'"),
        ({"more": 1}, r"asides\[0\]\.more' is unknown"),
    ],
)
@pytest.mark.parametrize("of", ["turn", "trajectory"])
def test_bad_asides_are_named(of: str, change: dict[str, Any], field: str) -> None:
    raw = line_of(WITH_ASIDES)
    owner = raw["trajectory"]["turns"][0] if of == "turn" else raw["trajectory"]
    owner["asides"][0] |= change
    name = r"trajectory\.turns\[0\]\." if of == "turn" else r"trajectory\."
    with pytest.raises(RecordError, match=name + field):
        Record.from_dict(raw)


CROPPED = FrameRef(9, 0.9, 56, 28, Crop((1, 2, 15, 9), 28, 14))


def test_crops_come_back() -> None:
    clip = ClipRef((replace(CROPPED, index=3, time=0.3), CROPPED))
    record = make(Turn("<zoom>", CALL, 3, observation=(CROPPED, clip), legal_calls=1), end=EndReason.TURN_LIMIT)
    raw = line_of(record)
    assert raw["trajectory"]["turns"][0]["observation"][0]["crop"] == {
        "box": [1, 2, 15, 9],
        "frame_width": 28,
        "frame_height": 14,
    }
    assert Record.from_dict(raw) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"box": [1, 2, 3]}, r"crop\.box\[3\]'"),
        ({"box": [1, 2, 3, True]}, r"crop\.box\[3\]'"),
        ({"box": [1, 2, 29, 9]}, r"crop' is no region of a frame"),
        ({"box": [5, 2, 5, 9]}, r"crop' is no region of a frame"),
        ({"frame_width": "28"}, r"crop\.frame_width'"),
    ],
)
def test_bad_crops_are_named(change: dict[str, Any], message: str) -> None:
    raw = line_of(make(Turn("<zoom>", CALL, 3, observation=(CROPPED,)), end=EndReason.TURN_LIMIT))
    raw["trajectory"]["turns"][0]["observation"][0]["crop"] |= change
    with pytest.raises(RecordError, match=message):
        Record.from_dict(raw)


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


def drawn(value: int = 200) -> FrameRef:
    return FrameRef.of(Frame(9, 0.9, np.full((28, 28, 3), value, np.uint8)))


def test_a_picture_that_a_tool_made_goes_with_its_record(tmp_path: Path) -> None:
    record = make(Turn("<zoom>", CALL, 3, observation=("strip: ", drawn(), drawn(10)), legal_calls=1))
    path = tmp_path / "r.jsonl"
    with path.open("w", encoding="utf-8") as file:
        write_record(file, record)
    [again] = read_records(path)
    assert again == record
    pictures = [ref.recorded() for ref in again.trajectory.frames if ref.made]
    assert [int(picture[0, 0, 0]) for picture in pictures] == [200, 10]


def test_one_that_was_not_recorded_stays_marked(tmp_path: Path) -> None:
    raw = line_of(make(Turn("<zoom>", CALL, 3, observation=(replace(drawn(), picture=None),), legal_calls=1)))
    assert "picture" not in raw["trajectory"]["turns"][0]["observation"][0]
    [ref] = Record.from_dict(raw).trajectory.turns[0].observation
    assert isinstance(ref, FrameRef) and ref.unrecorded


@pytest.mark.parametrize("change", [{"picture": "no base64!"}, {"picture": ""}, {"picture": 7}, {"made": ""}])
def test_a_bad_picture_is_named(change: dict[str, Any]) -> None:
    raw = line_of(make(Turn("<zoom>", CALL, 3, observation=(drawn(),), legal_calls=1)))
    raw["trajectory"]["turns"][0]["observation"][0] |= change
    with pytest.raises(RecordError, match=r"turns\[0\]\.observation\[0\]"):
        Record.from_dict(raw)
