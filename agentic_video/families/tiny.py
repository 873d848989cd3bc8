"""The protocol of a family's tiny models: the real classes, small enough to learn on two cores."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import torch

from agentic_video.families.qwen_vl_clips import seconds_per_patch
from agentic_video.types.frame import Clip
from agentic_video.types.message import Visual

Images = Sequence[npt.NDArray[np.uint8]]
"""RGB pictures of shape (height, width, 3), sides multiples of :attr:`TinyModels.frame_side`, and clips (frames,
height, width, 3)."""


CHATML = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type in ('image', 'image_url') -%}
{{- 'IMAGE' -}}
{%- elif part.type == 'video' -%}
{{- 'VIDEO' -}}
{%- else -%}
{{- part.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
"""A chat template, with ``IMAGE`` and ``VIDEO`` where a family's markup belongs."""


class TinySizes(Protocol):
    """Widths and depths of a tiny model; see :class:`agentic_video.toyworld.model.ModelRecipe`."""

    @property
    def hidden(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def vision_hidden(self) -> int: ...
    @property
    def vision_heads(self) -> int: ...


class TinyModels(ABC):
    """Tiny models of a family, with what loads them in transformers, vLLM and verl."""

    special_tokens: ClassVar[tuple[str, ...]]
    """In the order of their ids, the end of text first."""
    end: ClassVar[str]
    """Token that ends a turn."""
    pad: ClassVar[str]
    bos: ClassVar[str | None] = None
    named_tokens: ClassVar[Mapping[str, str]] = {}
    """Special tokens that the processor looks up in the tokenizer by a name."""
    specials_first: ClassVar[bool] = False
    """Special tokens have the first ids; else they follow the words."""
    chat_template: ClassVar[str]
    axes: ClassVar[int] = 1
    """Rows of a sequence's positions."""

    @property
    @abstractmethod
    def frame_side(self) -> int:
        """Side in pixels of a frame of one visual token."""

    @property
    def clip_settings(self) -> dict[str, Any]:
        """Arguments of the video processor, on which a cached model depends; empty for a family without clips."""
        return {}

    @abstractmethod
    def processor(self, tokenizer: Any) -> Any:
        """The processor, which keeps frames of one visual token."""

    @abstractmethod
    def config_and_class(self, sizes: TinySizes, tokenizer: Any) -> tuple[Any, Any]:
        """The config with a tokenizer's vocabulary, and the class of the model."""

    def prepare(self, model: Any) -> None:  # noqa: B027 (most families need nothing)
        """Change random weights with which the model learns badly."""

    def write_tokenizer_files(self, folder: Path) -> None:  # noqa: B027 (most families need nothing)
        """Add what the family's tokenizer class expects next to a saved tokenizer."""

    @abstractmethod
    def embed(self, model: Any, ids: torch.Tensor, images: Images) -> dict[str, Any]:
        """Inputs of ``model.model.language_model``: ids of shape (batch, length), with frames at the placeholders."""

    def positions(self, model: Any, ids: Sequence[int], images: Images, seconds: Sequence[float] = ()) -> torch.Tensor:
        """Positions of one sequence, shape (:attr:`axes`, length); one axis counts tokens.

        Args:
            seconds: Seconds from one temporal patch of each clip to the next.
        """
        return torch.arange(len(ids))[None]


def pixels_of(shown: Sequence[Visual]) -> list[npt.NDArray[np.uint8]]:
    """Pixels of images and clips."""
    return [
        np.stack([frame.image for frame in part.frames]) if isinstance(part, Clip) else part.image for part in shown
    ]


def seconds_of(shown: Sequence[Visual]) -> list[float]:
    """Seconds from one temporal patch of each clip to the next."""
    return [seconds_per_patch(clip.times) for clip in shown if isinstance(clip, Clip)]


def decoded(model: Any, inputs: Mapping[str, Any], places: torch.Tensor, **options: Any) -> Any:
    """Output of the language model for :meth:`TinyModels.embed`'s inputs; ``places`` has the shape (axes, batch,
    length)."""
    places = places if len(places) > 1 else places[0]
    return model.model.language_model(**inputs, position_ids=places, **options)
