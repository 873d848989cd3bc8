"""Small chat templates that behave like those of published models."""

from transformers import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

from agentic_video.rollout.chat_template import template_of
from agentic_video.rollout.tokens import ChatFormat
from tests.families.processors import processor_of

_VISUALS = (
    "{%- if part.type == 'image' -%}{{- {NUMBER} + '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- elif part.type == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}"
)


def template(
    *,
    opens: str = "<think>\\n",
    system: str = "",
    before_reply: str = "",
    parts_only: bool = False,
    tool: bool = True,
    numbered: bool = False,
    generation: bool = True,
) -> str:
    """A template in Qwen's markup.

    Args:
        opens: Beginning of a reply, unless ``enable_thinking`` is false: then it begins with an empty thought.
        system: A text before all messages.
        before_reply: Beginning of each recorded reply; thoughts of earlier turns are left out in any case.
        parts_only: Drop messages that are plain texts.
        tool: Take messages of the role tool.
        numbered: Number images if ``add_vision_id``.
        generation: Open a reply after a tool's message.
    """
    number = "'Picture 1: '" if not numbered else "('Picture ' + seen.value|string + ': ' if add_vision_id else '')"
    count = "{%- set seen.value = seen.value + 1 -%}" if numbered else ""
    visuals = count + _VISUALS.replace("{NUMBER} + ", f"{number} + " if numbered else "")
    text = "" if parts_only else "{%- if m.content is string -%}{{- m.content -}}{%- else -%}"
    close = "" if parts_only else "{%- endif -%}"
    each = "{%- if m.content is not string -%}" if parts_only else ""
    ended = "{%- endif -%}" if parts_only else ""
    body = (
        f"{text}{each}{{%- for part in m.content -%}}{visuals}{{%- else -%}}{{{{- part.text -}}}}{{%- endif -%}}"
        f"{{%- endfor -%}}{ended}{close}"
    )
    if numbered:
        body = body.replace(count, "").replace(
            "{%- if part.type == 'image' -%}", "{%- if part.type == 'image' -%}" + count
        )
    refuse = "" if tool else "{%- if m.role == 'tool' -%}{{- raise_exception('no such role') -}}{%- endif -%}"
    asked = "add_generation_prompt" + ("" if generation else " and messages[-1].role != 'tool'")
    return (
        "{%- set seen = namespace(value=0) -%}"
        + (f"{{{{- '<|im_start|>system\\n{system}<|im_end|>\\n' -}}}}" if system else "")
        + "{%- for m in messages -%}"
        + refuse
        + "{{- '<|im_start|>' + m.role + '\\n' -}}"
        + f"{{%- if m.role == 'assistant' -%}}{{{{- '{before_reply}' -}}}}{{%- endif -%}}"
        + body
        + "{{- '<|im_end|>\\n' -}}{%- endfor -%}"
        + f"{{%- if {asked} -%}}{{{{- '<|im_start|>assistant\\n' -}}}}"
        + "{%- if enable_thinking is defined and not enable_thinking -%}{{- '<think>\\n\\n</think>\\n\\n' -}}"
        + f"{{%- else -%}}{{{{- '{opens}' -}}}}{{%- endif -%}}{{%- endif -%}}"
    )


def format_of(tokenizer: object, written: str | None = None, **kwargs: object) -> ChatFormat:
    """A model's format with a template (None: the tokenizer's) and variables for it."""
    return ChatFormat(
        tokenizer,
        processor_of(
            Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352),
            Qwen2VLVideoProcessor(size={"shortest_edge": 784, "longest_edge": 12_845_056}),
        ),
        template=written or template_of(None, tokenizer),
        template_kwargs=kwargs,
    )
