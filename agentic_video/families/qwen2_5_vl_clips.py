"""A fix of vLLM's Qwen2.5-VL, which ignores the times of a clip's frames and assumes 24 frames a second."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from agentic_video.families.qwen_vl_clips import seconds_per_patch


class _TimedClips:
    """Mark of a processor that :func:`keep_clip_times` has replaced."""


def keep_clip_times() -> None:
    """Make vLLM's Qwen2.5-VL use the times of a clip's frames, before an engine is made."""
    import torch
    from vllm.model_executor.models import qwen2_5_vl, qwen2_vl
    from vllm.multimodal import MULTIMODAL_REGISTRY

    model: Any = qwen2_5_vl.Qwen2_5_VLForConditionalGeneration
    if issubclass(model._processor_factory.processor, _TimedClips):
        return

    class MetadataParser(qwen2_vl.Qwen2VLMultiModalDataParser):
        """Keeps a clip's metadata."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs, video_needs_metadata=True)

        def _get_video_with_metadata(self, video: Any) -> tuple[np.ndarray, dict[str, Any]]:
            frames, metadata = super()._get_video_with_metadata(video)
            return frames, metadata or {}

    class Info(qwen2_5_vl.Qwen2_5_VLProcessingInfo):
        """vLLM's, with that parser."""

        def get_data_parser(self) -> Any:
            """See vLLM's."""
            return MetadataParser(
                self.get_hf_config().vision_config.spatial_merge_size,
                expected_hidden_size=self._get_expected_hidden_size(),
            )

    class Processor(_TimedClips, qwen2_5_vl.Qwen2_5_VLMultiModalProcessor):
        """vLLM's, with each clip's seconds per temporal patch."""

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
            clips = [_times_of(metadata) for _, metadata in items]
            if not all(clips):
                return super()._call_hf_processor(prompt, plain, mm_kwargs, tok_kwargs)
            kwargs = {**mm_kwargs, "do_sample_frames": False}
            made = super()._call_hf_processor(prompt, plain, kwargs, tok_kwargs)
            seconds = [seconds_per_patch(times) for times in clips]
            made["second_per_grid_ts"] = torch.tensor(seconds, dtype=torch.float64)
            return made

    MULTIMODAL_REGISTRY.register_processor(Processor, info=Info, dummy_inputs=qwen2_5_vl.Qwen2_5_VLDummyInputsBuilder)(
        model
    )


def _times_of(metadata: Mapping[str, Any]) -> list[float]:
    """Seconds of frames that are sampled already; empty if vLLM is to sample, or knows too little."""
    indices, fps = metadata.get("frames_indices"), metadata.get("fps")
    if metadata.get("do_sample_frames") or not fps or indices is None or len(indices) < 2:
        return []
    return [index / fps for index in indices]
