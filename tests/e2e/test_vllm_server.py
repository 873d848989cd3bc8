"""Real servers of tiny models: `vllm serve`, which plays episodes for the commands that ask one, and verl's."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.launch.toyworld import build_toyworld
from agentic_video.types.record import read_records
from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV
from tests.e2e.vllm_engine import vllm_server
from tests.synthesis.conftest import lines
from tests.toyworld.conftest import any_checkpoint, tokenizer, untrained

__all__ = ["any_checkpoint", "tokenizer"]

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "videozoomer"
LAPTOP = ("--recipe", str(RECIPE), "--profile", "laptop")
QUESTIONS = 12

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def toyworld() -> dict[str, str]:
    """The recipe's own world and cold start."""
    return build_toyworld(RECIPE, [])


@pytest.fixture(scope="module")
def url(toyworld: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("vllm") / "log.txt"
    with vllm_server(toyworld["model"], log) as address:
        yield address


@pytest.fixture(scope="module")
def rows(toyworld: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    asked = load_rows([toyworld["heldout"]])[0][:QUESTIONS]
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps(qa.to_row()) + "\n" for qa in asked))
    return path


def test_a_teacher_is_distilled(url: str, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["distill", *LAPTOP, "--teacher", url, "--data", str(rows), "--out", str(out)]
    command += ["--samples", "2", "--temperature", "1.0"]
    assert main(command) == 0
    kept, rejected = list(read_records(out / "kept.jsonl")), lines(out / "rejected.jsonl")
    assert len(kept) + len(rejected) == 2 * QUESTIONS
    # The tiny model is right two times in three; what is kept is right and played by the rules.
    assert len(kept) >= QUESTIONS / 2
    assert all(record.rewards["acc"] == 1.0 and record.trajectory.illegal_calls == 0 for record in kept)
    assert sum(record.trajectory.tool_calls for record in kept) > 0
    report = json.loads((out / "report.json").read_text())
    assert report["failed"] == 0


def test_an_agent_behind_a_server_is_evaluated(url: str, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["eval", *LAPTOP, "--model", url, "--data", str(rows), "--out", str(out), "--temperature", "0"]
    assert main(command) == 0
    report = json.loads((out / "report.json").read_text())
    assert report["failed"] == 0
    assert report["official"]["mean"] > 0.4
    assert report["per_episode"]["tool_calls"]["mean"] > 0.3


def test_server_and_engine_generate_the_same_ids(
    url: str, toyworld: dict[str, str], rows: Path, tmp_path: Path
) -> None:
    """Greedy episodes, id by id; the engine runs in a separate process, as in the test below."""
    said = {}
    for engine, model in (("vllm-server", url), ("vllm", toyworld["model"])):
        command = [sys.executable, "-m", "agentic_video.cli", "eval", *LAPTOP]
        command += ["--model", model, "--engine", engine, "--data", str(rows), "--out", str(tmp_path / engine)]
        command += ["--temperature", "0", "actor_rollout_ref.rollout.max_model_len=640"]  # as the server has it
        environment = {**os.environ, **COMMON_ENV, **LAPTOP_ENV}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        records = list(read_records(tmp_path / engine / "episodes-000.jsonl"))
        said[engine] = {record.qa.id: [turn.token_ids for turn in record.trajectory.turns] for record in records}
    assert len(said["vllm"]) == QUESTIONS
    assert said["vllm-server"] == said["vllm"]
    turns = [len(turns) for turns in said["vllm"].values()]
    assert max(turns) > 1 and all(ids for turns in said["vllm"].values() for ids in turns)


def check_engine(checkpoint: Path, *checks: str) -> None:
    command = [sys.executable, "-m", "tests.e2e.engine", str(checkpoint), *checks]
    environment = {**os.environ, **COMMON_ENV, **LAPTOP_ENV}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


def test_a_real_engine(any_checkpoint: Path) -> None:
    check_engine(any_checkpoint)


def test_clips_with_glm_4_6v_s_processor(tmp_path: Path) -> None:
    folder = untrained("glm4v", tmp_path)
    file = folder / "processor_config.json"
    file.write_text(file.read_text().replace("Glm4v", "Glm46V"))
    check_engine(folder, "clips")
