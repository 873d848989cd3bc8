from pathlib import Path

import pytest

from agentic_video.config.compose import compose_recipe, find_recipe
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES, composed


def test_a_recipe_stands_on_verl_s_own_config() -> None:
    config = compose_recipe(RECIPES / "framethinker", "laptop", ["trainer.save_freq=7"])
    assert config.trainer.save_freq == 7 and "use_kl_in_reward" in config.algorithm
    assert config.agentic_video.system._target_.endswith("FrameThinker")


def test_what_the_tests_take_for_it_is_the_same() -> None:
    overrides = ["trainer.save_freq=7", "+trainer.extra.note=[1,2]", "~trainer.project_name"]
    profile = "+profile=rehearsal"
    assert composed("eva", "cluster", *overrides) == compose_recipe(RECIPES / "eva", "cluster", overrides)
    overrides = [profile, "actor_rollout_ref.rollout.n=3"]
    assert composed("eva", "cluster", *overrides) == compose_recipe(RECIPES / "eva", "cluster", overrides)


@pytest.mark.parametrize(
    ("profile", "override", "message"),
    [
        ("none", "trainer.save_freq=1", "framethinker: no recipe with config/none.yaml"),
        (
            "laptop",
            "trainer.no_such=1",
            r"^trainer\.no_such: no such key; did you mean trainer\.nnodes\? \(\+trainer\.no_such",
        ),
        ("laptop", "+trainer.save_freq=1", r"^Could not append .*: '\+\+trainer\.save_freq=1'$"),
    ],
)
def test_what_does_not_compose_is_named(profile: str, override: str, message: str) -> None:
    with pytest.raises(SetupError, match=message) as caught:
        compose_recipe(RECIPES / "framethinker", profile, [override])
    assert "\n" not in str(caught.value)


def test_a_recipe_is_found_from_anywhere_and_one_s_own_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe("eva") == RECIPES / "eva"
    mine = tmp_path / "recipes" / "eva" / "config"
    mine.mkdir(parents=True)
    assert find_recipe("eva") == mine.parent
    with pytest.raises(
        SetupError,
        match="--system moments: no such recipe; there are eva, framemind, framethinker, longvt, paravt, ",
    ):
        find_recipe("moments")
