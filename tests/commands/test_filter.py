from pathlib import Path

from agentic_video.commands import filter as command
from agentic_video.synthesis.filter import FilterOptions
from tests.commands.conftest import Ask


def test_what_is_asked_for(ask: Ask) -> None:
    options = ask(command, "filter_episodes", "a", "b", "--out", "o.jsonl")
    assert options == FilterOptions((Path("a"), Path("b")), Path("o.jsonl"))
    words = ("--min-acc", "0.5", "--min-iou", "0", "--from-step", "7", "--per-question", "2")
    options = ask(command, "filter_episodes", "a", "--out", "o.jsonl", *words)
    assert options == FilterOptions((Path("a"),), Path("o.jsonl"), 0.5, 0.0, 7, 2)
