"""A format that no first episode keeps is an alarm with its most likely cause."""

from typing import Any

import pytest

from agentic_video.report.format_alarm import ALARM, CAUSES, PREFIX, FormatAlarm, alarms_of


def episode(*texts: str, end: str = "answer") -> dict[str, Any]:
    return {"turns": [{"text": text} for text in texts], "end": end}


GOOD = episode("<think>a</think><answer>B</answer>")
SHOWN = {
    "begins_twice": episode("<think>\n<think>a</think><answer>B</answer>"),
    "never_opened": episode("a</think><answer>B</answer>"),
    "cut": episode("<think>a", end="token_budget"),
    "thoughtless": episode("B"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_likely_cause_is_named(cause: str) -> None:
    alarm = FormatAlarm(10)
    assert alarm.step([(0.0, SHOWN[cause])] * 6) == ({}, "")
    metrics, text = alarm.step([(0.0, SHOWN[cause])] * 5)
    assert metrics[ALARM] == 1.0 and metrics[PREFIX + "episodes"] == 11.0 and metrics[PREFIX + cause] == 1.0
    assert CAUSES[cause][1] in text and sum(what in text for _, what in CAUSES.values()) == 1
    assert alarm.step([(0.0, SHOWN[cause])] * 20) == ({}, "")
    assert alarms_of({1: {"episode/format": 0.0}, 2: metrics, 3: {}}) == [text]


def test_without_a_cause_that_most_show_it_is_the_checkpoint() -> None:
    metrics, text = FormatAlarm(4).step([(0.0, GOOD)] * 4)
    assert metrics[ALARM] == 1.0 and text and not any(what in text for _, what in CAUSES.values())


def test_a_format_that_some_keep_is_no_alarm() -> None:
    # 1 of 20 is 0.05: enough
    metrics, text = FormatAlarm(20).step([(0.4, GOOD), *[(0.0, SHOWN["thoughtless"])] * 19])
    assert metrics[ALARM] == 0.0 and text == "" and alarms_of({1: metrics}) == []
    assert FormatAlarm(0).step([(0.0, GOOD)] * 50) == ({}, "")
    assert FormatAlarm(1).step([(0.0, episode())])[0][ALARM] == 1.0
