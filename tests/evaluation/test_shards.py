"""Evaluations of several processes."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.evaluation import shards
from agentic_video.evaluation.model import ModelSpec
from agentic_video.evaluation.results import Failure, append, failures, journal
from agentic_video.evaluation.shards import Follower, count_shards
from agentic_video.launch.ray_nodes import ray_nodes
from agentic_video.toyworld.questions import World
from agentic_video.types.record import Record
from agentic_video.utils.errors import SetupError
from agentic_video.utils.secrets import KEYS_FILE
from tests.evaluation.conftest import RECIPES, command
from tests.evaluation.records import record
from tests.faulty_server import Reply, Serve


def test_following_other_processes_journals(tmp_path: Path) -> None:
    with journal(tmp_path, 0) as file:
        append(file, record("before"))
    follower = Follower(tmp_path)
    assert follower.new() == []
    with journal(tmp_path, 1) as file:
        append(file, record("a"))
        file.write('{"version": 1, "vi')
        file.flush()
        found = follower.new()
    assert [result.qa.id for result in found if isinstance(result, Record)] == ["a"]
    (tmp_path / "failures-001.jsonl").write_text(json.dumps({"data_source": "s", "id": "f", "error": "e"}) + "\n")
    assert follower.new() == [Failure(("s", "f"), "e")]
    assert failures(tmp_path) == [Failure(("s", "f"), "e")]
    assert follower.new() == []


@pytest.mark.parametrize(
    ("asked", "engine", "gpus_each", "gpus", "expected"),
    [
        (None, "vllm", 1, 8, 8),
        (None, "vllm", 2, 8, 4),
        (None, "vllm", 4, 2, 1),
        (None, "vllm", 1, 0, 1),
        (3, "vllm", 1, 8, 3),
        (None, "chat", 1, 8, 1),
        (2, "chat", 1, 0, 2),
        (None, "somebody.else.Engine", 1, 8, 1),
    ],
)
def test_how_many_processes_play(
    asked: int | None, engine: str, gpus_each: int, gpus: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(shards, "count_gpus", lambda: gpus)
    assert count_shards(asked, ModelSpec(engine, "m", vllm={"tensor_parallel_size": gpus_each})) == expected


@pytest.mark.ray
def test_two_shards_play_all_questions(
    checkpoint: Path, small_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    out = tmp_path / "out"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as short:
        monkeypatch.setenv("RAY_TMPDIR", short)
        # what Ray remembers of a cluster that was started on this machine, and may have been killed since
        (Path(short) / "ray").mkdir()
        (Path(short) / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")
        try:
            assert main(command(checkpoint, Path(small_world.heldout), out, "--shards", "2", "--limit", "5")) == 0
        finally:
            ray.shutdown()
    assert sorted(len(file.read_bytes().splitlines()) for file in out.glob("episodes-*.jsonl")) == [2, 3]
    assert json.loads((out / "report.json").read_text())["episodes"] == 5


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_shards_on_a_cluster_have_what_the_command_has(serve: Serve, small_world: World, tmp_path: Path) -> None:
    server = serve(lambda body, number: Reply("<answer>A</answer>"))
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as short,
        # which has neither this command's variables nor its folder, and asks for a token
        ray_nodes(1, Path(short), os.environ) as joining,
    ):
        words = ["eval", "--recipe", str(RECIPES / "videozoomer"), "--model", server.url, "--model-name", "m"]
        words += ["--api-key-env", "MY_KEY", "--data", str(small_world.heldout), "--out", str(tmp_path / "out")]
        environment = {**os.environ, **joining, "MY_KEY": "the-key"}
        del environment["RAY_AUTH_MODE"]
        done = subprocess.run(
            [sys.executable, "-m", "agentic_video.cli", *words, "--shards", "2", "--limit", "2"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert server.keys == {"Bearer the-key"}
    assert json.loads((tmp_path / "out" / "report.json").read_text())["episodes"] == 2
    assert not (tmp_path / "out" / KEYS_FILE).exists()


def test_a_cluster_that_is_not_there_costs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(SetupError, match="RAY_ADDRESS"):
        count_shards(None, ModelSpec("vllm", "m"))
