import re
import shutil
from collections.abc import Callable, Sequence
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
    file.write_text(text.replace("train_batch_size: 64", "train_batch_size: 640"), encoding="utf-8")
    after = compose_recipe(tmp_path / "eva", "cluster")
    assert (before.data.train_batch_size, after.data.train_batch_size) == (64, 640)


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
        SetupError, match="--system moments: no such recipe; there are eva, framemind, framethinker, longvt, paravt, "
    ):
        find_recipe("moments")


def changed(folder: Path, change: Callable[[str], str]) -> Path:
    """A recipe with another ``laptop.yaml``."""
    shutil.copytree(RECIPES / "eva" / "config", folder / "config")
    file = folder / "config" / "laptop.yaml"
    file.write_text(change(file.read_text(encoding="utf-8")), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("trainer:\n\tsave_freq: 1\n", 2, "a tab; YAML is indented with spaces"),
        ("trainer:\n  save_freq: 1\n    test_freq: 1\n", 3, "mapping values are not allowed here"),
        ("trainer: {a: 1\ndata: 2\n", 2, "expected ',' or '}', but got ':'"),
        ("data:\n  seed: 1\n  seed: 2\n", 3, "found duplicate key seed"),
    ],
)
def test_a_file_that_is_no_yaml_is_named_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    recipe = changed(tmp_path, lambda _: text)
    with pytest.raises(SetupError, match=rf"laptop\.yaml line {line}: {re.escape(said)}$") as caught:
        compose_recipe(recipe, "laptop", ["trainer.save_freq=1"])
    assert str(caught.value).startswith(str(recipe)) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("block", "key"),
    [
        ("trainr:\n  save_freq: 3\n", "trainr"),
        ("agentic_vidoe:\n  credit: turn\n", "agentic_vidoe"),
        ("critic:\n  optim:\n    weight_decai: 1\n", "critic.optim.weight_decai"),
    ],
)
def test_a_misspelt_key_of_a_recipe_is_named(tmp_path: Path, block: str, key: str) -> None:
    recipe = changed(tmp_path, lambda text: f"{text}\n{block}")
    with pytest.raises(SetupError, match=r"laptop\.yaml line [0-9]+: ") as refused:
        compose_recipe(recipe, "laptop")
    assert refused.value.key == key


@pytest.mark.parametrize(
    "block",
    [
        "mine:\n  trainer_notes: 3\n",  # a key that nothing reads
        "mine:\n  trainer: 3\n  trainers: 4\n",  # in a block of one's own
        "critic:\n  optim:\n    betas_of_mine: 1\n",
        "ray_kwargs:\n  ray_init:\n    num_gpus: 1\n",  # one of Ray's, in a block that lists only some
        "critic:\n  ppo_micro_batch_sise: 4\n  ppo_micro_batch_size_per_gpu: ${critic.ppo_micro_batch_sise}\n",
    ],
)
def test_a_custom_key_is_allowed(tmp_path: Path, block: str) -> None:
    compose_recipe(changed(tmp_path, lambda text: f"{text}\n{block}"), "laptop")


def test_a_key_that_a_recipe_s_code_reads_is_left_alone(tmp_path: Path) -> None:
    recipe = changed(tmp_path, lambda text: f"{text}\ncritic:\n  forward_micro_batch_sizes: [1]\n")
    with pytest.raises(SetupError) as refused:
        compose_recipe(recipe, "laptop")
    assert refused.value.key == "critic.forward_micro_batch_sizes"
    (recipe / "mine.py").write_text("sizes = config['forward_micro_batch_sizes']", encoding="utf-8")
    file = recipe / "config" / "laptop.yaml"
    file.write_text(f"{file.read_text(encoding='utf-8')}# read again\n", encoding="utf-8")
    compose_recipe(recipe, "laptop")
