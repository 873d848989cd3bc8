"""No strategy that knows nothing earns more than a blind guess, but by published rules."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.rewards.audit import Result, Setting, audit, pays_more, settings, unexplained
from benchmarks.rewards.strategies import EXPLAINED, PLAYED, Strategy

SETTINGS = list(settings())


def _strategies(setting: Setting) -> dict[str, Strategy]:
    return {strategy.name: strategy for strategy in PLAYED[setting.rows]}


def _played(setting: Setting, names: list[str], episodes: int) -> list[Result]:
    async def play() -> list[Result]:
        known = _strategies(setting)
        return [await audit(setting, known[name], episodes, seed=0) for name in names]

    return asyncio.run(play())


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_nothing_pays_more_than_a_guess_but_by_published_rules(setting: Setting) -> None:
    results = _played(setting, [name for name, one in _strategies(setting).items() if one.knows == "nothing"], 40)
    assert unexplained(results) == []


@pytest.mark.parametrize("setting", SETTINGS, ids=[setting.name for setting in SETTINGS])
def test_who_knows_the_answer_earns_most(setting: Setting) -> None:
    results = _played(setting, list(_strategies(setting)), 10)
    honest = max(one.reward for one in results if one.knows == "right")
    assert honest == max(one.reward for one in results)
    # by hand: accuracy, format and the bonus of the tool; of direct questions, the answer without a tool
    expected = {
        "videozoomer": 0.9 + 0.1 + 0.5,
        "framethinker": 1.0 + 0.02,
        "framemind": 1.0 + 1.2 + 0.5,
        "videobrain, direct question": 0.05 + 1.0 + 0.5,
        "videobrain, adaptive question": 0.05 + 1.0 + 0.5,
        "videobrain, active question": 0.05 + 1.0 + 0.5,
        "eva": 1.0,
        "videoo3": 1.0 + 1.0 + 0.5,
        "paravt": 1.0 + 1.0 + 0.6,
        "timesearch": 1.0 + 0.5 + 0.5,
        "longvt": 1.0 + 1.0,  # its rows have no windows
        "videoo3, with evidence": 1.0 + 1.0 + 1.0,
        "videoo3, interval": 1.0 + 1.0,
        "paravt, with evidence": 1.0 + 1.0 + 0.6,
        "paravt, interval": 1.0 + 1.0 + 0.6,
        "timesearch, with evidence": 1.0 + 0.5 + 0.5,
        "timesearch, interval": 1.0 + 0.5 + 0.5,
        "longvt, with evidence": 1.0 + 1.0 + 1.0,
        "longvt, interval": 1.0 + 1.0,  # the window is the answer, not evidence
    }
    assert honest == pytest.approx(expected[setting.name])


def test_the_released_rule_pays_for_two_answers() -> None:
    setting = SETTINGS[0]
    system: Any = setting.case.system
    released = replace(setting, case=replace(setting.case, system=replace(system, answer_match="last_letter")))
    results = _played(released, ["blind guess", "a letter, and another one boxed"], 1000)
    assert [one.strategy for one in unexplained(results)] == ["a letter, and another one boxed"]
    # right half of the time: 0.9 / 2 + 0.1
    assert results[1].reward == pytest.approx(0.55, abs=0.05)


def test_what_pays_more_is_told_from_chance() -> None:
    def result(strategy: str, reward: float, knows: str = "nothing") -> Result:
        return Result("eva", strategy, knows, reward, 0.01, 0.0, {}, {})

    guess = result("blind guess", 0.25)
    more = [result("all letters", 0.35), result("only looks", 0.28), result("the right answer at once", 1.0, "right")]
    assert [one.strategy for one in pays_more([guess, *more])] == ["all letters"]


def test_each_explanation_is_of_a_strategy_and_a_system() -> None:
    known = {(setting.case.system.name, name) for setting in SETTINGS for name in _strategies(setting)}
    assert set(EXPLAINED) <= known
