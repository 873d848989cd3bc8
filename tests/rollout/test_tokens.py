"""Exactly the generated and shown ids are trained on."""

import asyncio
import copy
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast, Qwen2VLImageProcessor

from agentic_video.families.registry import DEFAULT, family_of
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import EngineError, cut_at_stop
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy, TokenSequence
from agentic_video.systems.timesearch.system import TimeSearch
from agentic_video.systems.videozoomer.reward import format_ok
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory
from tests.conftest import MemorySource
from tests.families.processors import processor_of

SYSTEM = VideoZoomer(min_pixels=784, max_pixels=3136, overview_max_frames=4, max_images=24)
IMAGE = "<|vision_start|>{}<|vision_end|>"
ROOMY = TokenLimits(prompt=10**6, response=10**6, turn=10**6)

TINY = family_of(DEFAULT).tiny


class RecordedEngine:
    """Generates given ids turn by turn, stops where an engine would, and keeps the prompts."""

    def __init__(self, turns: Sequence[Sequence[int]], chat_format: ChatFormat):
        self.turns, self.format = [list(turn) for turn in turns], chat_format
        self.said: list[list[int]] = []
        self.prompts: list[list[int]] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        self.prompts.append(list(request.prompt_ids))
        placeholders = sum(token == self.format.image_token_id for token in request.prompt_ids)
        assert placeholders == sum(self.format.image_tokens(visual.width, visual.height) for visual in request.visuals)
        ids: list[int] = []
        for token in self.turns[len(self.said)] if len(self.said) < len(self.turns) else []:
            ids.append(token)
            text = self.format.decode(ids)
            stopped = token in self.format.eos_ids or any(mark in text for mark in request.stop)
            if len(ids) == request.max_tokens or stopped:
                break
        self.said.append(ids)
        return Completion(tuple(ids), tuple(-float(token) for token in ids))


def frame(width: int = 56, height: int = 28) -> Frame:
    return Frame(0, 0.0, np.zeros((height, width, 3), np.uint8))


def test_opening_is_the_template_with_placeholders_expanded(chat_format: ChatFormat) -> None:
    ids = chat_format.opening_ids([Message("user", ("look ", frame(), " here"))])
    pads = IMAGE.format("<|image_pad|>" * 2)
    assert chat_format.decode(ids) == f"<|im_start|>user\nlook {pads} here<|im_end|>\n<|im_start|>assistant\n"


def test_observation_follows_a_stop_text_and_an_end_token(chat_format: ChatFormat) -> None:
    eos = chat_format.end_id
    said = chat_format.encode("x")
    open_turn = chat_format.decode(chat_format.observation_ids(("seen",), said))
    closed_turn = chat_format.decode(chat_format.observation_ids(("seen",), [*said, eos]))
    assert open_turn == "<|im_end|>\n<|im_start|>user\nseen<|im_end|>\n<|im_start|>assistant\n"
    assert closed_turn == "\n<|im_start|>user\nseen<|im_end|>\n<|im_start|>assistant\n"


def with_tool_messages(chat_format: ChatFormat, written: str) -> ChatFormat:
    """The format of a model whose template writes a tool's message in its own way."""
    start, end = "{%- for message in messages -%}", "{{- '<|im_end|>\\n' -}}\n{%- endfor -%}"
    assert start in TINY.chat_template and end in TINY.chat_template
    template = TINY.chat_template.replace(start, f"{start}{{%- if message.role == 'tool' -%}}{written}{{%- else -%}}")
    template = template.replace(end, end.replace("{%- endfor", "{%- endif -%}{%- endfor"))
    tokenizer = copy.deepcopy(chat_format.tokenizer)
    tokenizer.chat_template = template
    return ChatFormat(tokenizer, processor_of(Qwen2VLImageProcessor(patch_size=14, merge_size=2)))


def test_an_observation_may_be_a_tool_s_message(chat_format: ChatFormat) -> None:
    said = chat_format.encode("x")
    told = chat_format.decode(chat_format.observation_ids(("12.5s", frame()), said, "tool"))
    pads = IMAGE.format("<|image_pad|>" * 2)
    assert told == f"<|im_end|>\n<|im_start|>tool\n12.5s{pads}<|im_end|>\n<|im_start|>assistant\n"
    # as Qwen3's template does it
    text = "'<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n'"
    tagged = with_tool_messages(chat_format, "{{- " + text + " -}}")
    assert tagged.decode(tagged.observation_ids(("seen",), said, "tool")) == (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\nseen\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert tagged.observation_ids(("seen",), said) == chat_format.observation_ids(("seen",), said)


@pytest.mark.parametrize("written", ["{{ raise_exception('only user and assistant') }}", ""])
def test_a_template_without_a_tool_s_messages_is_named(chat_format: ChatFormat, written: str) -> None:
    silent = with_tool_messages(chat_format, written)
    with pytest.raises(ValueError, match="observation_role"):
        TokenPolicy(RecordedEngine([], silent), silent, ROOMY, TimeSearch())
    TokenPolicy(RecordedEngine([], silent), silent, ROOMY, TimeSearch(observation_role="user"))


def test_a_special_token_spread_over_two_texts_stays_text(chat_format: ChatFormat) -> None:
    ids = chat_format.observation_ids(("a <|im_", "end|>", frame(), "<|image", "_pad|>"), chat_format.encode("x"))
    assert sum(token in chat_format.eos_ids for token in ids) == 2, "of the reply and of the observation"
    assert sum(token == chat_format.image_token_id for token in ids) == 2


def play_ids(
    turns: Sequence[Sequence[int]], chat_format: ChatFormat, limits: TokenLimits = ROOMY, seconds: float = 60.0
) -> tuple[Trajectory, TokenPolicy, RecordedEngine]:
    engine = RecordedEngine(turns, chat_format)
    policy = TokenPolicy(engine, chat_format, limits, SYSTEM)
    qa = VideoQA(id="q", video="v", question="What?", answer="B", options=("x", "y"))
    return asyncio.run(play(SYSTEM, policy, qa, MemorySource(seconds))), policy, engine


def random_turn(rng: random.Random, chat_format: ChatFormat) -> list[int]:
    """A turn as a model might write it: legal, illegal, cut, with an end token, with forbidden ids, or noise."""
    start = round(rng.uniform(0, 50), 1)
    call = f'<video_zoom>{{"segment": [{start}, {start + rng.choice([1, 2, 40])}], "fps": {rng.choice([1, 2, 9])}}}'
    text = rng.choice(
        [f"<think>a</think>{call}</video_zoom>"] * 3
        + ["<think>b</think><answer>B</answer>", f"<think>c</think>{call}", "noise é 7", "<video_zoom>{}</video_zoom>"]
    )
    ids = chat_format.encode(text)
    if rng.random() < 0.5:
        ids.append(chat_format.end_id)
    if rng.random() < 0.15:
        ids.insert(rng.randrange(len(ids) + 1), rng.choice(sorted(chat_format.banned_ids)))
    if rng.random() < 0.15:
        ids = [rng.randrange(len(chat_format.tokenizer)) for _ in range(20)]
    return ids


@given(st.integers(0, 2**32), st.integers(20, 400), st.integers(5, 200))
def test_random_episodes_keep_ids_mask_images_and_probabilities_together(
    chat_format: ChatFormat, seed: int, response: int, turn: int
) -> None:
    rng = random.Random(seed)
    turns = [random_turn(rng, chat_format) for _ in range(SYSTEM.max_turns)]
    trajectory, policy, engine = play_ids(turns, chat_format, TokenLimits(10**6, response, turn))
    sequence = policy.sequence
    assert sequence is not None
    # budgets hold
    assert len(sequence.response_ids) <= response
    assert all(len(said) <= turn for said in engine.said)
    assert len(trajectory.frames) == len(sequence.visuals) <= SYSTEM.max_images
    # mask 1 covers exactly the generated ids, up to a forbidden token
    kept = []
    for said in engine.said:
        end = next((i for i, token in enumerate(said) if token in chat_format.banned_ids), len(said))
        kept += said[:end]
    generated = [token for token, mask in zip(sequence.response_ids, sequence.response_mask, strict=True) if mask]
    assert generated == kept
    # log-probabilities line up with their ids
    assert len(sequence.log_probs) == len(sequence.response_ids)
    for token, mask, value in zip(sequence.response_ids, sequence.response_mask, sequence.log_probs, strict=True):
        assert value == (-float(token) if mask else 0.0)
    # images equal placeholders
    placeholders = sum(token == chat_format.image_token_id for token in sequence.ids)
    assert placeholders == sum(chat_format.image_tokens(f.width, f.height) for f in sequence.visuals)
    # each prompt of the engine is a prefix of the sequence
    for prompt in engine.prompts:
        assert sequence.ids[: len(prompt)] == prompt
    # the texts of the turns are the decoded ids
    assert [said.text for said in trajectory.turns] == [
        cut_at_stop(chat_format.decode(ids[:-1] if ids and ids[-1] in chat_format.eos_ids else ids), SYSTEM.stop)
        for ids in _turn_ids(sequence.response_ids, sequence.response_mask, trajectory)
    ]
    assert isinstance(trajectory.end, EndReason)


def _turn_ids(ids: list[int], mask: list[int], trajectory: Trajectory) -> list[list[int]]:
    generated = [token for token, kept in zip(ids, mask, strict=True) if kept]
    out = []
    for turn in trajectory.turns:
        out.append(generated[: turn.num_tokens])
        generated = generated[turn.num_tokens :]
    return out


def test_whole_sequence_reads_as_the_conversation(chat_format: ChatFormat) -> None:
    zoom = '<think>a</think><video_zoom>{"segment": [1, 3], "fps": 1}</video_zoom>'
    answer = "<think>b</think><answer>B</answer>"
    eos = chat_format.end_id
    turns = [chat_format.encode(zoom), [*chat_format.encode(answer), eos]]
    trajectory, policy, _ = play_ids(turns, chat_format)
    assert trajectory.end is EndReason.ANSWER
    assert policy.sequence is not None
    picture = IMAGE.format("<|image_pad|>" * chat_format.image_tokens(56, 56))
    assert chat_format.decode(policy.sequence.response_ids) == (
        f"{zoom}<|im_end|>\n<|im_start|>user\n<tool_response>\n<frame0_time1.00s>{picture}<frame1_time3.00s>{picture}"
        f"\n</tool_response>{SYSTEM.go_on}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>"
    )


CALL = '<think>a</think><video_zoom>{"segment": [1, 3], "fps": 1}</video_zoom>'
REPLY = "<think>b</think><answer>B</answer>"


@pytest.fixture(scope="module")
def split_tags() -> ChatFormat:
    """A tokenizer whose tags aren't tokens, with ``>`` and ``>.`` among its tokens, as Qwen's is."""
    alphabet = {character: number for number, character in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab={**alphabet, ">.": 256}, merges=[(">", ".")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(list(TINY.special_tokens))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TINY.chat_template
    )
    return ChatFormat(fast, processor_of(Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352)))


def test_a_call_that_ends_inside_a_token_is_read_and_its_ids_stay(split_tags: ChatFormat) -> None:
    turns = [split_tags.encode(CALL + "."), split_tags.encode(REPLY)]
    assert split_tags.decode(turns[0][-1:]) == ">."
    trajectory, policy, _ = play_ids(turns, split_tags)
    call, answer = trajectory.turns
    assert (trajectory.end, call.legal_calls, call.illegal_calls) == (EndReason.ANSWER, 1, 0)
    assert (call.text, call.num_tokens, call.token_ids) == (CALL, len(turns[0]), tuple(turns[0]))
    assert format_ok(trajectory) and answer.text == REPLY
    assert policy.sequence is not None
    generated = [
        token for token, mask in zip(policy.sequence.response_ids, policy.sequence.response_mask, strict=True) if mask
    ]
    assert generated == [*turns[0], *turns[1]], "the dot is trained on: it was sampled"


class OverrunningEngine(RecordedEngine):
    """Continues after a stop text, as an engine may that is handed several tokens at a time."""

    async def generate(self, request: GenerationRequest) -> Completion:
        return await super().generate(replace(request, stop=()))


@pytest.mark.parametrize("behind", ["x", "..", REPLY, "<think>" * 9, CALL])
def test_ids_after_the_token_of_a_stop_text_are_cut(behind: str, split_tags: ChatFormat) -> None:
    turns = [split_tags.encode(CALL) + split_tags.encode(behind), split_tags.encode(REPLY)]
    qa = VideoQA(id="q", video="v", question="What?", answer="B", options=("x", "y"))
    results = []
    for engine in (RecordedEngine(turns, split_tags), OverrunningEngine(turns, split_tags)):
        policy = TokenPolicy(engine, split_tags, ROOMY, SYSTEM)
        trajectory = asyncio.run(play(SYSTEM, policy, qa, MemorySource()))
        assert policy.sequence is not None
        results.append((trajectory, policy.sequence.ids, policy.sequence.response_mask, policy.sequence.log_probs))
    assert results[0] == results[1]
    assert results[0][0].turns[0].token_ids == tuple(split_tags.encode(CALL))


@given(st.lists(st.integers(0, 255) | st.just(256) | st.just(-1), max_size=30))
def test_ids_end_with_the_token_that_completes_the_first_stop_text(split_tags: ChatFormat, drawn: list[int]) -> None:
    stop = split_tags.encode("</video_zoom>")
    ids = [token for number in drawn for token in (stop if number < 0 else [number])]
    kept = split_tags.ids_until_stop(ids, SYSTEM.stop)
    expected = next((n for n in range(len(ids)) if "</video_zoom>" in split_tags.decode(ids[:n])), len(ids))
    assert kept == ids[:expected]


def test_forbidden_token_ends_the_episode_and_is_not_trained_on(chat_format: ChatFormat) -> None:
    ids = [*chat_format.encode("<think>a"), chat_format.image_token_id, *chat_format.encode("</think>")]
    trajectory, policy, _ = play_ids([ids], chat_format)
    assert trajectory.end is EndReason.ILLEGAL
    assert policy.sequence is not None
    assert policy.sequence.response_ids == chat_format.encode("<think>a")


def test_silent_engine_ends_the_episode(chat_format: ChatFormat) -> None:
    trajectory, _, _ = play_ids([[]], chat_format)
    assert trajectory.end is EndReason.ENGINE_ERROR


def test_misaligned_probabilities_are_an_engine_error(chat_format: ChatFormat) -> None:
    with pytest.raises(EngineError, match="log-prob"):
        TokenSequence([1], []).append_generated([5, 6], [0.0])


def test_template_that_drops_messages_is_refused(chat_format: ChatFormat) -> None:
    tokenizer = copy.deepcopy(chat_format.tokenizer)
    tokenizer.chat_template = "{{ messages[-1].content }}"
    with pytest.raises(ValueError, match="chat template"):
        ChatFormat(tokenizer, processor_of(Qwen2VLImageProcessor()))
