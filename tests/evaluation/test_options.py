"""Options of an evaluation, checked before anything is loaded."""

from pathlib import Path
from typing import Any

import pytest

from agentic_video.evaluation.options import EvalOptions, Sweep, Variant, read_sweep
from agentic_video.utils.errors import SetupError
from tests.evaluation.conftest import RECIPES


def options(**changes: Any) -> EvalOptions:
    """An evaluation of one file of rows."""
    return EvalOptions(recipe=RECIPES / "eva", model="m/m", data=(Path("rows/mlvu.jsonl"),), **changes)


def test_names_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    assert options().benchmark_name == "mlvu" and options(benchmark="b").benchmark_name == "b"
    below = tmp_path.resolve() / "eva-eval" / "mlvu"
    assert options().folder == below / "agent"
    assert options(no_tools=True).folder == below / "no-tools"
    assert options(baseline=64).folder == below / "baseline-64"
    thinking = options(baseline=64, baseline_prompt="baseline_cot")
    assert thinking.folder == below / "baseline_cot-64" and thinking.variant.curve == "baseline_cot"
    assert options(baseline=64).variant.curve == "baseline" and options(no_tools=True).variant.curve == "no-tools"
    with pytest.raises(SetupError, match="--baseline-prompt nowhere"):
        Variant("baseline", 64, "nowhere")
    sweep = ("frames", "1,2")
    assert options(baseline=64, sweep=sweep).folder == below / "sweep"
    assert options(out=tmp_path / "x" / ".." / "here", sweep=sweep).folder == tmp_path.resolve() / "here"


def test_the_values_of_a_sweep() -> None:
    assert read_sweep("calls", "4,0,2,2") == Sweep("calls", (0, 2, 4))
    assert read_sweep("frames", "8") == Sweep("frames", (8,))
    assert read_sweep("frames", "0,1") == Sweep("frames", (0, 1))
    bad = [("frames", text) for text in ("8,x", "", "-1,1", "1.5", "8,999999999")]
    for kind, text in (*bad, ("calls", "-1"), ("turns", "1")):
        with pytest.raises(SetupError) as caught:
            read_sweep(kind, text)
        assert caught.value.key == "--sweep"
