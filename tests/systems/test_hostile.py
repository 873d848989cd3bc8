"""Hostile model output against all nine systems: episodes end within limits and can be recorded."""

import asyncio
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import System
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from tests.conftest import MemorySource
from tests.systems.eva import texts as eva
from tests.systems.framemind import texts as framemind
from tests.systems.framethinker import texts as framethinker
from tests.systems.longvt import texts as longvt
from tests.systems.paravt import texts as paravt
from tests.systems.timesearch import texts as timesearch
from tests.systems.videobrain import texts as videobrain
from tests.systems.videoo3 import texts as videoo3
from tests.systems.videozoomer import texts as videozoomer

QA = VideoQA("q", "v", "What at 00:42?", "B", options=("red", "green", "blue", "grey"), extra={"class": "active"})


@dataclass(frozen=True)
class Case:
    """A small system, a legal look, a right answer, and all rewards that an episode may earn.

    Attributes:
        tag: Of its calls.
        frames: Most frames of a look.
    """

    system: System
    look: str
    reply: str
    tag: str
    frames: int
    rewards: tuple[float, ...] = ()


CASES = (
    Case(
        videozoomer.SMALL,
        videozoomer.ZOOM,
        videozoomer.REPLY,
        "video_zoom",
        16,
        (0.0, 0.1, 0.9, 1.0, 1.4, 1.5),
    ),
    Case(framethinker.SMALL, framethinker.LOOK, framethinker.REPLY, "action", 4, (0.0, 1.0, 1.02, 1.52)),
    Case(framemind.SMALL, framemind.look(framemind.at(3)), framemind.REPLY, "tool_call", 3 * 6),
    Case(videobrain.BASE, videobrain.LOOK, videobrain.REPLY, "tool_call", 8, (0.0, 0.05, 0.25, 1.05, 1.55)),
    Case(eva.SMALL, eva.LOOK, eva.REPLY, "tool_call", 4 * 16, (0.0, 0.05, 1.0)),
    Case(longvt.SMALL, longvt.LOOK, longvt.REPLY, "tool_call", 5 * 16),
    Case(replace(timesearch.BASE, csv=False), timesearch.LOOK, timesearch.REPLY, "tool_call", 8, (0.0, 0.5, 1.0, 1.5)),
    Case(replace(paravt.SMALL, crops_as="frames"), paravt.look(paravt.crop(1, 3)), paravt.ANSWER, "tool_call", 5 * 16),
    Case(videoo3.SMALL, videoo3.ground(1, 3), videoo3.REPLY, "grounding", 768),
)
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.system.name)
TAGS = ("think", "thinking", "action", "answer", "tool_call", "tool_code", "tool_response", "turn_sum", "video_zoom")
TAGS += ("grounding",)
WORDS = ("B", "A. B. C. D.", "output answer:", "choose frames between ", "410 and 430", "get frame number at time ")
WORDS += ("{", "}", "[", "]", ",", ":", "}}", '"name"', '"start_time"', "-1", "1e308", "1e999", "NaN", "-Infinity")
WORDS += ("9" * 5000, "null", "true", "<|image_pad|>", "<|im_end|>", "FrameAt:\n", "is: 7", "00:42", "\x00", "\ud7ff")
WORDS += ("\u202e", "🎬", "\n", "٤٢", '{"name": "x", "arguments": {"a": "\\ud800"}}')
CALLS = (*(case.look for case in CASES), *(case.reply for case in CASES))
CALLS += (eva.call(0, 60, 10**9), eva.call(-1e308, 1e308, 1e300, 1e-300), eva.call(nframes=10**400), eva.call() * 9)
CALLS += (framemind.look(*[framemind.clip(0, 60)] * 9), framemind.at(1e308), framethinker.LOOKUP)
CALLS += (videobrain.FIND, longvt.call(1e308, '"\\ud800"'), videoo3.ground("null", "[]"))
FRAGMENTS = (*(f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")), *WORDS, *CALLS)
NESTED = tuple("[" * depth + "]" * depth for depth in (100, 480, 900))


def corpus(case: Case) -> list[str]:
    opened, closed, think = f"<{case.tag}>", f"</{case.tag}>", case.reply.partition(">")[0] + ">"
    return [
        "",
        "<" * 10**6,
        opened * 50_000 + closed,
        closed * 50_000,
        think * 50_000 + case.reply,
        "<answer>" * 30_000 + "B" + "</answer>" * 30_000,
        "<answer>" + "A. B. " * 10**5 + "</answer>",
        "<answer>" + "\\boxed{" * 10**5 + "</answer>",
        case.look * 1_000,
        case.reply * 1_000,
        f"{opened}{'[' * 100_000}{closed}",
        f"{opened}{'9' * 10**6}{closed}",
        "<think>" + "1 " * 10**5 + "</think><action>choose frames between 1 and 100</action>",
        f"<think>x</think><action>output answer: {'B ' * 10**5}</action>",
        *(f'{opened}{{"name": "x", "arguments": {{"a": {nested}}}}}{closed}' for nested in NESTED),
        "<think>a</think><answer>A</answer><answer>B</answer><answer>C</answer><answer>D</answer>",
    ]


def check(case: Case, texts: Sequence[str], seconds: float = 60.0) -> None:
    source, system = MemorySource(seconds), case.system
    policy = ScriptedPolicy(lambda view: texts[len(view.turns) % len(texts)])
    retriever = videobrain.Nearest()
    trajectory = asyncio.run(play(system, policy, QA, source, retriever))
    assert 1 <= len(trajectory.turns) <= system.max_turns
    assert len(trajectory.frames) <= max(system.max_images, 48)
    assert source.requested <= 64 + case.frames * system.max_turns
    score = asyncio.run(system.score(trajectory, QA, Graders()))
    assert math.isfinite(score.reward) and score.reward == pytest.approx(sum(score.terms.values()))
    assert not case.rewards or any(score.reward == pytest.approx(value) for value in case.rewards)
    assert score.acc == 0.0 or trajectory.answer is not None
    record = trajectory.to_dict()
    json.dumps(record, ensure_ascii=False).encode()
    assert Trajectory.from_dict(record) == trajectory


@every_case
def test_the_corpus(case: Case) -> None:
    for text in corpus(case):
        check(case, [text])
        check(case, [case.look, text])


@every_case
def test_random_outputs(case: Case) -> None:
    rng = random.Random(0)
    for _ in range(300):
        texts = ["".join(rng.choices(FRAGMENTS, k=rng.randint(1, 10))) for _ in range(rng.randint(1, 4))]
        check(case, texts, rng.choice([0.2, 1.0, 60.0, 5000.0]))


@every_case
@given(pieces=st.lists(st.text(max_size=40) | st.sampled_from(FRAGMENTS), min_size=1, max_size=6))
@settings(max_examples=50)
def test_any_text(case: Case, pieces: list[str]) -> None:
    text = "".join(pieces)
    check(case, [text])
    check(case, [f"<think>x</think><{case.tag}>{text}</{case.tag}>", case.reply])


@every_case
@pytest.mark.parametrize("answer", ["A, B, C and D", "red green blue grey", "A\nB"])
def test_naming_several_options_is_no_right_answer(case: Case, answer: str) -> None:
    text = case.reply.replace(">B<", f">{answer}<").replace("output answer: B", f"output answer: {answer}")
    trajectory = asyncio.run(play(case.system, ScriptedPolicy(lambda view: text), QA, MemorySource()))
    assert asyncio.run(case.system.score(trajectory, QA, Graders())).acc == 0.0
