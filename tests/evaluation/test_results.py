"""Files of an evaluation's folder."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import pytest

from agentic_video.datasets.rows import load_rows
from agentic_video.evaluation.results import (
    NO_VIDEO,
    SAME_ID,
    SAME_ROW,
    UNREADABLE,
    Failure,
    append,
    claim_folder,
    distinct,
    excluded_row,
    failures,
    finished,
    forget_failures,
    journal,
    read_settings,
    same_gold,
    same_question,
    same_settings,
)
from agentic_video.types.jsonl import json_line
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError
from tests.evaluation.records import record


def ids(folder: Path) -> list[str]:
    return [played.qa.id for played in finished(folder)[0]]


def test_a_torn_line_is_cut_off_and_the_rest_kept(tmp_path: Path) -> None:
    with journal(tmp_path, 0) as file:
        append(file, record("a"))
        append(file, record("b"))
    path = tmp_path / "episodes-000.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 3])
    assert ids(tmp_path) == ["a", "b"]
    assert len(finished(tmp_path)[1]) == 1
    with journal(tmp_path, 0) as file:
        append(file, record("c"))
    assert ids(tmp_path) == ["a", "b", "c"]
    assert finished(tmp_path)[1] == []
    assert path.read_bytes().startswith(whole)


def test_a_full_disk_names_the_journal_and_loses_what_was_being_written_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "episodes-000.jsonl"

    def full(file: TextIO) -> None:
        file.flush()
        path.write_bytes(path.read_bytes()[:-10])  # as far as there was room
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as caught, journal(tmp_path, 0) as file:
        append(file, record("a"))
        monkeypatch.setattr("agentic_video.utils.workdir.settle", full)
        append(file, record("b"))
    assert caught.value.filename == str(path)
    monkeypatch.undo()
    assert ids(tmp_path) == ["a"]
    with journal(tmp_path, 0) as file:
        append(file, record("b"))
    assert ids(tmp_path) == ["a", "b"]


def test_the_last_episode_of_a_question_counts(tmp_path: Path) -> None:
    old, new = record("a", acc=0.0), record("a", acc=1.0)
    with journal(tmp_path, 1) as file:
        append(file, old)
        append(file, record("b", acc=0.0))
        append(file, record("b", acc=1.0))
    with journal(tmp_path, 0) as file:
        append(file, replace(new, provenance={"revision": 1}))
    assert [(played.qa.id, played.rewards["acc"]) for played in finished(tmp_path)[0]] == [("a", 1.0), ("b", 1.0)]


def test_rows_that_ask_the_same(tmp_path: Path) -> None:
    video, moved, other = (tmp_path / name for name in ("v.mp4", "moved/v.mp4", "other/v.mp4"))
    for folder in (moved, other):
        folder.parent.mkdir()
    for file in (video, other):
        file.write_bytes(b"x")
    moved.symlink_to(video)
    extra = {"split": "dev", "points": (1.5, 2), "none": None}
    qa = VideoQA("1", str(video), "which?", "A", options=("x", "y"), extra=extra, windows=((1.0, 2.0),))
    (before,) = [Record.from_dict(json.loads(json_line(replace(record("1"), qa=qa).to_dict()))).qa]
    for same in (qa, replace(qa, video=str(moved)), replace(qa, extra={"points": [1.5, 2], "split": "dev", "y": None})):
        assert same_question(before, same) and same_gold(before, same)
    for gold in ({"answer": "B"}, {"windows": ()}, {"answer": "", "extra": {**extra, "answer_hidden": True}}):
        assert same_question(before, replace(qa, **gold)) and not same_gold(before, replace(qa, **gold))
    for asked in (
        {"question": "why?"},
        {"options": ("x", "z")},
        {"answer_type": "open_ended"},
        {"extra": {**extra, "subtitles": "s.srt"}},
        {"video": str(other)},
        {"video": str(tmp_path / "w.mp4")},
    ):
        assert not same_question(before, replace(qa, **asked))
    video.unlink()
    now = replace(qa, video=str(other))
    assert same_question(before, now) and same_gold(before, now), "it has moved there"


def refused_key(folder: Path, settings: dict[str, object]) -> str:
    """Key by which a folder refuses other settings."""
    with pytest.raises(SetupError) as caught:
        claim_folder(folder, settings)
    return caught.value.key


def test_a_folder_learns_settings_that_it_did_not_know(tmp_path: Path) -> None:
    claim_folder(tmp_path, {"model": "m"})  # of an earlier version
    with journal(tmp_path, 0) as file:
        append(file, record("a"))
    known = {"model": "m", "engine": "chat", "model_name": "step_100"}
    settings = {**known, "model_root": None, "judge": None}
    claim_folder(tmp_path, settings)
    assert read_settings(tmp_path) == known
    assert refused_key(tmp_path, {**settings, "model_name": "step_200"}) == "model_name"
    assert refused_key(tmp_path, {**settings, "model": "n", "judge": "j"}) == "model"
    # a judge may be set later, and stays
    claim_folder(tmp_path, {**settings, "judge": "j"})
    claim_folder(tmp_path, settings)
    assert read_settings(tmp_path) == {**known, "judge": "j"}
    assert refused_key(tmp_path, {**settings, "judge": "k"}) == "judge"


def test_settings_are_the_same_as_far_as_both_say() -> None:
    assert same_settings({"model": "m", "stop": ["x"]}, {"model": "m", "stop": ("x",), "engine": "chat"})
    assert same_settings({"model": "m", "judge": "j"}, {"model": "m", "judge": None})
    assert not same_settings({"model": "m", "judge": "j"}, {"model": "m", "judge": "k"})
    assert not same_settings({"model": "m"}, {"model": "m", "limits": None, "system": {}})


def test_ids_are_unique_within_a_data_source() -> None:
    rows = [
        VideoQA("1", "v", "?", "a", data_source=source, where=f"{file}.jsonl line 3")
        for source, file in (("x", "a"), ("y", "a"), ("x", "b"))
    ]
    kept, repeated = distinct([*rows, replace(rows[0], question="another?")])
    assert kept == rows[:2]
    assert [(row.reason, row.asked) for row in repeated] == [(SAME_ROW, False), (SAME_ID, True)]
    assert "a.jsonl line 3" in repeated[0].message and repeated[0].message.startswith("b.jsonl line 3")


def test_failures_of_the_latest_run(tmp_path: Path) -> None:
    line = json.dumps({"data_source": "s", "id": "f", "error": "e"})
    (tmp_path / "failures-000.jsonl").write_text(line + "\n" + line[:20])
    (tmp_path / "failures-001.jsonl").write_text(line.replace('"f"', "7") + "\n[]\n")
    assert failures(tmp_path) == [Failure(("s", "f"), "e"), Failure(("s", "7"), "e")]
    forget_failures(tmp_path)
    assert failures(tmp_path) == [] and not list(tmp_path.iterdir())


def test_a_row_without_its_video_is_excluded_for_that(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "good.mp4").write_bytes(b"not opened")
    row = VideoQA("1", "good.mp4", "?", "a", answer_type="open_ended").to_row()
    rows = [{**row, "id": name, "video": name} for name in (".", "empty.mp4", "gone.mp4", "good.mp4")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(raw) + "\n" for raw in [*rows, {"id": "half"}]))
    _, problems = load_rows([tmp_path / "a.jsonl"])
    reasons = {problem.where[-1]: excluded_row(problem).reason for problem in problems}
    assert reasons == {"1": NO_VIDEO, "2": NO_VIDEO, "3": NO_VIDEO, "5": UNREADABLE}
