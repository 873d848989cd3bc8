"""What an evaluation is asked for is checked before anything is loaded."""

from pathlib import Path
from typing import Any

import pytest

from agentic_video.evaluation.model import ModelOptions
from agentic_video.evaluation.options import EvalOptions, Sweep, Variant, read_sweep
from agentic_video.utils.errors import SetupError
from tests.evaluation.conftest import RECIPES

MODEL = ModelOptions("m", "vllm")


def options(**changes: Any) -> EvalOptions:
    """An evaluation of one file of rows."""
    return EvalOptions(**{"recipe": RECIPES / "eva", "model": MODEL, "data": (Path("rows/mlvu.jsonl"),), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"overrides": ("a=1", "stray")}, "stray: neither an option nor a Hydra override (key=value)"),
        ({"concurrency": 0}, "--concurrency must be at least 1"),
        ({"shards": 0}, "--shards must be at least 1"),
        ({"recipe": RECIPES}, f"{RECIPES}: no recipe (a folder with config/laptop.yaml or config/cluster.yaml)"),
    ],
)
def test_what_makes_no_sense_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError) as caught:
        options(**changes)
    assert str(caught.value) == message


def test_overrides_may_also_remove_a_key() -> None:
    assert options(overrides=("~a.b", "c=1", "+d=2")).overrides == ("~a.b", "c=1", "+d=2")


def test_names_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    assert options().benchmark_name == "mlvu" and options(benchmark="b").benchmark_name == "b"
    below = tmp_path.resolve() / "eva-eval" / "mlvu"
    assert options().folder == below / "agent"
    assert options(variant=Variant("no-tools")).folder == below / "no-tools"
    assert options(variant=Variant("baseline", 64)).folder == below / "baseline-64"
    thinking = Variant("baseline", 64, "baseline_cot")
    assert options(variant=thinking).folder == below / "baseline_cot-64" and thinking.curve == "baseline_cot"
    assert Variant("baseline", 64).curve == "baseline" and Variant("no-tools").curve == "no-tools"
    with pytest.raises(SetupError, match="--baseline-prompt nowhere"):
        Variant("baseline", 64, "nowhere")
    sweep = Sweep("frames", (1, 2))
    assert options(variant=Variant("baseline", 64), sweep=sweep).folder == below / "sweep"
    assert options(out=tmp_path / "x" / ".." / "here", sweep=sweep).folder == tmp_path.resolve() / "here"


def test_the_values_of_a_sweep() -> None:
    assert read_sweep("calls", "4,0,2,2") == Sweep("calls", (0, 2, 4))
    assert read_sweep("frames", "8") == Sweep("frames", (8,))
    assert read_sweep("frames", "0,1") == Sweep("frames", (0, 1))
    for text in ("8,x", "", "-1,1", "1.5"):
        with pytest.raises(SetupError, match=r"expected whole numbers from 0 to 100000000, e\.g\. frames 1,2,4"):
            read_sweep("frames", text)
    with pytest.raises(SetupError, match=r"expected whole numbers from 0 to 100000000, e\.g\. calls 1,2,4"):
        read_sweep("calls", "-1")
    with pytest.raises(SetupError, match="--sweep frames 8,999999999: expected whole numbers from 0 to 100000000"):
        read_sweep("frames", "8,999999999")
    with pytest.raises(SetupError, match="--sweep turns: there are frames and calls"):
        read_sweep("turns", "1")
