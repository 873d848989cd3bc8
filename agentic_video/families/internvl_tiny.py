"""Tiny InternVL3.5."""

from typing import Any, ClassVar

import numpy as np
import torch
from transformers import GotOcr2ImageProcessor, InternVLConfig, InternVLForConditionalGeneration, InternVLProcessor
from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor

from agentic_video.families.tiny import CHATML, Images, TinyModels, TinySizes

SIDE, PATCH = 28, 14
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Normalisation of the published checkpoints."""


class TinyInternVL(TinyModels):
    """Tiny InternVL3.5; its square is one visual token."""

    named_tokens: ClassVar[dict[str, str]] = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    special_tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *named_tokens.values())
    end, pad = "<|im_end|>", "<|endoftext|>"
    chat_template = CHATML.replace("IMAGE", "<IMG_CONTEXT>\\n").replace("VIDEO", "<video>\\n")

    @property
    def frame_side(self) -> int:
        return SIDE

    def processor(self, tokenizer: Any) -> Any:
        size = {"height": SIDE, "width": SIDE}
        return InternVLProcessor(
            GotOcr2ImageProcessor(size=size, image_mean=list(MEAN), image_std=list(STD)),
            tokenizer,
            InternVLVideoProcessor(size=size),
            image_seq_length=1,
            chat_template=self.chat_template,
        )

    def config_and_class(self, sizes: TinySizes, tokenizer: Any) -> tuple[Any, Any]:
        end, pad, image = tokenizer.convert_tokens_to_ids([self.end, self.pad, "<IMG_CONTEXT>"])
        text = {
            "model_type": "qwen3",
            "vocab_size": len(tokenizer),
            "hidden_size": sizes.hidden,
            "intermediate_size": 2 * sizes.hidden,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.heads,
            "head_dim": sizes.hidden // sizes.heads,
            "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
            "tie_word_embeddings": False,
            "bos_token_id": pad,
            "eos_token_id": end,
            "pad_token_id": pad,
        }
        vision = {
            "hidden_size": sizes.vision_hidden,
            "intermediate_size": 2 * sizes.vision_hidden,
            "num_hidden_layers": 1,
            "num_attention_heads": sizes.vision_heads,
            "attention_bias": True,
            "image_size": [SIDE, SIDE],
            "patch_size": [PATCH, PATCH],
        }
        config = InternVLConfig(
            text_config=text,
            vision_config=vision,
            image_token_id=image,
            image_seq_length=1,
            tie_word_embeddings=False,
            **{"eos_token_id": end, "pad_token_id": pad},
        )
        return config, InternVLForConditionalGeneration

    def embed(self, model: Any, ids: torch.Tensor, images: Images) -> dict[str, Any]:
        embedded: torch.Tensor = model.model.language_model.embed_tokens(ids)
        if not len(images):
            return {"inputs_embeds": embedded}
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255
        mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
        features = model.model.get_image_features((pixels - mean) / std).pooler_output
        return {"inputs_embeds": embedded.masked_scatter((ids == model.config.image_token_id)[..., None], features)}
