"""Replayed sequences compared with those of the recorded rollout."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ReplayedSequence, ReplayError, ScriptEngine, replay, turn_ids, written_ids
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.base import Context, EpisodeView
from agentic_video.systems.framemind.ladder import FrameSampling
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.types.action import Answer, Calls, Illegal
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Aside, FrameRef, RecordedMessage, Trajectory, Turn
from tests.conftest import MemorySource

SYSTEM = FrameMind(low=FrameSampling(2, 28, 28), high=FrameSampling(2, 28, 28), tool_side=56)
ROOMY = TokenLimits(prompt=10**6, response=10**6, turn=10**6)
LOOK = '<think>a</think><tool_call>{"name": "FrameAt", "arguments": {"t": 7}}</tool_call><turn_sum>one</turn_sum>'
REPLY = "<think>c</think><answer>B</answer>"
CONTEXTS: tuple[Context, ...] = ("all", "latest_evidence")


def spelled(text: str, chat_format: ChatFormat) -> list[int]:
    """Ids that no tokenizer would choose: one for each character, and the end-of-turn token."""
    return [*(token for character in text for token in chat_format.encode(character)), chat_format.end_id]


def stopped(text: str, chat_format: ChatFormat) -> list[int]:
    """The same for a turn that a stop text ends."""
    return spelled(text, chat_format)[:-1]


def played(chat_format: ChatFormat, qa: VideoQA, system: FrameMind = SYSTEM) -> tuple[Trajectory, TokenPolicy]:
    """An episode of two turns as a rollout plays it."""
    turns = [stopped(LOOK, chat_format), spelled(REPLY, chat_format)]
    policy = TokenPolicy(ScriptEngine(turns), chat_format, ROOMY, system)
    return asyncio.run(play(system, policy, qa, MemorySource())), policy


def replayed(
    trajectory: Trajectory,
    qa: VideoQA,
    chat_format: ChatFormat,
    system: FrameMind = SYSTEM,
    limits: TokenLimits = ROOMY,
) -> tuple[ReplayedSequence, ...]:
    return asyncio.run(replay(trajectory, qa, system, chat_format, limits))


def test_pictures_of_another_model_get_the_sizes_of_this_one(chat_format: ChatFormat, qa: VideoQA) -> None:
    """A teacher that isn't Qwen2.5-VL was shown 100 x 60 pixels, which this processor rounds to 112 x 56."""
    system = replace(SYSTEM, context="all")
    trajectory, _ = played(chat_format, qa, system)

    def resized(parts: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(replace(part, width=100, height=60) if isinstance(part, FrameRef) else part for part in parts)

    opening = tuple(replace(message, parts=resized(message.parts)) for message in trajectory.opening)
    turns = tuple(replace(turn, observation=resized(turn.observation)) for turn in trajectory.turns)
    (sequence,) = replayed(replace(trajectory, opening=opening, turns=turns), qa, chat_format, system)
    assert {(visual.width, visual.height) for visual in sequence.visuals} == {(112, 56)}
    assert sequence.ids.count(chat_format.image_token_id) == 4 * 2 * len(sequence.visuals)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_replay_equals_the_rollout(context: Context, chat_format: ChatFormat, qa: VideoQA) -> None:
    system = replace(SYSTEM, context=context)
    trajectory, policy = played(chat_format, qa, system)
    assert trajectory.answer == "B"
    sequences = replayed(trajectory, qa, chat_format, system)
    assert len(sequences) == (1 if context == "all" else 2)
    for found, expected in zip(sequences, policy.sequences, strict=True):
        assert list(found.prompt_ids) == expected.prompt_ids
        assert list(found.response_ids) == expected.response_ids
        assert list(found.response_mask) == expected.response_mask
        assert list(found.ids) == expected.ids
        assert list(found.loss_mask) == [0] * len(expected.prompt_ids) + expected.response_mask
        assert [(visual.index, visual.width, visual.height) for visual in found.visuals] == [
            (frame.index, frame.width, frame.height) for frame in expected.visuals
        ]
        assert all(isinstance(visual, FrameRef) for visual in found.visuals)


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_turn_without_loss_is_shown_and_not_trained(context: Context, chat_format: ChatFormat, qa: VideoQA) -> None:
    system = replace(SYSTEM, context=context)
    trajectory, _ = played(chat_format, qa, system)
    first, last = trajectory.turns
    masked = replace(trajectory, turns=(replace(first, loss_mask=False), last))
    before, after = (replayed(record, qa, chat_format, system) for record in (trajectory, masked))
    assert [sequence.ids for sequence in after] == [sequence.ids for sequence in before]
    said = len(stopped(LOOK, chat_format))
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        # the first turn stands at the start of the only response, or is the whole first one
        gone = said if number == 0 else 0
        assert list(other.response_mask) == [0] * gone + list(one.response_mask[gone:])


def test_without_ids_the_text_is_encoded(chat_format: ChatFormat, qa: VideoQA) -> None:
    trajectory, _ = played(chat_format, qa)
    bare = replace(trajectory, turns=tuple(replace(turn, token_ids=()) for turn in trajectory.turns))
    first, last = replayed(bare, qa, chat_format)
    # a stop text ends the first turn, the end-of-turn token the last one
    assert SYSTEM.stop == ("</turn_sum>",)
    answer = [*chat_format.encode(REPLY), chat_format.end_id]
    assert list(first.response_ids) == chat_format.encode(LOOK)
    assert list(last.response_ids)[-len(answer) :] == answer


def test_written_turns_end_as_an_engine_would_end_them(chat_format: ChatFormat) -> None:
    eos, text = chat_format.end_id, "<answer>B</answer>"
    assert written_ids(text, chat_format, ()) == [*chat_format.encode(text), eos]
    assert written_ids(text, chat_format, ("</answer>",)) == chat_format.encode(text)
    assert written_ids(text + " and more", chat_format, ("</answer>",)) == chat_format.encode(text)


@pytest.mark.parametrize("ids", [(), (7,), (10**6,)], ids=["none", "another text's", "another tokenizer's"])
def test_ids_of_another_model_are_not_used(ids: Sequence[int], chat_format: ChatFormat) -> None:
    turn = Turn("some words", Answer(""), 2, token_ids=tuple(ids))
    expected = chat_format.encode("some words")
    assert turn_ids(turn, chat_format, ()) == [*expected, chat_format.end_id]
    assert turn_ids(replace(turn, finished=False), chat_format, ()) == expected


def test_recorded_ids_end_with_the_token_of_a_stop_text(chat_format: ChatFormat) -> None:
    ids = chat_format.encode("some <words")
    joined = chat_format.encode("some <words>.")
    # as recorded: the text up to the stop text, and all ids; a longer text is cut the same way
    for text in ("some <words", "some <words and more"):
        turn = Turn(text, Answer(""), 9, token_ids=tuple(ids))
        assert turn_ids(turn, chat_format, ("<words",)) == ids
    turn = Turn("some <words>", Answer(""), 9, token_ids=(*joined, *ids))
    kept = turn_ids(turn, chat_format, ("<words>",))
    assert kept == joined[: len(kept)] and chat_format.decode(kept).startswith("some <words>")


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (TokenLimits(10, 10**6, 10**6), r"data\.max_prompt_length"),
        (TokenLimits(10**6, 10**6, 9), r"turn 1 .*agentic_video\.max_turn_tokens"),
        (TokenLimits(10**6, 9, 10**6), r"data\.max_response_length"),
    ],
)
def test_budgets_are_kept(limits: TokenLimits, message: str, chat_format: ChatFormat, qa: VideoQA) -> None:
    trajectory, _ = played(chat_format, qa)
    with pytest.raises(ReplayError, match=message):
        replayed(trajectory, qa, chat_format, limits=limits)


def test_broken_episodes_are_refused(chat_format: ChatFormat, qa: VideoQA) -> None:
    trajectory, _ = played(chat_format, qa)
    first, last = trajectory.turns

    def with_first(text: str) -> Trajectory:
        return replace(trajectory, turns=(replace(first, text=text, token_ids=()), last))

    for broken, message in (
        (replace(trajectory, system="another"), "another"),
        (replace(trajectory, turns=()), "turn"),
        (with_first("<think>a<|image_pad|>"), "turn 1 "),
        (with_first("a<|im_end|>b"), "turn 1 "),
    ):
        with pytest.raises(ReplayError, match=message):
            replayed(broken, qa, chat_format)


def test_half_of_a_surrogate_pair_is_refused(chat_format: ChatFormat, qa: VideoQA) -> None:
    trajectory, _ = played(chat_format, qa)
    opening, (first, *others) = trajectory.opening, trajectory.turns
    broken = {
        "turn 1 holds half": replace(trajectory, turns=(replace(first, text="a\ud800", token_ids=()), *others)),
        "the observation after turn 1": replace(trajectory, turns=(replace(first, observation=("\udfff",)), *others)),
        "the opening holds": replace(trajectory, opening=(replace(opening[0], parts=("\udc80",)), *opening[1:])),
    }
    for message, one in broken.items():
        with pytest.raises(ReplayError, match=message):
            asyncio.run(replay(one, qa, SYSTEM, chat_format, ROOMY))


@dataclass(frozen=True)
class Curious(FrameMind):
    """Begins each reply, and queries the model about each look."""

    low: FrameSampling = SYSTEM.low
    high: FrameSampling = SYSTEM.high
    tool_side: int = 56
    reply_prefix: str = "<think>"
    train_asides: bool = True

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        found = await super().observe(action, view)
        assert found is not None
        await view.ask([Message("user", (found.frames[0], "What is this?"))], max_tokens=9, prefix="It is")
        return found


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("with_ids", [True, False])
def test_prefixes_and_asides_are_replayed(
    context: Context, with_ids: bool, chat_format: ChatFormat, qa: VideoQA
) -> None:
    system = Curious(context=context)
    look, said = LOOK.removeprefix("<think>"), REPLY.removeprefix("<think>")
    turns = [written_ids(text, chat_format, system.stop if text == look else ()) for text in (look, " red", said)]
    policy = TokenPolicy(ScriptEngine(turns), chat_format, ROOMY, system)
    trajectory = asyncio.run(play(system, policy, qa, MemorySource()))
    assert trajectory.answer == "B" and [aside.text for aside in trajectory.all_asides] == ["It is red"]
    recorded = Trajectory.from_dict(trajectory.to_dict())
    if not with_ids:
        first, last = recorded.turns
        asides = tuple(replace(aside, token_ids=()) for aside in first.asides)
        recorded = replace(recorded, turns=(replace(first, token_ids=(), asides=asides), replace(last, token_ids=())))
    sequences = replayed(recorded, qa, chat_format, system)
    expected = [*policy.aside_sequences, *policy.sequences]
    assert len(sequences) == len(expected) == (2 if context == "all" else 3)
    for found, one in zip(sequences, expected, strict=True):
        assert (list(found.ids), list(found.response_mask)) == (one.ids, one.response_mask)
        assert len(found.visuals) == len(one.visuals)
    replies = [[chat_format.decode(found.ids[start:end]) for start, end in found.replies] for found in sequences]
    ended = chat_format.decode([chat_format.end_id])
    each = [[LOOK, REPLY + ended]] if context == "all" else [[LOOK], [REPLY + ended]]
    assert replies == [["It is red" + ended], *each]
    # a turn without loss has no trained side queries; and a system may train none
    first, last = recorded.turns
    masked = replace(recorded, turns=(replace(first, loss_mask=False), last))
    assert len(replayed(masked, qa, chat_format, system)) == len(expected) - 1
    assert len(replayed(recorded, qa, chat_format, replace(system, train_asides=False))) == len(expected) - 1


def test_a_turn_without_its_prefix_is_refused(chat_format: ChatFormat, qa: VideoQA) -> None:
    trajectory, _ = played(chat_format, qa)
    with pytest.raises(ReplayError, match=r"turn 1 .*<plan>"):
        replayed(trajectory, qa, chat_format, Curious(reply_prefix="<plan>"))


@pytest.mark.parametrize("text", ["It is<|im_end|> red", "It is<|image_pad|>", "It is\ud800"])
def test_side_queries_that_no_model_may_learn_are_refused(text: str, chat_format: ChatFormat, qa: VideoQA) -> None:
    trajectory, _ = played(chat_format, qa)
    aside = Aside((RecordedMessage("user", ("What?",)),), text, 3, prefix="It is", finished=False)
    with pytest.raises(ReplayError, match="side query 1"):
        replayed(replace(trajectory, asides=(aside,)), qa, chat_format, Curious(reply_prefix=""))


def test_an_unrecorded_picture_is_refused(chat_format: ChatFormat, qa: VideoQA) -> None:
    trajectory, _ = played(chat_format, qa)
    ref = next(part for part in trajectory.turns[0].observation if isinstance(part, FrameRef))
    assert not ref.made
    drawn = FrameRef.of(Frame(ref.index, ref.time, np.zeros((ref.height, ref.width, 3), np.uint8)))

    def showing(other: FrameRef) -> Trajectory:
        observation = tuple(other if part is ref else part for part in trajectory.turns[0].observation)
        return replace(trajectory, turns=(replace(trajectory.turns[0], observation=observation), trajectory.turns[1]))

    [sequence] = replayed(showing(drawn), qa, chat_format)[-1:]
    assert drawn in sequence.visuals
    with pytest.raises(ReplayError, match=f"frame {ref.index} "):
        replayed(showing(replace(drawn, picture=None)), qa, chat_format)
