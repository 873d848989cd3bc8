"""verl's FSDP engine, which makes patches of image references itself.

Each rank fetches the distinct images of a micro-batch as bytes from the frame stores, and makes their patches on its
device, while it computes the micro-batch before: a thousandth of what float32 patches would move. Samples of SFT and
KTO come with their pixels. A micro-batch's clips go through the model as images of several moments: verl's forward
would run the vision tower once for images and once more for clips, and under FSDP all ranks must run it equally often,
whatever their micro-batches hold.
"""

import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, TensorDict
from verl.utils import tensordict_utils
from verl.utils.device import get_device_id
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from agentic_video.config.features import BLIND
from agentic_video.families.base import ModelFamily
from agentic_video.families.registry import family_of
from agentic_video.training.engines.checkpoints import CheckpointManager
from agentic_video.training.engines.loss_means import over_episodes, prepare_means, trained_rows
from agentic_video.training.engines.pixels import WAITED, shared_pixels
from agentic_video.training.inputs.model_inputs import (
    PIXELS,
    Pixels,
    converted,
    with_patches_of_raw,
)
from agentic_video.training.inputs.references import IMAGES, SequenceImages
from agentic_video.training.inputs.spans import HIDDEN, attention_allowed
from agentic_video.types.frame import VideoRef
from agentic_video.utils.host import memory_limit
from agentic_video.video.fetch import FrameFetcher, kept_bytes
from agentic_video.video.store_config import StoreConfig

VENDOR = "agentic_video"
"""Name of this engine in verl's registry (``VERL_ENGINE_VENDOR``)."""
INPUTS = "multi_modal_inputs"
"""The field of a batch."""


@cache
def shared_fetcher(config: StoreConfig | None) -> FrameFetcher:
    """This process's, which the actor and the reference model share."""
    ranks = int(os.environ.get("RAY_LOCAL_WORLD_SIZE") or os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return FrameFetcher(config, kept_bytes(memory_limit(), ranks))


@EngineRegistry.register("language_model", ["fsdp", "fsdp2"], device=["cuda", "npu"], vendor=VENDOR)
class VideoEngine(FSDPEngineWithLMHead):
    """verl's engine, whose micro-batches may hold references or raw pixels instead of patches."""

    hidden_probability: float = 0.0
    """Of each batch that is trained on, the chance that it hides what its sequences list as ``HIDDEN`` (SFT)."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._hides = False
        self._draws = random.Random(0)  # the same on all ranks

    def initialize(self) -> None:
        """See verl's; with our manager of checkpoints."""
        family = family_of(self.model_config.hf_config)
        if self.model_config.use_fused_kernels and not family.fused:
            raise ValueError(f"use_fused_kernels: {BLIND} {family.model_types[0]}; set False")
        super().initialize()
        self.checkpoint_manager = CheckpointManager(
            model=self.module,
            optimizer=self.optimizer,
            lr_scheduler=self.lr_scheduler,
            processing_class=self.model_config.get_processor(),
            checkpoint_config=self.checkpoint_config,  # type: ignore[arg-type]  # verl passes the same
            trust_remote_code=self.model_config.trust_remote_code,
        )

    def _build_lora_module(self, module: Any) -> Any:
        """Let no gradient reach a vision tower of which nothing is trained.

        verl asks transformers for inputs that need gradients, and gets them at the vision tower too, in vain.
        """
        wrapped = super()._build_lora_module(module)
        tower_of = family_of(module).tower
        for name, tower in module.named_modules():
            if name.rpartition(".")[2] == tower_of and not any(weight.requires_grad for weight in tower.parameters()):
                for hook in getattr(module, "_require_grads_hooks", ()):
                    if any(hook.id in part._forward_hooks for part in tower.modules()):
                        hook.remove()
        return wrapped

    def train_batch(self, data: TensorDict, loss_function: Any) -> Any:
        self._hides = self._draws.random() < self.hidden_probability
        is_policy = "advantages" in data.keys()  # noqa: SIM118 (a TensorDict)
        if is_policy:
            rank = self.get_data_parallel_rank()
            tokens = prepare_means(data, self._gathered(trained_rows(data, rank)), rank)
            loss_function = over_episodes(loss_function, tokens, self.get_data_parallel_size())
        try:
            output = super().train_batch(data, loss_function)
        finally:
            self._hides = False
        if is_policy:  # SFT logs metrics as they are
            output["metrics"][WAITED] = [shared_pixels().waited]  # a list, as of micro-batches
        return output

    def forward_backward_batch(self, *args: Any, **named: Any) -> Any:
        """See verl's; with the pixels of micro-batches made ahead."""
        with shared_pixels().one_pass(self._patcher()):
            return super().forward_backward_batch(*args, **named)

    def _gathered(self, part: Any) -> list[Any]:
        """An object of each rank that has rows of its own."""
        group = self.get_data_parallel_group()
        parts: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(parts, part, group)
        return parts

    def prepare_model_inputs(self, micro_batch: TensorDict) -> Any:
        """See verl's; with patches on this rank's device, and with a mask where something is hidden."""
        given = sequence_inputs(micro_batch)
        hidden = [inputs.get(HIDDEN) for inputs in given]
        if any(spans is not None for spans in hidden):
            rest = [{key: value for key, value in inputs.items() if key != HIDDEN} for inputs in given]
            micro_batch = with_inputs(micro_batch, rest)
        model_inputs, output_args = super().prepare_model_inputs(self._with_patches(micro_batch))
        processor = self.model_config.processor
        model_inputs |= family_of(processor).token_inputs(processor, model_inputs["input_ids"])
        if self._hides and any(spans is not None and len(spans) for spans in hidden):
            mask = model_inputs["attention_mask"]
            kind = getattr(self.model_config.hf_config, "_attn_implementation", None)
            if mask is None or kind != "sdpa":
                raise ValueError(
                    "agentic_video.sft.hidden needs model.use_remove_padding=False and "
                    f"model.override_config.attn_implementation=sdpa (it is {kind})"
                )
            listed = [[] if spans is None else spans.tolist() for spans in hidden]
            model_inputs["attention_mask"] = attention_allowed(listed, mask.shape[-1]).to(mask.device)
        return model_inputs, output_args

    def _patcher(self) -> Callable[[TensorDict], list[Mapping[str, Any]] | None]:
        """What makes :func:`patched_inputs` of a micro-batch, in any thread."""
        # the model's own first conversion, here once for each distinct image
        dtype = getattr(self, "_autocast_dtype", torch.float32)
        processor, device = self.model_config.processor, get_device_id()
        return lambda micro_batch: patched_inputs(micro_batch, processor, device, dtype)

    def _with_patches(self, micro_batch: TensorDict) -> TensorDict:
        made = shared_pixels().take(micro_batch, self._patcher())
        if made is not None:
            micro_batch = with_inputs(micro_batch, made)
        return in_one_pass(micro_batch, self.model_config.processor)


def patched_inputs(
    micro_batch: TensorDict, processor: Any, device: Any, dtype: torch.dtype
) -> list[Mapping[str, Any]] | None:
    """Inputs of a micro-batch's sequences with the model's pixels on a device; None if they are as they were."""
    batch = micro_batch
    if sequences := [images for images in sequence_images(batch) if images]:
        refs = [ref for images in sequences for ref in images.images]
        pixels = reference_pixels(processor, sequences, shared_fetcher(sequences[0].store).fetch(refs), device)
        pixels = {key: converted(some, dtype) for key, some in pixels.items()}
        batch = with_pixels(family_of(processor), batch, pixels)
    inputs = sequence_inputs(batch)
    if any(PIXELS in one for one in inputs):
        return [with_patches_of_raw(processor, one, device, dtype) for one in inputs]
    return None if batch is micro_batch else inputs


def freeze_vision(module: Any, merger: bool = True) -> int:
    """Freeze the vision tower, and the modules that make tokens of its patches; return the number of frozen weights."""
    family = family_of(module)
    frozen = []
    for name, parameter in module.named_parameters():
        path = name.split(".")
        # A tower may have several mergers (`deepstack_merger_list`), and may have them beside it.
        merges = any(family.merger in part for part in path)
        if (merger and merges) or (family.tower in path and not merges):
            frozen.append(parameter)
    if not frozen:
        raise ValueError(f"actor.freeze_vision_tower is set, but the model has no module named {family.tower!r}")
    for parameter in frozen:
        parameter.requires_grad_(False)
    return sum(parameter.numel() for parameter in frozen)


def with_inputs(batch: TensorDict, inputs: Sequence[Mapping[str, Any]]) -> TensorDict:
    """A copy of a batch with other inputs of its sequences."""
    # A copy of a batch, and a new value of a key that is there, go through all objects of each sequence.
    others: dict[str, Any] = {key: value for key, value in batch.items() if key != INPUTS}
    copy = TensorDict(others, batch_size=batch.batch_size)
    tensordict_utils.assign_non_tensor_stack(copy, INPUTS, list(inputs))
    return copy


def sequence_inputs(batch: TensorDict) -> list[Mapping[str, Any]]:
    """The ``multi_modal_inputs`` of a batch's sequences."""
    given = [inputs.data if isinstance(inputs, NonTensorData) else inputs for inputs in batch.get(INPUTS, [])]
    return [inputs or {} for inputs in given]


def sequence_images(batch: TensorDict) -> list[SequenceImages | None]:
    """The references of a batch's sequences; None for one without any."""
    return [SequenceImages.unpack(inputs[IMAGES]) if IMAGES in inputs else None for inputs in sequence_inputs(batch)]


def reference_pixels(
    processor: Any, sequences: Sequence[SequenceImages], images: Mapping[str, np.ndarray], device: Any = "cpu"
) -> Pixels:
    """Float32 inputs of sequences' visuals by the keys of references, from the pixels of all their images."""
    refs = {ref.key: ref for sequence in sequences for ref in sequence.refs}
    clips = {key: ref for key, ref in refs.items() if isinstance(ref, VideoRef)}
    alone = {key: images[key] for key in refs if key not in clips}
    pixels = {key: [images[frame.key] for frame in ref.frames] for key, ref in clips.items()}
    return family_of(processor).pixels(processor, alone, pixels, device)


def in_one_pass(batch: TensorDict, processor: Any) -> TensorDict:
    """The batch, or a copy of it, for which the vision tower runs once; see ``ModelFamily.in_one_pass``."""
    family, ids, given = family_of(processor), batch["input_ids"], sequence_inputs(batch)
    if not given:
        return batch
    pairs = zip(ids.unbind(), given, strict=True)
    rows, filled = zip(*(family.in_one_pass(processor, row, inputs) for row, inputs in pairs), strict=True)
    if all(new is old for new, old in zip(filled, given, strict=True)):
        return batch
    copy = with_inputs(batch, filled)
    copy["input_ids"] = torch.nested.nested_tensor_from_jagged(torch.cat(rows), ids.offsets())
    return copy


def with_pixels(family: ModelFamily, batch: TensorDict, pixels: Pixels) -> TensorDict:
    """A copy of a batch whose sequences have pixels, given by the keys of references, instead of references."""
    filled: list[dict[str, Any]] = []
    for inputs, images in zip(sequence_inputs(batch), sequence_images(batch), strict=True):
        rest = {name: value for name, value in inputs.items() if name != IMAGES}
        made = family.joined([pixels[ref.key] for ref in images.refs]) if images else {}
        filled.append({**made, **rest})
    return with_inputs(batch, filled)
