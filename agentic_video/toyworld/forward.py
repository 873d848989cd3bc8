"""The tiny model's forward pass: equal to the stock one, but fast for many small pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import apply_rotary_pos_emb_vision
from transformers.vision_utils import get_vision_bilinear_indices_and_weights, get_vision_position_ids

from agentic_video.rollout.clips import seconds_per_patch, timed_positions
from agentic_video.toyworld.model import FAMILIES, MERGE, TEMPORAL_PATCH, FamilyName, family_of, video_processor
from agentic_video.types.frame import Clip
from agentic_video.types.message import Visual

Images = Sequence[npt.NDArray[np.uint8]]
"""RGB pictures of shape (height, width, 3), sides multiples of the family's ``frame_side``, and clips (frames, height,
width, 3)."""


def pixels_of(shown: Sequence[Visual]) -> list[npt.NDArray[np.uint8]]:
    """Pixels of images and clips."""
    return [
        np.stack([frame.image for frame in part.frames]) if isinstance(part, Clip) else part.image for part in shown
    ]


def seconds_of(shown: Sequence[Visual]) -> list[float]:
    """Seconds from one temporal patch of each clip to the next."""
    return [seconds_per_patch(clip.times) for clip in shown if isinstance(clip, Clip)]


def patches(images: Images, family: FamilyName = "qwen2_5_vl") -> npt.NDArray[np.float32]:
    """Patchify frames of one size as the image processor does.

    Returns:
        Normalised patches, shape (len(images), patches, 3 * 2 * patch_side**2); the patches of a visual token are
        adjacent.

    Raises:
        ValueError: The sizes differ, or aren't whole visual tokens.
    """
    traits = FAMILIES[family]
    height, width = images[0].shape[:2]
    if (
        any(image.shape != (height, width, 3) for image in images)
        or height % traits.frame_side
        or (width % traits.frame_side)
    ):
        raise ValueError(f"frames must be of one size, in multiples of {traits.frame_side}, got {images[0].shape}")
    side = traits.patch_side
    pixels = np.asarray(images, dtype=np.float32) / 255
    pixels = (pixels - np.asarray(traits.mean, np.float32)) / np.asarray(traits.std, np.float32)
    rows, columns = height // traits.frame_side, width // traits.frame_side
    cells = pixels.reshape(-1, rows, MERGE, side, columns, MERGE, side, 3).transpose(0, 1, 4, 2, 5, 7, 3, 6)
    cells = cells.reshape(len(images), -1, 3, 1, side**2)
    return np.ascontiguousarray(cells.repeat(TEMPORAL_PATCH, 3).reshape(len(images), -1, 3 * TEMPORAL_PATCH * side**2))


@dataclass(frozen=True)
class VisualTokens:
    """Visual tokens, shape (tokens, hidden), and the same for each language layer that DeepStack adds to (Qwen3-VL)."""

    features: torch.Tensor
    deepstack: tuple[torch.Tensor, ...] = ()


def encode(model: Any, images: Images) -> VisualTokens:
    """Visual tokens of frames, in order, as ``model.visual`` gives them.

    The stock code attends image by image in a loop; for hundreds of tiny images a batched call per size is many times
    as fast."""
    by_size: dict[tuple[int, ...], list[int]] = {}
    for number, image in enumerate(images):
        by_size.setdefault(image.shape, []).append(number)
    pieces: list[tuple[torch.Tensor, ...]] = [()] * len(images)
    for shape, numbers in by_size.items():
        if len(shape) == 4:
            for number in numbers:
                pieces[number] = _encode_clip(model, images[number])
            continue
        streams = _encode_equal(model, [images[number] for number in numbers])
        for place, number in enumerate(numbers):
            pieces[number] = tuple(stream[place] for stream in streams)
    features, *deepstack = (torch.cat(stream) for stream in zip(*pieces, strict=True))
    return VisualTokens(features, tuple(deepstack))


def _encode_clip(model: Any, clip: npt.NDArray[np.uint8]) -> tuple[torch.Tensor, ...]:
    """Features, then DeepStack's, of a clip by the stock tower; each of shape (tokens, hidden)."""
    family = family_of(model)
    processed = video_processor(family)(
        videos=[torch.from_numpy(clip)], do_sample_frames=False, input_data_format="channels_last", return_tensors="pt"
    )
    output = model.model.visual(processed["pixel_values_videos"], grid_thw=processed["video_grid_thw"])
    return (output.pooler_output, *(getattr(output, "deepstack_features", None) or ()))


def _encode_equal(model: Any, images: Images) -> list[torch.Tensor]:
    """Features, then DeepStack's, of frames of one size; each of shape (images, tokens, hidden)."""
    tower, family = model.model.visual, family_of(model)
    pixels = torch.from_numpy(patches(images, family))
    count, size = pixels.shape[:2]
    side = FAMILIES[family].patch_side
    grid = torch.tensor([[1, images[0].shape[0] // side, images[0].shape[1] // side]])
    angles = tower.rotary_pos_emb(get_vision_position_ids(grid, MERGE)).reshape(size, -1)
    angles = torch.cat((angles, angles), -1).repeat(count, 1)
    weight = tower.patch_embed.proj.weight
    hidden = F.linear(pixels.reshape(count * size, -1), weight.reshape(len(weight), -1), tower.patch_embed.proj.bias)
    if family == "qwen3_vl":
        indices, weights = get_vision_bilinear_indices_and_weights(
            grid, num_grid_per_side=tower.num_grid_per_side, spatial_merge_size=MERGE
        )
        hidden = hidden + (tower.pos_embed(indices) * weights[:, :, None]).sum(0).repeat(count, 1)
    deepstack = []
    for number, block in enumerate(tower.blocks):
        attention = block.attn
        query, key, value = (
            attention.qkv(block.norm1(hidden)).reshape(count * size, 3, attention.num_heads, -1).unbind(1)
        )
        query, key = apply_rotary_pos_emb_vision(query, key, angles.cos(), angles.sin())
        query, key, value = (
            part.reshape(count, size, attention.num_heads, -1).transpose(1, 2) for part in (query, key, value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, scale=attention.scaling)
        hidden = hidden + attention.proj(mixed.transpose(1, 2).reshape(count * size, -1))
        hidden = hidden + block.mlp(block.norm2(hidden))
        if family == "qwen3_vl" and number in tower.deepstack_visual_indexes:
            merger = tower.deepstack_merger_list[list(tower.deepstack_visual_indexes).index(number)]
            deepstack.append(merger(hidden))
    return [stream.reshape(count, size // MERGE**2, -1) for stream in (tower.merger(hidden), *deepstack)]


def embed(model: Any, ids: torch.Tensor, images: Images) -> dict[str, Any]:
    """Inputs of the language model: token ids of shape (batch, length), with frames at the placeholders.

    Returns:
        ``inputs_embeds`` of shape (batch, length, hidden) and, for Qwen3-VL, DeepStack's inputs.
    """
    embedded: torch.Tensor = model.model.language_model.embed_tokens(ids)
    if not len(images):
        return {"inputs_embeds": embedded}
    tokens = encode(model, images)
    placeholders = (ids == model.config.image_token_id) | (ids == model.config.video_token_id)
    inputs: dict[str, Any] = {"inputs_embeds": embedded.masked_scatter(placeholders.unsqueeze(-1), tokens.features)}
    if tokens.deepstack:
        inputs |= {"visual_pos_masks": placeholders, "deepstack_visual_embeds": list(tokens.deepstack)}
    return inputs


def positions(model: Any, ids: Sequence[int], images: Images, seconds: Sequence[float] = ()) -> torch.Tensor:
    """M-RoPE positions of one sequence, shape (3, length).

    Args:
        seconds: Seconds from one temporal patch of each clip to the next.
    """
    side = FAMILIES[family_of(model)].patch_side
    if seconds:
        return _positions_with_clips(model, ids, images, seconds)
    if all(image.shape[0] == image.shape[1] == MERGE * side for image in images):
        # With one token an image the three axes all count tokens.
        return torch.arange(len(ids))[None].expand(3, -1)
    row = torch.tensor([list(ids)])
    grids = torch.tensor([[1, image.shape[0] // side, image.shape[1] // side] for image in images])
    kinds = (row == model.config.image_token_id).int()
    found: torch.Tensor = model.model.get_rope_index(row, mm_token_type_ids=kinds, image_grid_thw=grids)[0][:, 0]
    return found


def _positions_with_clips(model: Any, ids: Sequence[int], images: Images, seconds: Sequence[float]) -> torch.Tensor:
    side, config = FAMILIES[family_of(model)].patch_side, model.config
    tokens = {"image_token": config.image_token_id, "video_token": config.video_token_id}
    grids = [
        [-(-len(image) // TEMPORAL_PATCH) if image.ndim == 4 else 1, image.shape[-3] // side, image.shape[-2] // side]
        for image in images
    ]
    clips = [grid for grid, image in zip(grids, images, strict=True) if image.ndim == 4]
    alone = [grid for grid, image in zip(grids, images, strict=True) if image.ndim == 3]
    if family_of(model) == "qwen2_5_vl":
        rate = config.vision_config.tokens_per_second
        timed = [(grid, step * rate) for grid, step in zip(clips, seconds, strict=True)]
        return torch.from_numpy(timed_positions(np.asarray(ids), alone, timed, merge=MERGE, **tokens))
    row = torch.tensor([list(ids)])
    kinds = (row == tokens["image_token"]).int() + 2 * (row == tokens["video_token"]).int()
    found: torch.Tensor = model.model.get_rope_index(
        row,
        mm_token_type_ids=kinds,
        image_grid_thw=torch.tensor(alone) if alone else None,
        video_grid_thw=torch.tensor(clips),
    )[0][:, 0]
    return found


def logits_at(
    model: Any, ids: torch.Tensor, images: Images, places: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    """Next-token logits at chosen places of right-padded sequences.

    Args:
        ids: Shape (batch, length).
        places: M-RoPE positions, shape (3, batch, length).
        wanted: Places of the logits, bool, shape (batch, length).

    Returns:
        Shape (number of places, vocabulary), in row-major order.
    """
    output = model.model.language_model(
        **embed(model, ids, images), position_ids=places, attention_mask=None, use_cache=False
    )
    logits: torch.Tensor = model.lm_head(output.last_hidden_state[wanted])
    return logits
