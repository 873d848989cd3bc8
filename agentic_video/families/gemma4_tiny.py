"""Tiny Gemma 4, of the E models' kind: embeddings for each layer, and one layer of each kind of attention."""

from typing import Any, ClassVar

import numpy as np
import torch
from transformers import Gemma4Config, Gemma4ForConditionalGeneration, Gemma4Processor
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.gemma4.image_processing_gemma4 import Gemma4ImageProcessor
from transformers.models.gemma4.video_processing_gemma4 import Gemma4VideoProcessor

from agentic_video.families.tiny import Images, TinyModels, TinySizes

PATCH, POOL = 14, 2
"""Pixels along a side of a patch, patches along a side of a visual token."""


class TinyGemma4(TinyModels):
    """Tiny Gemma 4. Its processor resizes nothing: the published one's least budget is 70 tokens an image."""

    named_tokens: ClassVar[dict[str, str]] = {
        "sot_token": "<|turn>",
        "eot_token": "<turn|>",
        "image_token": "<|image|>",
        "boi_token": "<|image>",
        "eoi_token": "<image|>",
        "audio_token": "<|audio|>",
        "boa_token": "<|audio>",
        "eoa_token": "<audio|>",
    }
    special_tokens = ("<pad>", "<eos>", "<bos>", *named_tokens.values(), "<|video|>")
    specials_first = True
    end, pad, bos = "<eos>", "<pad>", "<bos>"
    chat_template = """\
{{- '<bos>' -}}
{%- for message in messages -%}
{{- '<|turn>' + ('model' if message.role == 'assistant' else message.role) + '\\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type in ('image', 'image_url') -%}
{{- '<|image|>' -}}
{%- else -%}
{{- part.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<turn|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|turn>model\\n' -}}
{%- endif -%}
"""

    @property
    def frame_side(self) -> int:
        return PATCH * POOL

    def processor(self, tokenizer: Any) -> Any:
        shared = {"patch_size": PATCH, "pooling_kernel_size": POOL, "max_soft_tokens": 70}
        return Gemma4Processor(
            Gemma4AudioFeatureExtractor(),
            Gemma4ImageProcessor(do_resize=False, **shared),
            tokenizer,
            Gemma4VideoProcessor(**shared),
            chat_template=self.chat_template,
            image_seq_length=1,
        )

    def config_and_class(self, sizes: TinySizes, tokenizer: Any) -> tuple[Any, Any]:
        ids = {token: tokenizer.convert_tokens_to_ids(token) for token in self.special_tokens}
        head, ends = sizes.hidden // sizes.heads, [ids[self.end], ids["<turn|>"]]
        text = {
            "vocab_size": len(tokenizer),
            "hidden_size": sizes.hidden,
            "intermediate_size": 2 * sizes.hidden,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.heads,
            "head_dim": head,
            "global_head_dim": 2 * head,
            "layer_types": ["sliding_attention", *["full_attention"] * (sizes.layers - 1)],
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": len(tokenizer),
            "max_position_embeddings": 4096,
            "bos_token_id": ids[self.bos],
            "eos_token_id": ends,
            "pad_token_id": ids[self.pad],
        }
        vision = {
            "hidden_size": sizes.vision_hidden,
            "intermediate_size": 2 * sizes.vision_hidden,
            "num_hidden_layers": 1,
            "num_attention_heads": sizes.vision_heads,
            "num_key_value_heads": sizes.vision_heads,
            "head_dim": sizes.vision_hidden // sizes.vision_heads,
            "patch_size": PATCH,
            "pooling_kernel_size": POOL,
            "position_embedding_size": 64,
            "default_output_length": 1,
        }
        config = Gemma4Config(
            text_config=text,
            vision_config=vision,
            audio_config=None,
            image_token_id=ids["<|image|>"],
            video_token_id=ids["<|video|>"],
            boi_token_id=ids["<|image>"],
            eoi_token_id=ids["<image|>"],
            audio_token_id=ids["<|audio|>"],
            boa_token_id=ids["<|audio>"],
            eoa_token_index=ids["<audio|>"],
            **{"eos_token_id": ends, "pad_token_id": ids[self.pad]},
        )
        return config, Gemma4ForConditionalGeneration

    def prepare(self, model: Any) -> None:
        """Scale queries as other families' attention does: here trained norms do, whose random ones leave it sharp."""
        for name, module in model.named_modules():
            if name.endswith(".q_norm"):
                torch.nn.init.constant_(module.weight, module.weight.numel() ** -0.5)

    def embed(self, model: Any, ids: torch.Tensor, images: Images) -> dict[str, Any]:
        """See the base; with the embeddings of each layer."""
        language, config = model.model.language_model, model.config
        shown = ids == config.image_token_id
        texts = ids.masked_fill(shown, config.text_config.pad_token_id)
        embedded: torch.Tensor = language.embed_tokens(texts)
        layers = language.get_per_layer_inputs(texts, embedded)
        if len(images):
            pixels = torch.from_numpy(np.stack(images)).float() / 255
            cells = pixels.unfold(1, PATCH, PATCH).unfold(2, PATCH, PATCH).permute(0, 1, 2, 4, 5, 3)
            places = torch.tensor([[x, y] for y in range(POOL) for x in range(POOL)]).expand(len(images), -1, -1)
            features = model.model.get_image_features(cells.reshape(len(images), POOL**2, -1), places).pooler_output
            embedded = embedded.masked_scatter(shown[..., None], features)
        return {"inputs_embeds": embedded, "per_layer_inputs": layers}
