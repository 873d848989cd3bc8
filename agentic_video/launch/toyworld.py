"""The synthetic world of a laptop job: built before it, its verifier served next to it."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

import agentic_video
from agentic_video.config.overrides import quoted
from agentic_video.families.registry import OWN
from agentic_video.launch.inputs import MODEL_KEYS
from agentic_video.launch.options import Stage, config_name
from agentic_video.launch.process import stop_with_launcher
from agentic_video.systems.prompts import named_files
from agentic_video.utils.environment import DEFAULT_CACHE
from agentic_video.utils.errors import SetupError
from agentic_video.utils.host import can_write, few_threads
from agentic_video.utils.workdir import write_whole

BUILDERS: Mapping[Stage, str] = {
    "grpo": "agentic_video.toyworld.build",
    "sft": "agentic_video.toyworld.build.demonstrate",
    "kto": "agentic_video.toyworld.build.preferences",
    "rft": "agentic_video.toyworld.build.demonstrate",
}
"""Programs that build each stage's synthetic data and the model that it starts from."""
CACHE_SECONDS = 20.0
"""Time limit of the answer of the cache's file system."""
PACKAGE = "agentic_video."
"""Prefix of this package's modules: another package's name may begin with its name."""
SOURCES = (".py", ".yaml", ".txt", ".md")
"""Suffixes of this package's files that a build depends on."""
BUILT = ("train", "heldout", "base", "model", "clip", "verifier")
"""Names of the paths that builders print, one a line, each before a colon and its path."""
ToyModel = Literal["cold-start", "base", "none"]
"""The tiny model that is built: one that speaks the system's grammar, its base model, or none."""


def build_toyworld(
    recipe: Path,
    overrides: Sequence[str],
    stage: Stage = "grpo",
    *,
    data: bool = True,
    model: ToyModel = "cold-start",
    dry_run: bool = False,
    config: DictConfig | None = None,
) -> dict[str, str]:
    """Build a recipe's synthetic world and tiny models in a process that ends with this one; return paths by name.

    ``dry_run`` builds nothing: it prints what is missing, and returns the paths that it would have. With the run's
    composed ``config`` an earlier build is found without the builder, whose imports take longer than all else.
    """
    if not dry_run:
        _check_cache()
    note = None if config is None else build_note(config, stage, f"{data} {model}")
    if note and (known := read_note(note)):
        print("".join(f"[toyworld] found {path}\n" for path in known.values()), end="", flush=True)
        return known
    command = [sys.executable, "-m", BUILDERS[stage], str(recipe), *overrides]
    command += ["--model", model] if stage == "grpo" else ["--profile", config_name(stage, "laptop")]
    command += [*([] if data else ["--no-data"]), *(["--dry-run"] if dry_run else [])]
    paths, problem = {}, "see above"
    # Threads that spin while they wait take the cores from whatever else the machine does: next to other work a build
    # takes ten times as long. A build uses no GPU, and where torch sees one, forked processes can't compute gradients
    # after their parent has.
    environment = {"OMP_WAIT_POLICY": "passive", **few_threads(), **os.environ, "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=stop_with_launcher
    ) as build:
        assert build.stdout is not None
        for line in build.stdout:
            name, _, value = line.strip().partition(": ")
            if name in BUILT:
                paths[name] = value
            elif name == "error":
                problem = value
            elif line.startswith("["):
                print(line, end="", flush=True)
    if build.returncode in (130, -signal.SIGINT):
        raise KeyboardInterrupt
    if build.returncode:
        raise SetupError(f"the synthetic world and its tiny model could not be built: {problem}")
    if note and not dry_run:
        with contextlib.suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            write_whole(note, [json.dumps(paths)])
    return paths


def _check_cache() -> None:
    """Check that the cache can be written."""
    try:
        DEFAULT_CACHE.mkdir(parents=True, exist_ok=True)
        writable = can_write(DEFAULT_CACHE, CACHE_SECONDS)
        reason = "it doesn't answer"
    except OSError as error:
        writable, reason = False, error.strerror or str(error)
    if not writable:
        raise SetupError(
            f"{DEFAULT_CACHE}: synthetic worlds and tiny models are kept there, and it can't be written to "
            f"({reason}): set XDG_CACHE_HOME to a folder of yours"
        )


def build_note(config: DictConfig, stage: Stage, wanted: str) -> Path | None:
    """File with the paths of a build, named by a digest of all that it depends on; None for custom modules."""
    modules = (config.agentic_video.system._target_, config.agentic_video.get("toyworld", {}).get("oracle") or PACKAGE)
    if os.environ.get(OWN) or not all(str(module).startswith(PACKAGE) for module in modules):
        return None
    rollout = config.actor_rollout_ref.rollout
    budgets = [rollout.prompt_length, rollout.response_length, rollout.max_model_len]
    block: Any = OmegaConf.to_container(config.agentic_video, resolve=True)
    facts = [block, named_files(block["system"]), budgets, stage, wanted]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode())
    for file in sorted(Path(agentic_video.__file__).parent.rglob("*")):
        if file.suffix in SOURCES:
            digest.update(file.read_bytes())
    return DEFAULT_CACHE / "found" / f"{digest.hexdigest()[:16]}.json"


def read_note(note: Path) -> dict[str, str]:
    """Paths that a file of :func:`build_note` holds; empty where one of them, or the file, is gone."""
    try:
        paths = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = isinstance(paths, dict) and all(isinstance(path, str) and Path(path).exists() for path in paths.values())
    return paths if known else {}


def laptop_overrides(paths: Mapping[str, str], stage: Stage = "grpo") -> list[str]:
    """Overrides that name the files of :func:`build_toyworld` to verl."""
    values: dict[str, str | list[str]] = {}
    if "train" in paths:
        # lists: a text would be taken apart at its commas
        values |= {"data.train_files": [paths["train"]], "data.val_files": [paths["heldout"]]}
    if "model" in paths:
        values[MODEL_KEYS[stage]] = paths["model"]
    if "clip" in paths:
        values["agentic_video.retrieval.model"] = f"local-dir:{paths['clip']}"
    return [f"{key}={quoted(value)}" for key, value in values.items()]


@contextlib.contextmanager
def verifier_server(model: str | None, host: str = "127.0.0.1") -> Iterator[list[str]]:
    """Serve a verifier for as long as the context lasts; yield the overrides that name it to verl."""
    if model is None:
        yield []
        return
    command = [sys.executable, "-m", "agentic_video.toyworld.serve", model, "--host", host]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=stop_with_launcher
    ) as server:
        assert server.stdout is not None
        name, _, url = server.stdout.readline().strip().partition(": ")
        if name != "serving":
            raise SetupError("the tiny model that serves as the verifier did not start")
        try:
            yield [f"agentic_video.verifier.base_url={quoted(url)}", "agentic_video.verifier.model=toyworld"]
        finally:
            server.terminate()
