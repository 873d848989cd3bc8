"""Grades of VideoZoomer's answers against the released rule, on generated replies.

The rule is stated here once more, in other words than the package's. Where the default differs, the answer belongs to
one of two classes, each with a key that ends it (``docs/fidelity.md``): it names two options, or it isn't closed in
tags. The released checkpoint is graded by the released rule."""

import asyncio
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

from agentic_video.evaluation.checkpoints import checkpoints
from agentic_video.graders.base import Graders
from agentic_video.systems.videozoomer.grammar import parse_turn
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.types.action import Answer
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn

REPLIES = 40_000
TEXTS = ("The shark.", "A boat", "Two people, I think", "$\\frac{1}{2}$", "U.S. Navy", "B. Obama", "None")
LETTERS = "ABCD"

ANSWERS = (
    "{a}",
    " {a}\n",
    "{a}.",
    "{a}. {text}",
    "({a}) {text}",
    "{a}: {text}",
    "{text}",
    "\\boxed{{{a}}}",
    "\\boxed{{ {a} }}",
    "\\boxed{{{a}. {text}}}",
    "\\boxed{{({a}) {text}}}",
    "\\boxed{{\\text{{{a}}}}}",
    "\\boxed{{\\text{{{a}. {text}}}}}",
    "$\\boxed{{{a}}}$",
    "\\[\\boxed{{{a}}}\\]",
    "\\boxed{{{text}}}",
    "\\boxed{{}}",
    "\\boxed{{{a}",
    "\\boxed{{{a}.}}",
    "\\boxed{{{a}}}}}",
    "boxed{{{a}}}",
    "\\fbox{{{a}}}",
    "**{a}**",
    "**{a}.** {text}",
    "The answer is {a}.",
    "The answer is \\boxed{{{a}}}.",
    "The answer is \\boxed{{{a}. {text}}} as seen at 12.5 s.",
    "option {a}",
    "None",
    "",
)
SECOND = (
    "",
    "",
    "",
    " {b}.",
    " or {b}",
    " {b}. {other}",
    " \\boxed{{{b}}}",
    "\n\\boxed{{{b}. {other}}}",
    " not {b}",
    " E.",
)
REPLY = (
    "<think>t</think><answer>{}</answer>",
    "<think>I see A. or B.</think>\n<answer>{}</answer>\n",
    "<think>\\boxed{{C}}</think><answer>\n{}\n</answer>",
    "<answer>{}</answer>",
    "<think>t</think><answer>D</answer><answer>{}</answer>",
    "<think>t</think><answer>{}</answer> B.",
    "<think>t</think><answer>{}",
    "<think>t</think>{}",
)


def released(reply: str, gold: str) -> bool:
    """The released rule: the text behind the last opening tag, up to a closing one, is the gold letter; or what is in
    its last box is; or the last capital before a dot is."""
    said = reply[reply.rfind("<answer>") + len("<answer>") :] if "<answer>" in reply else reply
    said = said.split("</answer>", 1)[0].strip()
    return gold in (said, in_last_box(said), last_capital_before_a_dot(said))


def in_last_box(text: str) -> str | None:
    _, box, inside = text.rpartition("\\boxed{")
    open_braces, end = 1, 0
    while box and end < len(inside):
        open_braces += (inside[end] == "{") - (inside[end] == "}")
        if not open_braces:
            return inside[:end].strip()
        end += 1
    return None


def last_capital_before_a_dot(text: str) -> str | None:
    found = [first for first, second in pairwise(text) if second == "." and "A" <= first <= "Z"]
    return found[-1] if found else None


def played(reply: str) -> Trajectory:
    action = parse_turn(reply)
    end = EndReason.ANSWER if isinstance(action, Answer) else EndReason.ILLEGAL
    return Trajectory("q", "videozoomer", (), (Turn(reply, action, 1),), end)


def replies(seed: int) -> list[tuple[str, VideoQA]]:
    rng = random.Random(seed)
    made = []
    for number in range(REPLIES):
        options = tuple(rng.sample(TEXTS, len(LETTERS)))
        first, second = rng.choice(range(4)), rng.choice(range(4))
        words = {"a": LETTERS[first], "b": LETTERS[second], "text": options[first], "other": options[second]}
        answer = rng.choice(ANSWERS).format(**words) + rng.choice(SECOND).format(**words)
        if rng.random() < 0.1:  # a character that isn't where it belongs
            place = rng.randrange(len(answer) + 1)
            answer = answer[:place] + rng.choice(["", "{", "}", ".", "A.", "\\boxed{", " ", "\n"]) + answer[place + 1 :]
        reply = rng.choice(REPLY).format("{}").replace("{}", answer)
        made.append((reply, VideoQA(str(number), "v.mp4", "q", rng.choice(LETTERS), options=options)))
    return made


def differences(system: VideoZoomer, seed: int) -> Counter[str]:
    """How many grades differ from the released rule's, by why; and how many are right by both."""

    async def count() -> Counter[str]:
        found: Counter[str] = Counter()
        for reply, qa in replies(seed):
            trajectory = played(reply)
            ours, theirs = await system.grade(trajectory, qa, Graders()) == 1.0, released(reply, qa.answer)
            if ours == theirs:
                found["right" if ours else "wrong"] += 1
            elif trajectory.answer is None and theirs:
                found["unanswered"] += 1
            elif theirs and sum(released(reply, letter) for letter in LETTERS) == 2:
                found["two options"] += 1
            else:
                found["unexplained"] += 1
        return found

    return asyncio.run(count())


def test_the_default_differs_only_for_answers_that_name_two_options_or_stand_in_no_tags() -> None:
    found = differences(VideoZoomer(), seed=20)
    assert found["unexplained"] == 0
    assert min(found[why] for why in ("right", "wrong", "unanswered", "two options")) > REPLIES // 200
    assert sum(found.values()) == REPLIES


def test_the_released_checkpoint_is_graded_by_the_released_rule() -> None:
    settings = checkpoints()["videozoomer-7b"].settings
    system = replace(
        VideoZoomer(),
        answer_match=settings["agentic_video.system.answer_match"],
        unanswered=settings["agentic_video.system.unanswered"],
    )
    found = differences(system, seed=21)
    assert set(found) == {"right", "wrong"}
    assert min(found.values()) > REPLIES // 10
