"""Prompts with clips: ids by hand, counts and masks of any mixture, budgets, replay and vLLM's short form."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2VLImageProcessor

from agentic_video.families.registry import family_of
from agentic_video.rollout.costs import episode_costs
from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ScriptEngine, replay
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.rollout.vllm_prompts import clip_item, one_placeholder, whole_prompt, with_bare_clips
from agentic_video.systems.framemind.ladder import FrameSampling
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.toyworld.model import build_tokenizer, chat_format
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Message, Part, visuals_of
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Aside, ClipRef, EndReason, record_parts
from agentic_video.video.source import CountingSource
from tests.conftest import MemorySource
from tests.families.processors import QWEN_VL, processor_of

SAID = "frame 120: what colour is it at <12.0 seconds>?"
TOKENIZER = build_tokenizer([SAID])
FORMATS = {family: chat_format(build_tokenizer([SAID], family=family), family) for family in QWEN_VL}
ROOMY = TokenLimits(prompt=10**6, response=10**6, turn=10**6)


def frame(number: int, width: int = 64, height: int = 32, every: float = 0.5) -> Frame:
    return Frame(number, number * every, np.full((height, width, 3), number % 256, np.uint8))


def clip(count: int, width: int = 64, height: int = 32, start: int = 0) -> Clip:
    return Clip(tuple(frame(start + number, width, height) for number in range(count)))


def test_a_clip_of_qwen2_5_is_one_run() -> None:
    written = FORMATS["qwen2_5_vl"]
    # 56 x 28 pixels are two tokens; three frames are two temporal patches
    ids = written.opening_ids([Message("user", ("a ", clip(3, 56, 28), " b"))])
    pads = "<|video_pad|>" * 4
    assert written.decode(ids) == (
        f"<|im_start|>user\na <|vision_start|>{pads}<|vision_end|> b<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_clip_of_qwen3_tells_the_time_of_each_temporal_patch() -> None:
    written = FORMATS["qwen3_vl"]
    # 64 x 32 pixels are two tokens; frames at 0, 0.5, 1.0: patches at (0 + 0.5) / 2 and, the last frame twice, 1.0
    ids = written.opening_ids([Message("user", ("a ", clip(3), " b"))])
    pads = "<|vision_start|><|video_pad|><|video_pad|><|vision_end|>"
    assert written.decode(ids) == (
        f"<|im_start|>user\na <0.2 seconds>{pads}<1.0 seconds>{pads} b<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_clip_of_glm_tells_the_time_of_each_temporal_patch_after_it() -> None:
    written = FORMATS["glm4v"]
    # 56 x 28 pixels are two tokens; frames at 0, 0.5, 1.0, 1.5: patches at the first of two
    ids = written.opening_ids([Message("user", ("a ", clip(4, 56, 28), " b"))])
    pads = "<|begin_of_image|><|video|><|video|><|end_of_image|>"
    assert written.decode(ids) == (
        f"[gMASK]<sop><|user|>\na <|begin_of_video|>{pads}0{pads}1<|end_of_video|> b<|assistant|>\n"
    )


@pytest.mark.parametrize("family", QWEN_VL)
@pytest.mark.parametrize("before", ["", " <", "<|", "1", "seconds<0"])
def test_a_clip_s_ids_do_not_depend_on_the_text_around_it(family: str, before: str) -> None:
    written, shown = FORMATS[family], clip(4)
    alone = written.clip_ids(shown)
    for parts in ((before, shown, "0.5 seconds>"), (shown, before), (before, shown, shown)):
        ids = written.observation_ids(parts, [])
        at = next(start for start in range(len(ids)) if ids[start : start + len(alone)] == alone)
        assert written.decode(ids[:at]).endswith((before if parts[0] == before else "\n").replace("<|", "<|"))


def test_a_special_token_in_a_text_is_no_clip() -> None:
    written = FORMATS["qwen3_vl"]
    ids = written.observation_ids(("<|vision_start|><|video_pad|><|vision_end|>", clip(2), "<|video_pad|>"), [])
    assert ids.count(written.video_token_id) == 2
    assert written.video_token_id in written.banned_ids and written.image_token_id in written.banned_ids


def test_a_model_without_a_video_processor_is_shown_no_clips() -> None:
    plain = ChatFormat(TOKENIZER, processor_of(Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352)))
    with pytest.raises(ValueError, match="frames_as=images"):
        plain.opening_ids([Message("user", (clip(2),))])


def parts_of(side: int) -> st.SearchStrategy[list[Part]]:
    return st.lists(
        st.one_of(
            st.text(alphabet="ab <0.5seconds>", max_size=12),
            st.builds(lambda n, w: frame(n, side * w, side), st.integers(0, 9), st.integers(1, 2)),
            st.builds(
                lambda n, w, s: clip(n, side * w, side, start=s),
                st.integers(2, 6),
                st.integers(1, 2),
                st.integers(0, 40),
            ),
        ),
        max_size=8,
    )


@pytest.mark.parametrize("family", QWEN_VL)
@given(data=st.data())
def test_placeholders_and_masks_of_any_mixture(family: str, data: st.DataObject) -> None:
    written, side = FORMATS[family], family_of(family).tiny.frame_side
    opening, shown = data.draw(parts_of(side)), data.draw(parts_of(side))
    turns = [[*written.encode("say"), written.end_id]] * 2
    policy = TokenPolicy(ScriptEngine(turns), written, ROOMY, FrameMind(context="all"))

    async def run() -> None:
        assert await policy.begin([Message("user", tuple(opening))])
        await policy.say(None)
        assert await policy.show(tuple(shown))
        await policy.say(None)

    asyncio.run(run())
    (sequence,) = policy.sequences
    visuals = [*visuals_of(opening), *visuals_of(shown)]
    assert sequence.visuals == visuals
    clips = [visual for visual in visuals if isinstance(visual, Clip)]
    images = [visual for visual in visuals if not isinstance(visual, Clip)]
    assert sequence.ids.count(written.image_token_id) == sum(written.visual_tokens(image) for image in images)
    assert sequence.ids.count(written.video_token_id or -1) == sum(written.visual_tokens(video) for video in clips)
    said = [token for token, mask in zip(sequence.response_ids, sequence.response_mask, strict=True) if mask]
    assert said == [*turns[0], *turns[1]]

    # the prompt for vLLM, and the ids that it must make of it
    bare = one_placeholder(sequence.ids, visuals, written)
    pads = written.visual_token_ids
    short = [token for at, token in enumerate(sequence.ids) if not (token in pads and token == sequence.ids[at - 1])]
    assert bare == with_bare_clips(short, clips, written)  # verl's server has left one placeholder of each run
    assert bare.count(written.video_token_id or -1) == len(clips)
    assert whole_prompt(short, [*images, *clips], written) == sequence.ids

    # references have the same ids: a record is trained on as its rollout
    assert written.observation_ids(record_parts(shown), []) == written.observation_ids(shown, [])


def test_a_wrong_number_of_images_is_refused() -> None:
    written = FORMATS["qwen2_5_vl"]
    ids = written.observation_ids((frame(1, 28, 28),), [])
    for images in ([], [frame(1, 28, 28)] * 2):
        with pytest.raises(ValueError, match="placeholders"):
            whole_prompt(ids, images, written)


SYSTEM = FrameMind(
    low=FrameSampling(5, 28, 28),
    high=FrameSampling(5, 28, 28),
    tool_side=56,
    clip_min_frames=4,
    clip_max_frames=4,
    frames_as="video",
)
LOOK = (
    '<think>a</think><tool_call>{"name": "VideoClip", "arguments": {"t_start": 2, "t_end": 8}}</tool_call>'
    '<tool_call>{"name": "FrameAt", "arguments": {"t": 7}}</tool_call><turn_sum>one</turn_sum>'
)


def played(written: ChatFormat, qa: VideoQA, system: FrameMind = SYSTEM) -> tuple[Any, TokenPolicy]:
    turns = [written.encode(LOOK), [*written.encode("<think>c</think><answer>B</answer>"), written.end_id]]
    policy = TokenPolicy(ScriptEngine(turns), written, ROOMY, system)
    return asyncio.run(play(system, policy, qa, MemorySource())), policy


@pytest.mark.parametrize("context", ["all", "latest_evidence"])
def test_a_record_with_clips_is_replayed_as_its_rollout(context: str, qa: VideoQA) -> None:
    system, written = replace(SYSTEM, context=context), FORMATS["qwen2_5_vl"]
    trajectory, policy = played(written, qa, system)
    again = asyncio.run(replay(trajectory, qa, system, written, ROOMY))
    assert [list(sequence.ids) for sequence in again] == [sequence.ids for sequence in policy.sequences]
    kinds = [[isinstance(shown, ClipRef) for shown in sequence.visuals] for sequence in again]
    # the first view is a clip, and so is what VideoClip shows; what FrameAt shows is an image
    assert kinds == ([[True, True, False]] if context == "all" else [[True], [True, False]])


def test_budgets_count_frames_and_costs_count_tokens(qa: VideoQA) -> None:
    written = FORMATS["qwen2_5_vl"]
    trajectory, _ = played(written, qa)
    assert len(trajectory.frames) == 5 + 4 + 1
    # 3 temporal patches of one token, 2 of four tokens, one image of four
    source = CountingSource(MemorySource())
    source.requested, source.decoded, source.decode_seconds = 5, 3, 0.5
    counts = {"frames_requested": 5.0, "frames_decoded": 3.0, "decode_seconds": 0.5}
    assert episode_costs(trajectory, written, source) == {"visual_tokens": 3.0 + 8 + 4, **counts}
    asked = replace(trajectory, asides=(Aside((), "yes", 3, prompt_tokens=20), Aside((), "no", 2)))
    costs = episode_costs(asked, written, source)
    assert (costs["asides"], costs["aside_tokens"]) == (2.0, 25.0)
    few, _ = played(written, qa, replace(SYSTEM, context="all", max_images=9))
    assert few.end is EndReason.IMAGE_BUDGET


def test_a_clip_comes_to_vllm_with_its_times() -> None:
    shown = clip(3)
    frames, metadata = clip_item([picture.image for picture in shown.frames], shown.times)
    assert frames.shape == (3, 32, 64, 3) and frames.dtype == np.uint8
    assert metadata == {
        "fps": 1.0,
        "frames_indices": [0.0, 0.5, 1.0],
        "total_num_frames": 3,
        "do_sample_frames": False,
    }
