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
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.systems.videozoomer.reward import format_ok
from agentic_video.toyworld.model import CHAT_TEMPLATE, SPECIAL_TOKENS
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason
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
SYSTEM = VideoZoomer(overview_max_frames=2)
CALL = '<think>a</think><video_zoom>{"segment": [1, 3], "fps": 1}</video_zoom>'
ANSWER = "<think>b</think><answer>B</answer>"


def fetch_merges() -> Path:
    """Qwen's merges, from the cache or from the package index."""
    merges = CACHE / "dashscope" / "dashscope" / "resources" / "qwen.tiktoken"
    if not merges.is_file():
        uv = shutil.which("uv") or str(REPOSITORY / ".venv-tools" / "bin" / "uv")
        command = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(CACHE / "dashscope"), PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"Qwen's merges are not available: {PACKAGE} wasn't installed with uv ({error})")
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
            additional_special_tokens=[
                token for token in SPECIAL_TOKENS if token not in ("<|endoftext|>", "<|im_end|>")
            ],
            chat_template=CHAT_TEMPLATE,
            clean_up_tokenization_spaces=False,
        )
        fast.save_pretrained(saved)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(saved)
    return ChatFormat(tokenizer, Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352))


def test_a_call_is_read_whatever_token_its_stop_text_ends_in(qwen: ChatFormat, qa: VideoQA) -> None:
    vocabulary = qwen.tokenizer.get_vocab()
    endings = sorted(token for text, token in vocabulary.items() if text.startswith(">") and text != ">")
    assert len(qwen.tokenizer) == 151_643 + len(SPECIAL_TOKENS) and len(endings) == 265
    # tokenised like the published models
    assert [qwen.decode([token]) for token in qwen.encode("</video_zoom>\n")] == ["</", "video", "_zoom", ">\n"]
    answer_ids = [*qwen.encode(ANSWER), min(qwen.eos_ids)]
    for ending in endings:
        call_ids = [*qwen.encode(CALL[:-1]), ending]
        policy = TokenPolicy(ScriptEngine([call_ids, answer_ids]), qwen, ROOMY, SYSTEM)
        trajectory = asyncio.run(play(SYSTEM, policy, qa, MemorySource(size=(28, 28))))
        note = qwen.decode([ending])
        assert trajectory.end is EndReason.ANSWER and trajectory.answer == "B", note
        assert (trajectory.tool_calls, trajectory.illegal_calls) == (1, 0) and format_ok(trajectory), note
        assert trajectory.turns[0].text == CALL and trajectory.turns[0].token_ids == tuple(call_ids), note
        # the sampled ids are trained on, also when replayed from the record
        (replayed,) = asyncio.run(replay(trajectory, qa, SYSTEM, qwen, ROOMY))
        (kept,) = policy.sequences
        assert (list(replayed.ids), list(replayed.response_mask)) == (kept.ids, kept.response_mask), note
        trained = [token for token, mask in zip(kept.response_ids, kept.response_mask, strict=True) if mask]
        assert trained == [*call_ids, *answer_ids], note
