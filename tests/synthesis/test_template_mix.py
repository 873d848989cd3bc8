"""Demonstrations by template: the mixture, and what the teacher is told."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.synthesis.template_mix import FREE, GUIDANCE, TemplateMix, guided_by, read_mix
from agentic_video.types.message import Message
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError


def test_a_mixture_is_read() -> None:
    assert read_mix("direct:1, single_pass:0.5,free:2").weights == {"direct": 1.0, "single_pass": 0.5, FREE: 2.0}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("singel_pass:1", "single_pass"),
        ("", "direct"),
        ("direct", "direct:"),
        ("direct:-1", "direct:-1"),
        ("direct:nan", "direct:nan"),
        ("direct:1,direct:2", "twice"),
        ("direct:0,free:0", "every weight"),
        ("other:1", "other"),
        ("direct:1,", "free"),
    ],
)
def test_what_is_no_mixture_is_one_line(text: str, named: str) -> None:
    with pytest.raises(SetupError, match=named) as raised:
        read_mix(text)
    assert "--template-mix" in str(raised.value) and "\n" not in str(raised.value)


def drawn(mix: TemplateMix, question: str, qa: VideoQA) -> Counter[str]:
    asked = replace(qa, question=question)
    return Counter(mix.draw(replace(asked, id=str(number)), number % 2) for number in range(2000))


def test_templates_are_drawn_by_their_weights_and_alike_each_time(qa: VideoQA) -> None:
    mix = TemplateMix({"direct": 1.0, "timestamp_grounded": 1.0, FREE: 2.0, "hierarchical": 0.0})
    counts = drawn(mix, "What flashes at 00:42?", qa)
    # 500, 500, 1,000 of 2,000: a standard deviation is at most 22.4
    assert counts.keys() == {"direct", "timestamp_grounded", FREE}
    assert abs(counts["direct"] - 500) < 90 and abs(counts[FREE] - 1000) < 90
    assert drawn(mix, "What flashes at 00:42?", qa) == counts


def test_a_time_is_looked_up_only_where_one_is_named(qa: VideoQA) -> None:
    mix = TemplateMix({"timestamp_grounded": 3.0, "direct": 1.0})
    assert drawn(mix, "What flashes?", qa) == {"direct": 2000}
    assert drawn(TemplateMix({"timestamp_grounded": 1.0}), "What flashes?", qa) == {FREE: 2000}
    in_an_option = replace(qa, question="When?", options=("at 1:05", "at 2:05"), answer="A")
    assert TemplateMix({"timestamp_grounded": 1.0}).draw(in_an_option, 0) == "timestamp_grounded"


@pytest.mark.parametrize("role", ["system", "user"])
def test_the_teacher_is_told_in_its_instructions(role: str) -> None:
    heard: list[Message] = []

    class Hearing(ScriptedPolicy):
        async def begin(self, messages: Sequence[Message]) -> bool:
            heard.extend(messages)
            return True

    opening = [Message(role, ("Watch.",)), Message("user", ("What?",))]  # type: ignore[arg-type]
    assert asyncio.run(guided_by(Hearing(lambda view: ""), "hierarchical").begin(opening))
    assert heard[0].role == "system" and GUIDANCE["hierarchical"] in str(heard[0].parts[-1])
    assert heard[-1] == opening[-1] and opening[0].parts == ("Watch.",)
    assert len(heard) == (2 if role == "system" else 3)
