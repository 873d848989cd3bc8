"""The engine that trains: verl's for FSDP, which here takes references to images and makes patches of them itself.

What travels from a rollout to the trainer are the references of :class:`agentic_video.types.frame.ImageRef`. Each rank
fetches the distinct images of a micro-batch as bytes from the frame stores, and makes their patches on its device: a
thousandth of what float32 patches would move, as an image's patches are eight times its bytes, and the images of a
group are mostly the same.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from tensordict import NonTensorData, TensorDict
from verl.utils import tensordict_utils
from verl.utils.device import get_device_id
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from agentic_video.training.model_inputs import image_patches
from agentic_video.training.references import IMAGES, SequenceImages
from agentic_video.video.fetch import FrameFetcher

VENDOR = "agentic_video"
"""verl's registry has engines of a vendor beside its own of a device: this package's are asked for by this name."""
INPUTS = "multi_modal_inputs"
"""The field of a batch."""
KEPT_BYTES = 1 << 30
"""Bytes of images that a rank keeps from micro-batch to micro-batch, and from pass to pass of a step."""


@EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device=["cuda", "npu"], vendor=VENDOR)
class VideoEngine(FSDPEngineWithLMHead):
    """verl's engine, whose micro-batches may hold references in place of patches."""

    _fetcher: FrameFetcher | None = None

    def prepare_model_inputs(self, micro_batch: TensorDict) -> Any:
        """See verl's; references are replaced by patches on this rank's device."""
        images = [one for one in sequence_images(micro_batch) if one]
        if images:
            if self._fetcher is None:
                self._fetcher = FrameFetcher(images[0].store, KEPT_BYTES)
            refs = [ref for one in images for ref in one.refs]
            with ThreadPoolExecutor(1) as elsewhere:  # Ray complains of waiting on the thread of an actor's event loop
                fetched = elsewhere.submit(self._fetcher.fetch, refs).result()
            patches = image_patches(self.model_config.processor.image_processor, fetched, get_device_id())
            # What the model would do with them first, here once for each distinct image.
            dtype = getattr(self, "_autocast_dtype", torch.float32)
            micro_batch = with_patches(micro_batch, {key: one.to(dtype) for key, one in patches.items()})
        return super().prepare_model_inputs(micro_batch)


def sequence_inputs(batch: TensorDict) -> list[Mapping[str, Any]]:
    """The ``multi_modal_inputs`` of a batch's sequences."""
    given = [one.data if isinstance(one, NonTensorData) else one for one in batch.get(INPUTS, [])]
    return [one or {} for one in given]


def sequence_images(batch: TensorDict) -> list[SequenceImages | None]:
    """The references of a batch's sequences; None for one without any."""
    inputs = sequence_inputs(batch)
    return [SequenceImages.unpack(one[IMAGES]) if IMAGES in one else None for one in inputs]


def with_patches(batch: TensorDict, patches: Mapping[str, torch.Tensor]) -> TensorDict:
    """A batch whose sequences have patches in place of references; the batch itself stays as it is.

    Args:
        batch: With ``multi_modal_inputs``.
        patches: Of shape (patches, values of a patch), by the keys of references.
    """
    filled: list[dict[str, Any]] = []
    for inputs, images in zip(sequence_inputs(batch), sequence_images(batch), strict=True):
        rest = {name: value for name, value in inputs.items() if name != IMAGES}
        pixels = {"pixel_values": torch.cat([patches[ref.key] for ref in images.refs])} if images else {}
        filled.append({**pixels, **rest})
    copy = batch.copy()
    tensordict_utils.assign_non_tensor_stack(copy, INPUTS, filled)
    return copy
