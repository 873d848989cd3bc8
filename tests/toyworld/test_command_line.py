from pathlib import Path

import pytest

from agentic_video.toyworld.command_line import print_paths, recipe_parser, run_builder, stage_parser
from agentic_video.toyworld.gate import GateError
from agentic_video.utils.errors import SetupError


def test_what_all_builds_are_asked() -> None:
    parsed = recipe_parser("a.b", "Builds.", "laptop").parse_args(["recipes/x", "k=1", "l=2", "--cache", "/c"])
    assert (parsed.recipe, parsed.overrides, parsed.cache) == (Path("recipes/x"), ["k=1", "l=2"], Path("/c"))
    assert parsed.profile == "laptop" and not parsed.dry_run
    assert stage_parser("a.b", "Builds.", "sft_laptop").parse_args(["recipes/x", "--no-data"]).no_data


def test_paths_that_were_not_made_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_paths({"train": Path("/t"), "clip": None, "model": Path("/m")})
    assert capsys.readouterr().out == "train: /t\nmodel: /m\n"


@pytest.mark.parametrize(
    "error",
    [
        SetupError("a key\nis wrong"),
        GateError("a key is wrong"),
        ValueError("a key is wrong"),
        OSError("a key is wrong"),
    ],
)
def test_a_failed_build_says_why_in_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit, match="2"):
        run_builder(fail)
    assert capsys.readouterr().out == "error: a key is wrong\n"


def test_an_interrupted_build_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit, match="130"):
        run_builder(stop)
    assert capsys.readouterr().out == ""
