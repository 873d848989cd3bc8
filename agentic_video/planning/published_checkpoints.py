"""Facts of published checkpoints, and the sizes of pictures that a named model keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from agentic_video.config.typed import dataclass_from
from agentic_video.families.base import ProcessorError, ProcessorRules
from agentic_video.families.registry import FAMILY_OF, family_of, rules_in
from agentic_video.utils.errors import SetupError, one_line

PUBLISHED = Path(__file__).parents[1] / "families" / "published_checkpoints.yaml"


@dataclass(frozen=True)
class CheckpointFacts:
    """A published checkpoint; ``published_checkpoints.yaml`` explains each field."""

    name: str
    family: str
    image: tuple[int, int]
    patch: int
    merge: int
    temporal: int
    tied: bool
    context: int
    template: str
    clip: tuple[int, int] | None = None
    clip_total: bool = False
    tokens: dict[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    base: str = ""
    unsourced: str = ""

    @property
    def rules(self) -> ProcessorRules:
        """Sizes of pictures that its processors keep."""
        return family_of(self.family).published_rules(self)


@cache
def published_checkpoints() -> Mapping[str, CheckpointFacts]:
    """All of them, by name."""
    listed = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))["checkpoints"]
    return {name: dataclass_from(CheckpointFacts, {**values, "name": name}, name) for name, values in listed.items()}


def published_rules(model: str, family: str = "") -> ProcessorRules | None:
    """Rules of a checkpoint by (a part of) its name, else those of its family, if known."""
    known = published_checkpoints()
    wanted = model.rstrip("/").rpartition("/")[2].lower()
    found = [one for name, one in known.items() if wanted and name.rpartition("/")[2].lower().startswith(wanted)]
    if found:
        return found[0].rules
    example = FAMILY_OF[family].example if family in FAMILY_OF else ""
    return known[example].rules if example in known else None


def checkpoint_rules(model: str, family: str = "") -> ProcessorRules | None:
    """Rules of a model: of a folder with a processor's files, else of a published checkpoint by name, else of the
    family.

    Raises:
        SetupError: The folder's files can't be a processor's.
    """
    folder = Path(model).expanduser()
    if any(
        (folder / name).is_file()
        for name in ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")
    ):
        try:
            return rules_in(folder)
        except ProcessorError as error:
            raise SetupError(
                f"{folder}: {one_line(error)}; copy the processor's files from the model that this one was made of"
            ) from error
    return published_rules(model, family)
