import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from agentic_video.toyworld.build.command_line import print_paths, recipe_parser, run_builder, stage_parser
from agentic_video.toyworld.build.gate import GateError
from agentic_video.utils.errors import PluginTypeError, SetupError
from tests.config.configs import RECIPES


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
        PluginTypeError("a method is wrong"),
        ValueError("a key is wrong"),
        OSError("a key is wrong"),
        # as the libraries in Rust that write a checkpoint say it
        Exception("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_failed_build_says_why_in_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit, match="2"):
        run_builder(fail)
    assert capsys.readouterr().out == f"error: {' '.join(str(error).split())}\n"


def test_what_nobody_expected_keeps_its_trace() -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run_builder(fail)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("whole_group", [True, False])
def test_a_stopped_build_says_nothing_and_leaves_nothing(number: int, whole_group: bool, tmp_path: Path) -> None:
    """For real: a world is being made by a pool of processes."""
    words = [str(RECIPES / "videozoomer"), "++agentic_video.toyworld.train=2000", "--cache", str(tmp_path)]
    words += ["--model", "none"]
    with subprocess.Popen(
        [sys.executable, "-m", "agentic_video.toyworld.build", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as build:
        while len(list(tmp_path.rglob("*.mp4"))) < 20:
            time.sleep(0.05)
            assert build.poll() is None
        children = psutil.Process(build.pid).children(recursive=True)
        (os.killpg if whole_group else os.kill)(build.pid, number)
        out, error = build.communicate(timeout=300)
    assert build.returncode == 128 + number
    assert error == "" and out.count("\n") == 1  # what is built, and why
    psutil.wait_procs(children, timeout=60)
    assert children and not any(child.is_running() for child in children)
    assert list(tmp_path.iterdir()) == []
