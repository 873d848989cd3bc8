"""Recorded episodes that are worth imitating: right, and looked at the right place."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.synthesis.filter import FilterOptions, fault_of, filter_episodes, look_iou
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


BROKEN = replace(episode(), trajectory=replace(episode().trajectory, end=EndReason.ENGINE_ERROR))


def test_the_overlap_is_that_of_the_last_look_with_its_best_window() -> None:
    assert look_iou(episode()) == 0.5
    assert look_iou(episode(windows=((0.0, 5.0), (10.0, 18.0)))) == 0.8
    assert look_iou(episode(windows=())) is None
    made = episode(looked=None)
    assert look_iou(made) == 0.0  # one frame is an empty interval
    # a system that notes nothing looked from its first frame to its last
    [first, last] = made.trajectory.turns
    shown = (FrameRef(100, 10.0, 28, 28), FrameRef(150, 15.0, 28, 28), FrameRef(200, 20.0, 28, 28))
    seen = replace(made, trajectory=replace(made.trajectory, turns=(replace(first, observation=shown), last)))
    assert look_iou(seen) == 0.5


@pytest.mark.parametrize(
    ("made", "min_acc", "min_iou", "kept"),
    [
        (episode(), 1.0, 0.3, True),
        (episode(looked=(11.5, 18.5)), 1.0, 0.3, True),  # 3.5 of 8.5 s
        (episode(looked=(0.0, 16.0)), 1.0, 0.3, False),
        (episode(looked=(0.0, 16.0)), 1.0, 0.05, True),
        (episode(acc=0.5), 1.0, 0.3, False),
        (episode(acc=0.5), 0.5, 0.3, True),
        (episode(acc=None), 1.0, 0.3, False),
        (episode(answer=None), 1.0, 0.3, False),
        (episode(windows=()), 1.0, 0.3, False),
        (episode(windows=()), 1.0, 0.0, True),
        (BROKEN, 0.0, 0.0, False),
    ],
)
def test_right_episodes_that_looked_at_the_evidence_are_kept(
    made: Record, min_acc: float, min_iou: float, kept: bool
) -> None:
    assert (fault_of(made, min_acc, min_iou) is None) == kept


def test_a_question_keeps_its_first_episodes(tmp_path: Path) -> None:
    made = [episode("a"), episode("b"), episode("a", acc=0.0), episode("a"), episode("a")]
    out = tmp_path / "o.jsonl"
    report = filter_episodes(FilterOptions((write(tmp_path / "r.jsonl", made),), out, per_question=2))
    assert [kept.qa.id for kept in read_records(out)] == ["a", "b", "a"]
    assert (report.episodes, report.kept, report.questions) == (5, 3, 2)
    assert report.left_out == {"with an accuracy below 1": 1, "beyond 2 of a question": 1}


def test_the_command_writes_records_that_sft_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episodes = tmp_path / "episodes"
    episodes.mkdir()
    (episodes / "a.mp4").write_bytes(b"x")
    made = [episode("early", step=1), episode("late", step=30), episode("wrong", acc=0.0, step=30)]
    made = [replace(original, qa=replace(original.qa, video="a.mp4")) for original in made]
    write(episodes / "step_000030.jsonl", made)
    out = tmp_path / "kept" / "rollouts.jsonl"
    assert main(["filter", str(tmp_path), "--out", str(out)]) == 0
    assert "3 episodes, 2 kept, on 2 questions" in capsys.readouterr().out
    [early, late] = read_records(out)
    assert (early.qa.id, late.qa.id, early.qa.video) == ("early", "late", str(episodes / "a.mp4"))
    assert early.trajectory == made[0].trajectory
    assert main(["filter", str(tmp_path), "--out", str(out), "--from-step", "2"]) == 0
    assert [kept.qa.id for kept in read_records(out)] == ["late"]


def test_the_exit_status_tells_when_nothing_is_kept(tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", [episode(acc=0.0)])
    assert main(["filter", str(file), "--out", str(tmp_path / "o.jsonl")]) == 1
    assert main(["filter", str(file), "--out", str(tmp_path / "o.csv")]) == 2
    assert main(["filter", str(tmp_path / "no.jsonl"), "--out", str(tmp_path / "o.jsonl")]) == 2
