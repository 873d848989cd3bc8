"""What verl loads in every process (entry point group ``verl.plugins``).

Nothing heavy is imported here: each registration waits until verl itself imports the module that it extends.
"""

import os
import traceback
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from types import ModuleType

from wrapt import register_post_import_hook

from agentic_video.training.seams import patches
from agentic_video.utils.secrets import load_secrets


def _importing(module: str) -> Callable[[ModuleType], None]:
    """A hook that imports a module of ours; its decorators register what it holds."""

    def hook(imported: ModuleType) -> None:
        import_module(module)

    return loudly(hook)


def loudly(hook: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    """A hook that ends the process with the reason when it fails: verl logs a plugin's failure at debug level only."""

    def run(imported: ModuleType) -> None:
        try:
            hook(imported)
        except Exception as error:
            traceback.print_exc()
            raise SystemExit(f"agentic_video could not extend {imported.__name__}: {error}") from error

    return run


def _register_cpu_platform(manager: ModuleType) -> None:
    from agentic_video.training.seams.cpu_platform import PlatformCPU

    if "cpu" not in manager.PlatformRegistry._platforms:
        manager.PlatformRegistry.register(platform="cpu")(PlatformCPU)


def _register_replica(replica: ModuleType) -> None:
    def load() -> type:
        from agentic_video.training.engines.vllm_server import VideoReplica

        return VideoReplica

    replica.RolloutReplicaRegistry.register("vllm", load)


def _patch_replay_buffer(replay_buffer: ModuleType) -> None:
    patches.poll_interval(replay_buffer)
    patches.stalled_groups(replay_buffer)
    patches.failed_groups(replay_buffer)
    patches.dropped_groups(replay_buffer)
    patches.limited_drops(replay_buffer)


def _patch_fsdp(fsdp_utils: ModuleType) -> None:
    patches.fused_head(fsdp_utils)
    patches.kept_weights(fsdp_utils)


def _patch_distributed(distributed: ModuleType) -> None:
    patches.patient_process_group(distributed)
    if patches.on_cpu():
        patches.gloo_process_group(distributed)


def _patch_checkpoints(fsdp_checkpoint_manager: ModuleType) -> None:
    patches.merged_lora(fsdp_checkpoint_manager)
    patches.kept_checkpoints(fsdp_checkpoint_manager)
    patches.patient_checkpoints(fsdp_checkpoint_manager)


def _patch_workers(engine_workers: ModuleType) -> None:
    patches.frozen_vision(engine_workers)
    patches.heeded_timeout(engine_workers)


def _lay_out_once(modeling: ModuleType) -> None:
    from agentic_video.training.seams.vision_layout import laid_out_once

    laid_out_once(modeling)


def _patch_trainer(trainer_base: ModuleType) -> None:
    patches.gaps_of_turns(trainer_base)
    patches.kl_without_padding(trainer_base)


def _patch_losses(core_algos: ModuleType) -> None:
    from agentic_video.training.engines.loss_means import episode_means

    episode_means(core_algos)


def _patch_vllm_rollout(vllm_rollout: ModuleType) -> None:
    patches.own_weight_socket(vllm_rollout)
    patches.failed_weights(vllm_rollout)


def install() -> None:
    """Register the hooks.

    Raises:
        SystemExit: verl has a version that the patches weren't written for.
    """
    load_secrets()
    found = version("verl")
    if found != patches.VERL_VERSION:
        raise SystemExit(
            f"agentic_video extends verl {patches.VERL_VERSION}, but verl {found} is installed: "
            f"pip install verl=={patches.VERL_VERSION}"
        )
    hooks = {
        "transfer_queue.interface": loudly(patches.own_queue),
        "verl.experimental.agent_loop.agent_loop": _importing("agentic_video.training.loop.agent_loop"),
        "verl.experimental.reward_loop.reward_manager": _importing("agentic_video.training.loop.reward_manager"),
        "verl.trainer.ppo.v1.trainer_sync": _importing("agentic_video.training.ppo.trainer"),
        "verl.trainer.ppo.core_algos": loudly(_patch_losses),
        "verl.trainer.ppo.rollout_corr_helper": loudly(patches.means_without_padding),
        "verl.trainer.ppo.v1.trainer_base": loudly(_patch_trainer),
        "verl.trainer.ppo.v1.replay_buffer": loudly(_patch_replay_buffer),
        "verl.workers.rollout.replica": loudly(_register_replica),
        "verl.workers.rollout.vllm_rollout.vllm_rollout": loudly(_patch_vllm_rollout),
        "verl.workers.engine_workers": loudly(_patch_workers),
        "verl.workers.engine.fsdp.transformer_impl": _importing("agentic_video.training.engines.actor"),
        "verl.models.transformers.qwen2_vl": loudly(patches.text_only_batches),
        "verl.utils.tokenizer.tokenizer": loudly(patches.required_processor),
        "verl.utils.fsdp_utils": loudly(_patch_fsdp),
        "verl.utils.distributed": loudly(_patch_distributed),
        "verl.utils.tracking": loudly(patches.same_wandb_run),
        "verl.utils.tensordict_utils": loudly(patches.equal_length_positions),
        "verl.utils.checkpoint.checkpoint_manager": loudly(patches.whole_checkpoints),
        "verl.utils.checkpoint.fsdp_checkpoint_manager": loudly(_patch_checkpoints),
    }
    # An engine of ours is asked for by a vendor's name; where there is none of that name, verl takes its own.
    os.environ.setdefault("VERL_ENGINE_VENDOR", "agentic_video")
    if patches.on_cpu():
        # verl registers its FSDP engine for cuda and npu only; its code is neutral.
        os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")
        hooks["verl.plugin.platform.platform_manager"] = loudly(_register_cpu_platform)
        hooks["verl.utils.torch_functional"] = loudly(patches.vectorised_logprobs)
        hooks["torch.distributed.fsdp"] = loudly(patches.unpinned_offload)
        for family in ("qwen2_5_vl", "qwen3_vl"):
            hooks[f"transformers.models.{family}.modeling_{family}"] = loudly(_lay_out_once)
    for module, hook in hooks.items():
        register_post_import_hook(hook, module)


install()
