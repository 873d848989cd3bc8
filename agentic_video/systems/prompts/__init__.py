"""Prompt templates. All are our own words; a config can name a file in place of any of them."""

import re
from importlib.resources import files
from pathlib import Path

from agentic_video.data.schema import LETTERS, VideoQA


def load_prompt(name: str) -> str:
    """A template by its name in this folder, or by the path of a text file of one's own.

    Raises:
        FileNotFoundError: Neither exists; the message lists the names.
    """
    folder = files(__name__)
    packaged = folder / f"{name}.txt"
    if packaged.is_file():
        return packaged.read_text(encoding="utf-8")
    if Path(name).is_file():
        return Path(name).read_text(encoding="utf-8")
    names = sorted(entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt"))
    raise FileNotFoundError(f"prompt {name!r} is neither one of {names} nor a file")


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
