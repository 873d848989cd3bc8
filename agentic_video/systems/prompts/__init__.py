"""Prompt templates, in our own words; a config can name a file instead."""

import hashlib
import os
import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from agentic_video.types.row import LETTERS, VideoQA
from agentic_video.utils.errors import did_you_mean

_PLACE = re.compile(r"\{(\w+)(?::([^{}]*))?\}")
"""A placeholder: its name and format."""

OPTION_FORMAT = "{letter}. {text}"


@lru_cache(maxsize=1)
def packaged_prompts() -> dict[str, str]:
    """All packaged templates by name, in order of their names: each system's own, and the shared ones."""
    systems = files("agentic_video.systems")
    folders = [entry / "prompts" for entry in systems.iterdir() if entry.is_dir()] + [systems / "prompts"]
    found = {
        file.name.removesuffix(".txt"): file.read_text(encoding="utf-8")
        for folder in folders
        if folder.is_dir()
        for file in folder.iterdir()
        if file.name.endswith(".txt")
    }
    return dict(sorted(found.items()))


def load_prompt(name: str) -> str:
    """A packaged template by its name, or the text of a file by its path."""
    packaged = packaged_prompts()
    if name in packaged:
        return packaged[name]
    if Path(name).is_file():
        return Path(name).read_text(encoding="utf-8")
    raise FileNotFoundError(f"prompt {name!r} is neither one of {list(packaged)} nor a file")


def instructions_of(system: object) -> str:
    """A system's template as its file has it; empty if it has none."""
    name = getattr(system, "prompt", "")
    return load_prompt(name) if name else ""


def fill(template: str, **values: object) -> str:
    """Replace ``{name}`` and ``{name:format}`` by values; any other brace stays as it is (templates hold JSON)."""

    def replace(match: "re.Match[str]") -> str:
        name, spec = match[1], match[2] or ""
        return format(values[name], spec) if name in values else match[0]

    return _PLACE.sub(replace, template)


def check_places(template: str, known: str) -> None:
    """Check the placeholders of a custom template against those of the packaged one that it replaces.

    Words in braces unlike any of the known ones may be meant as they are (``\\boxed{A}``).

    Raises:
        ValueError: A word that is almost a known one, or a format that no value has.
    """
    names = {match[1] for match in _PLACE.finditer(known)}
    for match in _PLACE.finditer(template):
        if match[1] in names:
            if not any(_can_write(value, match[2] or "") for value in (1, 1.0, "")):
                raise ValueError(f"{match[0]} has a format that nothing can be written in; {{{match[1]}}} is enough")
        elif meant := did_you_mean(match[1], sorted(names), alike=0.8):
            listed = ", ".join(f"{{{name}}}" for name in sorted(names))
            raise ValueError(f"{match[0]} isn't filled in; {meant}There are {listed}")


def _can_write(value: object, spec: str) -> bool:
    try:
        format(value, spec)
    except ValueError:
        return False
    return True


def question_text(qa: VideoQA, option_format: str = OPTION_FORMAT) -> str:
    """The question and its options, one a line; ``{letter}`` and ``{text}`` are filled in."""
    options = (fill(option_format, letter=letter, text=text) for letter, text in zip(LETTERS, qa.options, strict=False))
    return "\n".join((qa.question, *options))


def named_files(constants: Any) -> dict[str, str]:
    """Digests by path of the files that a system's constants name: custom prompts may be files."""
    if isinstance(constants, dict | list | tuple):
        parts = constants.values() if isinstance(constants, dict) else constants
        return {path: digest for part in parts for path, digest in named_files(part).items()}
    if not isinstance(constants, str) or constants in packaged_prompts() or not os.path.isfile(constants):
        return {}
    return {constants: hashlib.sha256(Path(constants).read_bytes()).hexdigest()[:16]}
