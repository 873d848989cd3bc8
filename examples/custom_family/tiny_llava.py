"""Tiny LLaVA 1.5, for the laptop profile."""

from typing import Any

import numpy as np
import torch
from transformers import CLIPImageProcessor, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from agentic_video.families.tiny import CHATML, Images, TinyModels, TinySizes

SIDE = 28
"""Side of an image, which is one patch and one visual token."""


class TinyLlava(TinyModels):
    """Its tower's last layer isn't used, as in the published models."""

    special_tokens = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>")
    end, pad = "<|im_end|>", "<|endoftext|>"
    chat_template = CHATML.replace("IMAGE", "<image>\\n")

    @property
    def frame_side(self) -> int:
        return SIDE

    def processor(self, tokenizer: Any) -> Any:
        image = CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
        options = {"patch_size": SIDE, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
        return LlavaProcessor(image, tokenizer, chat_template=self.chat_template, **options)

    def config_and_class(self, sizes: TinySizes, tokenizer: Any) -> tuple[Any, Any]:
        end, pad, image = tokenizer.convert_tokens_to_ids([self.end, self.pad, "<image>"])
        text = {
            "vocab_size": len(tokenizer),
            "hidden_size": sizes.hidden,
            "intermediate_size": 2 * sizes.hidden,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "max_position_embeddings": 4096,
            **{"bos_token_id": pad, "eos_token_id": end, "pad_token_id": pad},
        }
        vision = {
            "hidden_size": sizes.vision_hidden,
            "intermediate_size": 2 * sizes.vision_hidden,
            "num_hidden_layers": 2,
            "num_attention_heads": sizes.vision_heads,
            **{"image_size": SIDE, "patch_size": SIDE},
        }
        config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=image, image_seq_length=1)
        return config, LlavaForConditionalGeneration

    def embed(self, model: Any, ids: torch.Tensor, images: Images) -> dict[str, Any]:
        embedded: torch.Tensor = model.model.language_model.embed_tokens(ids)
        if not len(images):
            return {"inputs_embeds": embedded}
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255
        mean, std = (torch.tensor(values)[:, None, None] for values in (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD))
        features = torch.cat(list(model.model.get_image_features((pixels - mean) / std).pooler_output))
        return {"inputs_embeds": embedded.masked_scatter((ids == model.config.image_token_id)[..., None], features)}
