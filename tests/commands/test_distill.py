from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.commands import distill
from agentic_video.commands.engine import SCRIPTED
from agentic_video.synthesis.team import TeamOptions
from tests.commands.conftest import Ask
from tests.config.configs import RECIPES

WORDS = ("--system", "framemind", "--data", "a.jsonl", "--teacher", "http://h/v1", "--teacher-name", "m", "--out", "o")


def test_what_is_asked_for(ask: Ask) -> None:
    options = ask(distill, "distill", *WORDS, "--data", "b.jsonl", "--samples", "3", "trainer.seed=9")
    assert options.data == (Path("a.jsonl"), Path("b.jsonl")) and options.samples == 3 and options.min_acc == 1.0
    assert (options.teacher.recipe, options.teacher.overrides) == (
        RECIPES / "framemind",
        ("trainer.seed=9",),
    )
    assert options.critic is None and options.team == TeamOptions()


def test_a_critic_and_one_teacher_alone(ask: Ask) -> None:
    options = ask(distill, "distill", *WORDS, "--critic", "http://c/v1", "--critic-model", "c", "--single-teacher")
    assert (options.critic.url, options.critic.name, options.team) == ("http://c/v1", "c", None)


def test_without_a_teacher_a_scripted_one_plays(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []

    def build(recipe: Path, overrides: Sequence[str], *, model: str) -> dict[str, str]:
        built.append((recipe.name, tuple(overrides), model))
        return {"train": "/t.parquet", "heldout": "/h.parquet", "clip": "/c"}

    monkeypatch.setattr(distill, "build_toyworld", build)
    monkeypatch.setattr(distill, "count_gpus", lambda: 0)
    options = ask(distill, "distill", "--system", "framemind", "--out", "o", "trainer.save_freq=1")
    assert options.teacher.model.engine == SCRIPTED and options.teacher.profile == "laptop" and options.team is None
    assert options.data == (Path("/t.parquet"),) and built == [("framemind", ("trainer.save_freq=1",), "none")]
    assert options.teacher.overrides == ("agentic_video.retrieval.model='local-dir:/c'", "trainer.save_freq=1")
    # rows of one's own need nothing built
    options = ask(distill, "distill", "--system", "framemind", "--data", "mine.jsonl", "--out", "o")
    assert options.data == (Path("mine.jsonl"),) and len(built) == 1


@pytest.mark.parametrize(("gpus", "words"), [(8, ()), (0, ("--profile", "cluster"))])
def test_the_papers_job_wants_a_real_teacher(
    gpus: int, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(distill, "count_gpus", lambda: gpus)
    assert main(["distill", "--system", "framemind", "--out", "o", *words]) == 2
    assert capsys.readouterr().err.startswith("error: name a teacher with --teacher")
