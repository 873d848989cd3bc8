"""Which recorded episodes are worth imitating: right, and looked at the right place."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.synthesis.filter import FilterOptions, fault_of, kept_of, look_iou
from agentic_video.synthesis.inputs import Question
from agentic_video.types.record import Record, read_records
from agentic_video.types.row import Interval
from agentic_video.types.trajectory import EndReason, FrameRef
from tests.synthesis.made import CHOICE, look, record, write


def episode(
    name: str = "q",
    acc: float | None = 1.0,
    looked: Interval | None = (10.0, 20.0),
    windows: tuple[Interval, ...] = ((15.0, 20.0),),
    answer: str | None = "B",
    **provenance: int,
) -> Record:
    qa = replace(CHOICE, id=name, windows=windows, answer_type="open_ended", options=())
    made = record([look(0, 9)], answer, qa, rewards={} if acc is None else {"acc": acc}, **provenance)
    notes = {} if looked is None else {"last_look": list(looked)}
    return replace(made, trajectory=replace(made.trajectory, notes=notes))


def test_the_overlap_is_the_noted_look_s_with_the_window_that_it_fits_best() -> None:
    assert look_iou(episode()) == 0.5
    assert look_iou(episode(windows=((0.0, 5.0), (10.0, 18.0)))) == 0.8
    assert look_iou(episode(windows=())) is None
    assert look_iou(episode(looked=None)) == 0.0  # one frame is an empty interval


def test_a_system_that_notes_nothing_looked_from_its_first_frame_to_its_last() -> None:
    made = episode(looked=None)
    [first, last] = made.trajectory.turns
    shown = (FrameRef(100, 10.0, 28, 28), FrameRef(150, 15.0, 28, 28), FrameRef(200, 20.0, 28, 28))
    seen = replace(made, trajectory=replace(made.trajectory, turns=(replace(first, observation=shown), last)))
    assert look_iou(seen) == 0.5


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (episode(), None),
        (episode(looked=(11.5, 18.5)), None),  # 3.5 of 8.5 s
        (episode(looked=(0.0, 16.0)), "whose last look overlaps the evidence by less than 0.3"),
        (episode(acc=0.5), "with an accuracy below 1"),
        (episode(acc=None), "without a grade (reward_extra_info.acc)"),
        (episode(answer=None), "without an answer"),
        (episode(windows=()), "on rows without windows (--min-iou 0 keeps them)"),
    ],
)
def test_what_is_kept(made: Record, fault: str | None) -> None:
    assert fault_of(made, 1.0, 0.3) == fault


def test_limits_are_the_caller_s() -> None:
    assert fault_of(episode(acc=0.5), 0.5, 0.3) is None
    assert fault_of(episode(looked=(0.0, 16.0)), 1.0, 0.05) is None
    assert fault_of(episode(windows=()), 1.0, 0.0) is None
    broken = replace(episode(), trajectory=replace(episode().trajectory, end=EndReason.ENGINE_ERROR))
    assert fault_of(broken, 0.0, 0.0) == "ended by an engine or a video"


def test_so_many_of_a_question() -> None:
    kept: Counter[Question] = Counter()
    left_out: Counter[str] = Counter()
    options = FilterOptions((), Path("o.jsonl"), per_question=2)
    made = [episode("a"), episode("b"), episode("a", acc=0.0), episode("a"), episode("a")]
    assert [one.qa.id for one in kept_of(made, options, kept, left_out)] == ["a", "b", "a"]
    assert sorted(kept.values()) == [1, 2]
    assert left_out == {"with an accuracy below 1": 1, "beyond 2 of a question": 1}


def test_the_command_writes_records_that_sft_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mp4").write_bytes(b"x")
    made = [episode("early", step=1), episode("late", step=30), episode("wrong", acc=0.0, step=30)]
    made = [replace(one, qa=replace(one.qa, video="a.mp4")) for one in made]
    (tmp_path / "episodes").mkdir()
    write(tmp_path / "episodes" / "step_000030.jsonl", made)
    (tmp_path / "episodes" / "a.mp4").write_bytes(b"x")
    out = tmp_path / "kept" / "rollouts.jsonl"
    assert main(["filter", str(tmp_path), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"3 episodes, 2 kept, on 2 questions, written to {out}" in said
    assert "left out: 1 with an accuracy below 1" in said
    [early, late] = read_records(out)
    assert (early.qa.id, late.qa.id) == ("early", "late")
    assert early.qa.video == str(tmp_path / "episodes" / "a.mp4")
    assert early.trajectory == made[0].trajectory
    assert main(["filter", str(tmp_path), "--out", str(out), "--from-step", "2"]) == 0
    assert [one.qa.id for one in read_records(out)] == ["late"]


def test_nothing_kept_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "r.jsonl", [episode(acc=0.0)])
    assert main(["filter", str(file), "--out", str(tmp_path / "o.jsonl")]) == 1
    assert "0 kept" in capsys.readouterr().out
    assert main(["filter", str(file), "--out", str(tmp_path / "o.csv")]) == 2
    assert "ends in .jsonl" in capsys.readouterr().err
    assert main(["filter", str(tmp_path / "no.jsonl"), "--out", str(tmp_path / "o.jsonl")]) == 2
