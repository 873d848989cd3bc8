"""A context that forgets images: one sequence a turn, with the latest images and all text as it was generated."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.episode import play
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy, TokenSequence
from agentic_video.systems.framemind.ladder import FrameSampling
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory
from tests.conftest import MemorySource

SYSTEM = FrameMind(
    low=FrameSampling(8, 28, 28),
    high=FrameSampling(4, 56, 56),
    tool_side=56,
    clip_min_frames=4,
    clip_max_frames=6,
    max_images=24,
)
ROOMY = TokenLimits(prompt=10**6, response=10**6, turn=10**6)
FIRST = (
    '<think>a</think><tool_call>{"name": "VideoClip", "arguments": {"t_start": 41, "t_end": 43}}</tool_call>'
    '<tool_call>{"name": "FrameAt", "arguments": {"t": 99}}</tool_call><turn_sum>one</turn_sum>'
)
SECOND = '<think>b</think><tool_call>{"name": "FrameAt", "arguments": {"t": 7}}</tool_call><turn_sum>two</turn_sum>'
THIRD = "<think>c</think><answer>B</answer>"


class RecordedEngine:
    """Generates given ids and keeps the requests."""

    def __init__(self, turns: Sequence[Sequence[int]]):
        self._turns = [list(turn) for turn in turns]
        self.asked: list[tuple[list[int], list[Frame]]] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        ids = self._turns[len(self.asked)]
        self.asked.append((list(request.prompt_ids), list(request.visuals)))
        return Completion(tuple(ids), tuple(-float(token) for token in ids))


def spelled(text: str, chat_format: ChatFormat) -> list[int]:
    """Ids that no tokenizer would choose for a text: one for each character."""
    ids = [token for character in text for token in chat_format.encode(character)]
    assert ids != chat_format.encode(text) and chat_format.decode(ids) == text
    return ids


Played = tuple[Trajectory, TokenPolicy, RecordedEngine, list[list[int]]]


def play_spelled(
    system: FrameMind,
    chat_format: ChatFormat,
    texts: Sequence[str] = (FIRST, SECOND, THIRD),
    limits: TokenLimits = ROOMY,
    rollout_index: int = 0,
) -> Played:
    said = [spelled(text, chat_format) for text in texts]
    said[-1].append(chat_format.end_id)
    engine = RecordedEngine(said)
    policy = TokenPolicy(engine, chat_format, limits, system)
    qa = VideoQA(id="q", video="v", question="What is shown?", answer="B", options=("x", "y"))
    episode = play(system, policy, qa, MemorySource(60.0), rollout_index=rollout_index)
    return asyncio.run(episode), policy, engine, said


@pytest.fixture(params=[0, 7], ids=["many small", "few large"])
def latest(request: pytest.FixtureRequest, chat_format: ChatFormat) -> Played:
    played = play_spelled(SYSTEM, chat_format, rollout_index=request.param)
    assert played[0].end is EndReason.ANSWER
    return played


def generated(sequence: TokenSequence) -> list[int]:
    return [token for token, mask in zip(sequence.response_ids, sequence.response_mask, strict=True) if mask]


def find(part: list[int], whole: list[int]) -> list[int]:
    """Positions of a run of ids in others."""
    return [i for i in range(len(whole) - len(part) + 1) if whole[i : i + len(part)] == part]


def test_each_turn_trains_exactly_its_generated_ids(latest: Played) -> None:
    _, policy, engine, said = latest
    assert [generated(sequence) for sequence in policy.sequences] == said
    for number, (sequence, ids) in enumerate(zip(policy.sequences, said, strict=True)):
        assert sequence.response_ids[-len(ids) :] == ids  # at the end: nothing follows
        assert len(sequence.response_mask) == len(sequence.log_probs) == len(sequence.response_ids)
        values = zip(sequence.response_ids, sequence.response_mask, sequence.log_probs, strict=True)
        assert all(value == (-float(token) if mask else 0.0) for token, mask, value in values)
        # earlier turns are unchanged and untrained, later ones absent
        end = 0
        for earlier in said[:number]:
            starts = find(earlier, sequence.response_ids)
            assert len(starts) == 1 and starts[0] >= end
            end = starts[0] + len(earlier)
            assert not any(sequence.response_mask[starts[0] : end])
        assert all(find(later, sequence.response_ids) == [] for later in said[number + 1 :])
        # the engine's prompt and pictures are those of the sequence
        prompt, frames = engine.asked[number]
        assert sequence.ids == prompt + ids
        assert [id(frame) for frame in sequence.visuals] == [id(frame) for frame in frames]


def test_only_the_latest_images_are_in_a_sequence(latest: Played, chat_format: ChatFormat) -> None:
    trajectory, policy, _, _ = latest
    opening = [part.index for message in trajectory.opening for part in message.parts if isinstance(part, FrameRef)]
    shown = [[frame.index for frame in sequence.visuals] for sequence in policy.sequences]
    # 41 .. 43 s in four frames, then the frame at 7 s
    assert shown == [opening, [410, 417, 423, 430], [70]]
    assert len(opening) == (8 if trajectory.rollout_index == 0 else 4)
    counts = []
    for sequence in policy.sequences:
        counts.append(sum(token == chat_format.image_token_id for token in sequence.ids))
        assert counts[-1] == sum(chat_format.image_tokens(frame.width, frame.height) for frame in sequence.visuals)
    # 56 x 56 pixels are four; the first view is 8 of one or 4 of four
    assert counts[1:] == [16, 4] and counts[0] in (8, 16)


def test_the_last_turn_reads_as_the_conversation_without_earlier_images(
    latest: Played, chat_format: ChatFormat
) -> None:
    trajectory, policy, _, _ = latest
    instructions = trajectory.opening[0].parts[0]
    picture = "<|vision_start|>" + "<|image_pad|>" * 4 + "<|vision_end|>"
    user, agent, end = "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n"
    assert chat_format.decode(policy.sequences[2].ids) == (
        f"{user}{instructions}\nWhat is shown?\nA. x\nB. y{end}{agent}{FIRST}{end}"
        # no image and no label of one; the call and the error stay
        f"{user}<tool_response>\nVideoClip:\n\n"
        f"ERROR: t lies outside the video, which lasts 60.00 seconds.\n</tool_response>{end}{agent}{SECOND}{end}"
        f"{user}<tool_response>\nFrameAt:\n<7.00s>{picture}\n</tool_response>{SYSTEM.last_turn_notice}{end}"
        f"{agent}{THIRD}<|im_end|>"
    )


def test_an_end_token_in_between_is_not_repeated(chat_format: ChatFormat) -> None:
    eos = chat_format.end_id
    said = [[*spelled(FIRST, chat_format), eos], [*spelled(THIRD, chat_format), eos]]
    policy = TokenPolicy(RecordedEngine(said), chat_format, ROOMY, SYSTEM)
    qa = VideoQA(id="q", video="v", question="What is shown?", answer="B", options=("x", "y"))
    asyncio.run(play(SYSTEM, policy, qa, MemorySource(60.0)))
    last = policy.sequences[-1]
    # the opening's user message ends in the prompt; the first turn, the observation and the answer end in the response
    assert sum(token == eos for token in last.response_ids) == 3
    assert generated(last) == said[1]


def test_a_context_of_everything_is_one_longer_sequence(chat_format: ChatFormat) -> None:
    trajectory, policy, _, said = play_spelled(replace(SYSTEM, context="all"), chat_format)
    assert trajectory.end is EndReason.ANSWER
    (sequence,) = policy.sequences
    assert generated(sequence) == [token for turn in said for token in turn]
    assert len(sequence.visuals) == 8 + 4 + 1
    _, forgetting, _, _ = play_spelled(SYSTEM, chat_format)
    assert max(len(shorter) for shorter in forgetting.sequences) < len(sequence)


def test_a_turn_without_images_drops_all_of_them(chat_format: ChatFormat) -> None:
    rest = "<think>hm</think><turn_sum>nothing yet</turn_sum>"
    trajectory, policy, _, _ = play_spelled(SYSTEM, chat_format, (rest, THIRD))
    assert trajectory.end is EndReason.ANSWER
    assert [len(sequence.visuals) for sequence in policy.sequences] == [8, 0]


def test_an_observation_beyond_the_budget_begins_no_sequence(chat_format: ChatFormat) -> None:
    room = len(spelled(FIRST, chat_format)) + 20
    trajectory, policy, _, said = play_spelled(SYSTEM, chat_format, (FIRST, THIRD), TokenLimits(10**6, room, 10**6))
    assert trajectory.end is EndReason.TOKEN_BUDGET
    assert [generated(sequence) for sequence in policy.sequences] == [said[0]]
    assert trajectory.turns[0].observation == ()
