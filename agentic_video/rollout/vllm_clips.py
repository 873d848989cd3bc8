"""How vLLM is given clips, so that it makes the very ids and positions that the trainer has.

vLLM writes placeholders itself: it is given a prompt in which each clip is as short as a chat template writes it, and
the frames with their times. Qwen3-VL's timestamps follow from these times. Of a Qwen2.5-VL's video stock vLLM forgets
the times, and takes every one for a video of 24 frames a second; :func:`teach_clips` makes it keep them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentic_video.rollout.clips import expanded, seconds_per_patch
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.types.frame import Clip, ImageRef, VideoRef
from agentic_video.types.message import Visual

CACHED: tuple[np.ndarray, dict[str, Any]] = (np.empty((0,)), {})
"""Stands for a clip that vLLM has: its parser refuses the None that it takes for an image."""


def clip_item(frames: Sequence[np.ndarray], times: Sequence[float]) -> tuple[np.ndarray, dict[str, Any]]:
    """A clip as an item of ``multi_modal_data["video"]``.

    Args:
        frames: RGB uint8 arrays of shape (height, width, 3).
        times: In seconds.
    """
    metadata = {
        # Frame numbers at one a second are times: what is computed from them is what the rollout computes.
        "fps": 1.0,
        "frames_indices": [float(time) for time in times],
        "total_num_frames": len(times),
        "do_sample_frames": False,
    }
    return np.stack(list(frames)), metadata


def with_bare_clips(ids: Sequence[int], clips: Sequence[Clip | VideoRef], chat_format: ChatFormat) -> list[int]:
    """A prompt whose runs of placeholders are one placeholder each, with all of each clip as vLLM looks for it.

    Raises:
        ValueError: A clip isn't there.
    """
    written = [chat_format.clip_ids(clip, placeholders=False) for clip in clips]
    return expanded(ids, written, [chat_format.bare_clip_ids()] * len(clips))


def whole_prompt(
    ids: Sequence[int], shown: Sequence[Visual | ImageRef | VideoRef], chat_format: ChatFormat
) -> list[int]:
    """A prompt whose runs of placeholders are one placeholder each, with all of them: what the rollout has.

    Args:
        ids: Of the prompt.
        shown: Its images and its clips, each kind in order.
        chat_format: Counts placeholders.

    Raises:
        ValueError: There are more or fewer of a kind.
    """
    clips = [one for one in shown if isinstance(one, Clip | VideoRef)]
    if clips:
        written = [chat_format.clip_ids(clip, placeholders=False) for clip in clips]
        ids = expanded(ids, written, [chat_format.clip_ids(clip) for clip in clips])
    images = iter([one for one in shown if not isinstance(one, Clip | VideoRef)])
    found: list[int] = []
    for token in ids:
        count = 1
        if token == chat_format.image_token_id:
            image = next(images, None)
            if image is None:
                raise ValueError("a prompt has more image placeholders than images")
            count = chat_format.visual_tokens(image)
        found += [token] * count
    if next(images, None) is not None:
        raise ValueError("a prompt has fewer image placeholders than images")
    return found


def one_placeholder(ids: Sequence[int], tokens: Sequence[int | None]) -> list[int]:
    """Ids with one placeholder in place of each run of them: vLLM counts how many there are itself."""
    return [token for at, token in enumerate(ids) if not (at and token in tokens and token == ids[at - 1])]


def teach_clips() -> None:
    """Make vLLM's Qwen2.5-VL take the times of a clip's frames; videos that come without any stay as they are.

    Call it before an engine is made. Calling it again does nothing.
    """
    import torch
    from vllm.model_executor.models import qwen2_5_vl, qwen2_vl
    from vllm.multimodal import MULTIMODAL_REGISTRY

    model: Any = qwen2_5_vl.Qwen2_5_VLForConditionalGeneration
    if issubclass(model._processor_factory.processor, _Taught):
        return

    class Parser(qwen2_vl.Qwen2VLMultiModalDataParser):
        """Keeps what a clip comes with."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs, video_needs_metadata=True)

        def _get_video_with_metadata(self, video: Any) -> tuple[np.ndarray, dict[str, Any]]:
            frames, metadata = super()._get_video_with_metadata(video)
            return frames, metadata or {}

    class Info(qwen2_5_vl.Qwen2_5_VLProcessingInfo):
        """As vLLM's, with that parser."""

        def get_data_parser(self) -> Any:
            """See vLLM's."""
            return Parser(
                self.get_hf_config().vision_config.spatial_merge_size,
                expected_hidden_size=self._get_expected_hidden_size(),
            )

    class Processor(_Taught, qwen2_5_vl.Qwen2_5_VLMultiModalProcessor):
        """As vLLM's, with the seconds that clips come with."""

        def _call_hf_processor(
            self,
            prompt: str,
            mm_data: Mapping[str, object],
            mm_kwargs: Mapping[str, object],
            tok_kwargs: Mapping[str, object],
        ) -> Any:
            items: Any = mm_data.get("videos") or []
            if not items:
                return super()._call_hf_processor(prompt, mm_data, mm_kwargs, tok_kwargs)
            plain = {**mm_data, "videos": [frames for frames, _ in items]}
            times = [_times_of(metadata) for _, metadata in items]
            if not all(times):
                return super()._call_hf_processor(prompt, plain, mm_kwargs, tok_kwargs)
            kwargs = {**mm_kwargs, "do_sample_frames": False}
            made = super()._call_hf_processor(prompt, plain, kwargs, tok_kwargs)
            seconds = [seconds_per_patch(one) for one in times]
            made["second_per_grid_ts"] = torch.tensor(seconds, dtype=torch.float64)
            return made

    MULTIMODAL_REGISTRY.register_processor(Processor, info=Info, dummy_inputs=qwen2_5_vl.Qwen2_5_VLDummyInputsBuilder)(
        model
    )


def _times_of(metadata: Mapping[str, Any]) -> list[float]:
    """Times in seconds of frames that were chosen before; empty where vLLM is to choose, or knows too little."""
    indices, fps = metadata.get("frames_indices"), metadata.get("fps")
    if metadata.get("do_sample_frames") or not fps or indices is None or len(indices) < 2:
        return []
    return [index / fps for index in indices]


class _Taught:
    """Marks the processor of :func:`teach_clips`."""
