import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import example, given

from agentic_video.launch import toyworld as launching
from agentic_video.launch.toyworld import build_note, build_toyworld, laptop_overrides, verifier_server
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES, composed
from tests.launch.paths import FOLDERS, values_of

KEY = "True cold-start"
"""All of a build."""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Python: it notes its arguments, and does what the shell script ``does`` says."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/arguments\n. {tmp_path}/does\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    return tmp_path


def test_paths_are_read_and_progress_is_shown(programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (programs / "does").write_text("echo '[toyworld] built it'; echo chatter: 1; echo train: /t; echo model: /a: b")
    assert build_toyworld(Path("r"), ["a=1"]) == {"train": "/t", "model": "/a: b"}
    assert capfd.readouterr().out == "[toyworld] built it\n"
    build_toyworld(Path("r"), [], data=False, model="none", dry_run=True)
    build_toyworld(Path("r"), ["a=1"], "sft")
    build_toyworld(Path("r"), [], "kto")
    assert (programs / "arguments").read_text().splitlines() == [
        "-m agentic_video.toyworld.build r a=1 --model cold-start",
        "-m agentic_video.toyworld.build r --model none --no-data --dry-run",
        "-m agentic_video.toyworld.build.demonstrate r a=1 --profile sft_laptop",
        "-m agentic_video.toyworld.build.preferences r --profile kto_laptop",
    ]


def test_what_was_built_for_the_same_is_found_without_the_builder(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launching, "DEFAULT_CACHE", programs / "cache")
    built, config = programs / "model", composed("videozoomer", "laptop")
    (programs / "does").write_text(f"mkdir -p {built}; echo model: {built}")
    longer = composed("videozoomer", "laptop", "trainer.total_training_steps=9", "actor_rollout_ref.actor.optim.lr=1")
    other = composed("videozoomer", "laptop", "agentic_video.system.max_turns=2")
    own = composed("videozoomer", "laptop")
    own.agentic_video.system._target_ = "agentic_video_of_mine.System"

    def builds(config: Any, **wanted: Any) -> int:
        assert build_toyworld(Path("r"), [], config=config, **wanted) == {"model": str(built)}
        return len((programs / "arguments").read_text().splitlines())

    assert [builds(item) for item in (config, config, longer)] == [1, 1, 1]
    assert capfd.readouterr().out == f"[toyworld] found {built}\n" * 2
    assert [builds(other), builds(config, data=False), builds(own), builds(own)] == [2, 3, 4, 5]
    built.rmdir()
    assert [builds(config), builds(config)] == [6, 6]
    (note,) = [file for file in (programs / "cache").rglob("*.json") if file == build_note(config, "grpo", KEY)]
    note.write_text("cut sho")
    assert [builds(config), builds(config)] == [7, 7]


def test_what_prompt_files_say_is_part_of_what_was_built(tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"

    def note(recipe: str, key: str, text: str) -> Path | None:
        prompt.write_text(text, encoding="utf-8")
        return build_note(composed(recipe, "laptop", f"agentic_video.system.{key}={prompt}"), "grpo", KEY)

    for recipe, key in (("eva", "prompt"), ("longvt", "task_prompt"), ("framethinker", "guard.prompt")):
        first = note(recipe, key, "Watch {question}")
        assert first == note(recipe, key, "Watch {question}") != note(recipe, key, "Watch {question} In French.")


def test_a_failed_build_is_reported(programs: Path) -> None:
    (programs / "does").write_text("echo train: /t; echo error: no room; exit 2")
    with pytest.raises(SetupError, match=r"could not be built: no room$"):
        build_toyworld(Path("r"), [])


def test_a_build_that_is_interrupted_interrupts_its_launcher(programs: Path) -> None:
    (programs / "does").write_text("exit 130")
    with pytest.raises(KeyboardInterrupt):
        build_toyworld(Path("r"), [])


@pytest.mark.slow
def test_a_build_ends_with_its_launcher(tmp_path: Path) -> None:
    """For real: a launcher is killed while it builds a world; the build goes, and takes what is half built with it."""
    program = (
        "from pathlib import Path; from agentic_video.launch.toyworld import build_toyworld\n"
        f"build_toyworld(Path({str(RECIPES / 'videozoomer')!r}), ['++agentic_video.toyworld.train=100000'])\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    cache = tmp_path / "agentic_video" / "toyworld"
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as launcher:
        while not list(cache.glob(".world-*/*")):
            time.sleep(0.05)
        (build,) = psutil.Process(launcher.pid).children()
        launcher.terminate()
    psutil.wait_procs([build], timeout=60)
    assert not build.is_running()
    assert list(cache.iterdir()) == []


def test_what_was_built_is_named_to_verl() -> None:
    paths = {"train": "t", "heldout": "h", "base": "b"}
    files = ["data.train_files=['t']", "data.val_files=['h']"]
    assert laptop_overrides(paths) == files
    assert laptop_overrides({**paths, "model": "m"}, "sft") == [*files, "model.path='m'"]
    assert laptop_overrides({**paths, "model": "m", "clip": "c"}) == [
        *files,
        "actor_rollout_ref.model.path='m'",
        "agentic_video.retrieval.model='local-dir:c'",
    ]


@given(FOLDERS)
@example("ü, cache (1)")
def test_the_cache_may_have_any_name(name: str) -> None:
    paths = {part: f"/{name}/{part}" for part in ("train", "heldout", "model", "clip")}
    # a text would be taken apart at its commas
    wanted = [[paths["train"]], [paths["heldout"]], paths["model"], f"local-dir:{paths['clip']}"]
    assert values_of(laptop_overrides(paths)) == wanted


def test_the_verifier_is_served_while_it_is_needed(programs: Path) -> None:
    (programs / "does").write_text(f"echo $$ >{programs}/number; echo serving: http://here/v1; exec sleep 600")
    with verifier_server("model") as overrides:
        assert overrides == [
            "agentic_video.verifier.base_url='http://here/v1'",
            "agentic_video.verifier.model=toyworld",
        ]
        number = int((programs / "number").read_text())
        assert os.getpgid(number) == number  # ctrl-c in the terminal is the launcher's to pass on
    while psutil.pid_exists(number):
        time.sleep(0.02)
    assert (programs / "arguments").read_text() == "-m agentic_video.toyworld.serve model --host 127.0.0.1\n"


def test_a_verifier_that_does_not_start_is_reported(programs: Path) -> None:
    (programs / "does").write_text("exit 1")
    with pytest.raises(SetupError, match="did not start"), verifier_server("model"):
        pass
