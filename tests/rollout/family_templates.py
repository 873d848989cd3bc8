"""Small chat templates with the traits of published families', and tokenizers with their special tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2VLImageProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

from agentic_video.families.qwen2_5_vl import Qwen25VL
from agentic_video.rollout.tokens import ChatFormat
from tests.families.processors import processor_of


@dataclass(frozen=True)
class Markup:
    """A family's tokens.

    Attributes:
        ends: All that end a reply; ``end`` is what the tokenizer calls the end, the first what the template writes.
        around_image: What the engine writes around an image's placeholders.
    """

    special: Sequence[str]
    end: str
    ends: Sequence[str]
    image: str
    video: str
    around_image: tuple[str, str] = ("", "")
    plain: Sequence[str] = ("<think>", "</think>")
    bos: str | None = None


_QWEN = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
QWEN = Markup(_QWEN, "<|im_end|>", ("<|im_end|>", "<|endoftext|>"), "<|image_pad|>", "<|video_pad|>")
GLM = Markup(
    (
        *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
        *("<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>", "<|image|>", "<|video|>"),
    ),
    "<|endoftext|>",
    ("<|user|>", "<|observation|>", "<|endoftext|>"),
    "<|image|>",
    "<|video|>",
    plain=("<think>", "</think>", "<answer>", "</answer>"),
)
GEMMA = Markup(
    (
        *("<pad>", "<eos>", "<bos>", "<|image>", "<image|>", "<|image|>", "<|video|>", "<|turn>", "<turn|>"),
        *("<|channel>", "<channel|>", "<|think|>"),
    ),
    "<eos>",
    ("<turn|>", "<eos>"),
    "<|image|>",
    "<|video|>",
    ("<|image>", "<image|>"),
    plain=(),
    bos="<bos>",
)
INTERN = Markup(
    (*_QWEN, "<img>", "</img>", "<IMG_CONTEXT>", "<box>", "</box>", "<video>"),
    "<|im_end|>",
    ("<|im_end|>",),
    "<IMG_CONTEXT>",
    "<video>",
    ("<img>", "</img>"),
)
MARKUPS = (QWEN, GLM, GEMMA, INTERN)


def _body(image: str, video: str, trim: str = "") -> str:
    return (
        "{%- set text -%}{%- if m.content is string -%}{{- m.content -}}{%- else -%}{%- for part in m.content -%}"
        f"{{%- if part.type == 'image' -%}}{{{{- '{image}' -}}}}"
        f"{{%- elif part.type == 'video' -%}}{{{{- '{video}' -}}}}"
        "{%- else -%}{{- part.text -}}{%- endif -%}{%- endfor -%}{%- endif -%}{%- endset -%}"
        f"{{{{- text{trim} -}}}}"
    )


_QWEN_BODY = _body("<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>")
_GLM_BODY = _body("<|begin_of_image|><|image|><|end_of_image|>", "<|begin_of_video|><|video|><|end_of_video|>")


def _chatml(body: str, *, before: str = "", between: str = "", opens: str = "") -> str:
    return (
        before
        + f"{{%- for m in messages -%}}{{%- if not loop.first -%}}{{{{- '{between}' -}}}}{{%- endif -%}}"
        + "{{- '<|im_start|>' + m.role + '\\n' -}}"
        + body
        + "{{- '<|im_end|>\\n' -}}{%- endfor -%}{%- if add_generation_prompt -%}"
        + f"{{{{- '<|im_start|>assistant\\n' -}}}}{opens}{{%- endif -%}}"
    )


_THINK_SWITCH = (
    "{%- if enable_thinking is defined and enable_thinking is false -%}{{- '<think>\\n\\n</think>\\n\\n' -}}"
    "{%- else -%}{{- '<think>\\n' -}}{%- endif -%}"
)
_NEEDS_USER = (
    "{%- set ns = namespace(user=false) -%}{%- for m in messages -%}{%- if m.role == 'user' -%}"
    "{%- set ns.user = true -%}{%- endif -%}{%- endfor -%}"
    "{%- if not ns.user -%}{{- raise_exception('No user query found.') -}}{%- endif -%}"
)
_EFFORT = (
    "{%- set effort = reasoning_effort if reasoning_effort is defined else 'high' -%}"
    "{{- '<|im_start|>system\\nReasoning effort: ' + effort + '<|im_end|>\\n' -}}"
)
_GLM_HEAD = "{{- '[gMASK]<sop>' -}}{%- for m in messages -%}{%- if m.role == 'system' -%}{{- '<|system|>\\n' -}}"
_NOT_THINKING = "enable_thinking is defined and not enable_thinking"

TEMPLATES: dict[str, tuple[Markup, str]] = {
    "plain": (QWEN, _chatml(_QWEN_BODY)),
    # empty lines between messages, and none before the generation prompt
    "gaps": (QWEN, _chatml(_QWEN_BODY, between="\\n", opens="{{- '<think>\\n' -}}")),
    # a user's message is needed, texts are trimmed
    "qwen3_5": (
        QWEN,
        _chatml(_QWEN_BODY.replace("text -}}", "text|trim -}}"), before=_NEEDS_USER, opens=_THINK_SWITCH),
    ),
    # a system message of its own
    "qwen3_8": (QWEN, _chatml(_QWEN_BODY, before=_NEEDS_USER + _EFFORT, opens=_THINK_SWITCH)),
    # no end of a turn, no role tool
    "glm4_1v": (
        GLM,
        _GLM_HEAD
        + _GLM_BODY
        + "{%- elif m.role != 'tool' -%}{{- '<|' + m.role + '|>\\n' -}}"
        + _GLM_BODY
        + "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}",
    ),
    # an empty thought before each recorded reply, and before the reply itself if asked for
    "glm4_6v": (
        GLM,
        _GLM_HEAD
        + _GLM_BODY
        + "{%- elif m.role == 'tool' -%}{{- '<|observation|>\\n<tool_response>\\n' -}}"
        + _GLM_BODY
        + "{{- '\\n</tool_response>' -}}{%- elif m.role == 'user' -%}{{- '<|user|>\\n' -}}"
        + _GLM_BODY
        + f"{{%- if {_NOT_THINKING} -%}}{{{{- '/nothink' -}}}}{{%- endif -%}}"
        + "{%- else -%}{{- '<|assistant|>\\n<think></think>\\n' -}}"
        + _GLM_BODY
        + "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}"
        + f"{{%- if {_NOT_THINKING} -%}}{{{{- '<think></think>\\n' -}}}}{{%- endif -%}}{{%- endif -%}}",
    ),
    # white space around pictures, texts trimmed, no role tool, a switch that makes it think in special tokens
    "gemma4": (
        GEMMA,
        "{{- bos_token -}}"
        "{%- if enable_thinking is defined and enable_thinking -%}"
        "{{- '<|turn>system\\n<|think|><turn|>\\n' -}}{%- endif -%}"
        "{%- for m in messages -%}{%- if m.role != 'tool' -%}"
        "{{- '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' -}}"
        + _body("\\n\\n<|image|>\\n\\n", "\\n\\n<|video|>\\n\\n", "|trim")
        + "{{- '<turn|>\\n' -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|turn>model\\n<|channel>thought\\n<channel|>' -}}{%- endif -%}",
    ),
    # a line break after each picture
    "internvl": (INTERN, _chatml(_body("<IMG_CONTEXT>\\n", "<video>\\n"))),
}
"""By the family whose traits they have: the tokens and the template."""


def tokenizer_of(markup: Markup) -> Any:
    """A byte-level tokenizer with a family's special tokens, which merges two line breaks into one token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "ĊĊ"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ċ", "Ċ")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in markup.plain])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in markup.special])
    named = {"eos_token": markup.end, "pad_token": markup.special[0], "bos_token": markup.bos}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        additional_special_tokens=[token for token in markup.special if token not in named.values()],
        **{name: token for name, token in named.items() if token},
    )


def format_with(markup: Markup, template: str, **kwargs: object) -> ChatFormat:
    """A template with a family's tokens and all its ends, and sizes of pictures as Qwen2.5-VL has them."""

    class Family(Qwen25VL):
        image_token, video_token, image_ends = markup.image, markup.video, markup.around_image

    tokenizer = tokenizer_of(markup)
    processor = processor_of(
        Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352),
        Qwen2VLVideoProcessor(size={"shortest_edge": 784, "longest_edge": 12_845_056}),
    )
    processor.config.eos_token_id = tokenizer.convert_tokens_to_ids([*markup.ends])
    return ChatFormat(tokenizer, processor, family=Family(), template=template, template_kwargs=kwargs)


def family_format(name: str, **kwargs: object) -> ChatFormat:
    """The format of one of :data:`TEMPLATES`."""
    return format_with(*TEMPLATES[name], **kwargs)
