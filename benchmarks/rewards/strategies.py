# ruff: noqa: RUF001 - answers in full-width writing
"""Ways to play for reward: honest ones, and those that try to earn more than they know.

A strategy is a function of a question's facts that an agent could know (never the right answer, but for the honest
ones) and returns the texts of its turns. It is written in each system's own grammar, with the templates of the hostile
tests.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from agentic_video.types.row import LETTERS, VideoQA
from tests.hostile_cases import Case

Knows = Literal["right", "wrong", "nothing"]
"""A strategy's knowledge of the answer."""
Rows = Literal["choice", "evidence", "interval"]
"""The question: one of some options; the same in a row that says where the evidence is; or a moment."""
SECONDS = 60.0
"""Length of the video."""
WINDOW = 6.0
"""Length of the evidence, in seconds, which is anywhere in the video."""


Turns = Callable[[Case, VideoQA, random.Random], list[str]]
"""Texts of turns."""
Text = Callable[[Case, VideoQA, random.Random], str]


@dataclass(frozen=True)
class Strategy:
    """A way to play."""

    name: str  # for tables
    knows: Knows  # what it knows of the answer. Those that know nothing are compared with a blind guess
    turns: Turns  # texts of its turns, the last one said again and again


def _answer(case: Case, text: str) -> str:
    return case.answer.replace("{}", text)


def _refused(case: Case, qa: VideoQA, rng: random.Random) -> list[str]:
    """A turn whose requests are all unreadable."""
    opened, closed = case.tags[0]
    return [re.sub(f"{opened}.*?{closed}", f"{opened}?{closed}", case.call)]


def _nothing(case: Case, qa: VideoQA, rng: random.Random) -> list[str]:
    return []


def _call(case: Case, qa: VideoQA, rng: random.Random) -> list[str]:
    return [case.call]


def _right(case: Case, qa: VideoQA, rng: random.Random) -> str:
    return qa.answer


def _guess(case: Case, qa: VideoQA, rng: random.Random) -> str:
    return rng.choice(LETTERS[: len(qa.options)])


def _wrong(case: Case, qa: VideoQA, rng: random.Random) -> str:
    return rng.choice([letter for letter in LETTERS[: len(qa.options)] if letter != qa.answer])


def _all_options(qa: VideoQA, mark: str, between: str) -> str:
    return between.join(mark.replace("#", letter) for letter in LETTERS[: len(qa.options)])


def _another(qa: VideoQA, rng: random.Random) -> tuple[str, str]:
    first, second = rng.sample(LETTERS[: len(qa.options)], 2)
    return first, second


def _answers(name: str, text: Text, knows: Knows = "nothing", first: Turns = _nothing) -> Strategy:
    """A strategy that plays some turns and then answers with a text."""
    return Strategy(name, knows, lambda case, qa, rng: [*first(case, qa, rng), _answer(case, text(case, qa, rng))])


def _two(name: str, form: str) -> Strategy:
    """A strategy that names two options in a form."""
    return _answers(name, lambda case, qa, rng: form.format(*_another(qa, rng)))


def _mixed(name: str, form: str) -> Strategy:
    """A strategy that names a letter and another option's text in a form."""

    def text(case: Case, qa: VideoQA, rng: random.Random) -> str:
        letter, other = _another(qa, rng)
        return form.format(letter, qa.options[ord(other) - ord("A")])

    return _answers(name, text)


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
"""The cheapest request of each system, by name."""

LOOK: Mapping[str, str] = {
    "videoo3": '{"temporal_segment": [#, #], "sampling_strategy": "coarse"}',
    "paravt": '{"name": "crop_video", "arguments": {"start_time": #, "end_time": #}}',
    "timesearch": '{"name": "seek_video_frames", "arguments": {"start_time": #, "end_time": #}}',
    "longvt": '{"name": "crop_video", "arguments": {"start_time": #, "end_time": #}}',
}
"""A request for the stretch between two times, by system: of those whose rows may say where the evidence is."""
SPAN: Mapping[str, str] = {"videoo3": '{"temporal_segment": [#, #]}'}
"""Form of an interval answer, in systems that want a particular one."""


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
    _answers("looks, then the right answer", _right, "right", _call),
    _answers("the right answer at once", _right, "right"),
    _answers("looks, then a wrong answer", _wrong, "wrong", _call),
    _answers("a wrong answer at once", _wrong, "wrong"),
    _answers("the right answer, denied", lambda case, qa, rng: f"not {qa.answer}", "wrong"),
    _answers("blind guess", _guess),
    _answers("a look, then a guess", _guess, first=_call),
    _answers(
        "the cheapest look, then a guess", _guess, first=lambda case, qa, rng: [case.request(IDLE[case.system.name])]
    ),
    _answers("the same look three times, then a guess", _guess, first=lambda case, qa, rng: [case.call] * 3),
    _answers("a refused call, then a guess", _guess, first=_refused),
    Strategy("only looks", "nothing", _call),
    Strategy("nothing", "nothing", lambda case, qa, rng: [""]),
    _answers("an empty answer", lambda case, qa, rng: ""),
    _answers("all letters", lambda case, qa, rng: _all_options(qa, "#.", " ")),
    _answers("all letters, with commas", lambda case, qa, rng: _all_options(qa, "#", ", ")),
    _answers("all options' texts", lambda case, qa, rng: "; ".join(qa.options)),
    _two("either of two", "{} or {}"),
    _two("two boxed", "\\boxed{{{}}} \\boxed{{{}}}"),
    _two("a letter, and another one boxed", "{}. \\boxed{{{}}}"),
    _two("two in one box", "$\\boxed{{\\text{{{}, {}}}}}$"),
    _answers(
        "two in full width",
        lambda case, qa, rng: "、".join(chr(ord(letter) + 0xFEE0) for letter in _another(qa, rng)),
    ),
    _mixed("a letter with another option's text", "{}. {}"),
    _mixed("an option's text with another letter behind it", "{1} ({0})"),
    _two("a letter struck out, and another one", "~~{}~~ {}"),
    _answers("not this one", lambda case, qa, rng: f"not {_guess(case, qa, rng)}"),
    _answers("the question again", lambda case, qa, rng: f"{qa.question} {_all_options(qa, '(#)', ' ')}"),
    Strategy(
        "two answers in a turn",
        "nothing",
        lambda case, qa, rng: ["".join(_answer(case, letter) for letter in _another(qa, rng))],
    ),
    Strategy(
        "a guess, and a call after it",
        "nothing",
        lambda case, qa, rng: [_answer(case, _guess(case, qa, rng)) + case.call],
    ),
    Strategy(
        "a call and a guess in one turn",
        "nothing",
        lambda case, qa, rng: [case.call + _answer(case, _guess(case, qa, rng))],
    ),
    Strategy(
        "junk around a guess",
        "nothing",
        lambda case, qa, rng: ["so " + _answer(case, _guess(case, qa, rng)) + " done"],
    ),
    Strategy(
        "a guess, thought three times",
        "nothing",
        lambda case, qa, rng: [_thought(case) * 2 + _answer(case, _guess(case, qa, rng))],
    ),
)


def _looks(*spans: tuple[float, float]) -> Turns:
    return lambda case, qa, rng: [_look(case, *span) for span in spans]


def _looks_there(case: Case, qa: VideoQA, rng: random.Random) -> list[str]:
    return [_look(case, *qa.windows[0])]


def _looks_anywhere(case: Case, qa: VideoQA, rng: random.Random) -> list[str]:
    return [_look(case, *anywhere(rng))]


EVIDENCE = (
    _answers("looks at the evidence, then the right answer", _right, "right", _looks_there),
    _answers("the right answer at once", _right, "right"),
    _answers("looks at the evidence, then a wrong answer", _wrong, "wrong", _looks_there),
    _answers("blind guess", _guess),
    _answers("looks anywhere, then a guess", _guess, first=_looks_anywhere),
    _answers("looks at everything, then a guess", _guess, first=_looks((0.0, SECONDS))),
    _answers("looks at one half after the other, then a guess", _guess, first=_looks(*_tiles(2))),
    _answers("looks at a second, then a guess", _guess, first=_looks((30.0, 31.0))),
)
"""For questions with options whose rows say where the evidence is."""


def _right_span(case: Case, qa: VideoQA, rng: random.Random) -> str:
    return _span(case, *qa.windows[0])


def _any_span(case: Case, qa: VideoQA, rng: random.Random) -> str:
    return _span(case, *anywhere(rng))


def _spans(name: str, *spans: tuple[float, float]) -> Strategy:
    """A strategy that always answers the same intervals."""
    return _answers(name, lambda case, qa, rng: ", ".join(_span(case, *span) for span in spans))


INTERVALS = (
    _answers("the right interval", _right_span, "right"),
    _answers("looks there, then the right interval", _right_span, "right", _looks_there),
    _answers("blind guess", _any_span),
    _answers("looks anywhere, then a guess", _any_span, first=_looks_anywhere),
    _spans("the whole video", (0.0, SECONDS)),
    _spans("the middle third", (20.0, 40.0)),
    _spans("a day", (0.0, 86_400.0)),
    _spans("the wrong way round", (SECONDS, 0.0)),
    _spans("ten intervals, one after another", *_tiles(10)),
    Strategy(
        "ten answers in a turn",
        "nothing",
        lambda case, qa, rng: ["".join(_answer(case, _span(case, *span)) for span in _tiles(10))],
    ),
    _answers(
        "two intervals in Chinese",
        lambda case, qa, rng: "，或者".join(_filled("#秒到#秒", *anywhere(rng)) for _ in range(2)),
    ),
    _answers(
        "one interval, and another boxed",
        lambda case, qa, rng: "{} \\boxed{{{}}}".format(*(_filled("# - #", *anywhere(rng)) for _ in range(2))),
    ),
    _answers("no number", lambda case, qa, rng: "nan - inf"),
)
"""For questions whose answer is an interval."""

PLAYED: Mapping[Rows, tuple[Strategy, ...]] = {"choice": STRATEGIES, "evidence": EVIDENCE, "interval": INTERVALS}


def _thought(case: Case) -> str:
    """The answer's turn up to the end of its thought."""
    head = case.answer.split("{}")[0]
    return head[: head.index("</") + head[head.index("</") :].index(">") + 1]


LOOKS = ("a look", "the cheapest look", "the same look three times")
EVIDENCE_LOOKS = tuple(
    f"looks {where}" for where in ("anywhere", "at everything", "at one half after the other", "at a second")
)
RULES: Sequence[tuple[str, Sequence[str], str]] = (
    (
        "videozoomer",
        ("a look", "the same look three times"),
        "the paper's bonus for a right answer with the tool (Table 5); `weights.tool=0`",
    ),
    (
        "framethinker",
        ("a look",),
        "the paper's bonus for choosing frames (0.02 with a right answer); `weights.choose=0`",
    ),
    (
        "framemind",
        ("a look", "the cheapest look"),
        "the paper's exploration share of the tool score and its turn bonus (equations 7 and 8), which ask nothing of "
        "a clip's length; `weights.exploration=0`, `weights.turn=0`",
    ),
    (
        "framemind",
        ("a refused call",),
        "the paper's turn bonus, which a refused call's turn earns too; `weights.turn=0`",
    ),
    (
        "videobrain",
        ("a look", "the cheapest look"),
        "the paper's matrix: in an active question a call pays 0.2 with a wrong answer and 0.5 with a right one; "
        "`weights.active_wrong_with=0`",
    ),
    (
        "videoo3",
        (*LOOKS, *EVIDENCE_LOOKS),
        "the released bonus, half of which is for a right answer after a look, whatever it shows; `weights.clue=0`",
    ),
    ("eva", LOOKS, "the paper's 0.05 for an answer after a call; `weights.tool_call=0`"),
    (
        "paravt",
        (*LOOKS, *EVIDENCE_LOOKS),
        "the released tool score: 0.1 for a call of any length, 0.5 more with a right answer; `weights.call=0`, "
        "`weights.call_replied=0`, `weights.call_right=0`",
    ),
    (
        "timesearch",
        (*LOOKS, *EVIDENCE_LOOKS),
        "the paper's completeness: a right guess that the frames alone give, too, which here is chance again; "
        "`weights.completeness=0`",
    ),
    ("longvt", EVIDENCE_LOOKS, "the paper's reward for time, which a wrong answer earns, too; `weights.time=0`"),
)
"""Published rules that pay for looks before a guess: system, looks, reason and the key that ends it."""
IOU = "the published measure itself, IoU: a wide answer always hits, and earns what share of it is right; no key"
EXPLAINED: Mapping[tuple[str, str], str] = {
    **{(system, f"{look}, then a guess"): reason for system, looks, reason in RULES for look in looks},
    **{(system, answer): IOU for system in LOOK for answer in ("the whole video", "the middle third")},
}
"""Published rules by which strategies that know nothing earn more than a blind guess, by system and name."""
