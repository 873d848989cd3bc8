import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agentic_video.config import compose
from agentic_video.config.compose import CHOICE, compose_recipe, find_recipe
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES


def test_a_recipe_stands_on_verl_s_own_config() -> None:
    config = compose_recipe(RECIPES / "framethinker", "laptop", ["trainer.save_freq=7"])
    assert config.trainer.save_freq == 7 and "use_kl_in_reward" in config.algorithm
    assert config.agentic_video.system._target_.endswith("FrameThinker")


@pytest.mark.parametrize(
    ("overrides", "directly"),
    [
        (["trainer.save_freq=7", "+trainer.extra.note=[1,2]", "agentic_video.system.max_turns=3"], True),
        (["+profile=rehearsal", "actor_rollout_ref.rollout.n=3", "trainer.logger=[console]"], True),
        (["+trainer.extra={a: {b: 1}}", "+trainer.extra.a.c='x, y'", "data.train_files='${data.val_files}'"], True),
        (["~trainer.project_name", "trainer.save_freq=7"], False),
        (["++trainer.save_freq=7", "++trainer.other=7"], True),
        (["model@actor_rollout_ref.model=hf_model"], False),
    ],
)
def test_files_that_were_read_are_not_read_again(
    overrides: list[str], directly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overrides of values give what Hydra gives; for others it is asked."""
    stock = compose._compose(RECIPES / "eva", "cluster", overrides)
    chosen = [text for text in overrides if text.startswith(CHOICE)]
    before = compose_recipe(RECIPES / "eva", "cluster", chosen)
    asked: list[Sequence[str]] = []
    monkeypatch.setattr(compose, "_compose", lambda *words: asked.append(words[2]) or stock)
    ours = compose_recipe(RECIPES / "eva", "cluster", overrides)
    assert ours == stock and asked == ([] if directly else [overrides])
    assert OmegaConf.is_struct(ours)
    assert compose_recipe(RECIPES / "eva", "cluster", chosen) == before  # a config is the caller's own


def test_a_file_that_was_changed_is_read_again(tmp_path: Path) -> None:
    shutil.copytree(RECIPES / "eva", tmp_path / "eva")
    file = tmp_path / "eva" / "config" / "cluster.yaml"
    text = file.read_text(encoding="utf-8")
    before = compose_recipe(tmp_path / "eva", "cluster")
    file.write_text(text.replace("max_prompt_length: 4096", "max_prompt_length: 40960"), encoding="utf-8")
    after = compose_recipe(tmp_path / "eva", "cluster")
    assert (before.data.max_prompt_length, after.data.max_prompt_length) == (4096, 40960)


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
