"""Tiny CLIPs with random weights, as folders that open_clip loads."""

import json
from pathlib import Path
from typing import Any


def write_clip(folder: Path, **preprocess: Any) -> str:
    """Write a CLIP of 28x28 pixels with CLIP's own tokenizer; its name for a config is returned.

    Args:
        folder: Made where it is missing.
        preprocess: Settings of open_clip's ``preprocess_cfg``.
    """
    import open_clip
    import torch
    from safetensors.torch import save_file

    tower = {"width": 16, "layers": 1}
    model = {
        "embed_dim": 16,
        "vision_cfg": {**tower, "image_size": 28, "patch_size": 14, "head_width": 8},
        "text_cfg": {**tower, "context_length": 77, "vocab_size": 49408, "heads": 2},
    }
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_cfg": model, "preprocess_cfg": {"size": 28, **preprocess}}
    (folder / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    torch.manual_seed(0)
    save_file(open_clip.CLIP(**model).state_dict(), str(folder / "open_clip_model.safetensors"))
    return f"local-dir:{folder}"
