from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.synthesis.mine import failed_questions
from agentic_video.types.record import Record
from agentic_video.types.trajectory import EndReason
from tests.synthesis.made import CHOICE, OPEN, record, write


def graded(name: str, acc: float, answer: str | None = "A", **provenance: int) -> Record:
    return record(answer=answer, qa=replace(CHOICE, id=name), rewards={"acc": acc}, **provenance)


def test_failed_questions_come_with_their_accuracy_and_wrong_answers() -> None:
    broken = graded("hard", 0.0, "C")
    broken = replace(broken, trajectory=replace(broken.trajectory, end=EndReason.TOOL_ERROR))
    records = [
        graded("half", 1.0, "B"),
        graded("half", 0.0, "A"),
        graded("hard", 0.0, "A"),
        graded("hard", 0.0, "the blue one"),
        graded("hard", 0.0, "the blue one"),
        graded("hard", 1.0, "B"),
        graded("hard", 0.0, None),
        broken,
        graded("never", 0.0, None),
        record(qa=replace(CHOICE, id="ungraded")),
    ]
    failed, counts, episodes = failed_questions(records, below=0.5)
    assert episodes == len(records)
    assert [(question.qa.id, question.accuracy, question.episodes, question.answers) for question in failed] == [
        ("never", 0.0, 1, ()),
        ("hard", 0.2, 5, ("the blue one", "A")),
    ]
    assert counts == Counter(
        {
            "episodes that an engine or a video ended": 1,
            "episodes without a grade (reward_extra_info.acc)": 1,
            "questions with an accuracy from 0.5 on": 1,
        }
    )
    assert [question.qa.id for question in failed_questions(records, below=0.6, min_episodes=2)[0]] == ["hard", "half"]


def test_answers_are_cut_and_few() -> None:
    records = [graded("q", 0.0, letter * 1_000) for letter in "abcdefgh"]
    ((question,), *_) = failed_questions(records, below=0.5)
    assert question.answers == tuple(letter * 300 for letter in "abcd")


def test_the_command_writes_rows_that_training_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    video = tmp_path / "a.mp4"
    video.write_bytes(b"x")
    early = record(qa=replace(OPEN, video="a.mp4", id="old"), rewards={"acc": 0.0}, answer="\ud800 nothing", step=1)
    late = record(qa=replace(OPEN, video="a.mp4"), rewards={"acc": 0.2}, answer="nothing", step=30)
    write(tmp_path / "step_000001.jsonl", [early])
    write(tmp_path / "step_000030.jsonl", [late])
    out = tmp_path / "mined" / "rows.jsonl"
    assert main(["mine", str(tmp_path), "--out", str(out)]) == 0
    assert "2 episodes, 2 questions failed, 2 written" in capsys.readouterr().out
    rows, problems = load_rows([out])
    assert not problems and [row.id for row in rows] == ["old", "q"]
    assert rows[1].video == str(video)
    assert rows[1].extra["mined"] == {"accuracy": 0.2, "episodes": 1, "answers": ["nothing"]}
    before = out.read_bytes()
    assert main(["mine", str(tmp_path), "--out", str(out), "--from-step", "2"]) == 0
    assert [row.id for row in load_rows([out])[0]] == ["q"]
    assert main(["mine", str(tmp_path), "--out", str(out), "--limit", "2"]) == 0
    assert out.read_bytes() == before
    # a second round forgets the first one's findings
    again = write(tmp_path / "next.jsonl", [replace(late, qa=rows[1], rewards={"acc": 0.0})])
    assert main(["mine", str(again), "--out", str(out)]) == 0
    assert load_rows([out])[0][0].extra == {"mined": {"accuracy": 0.0, "episodes": 1, "answers": ["nothing"]}}


def test_what_is_read_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "episodes" / "step_000001.jsonl", [graded("q", 0.0, "B")])
    before = file.read_bytes()
    (tmp_path / "link.jsonl").symlink_to(file)
    for words in (["mine"], ["filter"], ["templates"], ["view"]):
        for out in (file, tmp_path / "episodes" / ".." / "episodes" / file.name, tmp_path / "link.jsonl"):
            assert main([*words, str(tmp_path), "--out", str(out)]) == 2
            assert f"error: --out {out}: " in capsys.readouterr().err
            assert file.read_bytes() == before


def test_the_exit_status_tells_when_nothing_failed(tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", [graded("q", 1.0, "B")])
    assert main(["mine", str(file), "--out", str(tmp_path / "o.jsonl")]) == 1
    assert main(["mine", str(file), "--out", str(tmp_path / "o.csv")]) == 2
    assert main(["mine", str(tmp_path / "no.jsonl"), "--out", str(tmp_path / "o.jsonl")]) == 2
