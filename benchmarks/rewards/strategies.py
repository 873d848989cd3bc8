"""Ways to play for reward: honest ones, and those that try to earn more than they know.

A strategy is a function of a question's facts that an agent could know (never the right answer, but for the honest
ones) and returns the texts of its turns. It is written in each system's own grammar, with the templates of the hostile
tests.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from agentic_video.types.row import LETTERS, VideoQA
from tests.hostile_cases import Case

Knows = Literal["right", "wrong", "nothing"]
"""What a strategy knows of the answer."""


@dataclass(frozen=True)
class Strategy:
    """A way to play.

    Attributes:
        name: For tables.
        knows: What it knows of the answer. Those that know nothing are compared with a blind guess.
        turns: Texts of its turns, the last one said again and again.
    """

    name: str
    knows: Knows
    turns: Callable[[Case, VideoQA, random.Random], list[str]]


def _answer(case: Case, text: str) -> str:
    return case.answer.replace("{}", text)


def _refused(case: Case) -> str:
    """A turn whose requests are all unreadable."""
    opened, closed = case.tags[0]
    return re.sub(f"{opened}.*?{closed}", f"{opened}?{closed}", case.call)


def _guess(qa: VideoQA, rng: random.Random) -> str:
    return rng.choice(LETTERS[: len(qa.options)])


def _wrong(qa: VideoQA, rng: random.Random) -> str:
    return rng.choice([letter for letter in LETTERS[: len(qa.options)] if letter != qa.answer])


def _all_options(qa: VideoQA, mark: str, between: str) -> str:
    return between.join(mark.replace("#", letter) for letter in LETTERS[: len(qa.options)])


def _another(qa: VideoQA, rng: random.Random) -> tuple[str, str]:
    first, second = rng.sample(LETTERS[: len(qa.options)], 2)
    return first, second


IDLE: Mapping[str, str] = {
    "videozoomer": '{"segment": [1, 1.2], "fps": 5}',
    "framethinker": "choose frames between 20 and 21",
    "framemind": '{"name": "VideoClip", "arguments": {"t_start": 1, "t_end": 1.001}}',
    "videobrain": '{"name": "uniform_sample", "arguments": {"start_frame": 0, "end_frame": 1}}',
    "eva": '{"tool": "frame_select", "arguments": {"start_time": 1, "end_time": 1.01, "nframes": 1, "resize": 0.5}}',
    "paravt": '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 1.001}}',
    "timesearch": '{"name": "seek_video_frames", "arguments": {"start_time": 1, "end_time": 1, "num_frames": 1}}',
    "longvt": '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 1.01}}',
}
"""The cheapest request of each system, by name: next to nothing is asked for."""

STRATEGIES = (
    Strategy("looks, then the right answer", "right", lambda case, qa, rng: [case.call, _answer(case, qa.answer)]),
    Strategy("the right answer at once", "right", lambda case, qa, rng: [_answer(case, qa.answer)]),
    Strategy("looks, then a wrong answer", "wrong", lambda case, qa, rng: [case.call, _answer(case, _wrong(qa, rng))]),
    Strategy("a wrong answer at once", "wrong", lambda case, qa, rng: [_answer(case, _wrong(qa, rng))]),
    Strategy("the right answer, denied", "wrong", lambda case, qa, rng: [_answer(case, f"not {qa.answer}")]),
    Strategy("blind guess", "nothing", lambda case, qa, rng: [_answer(case, _guess(qa, rng))]),
    Strategy("a look, then a guess", "nothing", lambda case, qa, rng: [case.call, _answer(case, _guess(qa, rng))]),
    Strategy(
        "the cheapest look, then a guess",
        "nothing",
        lambda case, qa, rng: [case.request(IDLE[case.system.name]), _answer(case, _guess(qa, rng))],
    ),
    Strategy(
        "the same look three times, then a guess",
        "nothing",
        lambda case, qa, rng: [case.call] * 3 + [_answer(case, _guess(qa, rng))],
    ),
    Strategy(
        "a refused call, then a guess",
        "nothing",
        lambda case, qa, rng: [_refused(case), _answer(case, _guess(qa, rng))],
    ),
    Strategy("only looks", "nothing", lambda case, qa, rng: [case.call]),
    Strategy("nothing", "nothing", lambda case, qa, rng: [""]),
    Strategy("an empty answer", "nothing", lambda case, qa, rng: [_answer(case, "")]),
    Strategy("all letters", "nothing", lambda case, qa, rng: [_answer(case, _all_options(qa, "#.", " "))]),
    Strategy("all letters, with commas", "nothing", lambda case, qa, rng: [_answer(case, _all_options(qa, "#", ", "))]),
    Strategy("all options' texts", "nothing", lambda case, qa, rng: [_answer(case, "; ".join(qa.options))]),
    Strategy("either of two", "nothing", lambda case, qa, rng: [_answer(case, " or ".join(_another(qa, rng)))]),
    Strategy(
        "two boxed",
        "nothing",
        lambda case, qa, rng: [_answer(case, " ".join(f"\\boxed{{{one}}}" for one in _another(qa, rng)))],
    ),
    Strategy(
        "a letter, and another one boxed",
        "nothing",
        lambda case, qa, rng: [_answer(case, "{}. \\boxed{{{}}}".format(*_another(qa, rng)))],
    ),
    Strategy("not this one", "nothing", lambda case, qa, rng: [_answer(case, f"not {_guess(qa, rng)}")]),
    Strategy(
        "the question again",
        "nothing",
        lambda case, qa, rng: [_answer(case, f"{qa.question} {_all_options(qa, '(#)', ' ')}")],
    ),
    Strategy(
        "two answers in a turn",
        "nothing",
        lambda case, qa, rng: ["".join(_answer(case, letter) for letter in _another(qa, rng))],
    ),
    Strategy(
        "a guess, and a call after it", "nothing", lambda case, qa, rng: [_answer(case, _guess(qa, rng)) + case.call]
    ),
    Strategy(
        "a call and a guess in one turn", "nothing", lambda case, qa, rng: [case.call + _answer(case, _guess(qa, rng))]
    ),
    Strategy(
        "junk around a guess", "nothing", lambda case, qa, rng: ["so " + _answer(case, _guess(qa, rng)) + " done"]
    ),
    Strategy(
        "a guess, thought three times",
        "nothing",
        lambda case, qa, rng: [_thought(case) * 2 + _answer(case, _guess(qa, rng))],
    ),
)


def _thought(case: Case) -> str:
    """The answer's turn up to the end of its thought."""
    head = case.answer.split("{}")[0]
    return head[: head.index("</") + head[head.index("</") :].index(">") + 1]


EXPLAINED: Mapping[tuple[str, str], str] = {
    (
        "videozoomer",
        "a look, then a guess",
    ): "the paper's bonus for a right answer with the tool (Table 5); `weights.tool=0`",
    ("videozoomer", "the same look three times, then a guess"): "the same",
    (
        "framethinker",
        "a look, then a guess",
    ): "the paper's bonus for choosing frames (0.02 beside a right answer); `weights.choose=0`",
    ("framemind", "a look, then a guess"): (
        "the paper's exploration share of the tool score and its turn bonus (equations 7 and 8); "
        "`weights.exploration=0`, `weights.turn=0`"
    ),
    ("framemind", "the cheapest look, then a guess"): "the same: the paper asks nothing of a clip's length",
    (
        "framemind",
        "a refused call, then a guess",
    ): "the paper's turn bonus, which a refused call's turn earns too; `weights.turn=0`",
    ("videobrain", "a look, then a guess"): (
        "the paper's matrix: in an active question a call pays 0.2 beside a wrong answer and 0.5 beside a right one; "
        "`weights.active_wrong_with=0`"
    ),
    ("videobrain", "the cheapest look, then a guess"): "the same",
    ("eva", "a look, then a guess"): "the paper's 0.05 for an answer after a call; `weights.tool_call=0`",
    ("paravt", "a look, then a guess"): (
        "the released tool score: 0.1 for a call, 0.5 more beside a right answer; `weights.call=0`, "
        "`weights.call_replied=0`, `weights.call_right=0`"
    ),
    ("paravt", "the cheapest look, then a guess"): "the same: the released code asks nothing of a crop's length",
    ("paravt", "the same look three times, then a guess"): "the same",
    ("eva", "the cheapest look, then a guess"): "the same",
    ("eva", "the same look three times, then a guess"): "the same",
    ("timesearch", "a look, then a guess"): (
        "the paper's completeness: a right guess that the frames alone give, too, which here is chance again; "
        "`weights.completeness=0`"
    ),
    ("timesearch", "the cheapest look, then a guess"): "the same",
    ("timesearch", "the same look three times, then a guess"): "the same",
}
"""Why strategies that know nothing earn more than a blind guess, by system and name: each is a published rule."""
