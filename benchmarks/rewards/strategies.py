# ruff: noqa: RUF001 - answers in full-width writing
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
Rows = Literal["choice", "evidence", "interval"]
"""What is asked: one of some options; the same, in a row that says where the evidence is; where something happens."""
SECONDS = 60.0
"""Length of the video."""
WINDOW = 6.0
"""Length of the evidence, in seconds, which is anywhere in the video."""


@dataclass(frozen=True)
class Strategy:
    """A way to play."""

    name: str  # for tables
    knows: Knows  # what it knows of the answer. Those that know nothing are compared with a blind guess
    turns: Callable[[Case, VideoQA, random.Random], list[str]]  # texts of its turns, the last one said again and again


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
    "videoo3": '{"temporal_segment": [1, 2], "sampling_strategy": "coarse"}',
    "paravt": '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 1.001}}',
    "timesearch": '{"name": "seek_video_frames", "arguments": {"start_time": 1, "end_time": 1, "num_frames": 1}}',
    "longvt": '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 1.01}}',
}
"""The cheapest request of each system, by name: next to nothing is asked for."""

LOOK: Mapping[str, str] = {
    "videoo3": '{"temporal_segment": [#, #], "sampling_strategy": "coarse"}',
    "paravt": '{"name": "crop_video", "arguments": {"start_time": #, "end_time": #}}',
    "timesearch": '{"name": "seek_video_frames", "arguments": {"start_time": #, "end_time": #}}',
    "longvt": '{"name": "crop_video", "arguments": {"start_time": #, "end_time": #}}',
}
"""A request for the stretch between two times, by system: of those whose rows may say where the evidence is."""
SPAN: Mapping[str, str] = {"videoo3": '{"temporal_segment": [#, #]}'}
"""How a system wants an interval to be answered, where it wants it in one way."""


def _filled(template: str, start: float, end: float) -> str:
    return template.replace("#", f"{start:.3f}", 1).replace("#", f"{end:.3f}", 1)


def _look(case: Case, start: float, end: float) -> str:
    return case.request(_filled(LOOK[case.system.name], start, end))


def _span(case: Case, start: float, end: float) -> str:
    return _filled(SPAN.get(case.system.name, "# - #"), start, end)


def anywhere(rng: random.Random) -> tuple[float, float]:
    """A stretch of the evidence's length, at an eighth of a second."""
    start = rng.randrange(int(8 * (SECONDS - WINDOW)) + 1) / 8
    return start, start + WINDOW


def _tiles(count: int) -> list[tuple[float, float]]:
    return [(SECONDS * number / count, SECONDS * (number + 1) / count) for number in range(count)]


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
    Strategy(
        "two in one box",
        "nothing",
        lambda case, qa, rng: [_answer(case, "$\\boxed{{\\text{{{}, {}}}}}$".format(*_another(qa, rng)))],
    ),
    Strategy("two in full width", "nothing", lambda case, qa, rng: [_answer(case, _full_width(qa, rng))]),
    Strategy(
        "a letter with another option's text",
        "nothing",
        lambda case, qa, rng: [_answer(case, "{}. {}".format(*_mixed(qa, rng)))],
    ),
    Strategy(
        "an option's text with another letter behind it",
        "nothing",
        lambda case, qa, rng: [_answer(case, "{1} ({0})".format(*_mixed(qa, rng)))],
    ),
    Strategy(
        "a letter struck out, and another one",
        "nothing",
        lambda case, qa, rng: [_answer(case, "~~{}~~ {}".format(*_another(qa, rng)))],
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

EVIDENCE = (
    Strategy(
        "looks at the evidence, then the right answer",
        "right",
        lambda case, qa, rng: [_look(case, *qa.windows[0]), _answer(case, qa.answer)],
    ),
    Strategy("the right answer at once", "right", lambda case, qa, rng: [_answer(case, qa.answer)]),
    Strategy(
        "looks at the evidence, then a wrong answer",
        "wrong",
        lambda case, qa, rng: [_look(case, *qa.windows[0]), _answer(case, _wrong(qa, rng))],
    ),
    Strategy("blind guess", "nothing", lambda case, qa, rng: [_answer(case, _guess(qa, rng))]),
    Strategy(
        "looks anywhere, then a guess",
        "nothing",
        lambda case, qa, rng: [_look(case, *anywhere(rng)), _answer(case, _guess(qa, rng))],
    ),
    Strategy(
        "looks at everything, then a guess",
        "nothing",
        lambda case, qa, rng: [_look(case, 0.0, SECONDS), _answer(case, _guess(qa, rng))],
    ),
    Strategy(
        "looks at one half after the other, then a guess",
        "nothing",
        lambda case, qa, rng: [*(_look(case, *one) for one in _tiles(2)), _answer(case, _guess(qa, rng))],
    ),
    Strategy(
        "looks at a second, then a guess",
        "nothing",
        lambda case, qa, rng: [_look(case, 30.0, 31.0), _answer(case, _guess(qa, rng))],
    ),
)
"""For questions with options whose rows say where the evidence is."""

INTERVALS = (
    Strategy("the right interval", "right", lambda case, qa, rng: [_answer(case, _span(case, *qa.windows[0]))]),
    Strategy(
        "looks there, then the right interval",
        "right",
        lambda case, qa, rng: [_look(case, *qa.windows[0]), _answer(case, _span(case, *qa.windows[0]))],
    ),
    Strategy("blind guess", "nothing", lambda case, qa, rng: [_answer(case, _span(case, *anywhere(rng)))]),
    Strategy(
        "looks anywhere, then a guess",
        "nothing",
        lambda case, qa, rng: [_look(case, *anywhere(rng)), _answer(case, _span(case, *anywhere(rng)))],
    ),
    Strategy("the whole video", "nothing", lambda case, qa, rng: [_answer(case, _span(case, 0.0, SECONDS))]),
    Strategy("the middle third", "nothing", lambda case, qa, rng: [_answer(case, _span(case, 20.0, 40.0))]),
    Strategy("a day", "nothing", lambda case, qa, rng: [_answer(case, _span(case, 0.0, 86_400.0))]),
    Strategy("the wrong way round", "nothing", lambda case, qa, rng: [_answer(case, _span(case, SECONDS, 0.0))]),
    Strategy(
        "ten intervals, one after another",
        "nothing",
        lambda case, qa, rng: [_answer(case, ", ".join(_span(case, *one) for one in _tiles(10)))],
    ),
    Strategy(
        "ten answers in a turn",
        "nothing",
        lambda case, qa, rng: ["".join(_answer(case, _span(case, *one)) for one in _tiles(10))],
    ),
    Strategy(
        "two intervals in Chinese",
        "nothing",
        lambda case, qa, rng: [_answer(case, "，或者".join(_filled("#秒到#秒", *anywhere(rng)) for _ in range(2)))],
    ),
    Strategy(
        "one interval, and another boxed",
        "nothing",
        lambda case, qa, rng: [
            _answer(case, "{} \\boxed{{{}}}".format(*(_filled("# - #", *anywhere(rng)) for _ in range(2))))
        ],
    ),
    Strategy("no number", "nothing", lambda case, qa, rng: [_answer(case, _filled("nan - inf", 0.0, 0.0))]),
)
"""For questions whose answer is an interval."""

PLAYED: Mapping[Rows, tuple[Strategy, ...]] = {"choice": STRATEGIES, "evidence": EVIDENCE, "interval": INTERVALS}


def _full_width(qa: VideoQA, rng: random.Random) -> str:
    return "、".join(chr(ord(letter) + 0xFEE0) for letter in _another(qa, rng))


def _mixed(qa: VideoQA, rng: random.Random) -> tuple[str, str]:
    """A letter, and another option's text."""
    letter, other = _another(qa, rng)
    return letter, qa.options[ord(other) - ord("A")]


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
    ("videoo3", "a look, then a guess"): (
        "the released bonus, half of which is for a right answer after a look, whatever it shows; `weights.clue=0`"
    ),
    ("videoo3", "the cheapest look, then a guess"): "the same",
    ("videoo3", "the same look three times, then a guess"): "the same",
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
    **{
        ("longvt", f"looks {where}, then a guess"): (
            "the paper's reward for time, which a wrong answer earns, too; `weights.time=0`"
        )
        for where in ("anywhere", "at everything", "at one half after the other", "at a second")
    },
    **{
        ("videoo3", f"looks {where}, then a guess"): (
            "the released bonus, half of which is for a right answer after a look, whatever it shows; `weights.clue=0`"
        )
        for where in ("anywhere", "at everything", "at one half after the other", "at a second")
    },
    **{
        ("paravt", f"looks {where}, then a guess"): "the released tool score; see above"
        for where in ("anywhere", "at everything", "at one half after the other", "at a second")
    },
    **{
        ("timesearch", f"looks {where}, then a guess"): "the paper's completeness; see above"
        for where in ("anywhere", "at everything", "at one half after the other", "at a second")
    },
    **{
        (system, answer): (
            "the published measure itself, IoU: a wide answer always hits, and earns what share of it is right; no key"
        )
        for system in LOOK
        for answer in ("the whole video", "the middle third")
    },
}
"""Why strategies that know nothing earn more than a blind guess, by system and name: each is a published rule."""
