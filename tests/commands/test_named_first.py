"""A model, rows or a folder that a command names and that isn't there is reported before other mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from tests.config.configs import RECIPES

NOBODY = "http://127.0.0.1:9/v1"
"""No server is there."""
OTHER = "agentic_video.system.no_such_key=1"
"""Another mistake."""
OF_A_RECIPE = ["--recipe", str(RECIPES / "videozoomer")]
ROWS, OUT = ["--data", "rows.jsonl"], ["--out", "of_another_job"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows, and the folder of another job."""
    for name in ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    row = {"id": "1", "video": "v.mp4", "question": "what?", "answer": "A", "options": ["a", "b"]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    (tmp_path / "of_another_job").mkdir()
    for file in ("settings.json", "eval.json"):
        (tmp_path / "of_another_job" / file).write_text('{"job": "other", "engine": "other"}', encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["eval", *OF_A_RECIPE, "--model", "./gone", *ROWS, *OUT, OTHER], "--model ./gone: "),
        (["eval", *OF_A_RECIPE, "--model", "outputs/gone", *ROWS, *OUT, OTHER], "--model outputs/gone: "),
        (["eval", *OF_A_RECIPE, "--model", "outputs/gone", *ROWS, *OUT], "--model outputs/gone: "),
        (["eval", *OF_A_RECIPE, "--model", NOBODY, "--data", "gone.jsonl", *OUT, OTHER], "--data gone.jsonl: "),
        (["eval", *OF_A_RECIPE, "--model", NOBODY, *ROWS, *OUT, "stray"], "stray"),
        (["eval", *OF_A_RECIPE, "--model", "owner/gone", *ROWS, *OUT], "--model owner/gone: "),
        (["distill", *OF_A_RECIPE, "--teacher", "outputs/gone", *ROWS, *OUT, OTHER], "--teacher outputs/gone: "),
        (["distill", *OF_A_RECIPE, "--teacher", NOBODY, "--data", "gone.jsonl", *OUT, OTHER], "--data gone.jsonl: "),
        (["reflect", *OF_A_RECIPE, "--teacher", NOBODY, "--rollouts", "gone.jsonl", *OUT, OTHER], "gone.jsonl: "),
        (["preferences", "--judge", NOBODY, "--records", "gone.jsonl", *OUT], "gone.jsonl: "),
        (["preferences", "--judge", NOBODY, "--teacher", NOBODY, "--data", "gone.jsonl", *OUT], "gone.jsonl: "),
        (["enhance", "--teacher", NOBODY, "--failures", "gone.jsonl", "--videos", "rows.jsonl", *OUT], "gone.jsonl: "),
        (["enhance", "--teacher", NOBODY, "--failures", "rows.jsonl", "--videos", "gone", *OUT], "gone: "),
        (["classify", "--teacher", NOBODY, "--base", NOBODY, "--data", "gone.jsonl", *OUT, OTHER], "gone.jsonl: "),
        (["classify", "--teacher", NOBODY, "--base-results", "gone", *ROWS, *OUT, OTHER], "gone: "),
        (["classify", "--base", NOBODY, *OUT], "--teacher-results"),
        (["classify", "--teacher-results", "gone", *OUT], "--base-results"),
        (["classify", "--base", NOBODY, "--teacher", NOBODY, *OUT], "--data"),
        (["preferences", "--judge", NOBODY, *OUT], "--records"),
        (["preferences", "--judge", NOBODY, *ROWS, *OUT], "--teacher"),
        (["filter", "gone.jsonl", "--out", "kept.jsonl"], "gone.jsonl: "),
        (["mine", "gone.jsonl", "--out", "mined.jsonl"], "gone.jsonl: "),
        (["compare", "gone", "of_another_job"], "gone: "),
        (["summary", "gone"], "gone: "),
        (["view", "gone"], "gone "),
        (["convert", "lvbench", "--source", "gone", "--out", "rows.parquet"], "gone"),
        (["plan", "--model", "./gone", *OF_A_RECIPE, OTHER], "./gone"),
    ],
)
def test_what_is_not_there_is_named_first(command: list[str], named: str, capsys: Any) -> None:
    assert main(command) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert named in said[-1] and "no_such_key" not in said[-1], said


@pytest.mark.parametrize("profile", ["laptop", "rehearsal"])
@pytest.mark.parametrize(
    ("variable", "value"),
    [("MODEL_PATH", "outputs/gone"), ("TRAIN_FILES", "gone.jsonl"), ("VAL_FILES", "gone.parquet")],
)
def test_a_run_looks_for_its_model_and_rows_first(
    variable: str, value: str, profile: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["run", str(RECIPES / "videozoomer"), "--profile", profile, OTHER, "--dry-run"]) == 2
    assert f"{variable}{'=' if variable == 'MODEL_PATH' else ': '}{value}: no such" in capsys.readouterr().err


def test_an_override_that_names_rows_is_named(capsys: Any) -> None:
    assert main(["run", str(RECIPES / "videozoomer"), "--profile", "laptop", "data.train_files=gone.jsonl", OTHER]) == 2
    assert "data.train_files: gone.jsonl: no such file" in capsys.readouterr().err
