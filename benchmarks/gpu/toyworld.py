"""The toy world's GRPO end to end: the recipe's own job, on a GPU with its ``cluster.yaml``."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.machine import REPOSITORY, Skip, has_flash_attention, require

SIZES = (
    "trainer.nnodes=1",
    "trainer.n_gpus_per_node=1",
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
    "data.train_batch_size=6",
    "data.val_batch_size=6",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.actor.ppo_mini_batch_size=6",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
    "actor_rollout_ref.actor.optim.lr=1e-4",
    "actor_rollout_ref.rollout.n=8",
    "actor_rollout_ref.rollout.max_model_len=576",
    "actor_rollout_ref.rollout.max_num_batched_tokens=4096",
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.3",
    "actor_rollout_ref.rollout.agent.num_workers=2",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.limit_mm_per_prompt={image:32,video:0}",
    "reward.num_workers=1",
)
"""The cluster's job for one GPU and a model that knows a few hundred tokens."""
WITHOUT_FLASH_ATTENTION = (
    "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
)
METRICS = {
    "difference": "training/rollout_probs_diff_mean",
    "pearson": "training/rollout_actor_probs_pearson_corr",
    "reward": "episode/reward_sampled",
    "calls": "episode/tool_calls",
}


def small_episodes(recipe: str) -> list[str]:
    """Episode settings of a recipe's ``<name>_laptop.yaml``, as overrides of its ``cluster.yaml``."""
    from omegaconf import OmegaConf

    from agentic_video.config.overrides import leaves, quoted

    file = REPOSITORY / "recipes" / recipe / "config" / f"{recipe}_laptop.yaml"
    values: Any = OmegaConf.to_container(OmegaConf.load(file))
    values["agentic_video"].pop("toyworld", None)  # what is built, which is built before
    return [f"{'++' if key.startswith('agentic_video') else ''}{key}={quoted(value)}" for key, value in leaves(values)]


def cluster_overrides(recipe: str, steps: int, flash_attention: bool) -> list[str]:
    """Overrides of a recipe's ``cluster.yaml`` for the toy world on one GPU."""
    return [
        *SIZES,
        *small_episodes(recipe),
        f"trainer.total_training_steps={steps}",
        f"trainer.save_freq={steps}",
        *(() if flash_attention else WITHOUT_FLASH_ATTENTION),
    ]


def toyworld_run(
    scratch: Path, device: str, *, recipe: str = "videozoomer", steps: int = 3, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Run the whole job: Ray, vLLM, FSDP2, tools, rewards, checkpoint; on a GPU with the profile ``cluster``.

    Returns:
        The last step's metrics, the worst agreement of all steps, and seconds.
    """
    require("vllm", "verl", "ray")
    from agentic_video.launch.toyworld import build_toyworld
    from agentic_video.report.metrics import read_metrics, series
    from agentic_video.utils.errors import SetupError

    started = time.perf_counter()
    folder = REPOSITORY / "recipes" / recipe
    try:
        built = build_toyworld(folder, [])
    except SetupError as error:
        raise Skip(str(error)) from error
    building = time.perf_counter() - started
    outputs = scratch / "toyworld" / time.strftime("%H%M%S")
    environment = {**os.environ, "OUTPUT_DIR": str(outputs), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "agentic_video.cli", "run", str(folder), "grpo"]
    if device == "cuda":
        environment |= {"MODEL_PATH": built["model"], "TRAIN_FILES": built["train"], "VAL_FILES": built["heldout"]}
        command += ["--profile", "cluster", *cluster_overrides(recipe, steps, has_flash_attention())]
    else:
        command += ["--profile", "laptop", f"trainer.total_training_steps={steps}", f"trainer.save_freq={steps}"]
        command += ["trainer.val_before_train=False"]
    started = time.perf_counter()
    status = subprocess.run([*command, *overrides], env=environment, cwd=REPOSITORY, check=False).returncode
    seconds = time.perf_counter() - started
    if status:
        raise RuntimeError(f"the job ended with status {status}")
    run = max(outputs.glob("*/run-*"))
    metrics = read_metrics(run)
    found = {name: series(metrics, key)[1] for name, key in METRICS.items()}
    return {
        "steps": len(found["difference"]),
        "difference": max(found["difference"]),
        "pearson": min(found["pearson"]),
        "reward": found["reward"],
        "calls": found["calls"],
        "step_seconds": series(metrics, "timing_s/step")[1],
        "building_seconds": building,
        "seconds": seconds,
        "profile": "cluster" if device == "cuda" else "laptop",
    }
