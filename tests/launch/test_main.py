import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentic_video.launch import main as launching
from agentic_video.launch.main import launch, main
from agentic_video.launch.options import LaunchOptions
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES

RECIPE = RECIPES / "framethinker"


def test_words_that_are_no_override_are_refused() -> None:
    with pytest.raises(SystemExit):
        main(["recipes/videozoomer", "--profile", "laptop", "oops"])


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("MODEL_PATH", raising=False)
    assert main([str(RECIPE), "--profile", "cluster"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_sft_is_not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")
    with pytest.raises(SetupError, match="torchrun"):
        launch(LaunchOptions(RECIPE, "sft", "laptop", submit=True))


@pytest.fixture
def cold_starts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Nothing is built; whether a cold start was asked for is noted."""
    asked = []

    def build(recipe: Path, overrides: Sequence[str], stage: str, *, cold_start: bool) -> dict[str, str]:
        asked.append(cold_start)
        paths = {"train": "t.parquet", "heldout": "h.parquet", "base": "b"}
        return {**paths, "model": "cold"} if cold_start else paths

    monkeypatch.setattr(launching, "build_toyworld", build)
    return asked


def test_a_named_checkpoint_needs_no_cold_start(cold_starts: list[bool], capsys: pytest.CaptureFixture[str]) -> None:
    named = ("actor_rollout_ref.model.path=mine",)
    launch(LaunchOptions(RECIPE, profile="laptop", dry_run=True, overrides=named))
    command = capsys.readouterr().out
    assert cold_starts == [False] and command.count("model.path=") == 1 and "model.path=mine" in command
    launch(LaunchOptions(RECIPE, profile="laptop", dry_run=True))
    assert cold_starts == [False, True] and "actor_rollout_ref.model.path=cold" in capsys.readouterr().out


@pytest.mark.parametrize("status", [0, 3])
def test_a_run_from_its_folder_to_its_summary(
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cold_starts: list[bool],
    capsys: pytest.CaptureFixture[str],
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []

    def run(command: Sequence[str], environment: Mapping[str, str], log: Path) -> tuple[int, int]:
        assert Path(environment["TMPDIR"]).is_dir()
        started.append((list(command), dict(environment)))
        return status, 5

    @contextmanager
    def serve(model: str | None) -> Iterator[list[str]]:
        yield ["served=1"]

    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(launching, "run_verl", run)
    monkeypatch.setattr(launching, "verifier_server", serve)
    monkeypatch.setattr(launching, "write_summary", lambda folder: f"summary of {folder.name}")
    assert launch(LaunchOptions(RECIPE, profile="laptop", overrides=("trainer.save_freq=7",))) == status

    folder = tmp_path / "framethinker-laptop" / "run-001"
    ((command, environment),) = started
    written = [text for text in command if str(folder) in text]
    assert written == [
        f"hydra.run.dir={folder}/hydra",
        f"trainer.default_local_dir={folder}/checkpoints",
        f"agentic_video.episodes_dir={folder}/episodes",
    ]
    assert command[-1] == "trainer.save_freq=7"  # the user's word is the last
    assert "served=1" in command and f"+ray_kwargs.ray_init._temp_dir={environment['TMPDIR']}/ray" in command
    assert shlex.split((folder / "command.sh").read_text()) == command
    assert environment["VERL_FILE_LOGGER_PATH"] == f"{folder}/metrics-001.jsonl"
    assert environment["HF_HUB_OFFLINE"] == "1" and not Path(environment["TMPDIR"]).exists()
    record = json.loads((folder / "run.json").read_text())
    said = capsys.readouterr()
    assert record["finished"] == (status == 0)
    if status:
        assert said.err.startswith(f"verl stopped with status 3; the whole log is {folder}/log.txt\n")
    else:
        assert said.out.endswith("summary of run-001\n")
        assert (record["recipe"], record["profile"], record["peak_bytes"]) == ("framethinker", "laptop", 5)


@pytest.mark.parametrize("address", ["", "auto"])
def test_a_recipe_s_own_modules_are_found_by_all_its_processes(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cold_starts: list[bool]
) -> None:
    recipe, started = tmp_path / "recipes" / "mine", []
    shutil.copytree(RECIPE, recipe)
    (recipe / "thinker_of_mine.py").write_text(
        "from agentic_video.systems.framethinker.system import FrameThinker\n\n\nclass Mine(FrameThinker):\n    pass\n"
    )

    def run(command: Sequence[str], environment: Mapping[str, str], log: Path) -> tuple[int, int]:
        started.append((list(command), dict(environment)))
        return 1, 0

    variables = {"OUTPUT_DIR": str(tmp_path), "RAY_ADDRESS": address, "MODEL_PATH": "m", "TRAIN_FILES": "t"}
    for name, value in {**variables, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(launching, "run_verl", run)
    own = ("agentic_video.system._target_=thinker_of_mine.Mine",)
    # the config is read here, before anything starts: the class was found
    assert launch(LaunchOptions(recipe, profile="cluster" if address else "laptop", overrides=own)) == 1
    ((command, environment),) = started
    assert environment["PYTHONPATH"].split(os.pathsep)[-1] == str(recipe)
    handed = [word for word in command if "env_vars.PYTHONPATH" in word]
    assert len(handed) == (1 if address else 0) and all(str(recipe) in word for word in handed)


def test_a_recipe_s_module_that_hides_another_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(RECIPE, tmp_path / "mine")
    (tmp_path / "mine" / "bisect.py").write_text("")
    assert main([str(tmp_path / "mine"), "--profile", "laptop", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {tmp_path / 'mine' / 'bisect.py'}: ") and said.count("\n") == 1


def test_a_cluster_s_processes_get_their_variables_from_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []

    def run(command: Sequence[str], environment: Mapping[str, str], log: Path) -> tuple[int, int]:
        started.append((list(command), dict(environment)))
        return 1, 0

    variables = {"OUTPUT_DIR": str(tmp_path), "RAY_ADDRESS": "auto", "MODEL_PATH": "m", "TRAIN_FILES": "t"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("TMPDIR", "NNODES", "GPUS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launching, "run_verl", run)
    assert launch(LaunchOptions(RECIPE, profile="cluster")) == 1
    ((command, environment),) = started
    assert "+ray_kwargs.ray_init.runtime_env.env_vars.HYDRA_FULL_ERROR='1'" in command
    # the cluster's sizes are the user's to say, and its machines have temporary folders of their own
    assert not {"TMPDIR", "NNODES", "GPUS_PER_NODE"} & set(environment)
