"""open_clip models of random weights in a folder, loaded by the package's own encoder."""

import json
from pathlib import Path
from typing import Any

import torch

from agentic_video.toyworld.build.clip import ClipRecipe, build_tokenizer, model_config
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.encoder import ClipEncoder


def random_clip(folder: Path, model: str, device: str) -> tuple[ClipEncoder, Any, int]:
    """Load an encoder of random weights: the toy world's (``tiny``), or one of open_clip's vision towers.

    Returns:
        The encoder, its network, and the side of its pictures in pixels.
    """
    import open_clip

    target = folder / model.replace("/", "-")
    tokenizer = build_tokenizer()
    if model == "tiny":
        config = model_config(ClipRecipe(), len(tokenizer), tokenizer.eos_token_id)
    else:
        known = open_clip.get_model_config(model)
        if known is None:
            raise ValueError(f"open_clip knows no model {model}")
        text = {**known["text_cfg"], "hf_tokenizer_name": "local", "vocab_size": len(tokenizer)}
        side = known["vision_cfg"]["image_size"]
        prepared = {"size": side, "mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic"}
        config = {"model_cfg": {**known, "text_cfg": text}, "preprocess_cfg": {**prepared, "resize_mode": "squash"}}
    if not (target / "done").is_file():
        from safetensors.torch import save_file

        target.mkdir(parents=True, exist_ok=True)
        (target / "open_clip_config.json").write_text(json.dumps(config))
        tokenizer.save_pretrained(target)
        values = dict(config["model_cfg"])
        kind = open_clip.CustomTextCLIP if values.pop("custom_text", False) else open_clip.CLIP
        torch.manual_seed(0)
        # A tensor that two modules share would be refused.
        state = {name: weight.clone().contiguous() for name, weight in kind(**values).state_dict().items()}
        save_file(state, str(target / "open_clip_model.safetensors"))
        (target / "done").write_text(model)
    encoder = ClipEncoder(RetrievalConfig(model=f"local-dir:{target}", device=device))
    return encoder, encoder._network, int(config["preprocess_cfg"]["size"])
