"""Micro-batches without a picture in verl's forward: the vision tower takes part, as on ranks that have some."""

import subprocess
import sys

from tests.families.processors import QWEN_VL

SCRIPT = """
import sys, torch
from importlib import import_module
from verl.models.transformers.monkey_patch import apply_monkey_patch
from agentic_video.families.registry import FAMILY_OF
from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer
seams = {(seam.patch, seam.module) for name in sys.argv[1:] for seam in FAMILY_OF[name].seams}
for patch, patched in sorted(seams):
    module, _, name = patch.partition(":")
    getattr(import_module(module), name)(import_module(patched))
ids = torch.arange(20, 40).repeat(2, 1)
places = torch.arange(20).expand(4, 2, 20)
for name in sys.argv[1:]:
    model = build_model(build_tokenizer(["a b"], family=name), ModelRecipe(family=name)).train()
    apply_monkey_patch(model, use_remove_padding=False, ulysses_sp_size=1)
    output = model(input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=places, use_cache=False)
    output.logits.float().logsumexp(-1).sum().backward()
    tower = [weight.grad for part, weight in model.named_parameters() if ".visual." in part]
    assert tower and all(grad is not None and not grad.any() for grad in tower), name
"""


def test_the_tower_runs_without_a_picture() -> None:
    """In a process of its own: verl changes transformers' classes."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, *QWEN_VL], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
