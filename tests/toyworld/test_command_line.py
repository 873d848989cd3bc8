from pathlib import Path

import pytest

from agentic_video.toyworld.command_line import print_paths, recipe_parser


def test_what_all_builds_are_asked() -> None:
    parsed = recipe_parser("a.b", "Builds.", "laptop").parse_args(["recipes/x", "k=1", "l=2", "--cache", "/c"])
    assert (parsed.recipe, parsed.overrides, parsed.cache) == (Path("recipes/x"), ["k=1", "l=2"], Path("/c"))
    assert parsed.profile == "laptop"


def test_paths_that_were_not_made_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_paths({"train": Path("/t"), "clip": None, "model": Path("/m")})
    assert capsys.readouterr().out == "train: /t\nmodel: /m\n"
