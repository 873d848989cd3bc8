"""Prompts with images and clips as vLLM takes them.

vLLM writes placeholders itself: its prompt has each image and clip as short as a chat template writes it, and comes
with a clip's frames and their times. The result must be the rollout's own prompt.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agentic_video.families.base import expanded
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.types.frame import Clip, ImageRef, VideoRef
from agentic_video.types.message import Visual

CACHED: tuple[np.ndarray, dict[str, Any]] = (np.empty((0,)), {})
"""Stands for a clip that vLLM has: its parser refuses the None that it takes for an image."""


def clip_item(frames: Sequence[np.ndarray], times: Sequence[float]) -> tuple[np.ndarray, dict[str, Any]]:
    """A clip (RGB uint8 arrays (height, width, 3), seconds) as an item of vLLM's ``multi_modal_data["video"]``."""
    metadata = {
        # At one frame a second frame numbers are times, from which vLLM then computes what the rollout computes.
        "fps": 1.0,
        "frames_indices": [float(time) for time in times],
        "total_num_frames": len(times),
        "do_sample_frames": False,
    }
    return np.stack(list(frames)), metadata


def with_bare_clips(ids: Sequence[int], clips: Sequence[Clip | VideoRef], chat_format: ChatFormat) -> list[int]:
    """Shorten each clip of a prompt with single placeholders to the text that vLLM looks for."""
    written = [chat_format.clip_ids(clip, placeholders=False) for clip in clips]
    return expanded(ids, written, [chat_format.bare_clip_ids()] * len(clips))


def whole_prompt(
    ids: Sequence[int], shown: Sequence[Visual | ImageRef | VideoRef], chat_format: ChatFormat
) -> list[int]:
    """Expand a prompt with single placeholders to the rollout's; ``shown`` has each kind in order."""
    clips = [visual for visual in shown if isinstance(visual, Clip | VideoRef)]
    if clips:
        bare = [chat_format.clip_ids(clip, placeholders=False) for clip in clips]
        ids = expanded(ids, bare, [chat_format.clip_ids(clip) for clip in clips])
    images = [visual for visual in shown if not isinstance(visual, Clip | VideoRef)]
    if (count := ids.count(chat_format.image_token_id)) != len(images):
        raise ValueError(f"a prompt has {count} image placeholders for {len(images)} images")
    written = [chat_format.image_ids(image.width, image.height) for image in images]
    return expanded(ids, [sent for sent, _ in written], [made for _, made in written])


def one_placeholder(
    ids: Sequence[int], shown: Sequence[Visual | ImageRef | VideoRef], chat_format: ChatFormat
) -> list[int]:
    """Reduce a rollout's prompt to what vLLM is sent: it writes placeholders itself; ``shown`` is in their order."""
    whole, sent = [], []
    for visual in shown:
        if isinstance(visual, Clip | VideoRef):
            whole.append(chat_format.clip_ids(visual))
            sent.append(chat_format.bare_clip_ids())
        else:
            short, made = chat_format.image_ids(visual.width, visual.height)
            whole.append(made)
            sent.append(short)
    return expanded(ids, whole, sent)
