"""Files of records, and checkpoints that read them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentic_video.toyworld.build.base import tokenizer_corpus
from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer, save_checkpoint
from agentic_video.types.record import Record, write_record

ROOMY = ("data.max_prompt_length=3000", "data.max_response_length=6000", "agentic_video.max_turn_tokens=0")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    tokenizer, found = build_tokenizer(tokenizer_corpus()), {}
    families = ("qwen2_5_vl", "qwen3_vl")
    for family in families:
        found[family] = tmp_path_factory.mktemp(family)
        save_checkpoint(build_model(tokenizer, ModelRecipe(family=family)), tokenizer, found[family])
    return found


Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    def write(*records: Record, more: str = "") -> Path:
        path = tmp_path / "records.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for record in records:
                write_record(file, record)
            file.write(more)
        return path

    return write


def equal_inputs(found: Any, expected: Any) -> bool:
    return set(found) == set(expected) and all(found[name].equal(value) for name, value in expected.items())
