"""The synthetic world that a laptop job needs, built before it and served beside it."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentic_video.launch.process import stop_with_launcher
from agentic_video.launch.profile import LaunchError, config_name

TOYWORLD = {
    "grpo": "agentic_video.toyworld.build",
    "sft": "agentic_video.toyworld.demonstrate",
    "kto": "agentic_video.toyworld.preferences",
}
"""What makes each stage's synthetic data and the model that it starts from."""


MODEL_KEYS = {"grpo": "actor_rollout_ref.model.path", "sft": "model.path", "kto": "model.path"}


def build_toyworld(
    recipe: Path, overrides: Sequence[str], stage: str = "grpo", *, cold_start: bool = True
) -> dict[str, str]:
    """Make a recipe's synthetic world and tiny models (once; a process of its own, whose memory is then free again).

    Args:
        cold_start: For GRPO: False where another checkpoint is used.

    Returns:
        Paths by name: ``train``, ``heldout``, ``base``, ``model`` and, where GRPO needs them, ``clip`` and ``verifier``.

    Raises:
        LaunchError: The build failed; its own message came before.
    """
    command = [sys.executable, "-m", TOYWORLD[stage], str(recipe), *overrides]
    if stage != "grpo":
        command += ["--profile", config_name(stage, "laptop")]
    elif not cold_start:
        command.append("--no-cold-start")
    paths = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as build:
        assert build.stdout is not None
        for line in build.stdout:
            name, _, value = line.strip().partition(": ")
            if name in ("train", "heldout", "base", "model", "clip", "verifier"):
                paths[name] = value
            elif line.startswith("["):
                print(line, end="", flush=True)
    if build.returncode:
        raise LaunchError("the synthetic world and its tiny model could not be built")
    return paths


def laptop_overrides(paths: Mapping[str, str], stage: str = "grpo") -> list[str]:
    """Name the files of :func:`build_toyworld` to verl."""
    overrides = [f"data.train_files={paths['train']}", f"data.val_files={paths['heldout']}"]
    if "model" in paths:
        overrides.append(f"{MODEL_KEYS[stage]}={paths['model']}")
    if "clip" in paths:
        overrides.append(f"agentic_video.retrieval.model='local-dir:{paths['clip']}'")
    return overrides


@contextlib.contextmanager
def verifier_server(model: str | None) -> Iterator[list[str]]:
    """Serve the tiny base model for as long as the context lasts, where a recipe wants a verifier.

    Yields:
        Overrides that name it to verl.

    Raises:
        LaunchError: The server didn't start.
    """
    if model is None:
        yield []
        return
    command = [sys.executable, "-m", "agentic_video.toyworld.serve", model]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, preexec_fn=stop_with_launcher, **options) as server:
        assert server.stdout is not None
        name, _, url = server.stdout.readline().strip().partition(": ")
        if name != "serving":
            raise LaunchError("the tiny model that serves as the verifier did not start")
        try:
            yield [f"agentic_video.verifier.base_url='{url}'", "agentic_video.verifier.model=toyworld"]
        finally:
            server.terminate()
