"""The config's block ``agentic_video`` as typed settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from agentic_video.config.settings import Settings, settings_of
from agentic_video.systems.videozoomer import VideoZoomer

SYSTEM = {"_target_": "agentic_video.systems.videozoomer.system.VideoZoomer"}


def settings(**log: object) -> Settings:
    return settings_of(OmegaConf.create({"agentic_video": {"system": SYSTEM, **({"log": log} if log else {})}}))


def test_pictures_have_a_default_and_can_be_turned_off() -> None:
    assert settings().log.validation_pictures == 3
    assert settings(validation_pictures=0).log.validation_pictures == 0


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("validation_pictures", -1, r"agentic_video\.log: validation_pictures must be from 0 to 64, got -1"),
        ("validation_pictures", 65, "got 65"),
        ("pictures", 1, r"agentic_video\.log\.pictures: unknown key"),
    ],
)
def test_a_bad_value_is_named(key: str, value: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**{key: value})


def block(**system: object) -> DictConfig:
    return OmegaConf.create({"agentic_video": {"system": {**SYSTEM, **system}}})


def test_nested_constants_need_no_class_of_their_own() -> None:
    system: Any = settings_of(block(weights={"tool": 0.25})).system
    assert (system.weights.tool, system.weights.acc) == (0.25, 0.9)


def test_a_nested_class_of_one_s_own() -> None:
    target = "agentic_video.systems.videozoomer.VideoZoomerWeights"
    system: Any = settings_of(block(weights={"_target_": target, "acc": 1.0})).system
    assert system.weights.acc == 1.0


def test_lists_become_tuples() -> None:
    system: Any = settings_of(block(stop=["</x>"])).system
    assert system.stop == ("</x>",)


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ({"max_trun": 3}, r"agentic_video\.system\.max_trun: unknown key; did you mean max_turns\?"),
        ({"weights": {"tol": 1}}, r"agentic_video\.system\.weights\.tol: unknown key; did you mean tool\?"),
        ({"weights": 3}, r"agentic_video\.system\.weights: expected keys and values, got 3"),
        ({"overview": "some"}, r"agentic_video\.system\.overview: expected one of uniform, "),
        ({"prompt": "nofile.txt"}, r"agentic_video\.system\.prompt: prompt 'nofile\.txt' is neither one of "),
        (
            {"min_pixels": 200_000},
            r"agentic_video\.system: max_pixels \(100352\) must be at least min_pixels",
        ),
        (
            {"_target_": "agentic_video.systems.framethinker.FrameThinker", "guard": {"prompt": "no such"}},
            r"agentic_video\.system\.guard\.prompt: prompt 'no such' is neither",
        ),
        (
            {"_target_": "agentic_video.systems.eva.Eva", "reminder": "Now: {questoin}"},
            r"agentic_video\.system\.reminder: \{questoin\} isn't filled in; did you mean question\?",
        ),
        ({"_target_": "agentic_video.systems.Nothing"}, r"agentic_video\.system\._target_: "),
        ({"_target_": "agentic_video.types.row.VideoQA"}, r"agentic_video\.system\._target_: .* is not a System"),
    ],
)
def test_mistakes_are_named(system: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of(block(**system))


def test_a_reward_of_one_s_own_is_part_of_the_settings() -> None:
    config = OmegaConf.create(
        {"agentic_video": {"system": SYSTEM, "reward": {"path": "a.py", "name": "f", "reward_kwargs": {"x": [1]}}}}
    )
    reward = settings_of(config).reward
    assert (reward.path, reward.name, reward.mode, reward.reward_kwargs) == ("a.py", "f", "replace", {"x": [1]})


@dataclass(frozen=True)
class Prefixed(VideoZoomer):
    reply_prefix: str = ""
    max_asides: int = 3


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (
            {"reply_prefix": "a</video_zoom>"},
            r"agentic_video\.system\.reply_prefix holds '</video_zoom>', which ends a",
        ),
        ({"max_asides": -1}, r"agentic_video\.system\.max_asides must be at least 0, got -1"),
    ],
)
def test_what_no_episode_can_have_is_refused(system: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of(block(**{"_target_": f"{__name__}.Prefixed", **system}))


@dataclass(frozen=True)
class Forgetful(VideoZoomer):
    context: str = "latest"  # type: ignore[assignment]


def test_a_default_that_no_system_may_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^agentic_video\.system\.context: expected one of all, .*, got 'latest'$"):
        settings_of(block(**{"_target_": f"{__name__}.Forgetful"}))


def sft(**values: object) -> Settings:
    return settings_of(OmegaConf.create({"agentic_video": {"system": SYSTEM, "sft": values}}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss_turns": "first"}, r"agentic_video\.sft: loss_turns must be all, last, last_N or row, got 'first'"),
        ({"loss_turns": "last_0"}, "got 'last_0'"),
        ({"loss_tags": ["<answer>"]}, "'<answer>' is no tag's name"),
        ({"hidden": [["answer", "0", "opening"]], "hidden_probability": 0.1}, "expected last or a number from 1"),
        ({"hidden": [["answer", "last", "all"]], "hidden_probability": 0.1}, r"agentic_video\.sft\.hidden: expected"),
        ({"hidden": [["answer", "last", "opening"]]}, "need each other"),
        ({"hidden_probability": 1.5}, "must be from 0 to 1"),
        ({"turns": "all"}, r"agentic_video\.sft\.turns: unknown key"),
    ],
)
def test_mistakes_about_sft_are_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sft(**values)


def test_what_sft_learns() -> None:
    assert settings().sft.loss_turns == "all" and settings().sft.hidden == ()
    given = sft(loss_turns="last_12", hidden=[["answer", "last", "opening"]], hidden_probability=0.1).sft
    assert (given.loss_turns, given.hidden) == ("last_12", (("answer", "last", "opening"),))


@dataclass(frozen=True)
class Limited(VideoZoomer):
    """A system that says which rollouts aren't trained on."""

    untrained_ends: tuple[str, ...] = ("turn_limit", "token_budget")


def test_ends_that_are_not_trained_on_must_exist() -> None:
    assert settings().system.untrained_ends == ()
    target = "tests.config.test_settings.Limited"
    assert settings_of(block(_target_=target)).system.untrained_ends == ("turn_limit", "token_budget")
    with pytest.raises(ValueError, match=r"agentic_video\.system\.untrained_ends: 'late' is no reason .* turn_limit"):
        settings_of(block(_target_=target, untrained_ends=["late"]))


def test_credit_by_turn_needs_one_sequence_an_episode() -> None:
    def credit(value: str, system: str = SYSTEM["_target_"]) -> Settings:
        return settings_of(OmegaConf.create({"agentic_video": {"system": {"_target_": system}, "credit": value}}))

    assert settings().credit == "trajectory" and credit("turn").credit == "turn"
    with pytest.raises(ValueError, match=r"agentic_video\.credit must be one of trajectory, turn, got 'token'"):
        credit("token")
    with pytest.raises(ValueError, match=r"agentic_video\.credit=turn: framemind has a sequence for each turn"):
        credit("turn", "agentic_video.systems.framemind.system.FrameMind")


def test_credit_by_turn_has_no_place_for_asides() -> None:
    def paravt(credit: str, asides: bool) -> Settings:
        system = {"_target_": "agentic_video.systems.paravt.system.ParaVT", "train_asides": asides}
        return settings_of(OmegaConf.create({"agentic_video": {"system": system, "credit": credit}}))

    assert paravt("trajectory", True) and paravt("turn", False)
    with pytest.raises(ValueError, match=r"agentic_video\.credit=turn: agentic_video\.system\.train_asides=True makes"):
        paravt("turn", True)


@dataclass(frozen=True)
class Spoken(VideoZoomer):
    """A system whose prompt is the text itself."""

    prompt: str = "Look at these frames."


def test_a_prompt_may_be_a_file_or_a_text(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Look.")
    assert settings_of(block(prompt=str(tmp_path / "mine.txt"))).system.prompt
    target = "tests.config.test_settings.Spoken"
    assert settings_of(block(_target_=target)).system.prompt == "Look at these frames."
    with pytest.raises(ValueError, match=r"system\.prompt: prompt 'nofile\.txt'"):
        settings_of(block(_target_=target, prompt="nofile.txt"))
