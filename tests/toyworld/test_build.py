from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.toyworld import build
from agentic_video.toyworld.build import ToyPaths, ToyRecipe, ensure
from agentic_video.toyworld.cold_start import ColdStartRecipe
from agentic_video.toyworld.gate import GateError, GateLimits, GateReport, check, measure
from agentic_video.toyworld.laptop import laptop_system
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.world import WorldRecipe


def test_any_setting_changes_the_key() -> None:
    recipe = ToyRecipe()
    others = [
        replace(recipe, train=recipe.train + 1),
        replace(recipe, world=replace(recipe.world, fps=8)),
        replace(recipe, cold_start=replace(recipe.cold_start, seed=1)),
        replace(recipe, gate=GateLimits(grammar=0.5)),
    ]
    assert recipe.key == ToyRecipe().key
    assert len({recipe.key, *(other.key for other in others)}) == 5


def test_a_build_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def half(paths: ToyPaths, recipe: ToyRecipe) -> None:
        built.append(paths.folder)
        (paths.folder / "half").write_text("done")
        if len(built) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(build, "_build", half)
    with pytest.raises(KeyboardInterrupt):
        ensure(tmp_path)
    assert not list(tmp_path.iterdir())
    paths = ensure(tmp_path)
    assert (paths.folder / "half").exists()
    assert ensure(tmp_path) == paths
    assert len(built) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == [ToyRecipe().key]


def test_the_gate_refuses_an_untrained_model(checkpoint: Path, small_world: World, recipe: WorldRecipe) -> None:
    with pytest.raises(GateError, match=r"grammar 0\.\d+, needed >= 0\.75 \(raise steps.*perception"):
        check(checkpoint, small_world.heldout, laptop_system(recipe.overview_frames))


def test_figures_of_an_untrained_model(checkpoint: Path, small_world: World, recipe: WorldRecipe) -> None:
    report = measure(checkpoint, small_world.heldout, laptop_system(), questions=8, samples=2)
    assert isinstance(report, GateReport)
    assert report.episodes == 16
    assert 0 <= report.answered <= 0.5
    assert "16 sampled episodes" in str(report)


@pytest.mark.slow
def test_a_very_short_build(tmp_path: Path) -> None:
    recipe = ToyRecipe(
        train=4,
        heldout=8,
        world=WorldRecipe(max_seconds=65),
        cold_start=ColdStartRecipe(demonstrations=200, practice_steps=30, steps=30),
        gate=GateLimits(grammar=0.0, perception=0.0, margin=-1.0, max_accuracy=1.0),
    )
    paths = ensure(tmp_path, recipe)
    for path in (paths.train, paths.heldout, paths.model / "model.safetensors", paths.report):
        assert path.is_file()
