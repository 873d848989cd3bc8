"""Micro-batches without a picture in verl's forward: ``python -m`` and the families.

Alone, the vision tower must get a gradient of zeros. In a process of two (torchrun's environment), the other rank has a
picture: FSDP2's ranks wait for each other where one runs the tower and the other doesn't.
"""

import os
import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.utils.fsdp_utils import apply_fsdp2

from agentic_video.families.base import ModelFamily
from agentic_video.families.registry import FAMILY_OF
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer
from agentic_video.training.inputs.model_inputs import model_inputs
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message

KNOWN = ("pixel_values", "image_grid_thw", "image_position_ids")


def inputs_of(family: ModelFamily, model: Any, tokenizer: Any, *shown: Frame) -> dict[str, Any]:
    """Inputs of a model for a prompt, as the trainer makes them."""
    processor = family.tiny.processor(tokenizer)
    processor.config = model.config
    ids = torch.tensor(ChatFormat.of(processor, tokenizer).opening_ids([Message("user", ("a b", *shown, "b a"))]))
    places, made = model_inputs(processor, ids, shown)
    rows = ids[None]
    return {
        "input_ids": rows,
        "attention_mask": torch.ones_like(rows),
        "position_ids": places[None] if places.ndim == 1 else places[:, None],
        **{name: made[name] for name in KNOWN if name in made},
        **family.token_inputs(processor, rows),
    }


def check(name: str, mesh: Any) -> None:
    """Run a family's tiny model forward and backward."""
    family = FAMILY_OF[name]
    tokenizer = build_tokenizer(["a b"], family=name)
    model = build_model(tokenizer, ModelRecipe(family=name)).train()
    apply_monkey_patch(model, use_remove_padding=False, ulysses_sp_size=1)
    side = family.tiny.frame_side
    frame = Frame(0, 0.0, np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8))
    shown = [frame] if mesh and not dist.get_rank() else []
    inputs = inputs_of(family, model, tokenizer, *shown)
    if mesh:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        apply_fsdp2(model, {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": True}, {})
    for _ in range(2):
        model(**inputs, use_cache=False).logits.float().logsumexp(-1).sum().backward()
    towers = [weight.grad for part, weight in model.named_parameters() if family.tower in part.split(".")]
    assert towers and all(grad is not None for grad in towers), name
    assert any(bool((grad.to_local() if mesh else grad).any()) for grad in towers) == bool(mesh), name
    print(f"{name}: run", flush=True)


def main(names: list[str]) -> None:
    """Check families, each in all ranks at once; verl has loaded our patches."""
    mesh = None
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    for name in names:
        check(name, mesh)


if __name__ == "__main__":
    main(sys.argv[1:])
