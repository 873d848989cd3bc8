import asyncio
import json
import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from agentic_video.config.settings import settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.systems.base import EpisodeView, System
from agentic_video.tools.base import Video
from agentic_video.toyworld.oracles import turns_of
from agentic_video.toyworld.questions import World, build_world
from agentic_video.toyworld.world import WorldRecipe
from agentic_video.types.row import VideoQA
from agentic_video.video.store import FrameStore
from tests.config.configs import composed
from tests.toyworld.conftest import checkpoint, tokenizer

__all__ = ["checkpoint", "tokenizer"]

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(autouse=True)
def quiet_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subprocesses of these tests share few cores with everything else."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.delenv("MODEL_PATH", raising=False)


@pytest.fixture(scope="session")
def making_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Questions whose event the overview doesn't show."""
    recipe = WorldRecipe(mixture=(("colour", 1.0),))
    return build_world(tmp_path_factory.mktemp("making"), train=1, heldout=12, seed=11, recipe=recipe)


@pytest.fixture(scope="session")
def asked(making_world: World) -> list[VideoQA]:
    """Their rows, each with an id that its question names."""
    rows = load_rows([making_world.heldout])[0]
    return [replace(qa, id=f"q{n}", question=f"[q{n}] {qa.question}") for n, qa in enumerate(rows)]


@pytest.fixture(scope="session")
def data(asked: list[VideoQA], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps(qa.to_row()) + "\n" for qa in asked))
    return path


@lru_cache
def system_of(name: str) -> System:
    """A system as its laptop profile has it."""
    return settings_of(composed(name, "laptop")).system


def oracle_turns(name: str, qa: VideoQA, letter: str = "") -> tuple[str, ...]:
    """The turns of a system's oracle; with a letter it answers that."""
    view = EpisodeView(qa, asyncio.run(Video.open(qa.video, FrameStore())))
    letter = letter or qa.answer
    word = qa.options["ABCDEFGH".index(letter)] if qa.options else str(qa.extra["answer_text"])
    return turns_of(system_of(name))(view, math.floor(qa.extra["event_time"]), word, letter)


def wrong_letter(qa: VideoQA) -> str:
    """An option that isn't right."""
    return "A" if qa.answer != "A" else "B"


def command(name: str, what: str, url: str, source: Path, out: Path, *more: str) -> list[str]:
    """The arguments of a distillation or a reflection."""
    files = "--data" if what == "distill" else "--rollouts"
    recipe = ["--recipe", str(RECIPES / name), "--profile", "laptop"]
    return [what, *recipe, "--teacher", url, files, str(source), "--out", str(out), *more]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
