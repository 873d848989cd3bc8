"""Stop texts that end inside a token, with Qwen's own vocabulary and every token that can do it."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast, Qwen2VLImageProcessor
from transformers.convert_slow_tokenizer import TikTokenConverter

from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ScriptEngine, replay
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.base import System
from agentic_video.systems.framemind import FrameMind
from agentic_video.systems.framemind.reward import format_ok as framemind_format
from agentic_video.systems.framethinker import FrameThinker
from agentic_video.systems.framethinker.reward import format_ok as framethinker_format
from agentic_video.systems.timesearch import TimeSearch
from agentic_video.systems.timesearch.reward import format_ok as timesearch_format
from agentic_video.systems.videobrain import VideoBrain
from agentic_video.systems.videobrain.reward import gate_fault
from agentic_video.systems.videoo3 import VideoO3
from agentic_video.systems.videoo3.reward import format_score as videoo3_format
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.systems.videozoomer.reward import format_ok as videozoomer_format
from agentic_video.toyworld.model import CHAT_TEMPLATE, SPECIAL_TOKENS
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory
from agentic_video.utils.environment import DEFAULT_CACHE
from tests.conftest import REPOSITORY, MemorySource

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PACKAGE = "dashscope==1.20.0"
"""Ships Qwen's merges, ``qwen.tiktoken``; 1.3 MB, fetched once."""
CACHE = DEFAULT_CACHE.parent / "tests"
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ROOMY = TokenLimits(prompt=10**6, response=10**6, turn=10**6)

SYSTEMS: dict[str, tuple[System, str, str]] = {
    "videozoomer": (
        VideoZoomer(overview_max_frames=2),
        '<think>a</think><video_zoom>{"segment": [1, 3], "fps": 1}</video_zoom>',
        "<think>b</think><answer>B</answer>",
    ),
    "framethinker": (
        FrameThinker(overview_frames=2),
        "<think>from 10 to 90</think><action>choose frames between 10 and 90</action>",
        "<think>b</think><action>output answer: B</action>",
    ),
    "framemind": (
        FrameMind(),
        '<think>a</think><tool_call>{"name": "FrameAt", "arguments": {"t": 7}}</tool_call><turn_sum>one</turn_sum>',
        "<think>b</think><answer>B</answer>",
    ),
    "videobrain": (
        VideoBrain(overview_frames=2),
        '<thinking>a</thinking><tool_call>{"name": "uniform_sample", "arguments": {"start_frame": 0, '
        '"end_frame": 90}}</tool_call>',
        "<thinking>b</thinking><answer>B</answer>",
    ),
    "timesearch": (
        TimeSearch(overview_max_frames=2, csv=False, frames_as="images"),
        '<think>a</think><tool_call>{"name": "seek_video_frames", "arguments": {"start_time": 7, "end_time": 9}}'
        "</tool_call>",
        "<think>b</think><answer>B</answer>",
    ),
    "videoo3": (
        VideoO3(overview_max_frames=2, crop_max_frames=4, frames_as="images", go_on="", advice=""),
        '<think>a</think><grounding>{"temporal_segment": [1, 3], "sampling_strategy": "coarse"}</grounding>',
        "<think>b</think><answer>B</answer>",
    ),
}


def well_formed(trajectory: Trajectory) -> bool:
    """By the system's own rule."""
    if trajectory.system == "videobrain":
        return gate_fault(trajectory, duplicate_margin=1) is None
    if trajectory.system == "videoo3":
        return videoo3_format(trajectory) == 1.0
    rules = {
        "videozoomer": videozoomer_format,
        "framethinker": framethinker_format,
        "framemind": framemind_format,
        "timesearch": timesearch_format,
    }
    return rules[trajectory.system](trajectory)


def fetch_merges() -> Path:
    """Qwen's merges, from the cache or from the package index."""
    merges = CACHE / "dashscope" / "dashscope" / "resources" / "qwen.tiktoken"
    if not merges.is_file():
        uv = shutil.which("uv") or str(REPOSITORY / ".venv-tools" / "bin" / "uv")
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(CACHE / "dashscope"), PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"Qwen's merges can't be had: {PACKAGE} wasn't installed with uv ({error})")
    return merges


@pytest.fixture(scope="module")
def qwen() -> ChatFormat:
    merges = fetch_merges()
    saved = CACHE / "qwen"
    if not (saved / "tokenizer.json").is_file():
        made = TikTokenConverter(str(merges), PATTERN, extra_special_tokens=list(SPECIAL_TOKENS)).converted()
        fast = PreTrainedTokenizerFast(
            tokenizer_object=made,
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
            additional_special_tokens=[one for one in SPECIAL_TOKENS if one not in ("<|endoftext|>", "<|im_end|>")],
            chat_template=CHAT_TEMPLATE,
            clean_up_tokenization_spaces=False,
        )
        fast.save_pretrained(saved)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(saved)
    return ChatFormat(tokenizer, Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352))


@pytest.fixture(scope="module")
def endings(qwen: ChatFormat) -> list[int]:
    """The tokens that begin with ``>`` and go on."""
    vocabulary = qwen.tokenizer.get_vocab()
    return sorted(token for text, token in vocabulary.items() if text.startswith(">") and text != ">")


def test_the_vocabulary_is_qwens(qwen: ChatFormat, endings: list[int]) -> None:
    assert len(qwen.tokenizer) == 151_643 + len(SPECIAL_TOKENS)
    assert len(endings) == 265
    # as the published models cut it
    assert [qwen.decode([token]) for token in qwen.encode("</video_zoom>\n")] == ["</", "video", "_zoom", ">\n"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_call_is_read_whatever_token_its_stop_text_ends_in(
    name: str, qwen: ChatFormat, endings: list[int], qa: VideoQA
) -> None:
    system, call, answer = SYSTEMS[name]
    assert call.endswith(system.stop)
    answer_ids = [*qwen.encode(answer), min(qwen.eos_ids)]
    if name in ("framethinker", "timesearch"):
        answer_ids.pop()  # there a stop text ends the answer too
    # one system sees every token; what cuts the text is the same for all of them
    for ending in endings if name == "videozoomer" else endings[::10]:
        call_ids = [*qwen.encode(call[:-1]), ending]
        policy = TokenPolicy(ScriptEngine([call_ids, answer_ids]), qwen, ROOMY, system)
        trajectory = asyncio.run(play(system, policy, qa, MemorySource(size=(28, 28))))
        told = (name, qwen.decode([ending]))
        assert trajectory.end is EndReason.ANSWER and trajectory.answer == "B", told
        assert (trajectory.tool_calls, trajectory.illegal_calls) == (1, 0), told
        assert well_formed(trajectory), told
        assert trajectory.turns[0].text == call, told
        assert trajectory.turns[0].token_ids == tuple(call_ids), told
        # what is trained on, and again from the record, is what was sampled
        again = asyncio.run(replay(trajectory, qa, system, qwen, ROOMY))
        for built, kept in zip(again, policy.sequences, strict=True):
            assert (list(built.ids), list(built.response_mask)) == (kept.ids, kept.response_mask), told
        learnt = [
            token
            for sequence in policy.sequences
            for token, mask in zip(sequence.response_ids, sequence.response_mask, strict=True)
            if mask
        ]
        assert learnt == [*call_ids, *answer_ids], told
