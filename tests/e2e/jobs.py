"""Jobs as a user starts them: commands whose output is followed line by line, killed and started again."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForImageTextToText

REPOSITORY = Path(__file__).resolve().parents[2]
LAPTOP = (
    *(sys.executable, "-m", "agentic_video.cli", "run", str(REPOSITORY / "recipes" / "videozoomer")),
    *("--profile", "laptop"),
)
NOTICE_SECONDS = 15
"""Seconds in which a job notices that its launcher is gone."""


def start(command: Sequence[str], folder: Path, **variables: str) -> "subprocess.Popen[str]":
    """Start a command in a folder, which its runs go to."""
    environment = {**os.environ, "OUTPUT_DIR": str(folder), **variables}
    environment.pop("VERL_PLATFORM", None)  # the command sets what it needs by itself
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    return subprocess.Popen(command, env=environment, cwd=folder, **piped)  # type: ignore[call-overload,no-any-return]


def followed(process: "subprocess.Popen[str]", until: str = "") -> str:
    """The output of a process, to its end or to a line that begins with a text."""
    output = ""
    assert process.stdout is not None
    for line in process.stdout:
        output += line
        print(line, end="", flush=True)
        if until and re.match(until, line):
            break
    return output


def finished(process: "subprocess.Popen[str]") -> str:
    """The output of a process that ends well."""
    output = followed(process)
    assert process.wait() == 0, output[-5000:]
    return output


def killed(process: "subprocess.Popen[str]", until: str) -> str:
    """The output of a process that is killed at a line that begins with a text."""
    output = followed(process, until)
    process.send_signal(signal.SIGKILL)
    assert process.stdout is not None
    process.stdout.close()
    process.wait()
    time.sleep(NOTICE_SECONDS)
    return output


def weights(checkpoint: Path) -> Mapping[str, torch.Tensor]:
    """A checkpoint's weights as they are saved: verl's config names bfloat16 alongside weights in float32."""
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    state: Mapping[str, torch.Tensor] = model.state_dict()
    return state
