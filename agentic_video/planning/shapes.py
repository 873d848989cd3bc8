"""Shapes of models, and their numbers of parameters."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agentic_video.config.typed import dataclass_from
from agentic_video.utils.errors import SetupError, did_you_mean, one_line

PUBLISHED = Path(__file__).with_name("shapes.yaml")
FAMILIES = ("qwen2_5_vl", "qwen3_vl")
"""``model_type`` of the models whose parameters are counted."""


@dataclass(frozen=True)
class TextShape:
    """Language model, from ``text_config``; ``tied`` if the output head is the embedding."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool


@dataclass(frozen=True)
class VisionShape:
    """Vision tower, from ``vision_config``.

    Attributes:
        patch: Side of a patch in pixels.
        merge: Patches along a side of a visual token.
        temporal: Frames per patch.
        deepstack: Further mergers, whose features enter early decoder layers (Qwen3-VL).
        positions: Learnt positions (Qwen3-VL).
    """

    depth: int
    hidden: int
    heads: int
    intermediate: int
    patch: int
    merge: int = 2
    temporal: int = 2
    deepstack: int = 0
    positions: int = 0

    @property
    def patch_values(self) -> int:
        """Numbers of a patch: RGB, ``temporal`` times."""
        return 3 * self.temporal * self.patch**2


@dataclass(frozen=True)
class ModelShape:
    """A vision-language model of a family in :data:`FAMILIES`."""

    family: str
    text: TextShape
    vision: VisionShape
    name: str = ""

    @property
    def layer(self) -> int:
        """Parameters of a decoder layer (``modeling_qwen2_5_vl.py``, ``modeling_qwen3_vl.py``)."""
        text = self.text
        queries, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
        attention = text.hidden * (queries + 2 * keys) + queries * text.hidden
        # Qwen2.5 has biases on queries, keys and values; Qwen3 norms of a query's and of a key's head
        attention += queries + 2 * keys if self.family == "qwen2_5_vl" else 2 * text.head_dim
        return attention + 3 * text.hidden * text.intermediate + 2 * text.hidden

    @property
    def embedding(self) -> int:
        """Parameters of the embedding; the output head has as many, unless tied."""
        return self.text.vocab * self.text.hidden

    @property
    def language(self) -> int:
        """Parameters of the language model, its head included."""
        return self.text.layers * self.layer + (1 if self.text.tied else 2) * self.embedding + self.text.hidden

    @property
    def block(self) -> int:
        """Parameters of a block of the vision tower."""
        width, inner = self.vision.hidden, self.vision.intermediate
        attention = 4 * width * width + 4 * width
        if self.family == "qwen2_5_vl":  # gated MLP with biases, RMS norms
            return attention + 3 * width * inner + 2 * inner + width + 2 * width
        return attention + 2 * width * inner + inner + width + 4 * width

    @property
    def tower(self) -> int:
        """Parameters of the vision tower, its mergers included."""
        vision, out = self.vision, self.text.hidden
        wide = vision.merge**2 * vision.hidden
        merger = wide * wide + wide + wide * out + out
        patches = vision.hidden * vision.patch_values
        if self.family == "qwen2_5_vl":
            return patches + vision.depth * self.block + vision.hidden + merger
        embeddings = patches + vision.hidden + vision.positions * vision.hidden
        mergers = merger + 2 * vision.hidden + vision.deepstack * (merger + 2 * wide)
        return embeddings + vision.depth * self.block + mergers

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.language + self.tower

    def adapters(self, rank: int) -> int:
        """Parameters of LoRA adapters: rank times (inputs + outputs) of every linear layer of the decoder (PEFT's
        ``all-linear`` leaves the output head out), none in the vision tower."""
        text = self.text
        queries, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
        ends = 2 * (text.hidden + queries) + 2 * (text.hidden + keys) + 3 * (text.hidden + text.intermediate)
        return rank * text.layers * ends


@cache
def published_shapes() -> Mapping[str, ModelShape]:
    """The shapes in ``shapes.yaml``, by name."""
    listed = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))["models"]
    return {name: dataclass_from(ModelShape, {**values, "name": name}, name) for name, values in listed.items()}


def shape_of(model: str) -> ModelShape:
    """The shape of a model: of a folder with ``config.json``, else of a published one by (a part of) its name.

    Raises:
        SetupError: It is neither.
    """
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        try:
            read = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            if not isinstance(read, dict):
                raise ValueError("holds no JSON object")
            return shape_from(read, folder.name)
        except KeyError as error:
            raise SetupError(f"{folder / 'config.json'}: {one_line(error)} is missing") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise SetupError(f"{folder / 'config.json'}: can't be a model's: {one_line(error)}") from error
    known = published_shapes()
    wanted = model.rstrip("/").rpartition("/")[2].lower()
    found = [one for name, one in known.items() if wanted and name.rpartition("/")[2].lower().startswith(wanted)]
    if len(found) == 1:
        return found[0]
    meant = did_you_mean(model, list(known))
    raise SetupError(
        f"{model}: no folder with config.json, and no model of known shape; {meant}there are {', '.join(known)}"
    )


def shape_from(values: Mapping[str, Any], name: str) -> ModelShape:
    """The shape in a ``config.json``.

    Raises:
        KeyError: A key is missing.
        ValueError: The model's family is unknown.
    """
    family = values.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"model_type is {family!r}; shapes are known of {', '.join(FAMILIES)}")
    vision = values["vision_config"]
    text = {**values, **values.get("text_config", {})}  # older files of Qwen2.5-VL have the text's keys at the top
    heads = text["num_attention_heads"]
    return ModelShape(
        family=family,
        text=TextShape(
            hidden=text["hidden_size"],
            layers=text["num_hidden_layers"],
            heads=heads,
            kv_heads=text["num_key_value_heads"],
            head_dim=text.get("head_dim") or text["hidden_size"] // heads,
            intermediate=text["intermediate_size"],
            vocab=text["vocab_size"],
            tied=bool(values.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        ),
        vision=VisionShape(
            depth=vision["depth"],
            hidden=vision["hidden_size"],
            heads=vision["num_heads"],
            intermediate=vision["intermediate_size"],
            patch=vision.get("patch_size") or vision["spatial_patch_size"],
            merge=vision.get("spatial_merge_size", 2),
            temporal=vision.get("temporal_patch_size", 2),
            deepstack=len(vision.get("deepstack_visual_indexes", ())) if family == "qwen3_vl" else 0,
            positions=vision.get("num_position_embeddings", 0) if family == "qwen3_vl" else 0,
        ),
        name=name,
    )
