"""Prompt templates. All are our own words; a config can name a file in place of any of them."""

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from agentic_video.types.row import LETTERS, VideoQA


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
    """A packaged template by its name, or the text of a file of one's own by its path.

    Raises:
        FileNotFoundError: Neither exists; the message lists the names.
    """
    packaged = packaged_prompts()
    if name in packaged:
        return packaged[name]
    if Path(name).is_file():
        return Path(name).read_text(encoding="utf-8")
    raise FileNotFoundError(f"prompt {name!r} is neither one of {list(packaged)} nor a file")


def fill(template: str, **values: object) -> str:
    """Replace ``{name}`` and ``{name:format}`` by values; any other brace stays as it is (templates hold JSON)."""

    def replace(match: "re.Match[str]") -> str:
        name, spec = match[1], match[2] or ""
        return format(values[name], spec) if name in values else match[0]

    return re.sub(r"\{(\w+)(?::([^{}]*))?\}", replace, template)


def question_text(qa: VideoQA, option_format: str) -> str:
    """The question and its options, one a line.

    Args:
        option_format: How an option is written; ``{letter}`` and ``{text}`` are filled in.
    """
    options = (fill(option_format, letter=letter, text=text) for letter, text in zip(LETTERS, qa.options, strict=False))
    return "\n".join((qa.question, *options))
