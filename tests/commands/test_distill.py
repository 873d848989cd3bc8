from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.commands import distill
from agentic_video.evaluation.engine import SCRIPTED
from tests.commands.conftest import Ask


def test_without_a_teacher_a_scripted_one_plays(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []

    def build(recipe: Path, overrides: Sequence[str], *, model: str) -> dict[str, str]:
        built.append((recipe.name, tuple(overrides), model))
        return {"train": "/t.parquet", "heldout": "/h.parquet", "clip": "/c"}

    monkeypatch.setattr(distill, "build_toyworld", build)
    monkeypatch.setattr(distill, "count_gpus", lambda: 0)
    options = ask(distill, "distill", "--system", "framemind", "--out", "o", "trainer.save_freq=1")
    assert options.engine == SCRIPTED and options.profile == "laptop" and options.single_teacher
    assert options.data == (Path("/t.parquet"),) and built == [("framemind", ("trainer.save_freq=1",), "none")]
    assert options.overrides == ("agentic_video.retrieval.model='local-dir:/c'", "trainer.save_freq=1")
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
