"""Each system's oracle, aimed right, sees the event; what it misses is described."""

from dataclasses import replace

import pytest

from agentic_video.config.settings import settings_of
from agentic_video.systems.videozoomer.oracle import turns as videozoomer
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.toyworld.build.cache import taught
from agentic_video.toyworld.build.gate import GateError, GateLimits
from agentic_video.toyworld.build.recipe import ToyRecipe, toy_recipe
from agentic_video.toyworld.build.rehearsal import check_oracle, rehearse
from agentic_video.toyworld.oracles import turns_of
from tests.config.configs import RECIPES, SYSTEMS, composed
from tests.toyworld.conftest import laptop_setting


@pytest.mark.parametrize("profile", ["", "search", "grounding"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_every_published_system_s_looks_show_the_event(system: str, profile: str) -> None:
    if profile and not (RECIPES / system / "config" / "profile" / f"{profile}.yaml").is_file():
        pytest.skip("has no such profile")
    more = [f"+profile={profile}"] if profile else []
    config = composed(system, "laptop", "data.train_files=none", "data.val_files=none", *more)
    recipe, played = toy_recipe(config), taught(settings_of(config).system)
    found = check_oracle(played, turns_of(played, recipe.oracle), recipe)
    assert found.episodes >= 30 and found.saw_event == found.answered == found.episodes
    assert not found.refused and not found.first_miss


def _late(view, aim, word, letter, seen=""):  # type: ignore[no-untyped-def]
    return videozoomer(view, None if aim is None else min(aim + 5, view.video.info.duration - 3), word, letter, seen)


def test_an_oracle_that_aims_wrong_is_described() -> None:
    system, recipe = laptop_setting("videozoomer").system, ToyRecipe()
    found = rehearse(system, _late, recipe)
    assert found.saw_event < found.episodes / 2 and found.answered == found.episodes
    assert " s was missed: its calls showed " in found.first_miss
    with pytest.raises(GateError) as caught:
        check_oracle(system, _late, recipe)
    assert "\n" not in str(caught.value)
    # who means it says so by the key that the message names
    assert check_oracle(system, _late, replace(recipe, gate=GateLimits(saw_event=0.0))).share == found.share


def test_calls_that_are_refused_are_counted() -> None:
    system = laptop_setting("videozoomer").system
    assert isinstance(system, VideoZoomer)
    found = rehearse(replace(system, max_turns=1), videozoomer, ToyRecipe())
    assert found.saw_event == 0 and "showed no frame" in found.first_miss
