"""What is noted of a reproduction, and when something counts as changed."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.launch.reproduce.state import StageRecord, StageSettings, State, difference, fingerprint
from agentic_video.utils.errors import SetupError
from tests.launch.reproduce.chains import chain_of


def test_records_come_back(tmp_path: Path) -> None:
    record = StageRecord(StageSettings("a b", {"x.y": "1"}), "2026-01-01 10:00 UTC", 3.5, 2)
    State(tmp_path).write("sft", record)
    assert State(tmp_path).records == {"sft": record}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"stages": []}',
        '{"stages": {"a": {"x": 1}}}',
        '{"stages": {"a": 3}}',
        '{"stages": {"a": {"settings": []}}}',
        '{"stages": {"a": {"settings": {"command": "x", "inputs": ["y"]}}}}',
        '{"stages": {"a": {"seconds": NaN}}}',
    ],
)
def test_a_damaged_file_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "reproduce.json").write_text(text, encoding="utf-8")
    with pytest.raises(SetupError, match=r"reproduce\.json: is damaged"):
        State(tmp_path)


def test_outputs(tmp_path: Path) -> None:
    state, stage = State(tmp_path / "out"), chain_of(tmp_path).stage("taught")
    assert state.lacks(stage) == ["folder", "model"]
    home = state.home(stage)
    home.mkdir(parents=True)
    assert state.lacks(stage) == ["model"]
    for name in ("a.bin", "b.bin"):
        (home / name).write_text("")
    assert state.output(stage, "model") == home / "b.bin" and state.output(stage, "folder") == home
    assert state.lacks(stage) == []


def test_what_has_been_made(tmp_path: Path) -> None:
    state, stage = State(tmp_path / "out"), chain_of(tmp_path).stage("taught")
    alone = replace(stage, makes={"folder": "."})
    assert not state.has_made(stage) and not state.has_made(alone)
    state.home(stage).mkdir(parents=True)
    assert not state.has_made(stage) and not state.has_made(alone)
    (state.home(stage) / "report.json").write_text("")
    for name, text in (("failures-000.jsonl", "{}"), ("journal.jsonl", "")):
        (state.home(stage) / name).write_text(text)
    assert not state.has_made(stage) and state.has_made(alone)
    (state.home(stage) / "journal.jsonl").write_text("{}")
    assert state.has_made(stage)
    (state.home(stage) / "journal.jsonl").unlink()
    assert not state.has_made(stage)
    (state.home(stage) / "a.bin").write_text("")
    assert state.has_made(stage)


def test_set_aside(tmp_path: Path) -> None:
    state, stage = State(tmp_path / "out"), chain_of(tmp_path).stage("taught")
    assert state.set_aside(stage) is None
    for number in (1, 2):
        state.home(stage).mkdir(parents=True)
        assert state.set_aside(stage) == tmp_path / "out" / "set-aside" / f"taught-{number}"
        assert not state.home(stage).exists()


def test_a_file_and_a_checkpoint_are_what_they_hold(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    for folder in (file, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        file.write_text("1")
        before = fingerprint(folder)
        os.utime(file, (0, 0))
        assert fingerprint(folder) == before
        file.write_text("2")
        assert fingerprint(folder) != before
    assert fingerprint(tmp_path / "nothing") == ""


def test_a_folder_of_downloads_is_its_annotations(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text("1")
    before = fingerprint(tmp_path)
    (tmp_path / "video.mp4").write_text("1")
    os.utime(tmp_path / "rows.json", (0, 0))
    assert fingerprint(tmp_path) == before
    (tmp_path / "more.json").write_text("1")
    assert fingerprint(tmp_path) != before
    (tmp_path / "more.json").unlink()
    (tmp_path / "rows.json").write_text("2")
    assert fingerprint(tmp_path) != before, "as long, but not the same"
    (tmp_path / "rows.json").write_text("1")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "x.json").write_text("1")
    assert fingerprint(tmp_path) == before
    (tmp_path / "json" / "deep").mkdir(parents=True)
    (tmp_path / "json" / "deep" / "x.parquet").write_text("1")
    deep = fingerprint(tmp_path)
    assert deep != before, "converters find it there"
    (tmp_path / "json" / "deep" / "x.parquet").write_text("2")
    assert fingerprint(tmp_path) != deep


def test_annotations_in_a_linked_folder_count(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "data"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "rows.json").write_text("1")
    before = fingerprint(folder)
    (folder / "linked").symlink_to(elsewhere)
    linked = fingerprint(folder)
    assert linked != before
    (elsewhere / "back").symlink_to(folder)
    assert fingerprint(folder) == linked
    (elsewhere / "rows.json").write_text("2")
    assert fingerprint(folder) != linked


SETTINGS = StageSettings("agentic-video run r a=1", {"x.y": "1"}, config={"a.b": 1, "c": "x"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"inputs": {"x.y": ""}}, ""),  # is missing now
        ({"inputs": {"x.y": "2"}}, "its input x.y changed"),
        ({"inputs": {"x.y": "1", "z.w": "1"}}, "its input z.w changed"),
        ({"command": "agentic-video run r a=2"}, "its command changed (now without a=1, with a=2)"),
        ({"command": "agentic-video run a=1 r"}, "its command changed (now in another order)"),
        ({"config": {"a.b": 2, "c": "x"}}, "its config changed (a.b: 1, now 2)"),
        ({"config": {"a.b": 1}}, 'its config changed (c: "x", now null)'),
    ],
)
def test_differences(change: dict[str, Any], said: str) -> None:
    assert difference(SETTINGS, replace(SETTINGS, **change)) == said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"named": {"judge_model": "b"}}, 'its setting judge_model changed ("a", now "b")'),
        ({"named": {"judge_model": "a", "other": "b"}}, ""),  # wasn't recorded then
        ({"named": {}}, ""),  # isn't named now
        ({"base": "2"}, "the files of its base model changed"),
        ({"base": ""}, ""),  # is a name, whose change the command shows
    ],
)
def test_differences_from_older_records(change: dict[str, Any], said: str) -> None:
    now = replace(SETTINGS, named={"judge_model": "a"}, base="1")
    assert difference(now, replace(now, **change)) == said
    assert difference(SETTINGS, replace(now, **change)) == ""
