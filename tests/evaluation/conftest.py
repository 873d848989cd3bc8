from pathlib import Path

import pytest

from tests.toyworld.conftest import checkpoint, recipe, small_world, tokenizer

__all__ = ["checkpoint", "recipe", "small_world", "tokenizer"]

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(autouse=True)
def quiet_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subprocesses of these tests share few cores with everything else."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.delenv("MODEL_PATH", raising=False)


def command(checkpoint: Path, data: Path, out: Path, *more: str) -> list[str]:
    """The words of an evaluation."""
    words = ["eval", "--recipe", str(RECIPES / "videozoomer"), "--model", str(checkpoint)]
    return [*words, "--data", str(data), "--out", str(out), *more]
