import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.synthesis.inputs import (
    QuestionSet,
    digest,
    drawn,
    episode_files,
    grade_of,
    read_episodes,
    read_questions,
)
from agentic_video.utils.errors import SetupError
from tests.synthesis.made import CHOICE, OPEN, record, write


def test_episodes_are_found_in_folders_of_runs_and_evaluations(tmp_path: Path) -> None:
    names = ("run/episodes/step_000002.jsonl", "run/episodes/step_000001.jsonl", "eval/episodes-000.jsonl", "one.jsonl")
    for name in names:
        write(tmp_path / name, [record()])
    files = episode_files([tmp_path / "run", tmp_path / "eval", tmp_path / "one.jsonl"])
    assert [str(file.relative_to(tmp_path)) for file in files] == [names[1], names[0], names[2], names[3]]
    assert len(list(read_episodes([tmp_path / "run"]))) == 2
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(SetupError):
            episode_files([missing])


def test_rows_are_no_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f"{json.dumps(CHOICE.to_row())}\n" * 20)
    with pytest.raises(SetupError, match="distill"):
        list(read_episodes([rows]))
    assert capsys.readouterr().err == ""
    assert len(list(read_episodes([rows, write(tmp_path / "one.jsonl", [record()])]))) == 1
    assert "20 records left out" in capsys.readouterr().err


def test_an_episode_counts_once_however_often_its_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = write(tmp_path / "run/episodes/step_000001.jsonl", [record()])
    (tmp_path / "link").symlink_to(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    for paths in ([run, run], [run, run / "episodes"], [run, step], [Path("run"), run], [run, Path("link")]):
        assert len(episode_files(paths)) == 1
        assert len(list(read_episodes(paths))) == 1
    assert episode_files([Path("run"), run]) == [Path("run/episodes/step_000001.jsonl")]  # by its first name


def test_an_episode_that_an_evaluation_replaced_is_not_read(tmp_path: Path) -> None:
    first, other = record(), replace(record(), qa=replace(record().qa, id="other"))
    other = replace(other, trajectory=replace(other.trajectory, qa_id="other"))
    again = replace(first, rewards={"acc": 0.0}, provenance={**first.provenance, "revision": 1})
    write(tmp_path / "episodes-000.jsonl", [first, other])
    write(tmp_path / "episodes-001.jsonl", [again])
    assert list(read_episodes([tmp_path])) == [other, again]
    # another evaluation's, or a run's, are episodes of their own
    write(tmp_path / "second" / "episodes-000.jsonl", [first])
    write(tmp_path / "run" / "episodes" / "step_000001.jsonl", [first])
    paths = [tmp_path, tmp_path / "second", tmp_path / "run"]
    assert list(read_episodes(paths)) == [other, again, first, first]


def test_questions_are_read_once_and_bad_ones_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.mp4").write_bytes(b"x")
    rows = [replace(CHOICE, id=name, video="a.mp4").to_row() for name in ("a", "b", "a")]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join([*map(json.dumps, rows), '{"id": "bad"}']))
    questions = read_questions([file])
    assert [qa.id for qa in questions.rows] == ["a", "b"]
    assert questions.numbers == {"rows_left_out": questions.excluded} and questions.excluded > 0
    assert [qa.id for qa in questions.first(1).rows] == ["a"] and questions.first(None) == questions
    assert QuestionSet(questions.rows).numbers == {}
    assert "2 rows left out" in capsys.readouterr().err


def test_a_grade_is_the_recorded_one_or_what_the_choice_says() -> None:
    assert grade_of(record(answer="A", rewards={"acc": 0.5})) == 0.5
    assert (grade_of(record(answer="B")), grade_of(record(answer="A"))) == (1.0, 0.0)
    assert grade_of(record(qa=OPEN, answer="a red cup")) is None
    hidden = replace(CHOICE, answer="", extra={"answer_hidden": True})
    assert hidden.hidden and grade_of(record(qa=hidden, answer="A")) is None


def test_names_are_apart_wherever_their_parts_meet() -> None:
    assert digest("ab", "c") != digest("a", "bc") and digest(1) == digest("1")
    assert len(digest("\ud800")) == 40


@given(st.lists(st.integers()), st.integers(-1, 20), st.integers(0, 3))
def test_a_draw_does_not_depend_on_the_order(names: list[int], count: int, seed: int) -> None:
    chosen = drawn(names, count, seed)
    assert chosen == drawn(sorted(names), count, seed) and len(chosen) == min(max(0, count), len(set(names)))
    assert chosen <= drawn(names, count + 1, seed)
