"""Shapes of models, and their numbers of parameters."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agentic_video.config.typed import dataclass_from
from agentic_video.families.registry import family_of
from agentic_video.families.shapes import TextShape, VisionShape
from agentic_video.utils.errors import SetupError, did_you_mean, one_line

PUBLISHED = Path(__file__).parents[1] / "families" / "shapes.yaml"


@dataclass(frozen=True)
class ModelShape:
    """A vision-language model; ``family`` is its ``model_type``."""

    family: str
    text: TextShape
    vision: VisionShape
    name: str = ""

    @property
    def layer(self) -> int:
        """Parameters of a decoder layer, the largest where they differ."""
        return family_of(self.family).layer_parameters(self.text)

    @property
    def decoder(self) -> int:
        """Parameters of all decoder layers."""
        return family_of(self.family).decoder_parameters(self.text)

    @property
    def embedding(self) -> int:
        """Parameters of the embedding; the output head has as many, unless tied."""
        return self.text.vocab * self.text.hidden

    @property
    def language(self) -> int:
        """Parameters of the language model, its head included."""
        return self.decoder + (1 if self.text.tied else 2) * self.embedding + self.text.hidden

    @property
    def block(self) -> int:
        """Parameters of a block of the vision tower."""
        return family_of(self.family).block_parameters(self.vision)

    @property
    def tower(self) -> int:
        """Parameters of the vision tower, its mergers included."""
        return family_of(self.family).tower_parameters(self.vision, self.text.hidden)

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.language + self.tower

    def adapters(self, rank: int) -> int:
        """Parameters of LoRA adapters: rank times (inputs + outputs) of every linear layer of the decoder (PEFT's
        ``all-linear`` leaves the output head out), none in the vision tower."""
        return rank * family_of(self.family).adapter_ends(self.text)


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
    kind = str(values.get("model_type"))
    family = family_of(kind)
    vision = family.vision_shape(values)
    return ModelShape(kind, family.text_shape(values), vision, name)
