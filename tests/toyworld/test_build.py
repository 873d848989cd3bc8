import asyncio
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from omegaconf import OmegaConf

from agentic_video.graders.verifier import Verifier, VerifierConfig
from agentic_video.toyworld import build
from agentic_video.toyworld.base import BaseRecipe
from agentic_video.toyworld.build import ensure
from agentic_video.toyworld.cache import once
from agentic_video.toyworld.cold_start import ColdStartRecipe
from agentic_video.toyworld.gate import GateError, GateLimits, GateReport, Setting, check, measure
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.recipe import ToyRecipe, toy_recipe
from agentic_video.toyworld.serve import serving
from agentic_video.toyworld.world import WorldRecipe
from agentic_video.types.frame import Frame
from tests.conftest import MemorySource


def test_the_configs_block_is_the_recipe() -> None:
    block = {"train": 7, "world": {"mixture": [["colour", 1.0]]}, "model": {"family": "qwen3_vl"}}
    recipe = toy_recipe(OmegaConf.create({"agentic_video": {"toyworld": block}}))
    assert (recipe.train, recipe.heldout) == (7, ToyRecipe().heldout)
    assert recipe.world.mixture == (("colour", 1.0),) and recipe.model.family == "qwen3_vl"
    assert toy_recipe(OmegaConf.create({"agentic_video": {}})) == ToyRecipe()
    with pytest.raises(ValueError, match=r"agentic_video\.toyworld\.world\.fsp: unknown key"):
        toy_recipe(OmegaConf.create({"agentic_video": {"toyworld": {"world": {"fsp": 1}}}}))


def test_a_build_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    built = []

    def half(folder: Path) -> None:
        built.append(folder)
        (folder / "half").write_text("done")
        if len(built) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once(tmp_path / "thing", half)
    assert not list(tmp_path.iterdir())
    assert (once(tmp_path / "thing", half) / "half").exists()
    assert once(tmp_path / "thing", half) == tmp_path / "thing"
    assert len(built) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["thing"]


def test_the_gate_refuses_an_untrained_model(checkpoint: Path, small_world: World, setting: Setting) -> None:
    with pytest.raises(GateError, match=r"grammar 0\.\d+, needed >= 0\.8 \(raise steps.*perception"):
        check(checkpoint, small_world.heldout, setting)


def test_figures_of_an_untrained_model(checkpoint: Path, small_world: World, setting: Setting) -> None:
    report = measure(checkpoint, small_world.heldout, setting, questions=8, samples=2)
    assert isinstance(report, GateReport)
    assert report.episodes == 16
    assert 0 <= report.answered <= 0.5
    assert sum(report.ends.values()) == pytest.approx(1.0)
    # A guess is right one time in four, and well formed: 0.9 / 4 + 0.1
    assert report.guess_reward == pytest.approx(0.325)
    assert "16 sampled episodes" in str(report)


def test_what_a_failed_gate_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: Setting) -> None:
    """World and base stay; the cold start is taught on from where it is, with another seed."""
    taught: list[tuple[int, bool]] = []

    def make_folder(folder: Path, *args: object, **kwargs: object) -> None:
        (folder / "made").touch()

    def make_model(folder: Path, start: Path, *args: object) -> None:
        folder.mkdir()
        taught.append((args[-2].seed, start.parent == tmp_path))  # type: ignore[attr-defined]

    def refuse(*args: object) -> None:
        raise GateError("unfit")

    monkeypatch.setattr(build, "build_world", make_folder)
    monkeypatch.setattr(build, "make_base", make_folder)
    monkeypatch.setattr(build, "make_cold_start", make_model)
    monkeypatch.setattr(build, "check", refuse)
    with pytest.raises(GateError):
        ensure(setting.system, setting.limits, ToyRecipe(attempts=2), tmp_path)
    # The first starts from the base model in the cache, the second from the first.
    assert taught == [(0, True), (1, False)]
    assert sorted(entry.name.split("-")[0] for entry in tmp_path.iterdir()) == ["base", "world"]


def test_other_systems_share_the_world_and_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: Setting
) -> None:
    for name in ("build_world", "make_base", "check"):
        monkeypatch.setattr(build, name, lambda *args, **kwargs: None)
    monkeypatch.setattr(build, "make_cold_start", lambda folder, *args: folder.mkdir())
    monkeypatch.setattr(build, "asdict", lambda one: {} if one is None else vars(one))
    first = ensure(setting.system, setting.limits, ToyRecipe(), tmp_path)
    second = ensure(replace(setting.system, max_turns=2), setting.limits, ToyRecipe(), tmp_path)  # type: ignore[type-var]
    third = ensure(setting.system, setting.limits, ToyRecipe(train=5), tmp_path)
    assert first.world == second.world != third.world
    assert first.base == second.base == third.base
    assert len({first.model, second.model, third.model}) == 3


def test_the_tiny_model_is_served(checkpoint: Path) -> None:
    frames: list[Frame] = asyncio.run(MemorySource().aframes("memory", [1, 2], (60, 40)))

    async def ask() -> str:
        async with serving(checkpoint) as url:
            async with httpx.AsyncClient() as client:
                wrong = await client.post(f"{url}/chat/completions", json={"messages": [{"role": "x", "content": 1}]})
                assert wrong.status_code == 400
            return await Verifier(VerifierConfig(base_url=url, model="toyworld")).ask("What colour?", frames)

    assert isinstance(asyncio.run(ask()), str)


@pytest.mark.slow
def test_a_very_short_build(tmp_path: Path, setting: Setting) -> None:
    recipe = ToyRecipe(
        train=4,
        heldout=8,
        world=WorldRecipe(max_seconds=45),
        base=BaseRecipe(reading=100, reading_steps=10),
        cold_start=ColdStartRecipe(demonstrations=200, aiming_steps=10, steps=30),
        gate=GateLimits(grammar=0.0, perception=0.0, margin=-2.0, max_accuracy=1.0),
    )
    paths = ensure(setting.system, setting.limits, recipe, tmp_path)
    for path in (paths.train, paths.heldout, paths.model / "model.safetensors", paths.model / "gate.json"):
        assert path.is_file()
