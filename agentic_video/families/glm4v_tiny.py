"""Tiny GLM-4.1V: Qwen-VL's tiny models with other tokens, and a tower that interpolates positions and merges twice."""

from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from transformers import Glm4vImageProcessor
from transformers.models.glm4v.video_processing_glm4v import Glm4vVideoProcessor
from transformers.vision_utils import get_vision_position_ids

from agentic_video.families.qwen_vl_inputs import one_moment
from agentic_video.families.qwen_vl_tiny import MERGE, TEMPORAL_PATCH, TinyQwenVL, openai_clip, rope
from agentic_video.families.tiny import TinySizes


class TinyGlm4v(TinyQwenVL):
    """Tiny GLM-4.1V."""

    special_tokens = (
        *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        *("<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>", "<|image|>", "<|video|>"),
    )
    end, pad = "<|user|>", "<|endoftext|>"
    chat_template = """\
{{- '[gMASK]<sop>' -}}
{%- for message in messages -%}
{{- '<|observation|>\\n' if message.role == 'tool' else '<|' + message.role + '|>\\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type in ('image', 'image_url') -%}
{{- '<|begin_of_image|><|image|><|end_of_image|>' -}}
{%- elif part.type == 'video' -%}
{{- '<|begin_of_video|><|video|><|end_of_video|>' -}}
{%- else -%}
{{- part.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|assistant|>\\n' -}}
{%- endif -%}
"""
    token_ids: ClassVar[dict[str, str]] = {
        "image_token_id": "<|image|>",
        "video_token_id": "<|video|>",
        "image_start_token_id": "<|begin_of_image|>",
        "image_end_token_id": "<|end_of_image|>",
        "video_start_token_id": "<|begin_of_video|>",
        "video_end_token_id": "<|end_of_video|>",
    }
    classes = ("Glm4vConfig", "Glm4vForConditionalGeneration", "Glm4vProcessor")
    patch_side = 14
    timestamps = True

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return openai_clip()

    def image_processor(self, *, min_pixels: int, max_pixels: int, **settings: Any) -> Any:
        size = {"shortest_edge": TEMPORAL_PATCH * min_pixels, "longest_edge": TEMPORAL_PATCH * max_pixels}
        return Glm4vImageProcessor(size=size, **settings)

    @property
    def video_processor(self) -> Any:
        return Glm4vVideoProcessor

    def config_and_class(self, sizes: TinySizes, tokenizer: Any) -> tuple[Any, Any]:
        config, model_class = super().config_and_class(sizes, tokenizer)
        config.text_config.eos_token_id = tokenizer.convert_tokens_to_ids([self.end, self.pad, "<|observation|>"])
        return config, model_class

    def text_settings(self, half: int) -> dict[str, Any]:
        """See the base; ``attention_bias`` is vLLM's, and published: transformers has the biases in any case."""
        turned = {**rope(half // 2, 3 * half // 16), "partial_rotary_factor": 0.5}
        return {"rope_parameters": turned, "attention_bias": True}

    def vision_settings(self, sizes: TinySizes) -> dict[str, Any]:
        own = {"depth": 1, "image_size": 2 * self.frame_side, "intermediate_size": 2 * sizes.hidden}
        return {"hidden_size": sizes.vision_hidden, "out_hidden_size": sizes.hidden, **own}

    def write_tokenizer_files(self, folder: Path) -> None:
        """The family has no tokenizer class of its own."""

    def tower_grid(self, grid: torch.Tensor) -> torch.Tensor:
        return one_moment(grid)

    def placed(self, tower: Any, hidden: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        size = int(grid.prod())
        rows, columns = get_vision_position_ids(grid, MERGE).unbind(-1)
        places = tower.embeddings(hidden.new_zeros(size, hidden.shape[-1]), [size], grid, rows, columns)
        return tower.post_conv_layernorm(hidden) + places.repeat(len(hidden) // size, 1)

    def merged(self, tower: Any, hidden: torch.Tensor) -> torch.Tensor:
        cells = tower.post_layernorm(hidden).reshape(-1, MERGE**2, hidden.shape[-1]).transpose(1, 2).flatten(1)
        weight, bias = tower.downsample.weight, tower.downsample.bias
        return tower.merger(F.linear(cells, weight.reshape(len(weight), -1), bias))
