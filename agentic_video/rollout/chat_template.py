"""A model's chat template: its place, its variables, and its text at the beginning of a reply.

Templates of thinking models end the generation prompt in ``<think>``: the model's own text continues inside the
thought. Such text counts as the beginning of the reply (for grammars, rewards, records and viewers) and is never
trained on. A template that opens and closes a thought at once (``enable_thinking: false``) means that there is none;
the reply begins after it.
"""

import json
import logging
import re
from collections.abc import Collection, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from agentic_video.utils.errors import SetupError

logger = logging.getLogger(__name__)

KWARGS_KEY = "data.apply_chat_template_kwargs"
"""verl's key of a chat template's variables."""
OURS = (
    *("add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents", "max_length"),
    *("messages", "padding", "processor_kwargs", "return_assistant_tokens_mask", "return_dict", "return_tensors"),
    *("tokenize", "tokenizer_kwargs", "tools", "truncation"),
)
"""Arguments of ``apply_chat_template`` that users must not set."""

_THOUGHT = r"(?:\w+:)?(?:think|thinking|thought|reasoning)"
_OPENED = re.compile(f"<{_THOUGHT}>")
_CLOSED = re.compile(f"</{_THOUGHT}>")
_SWITCH = re.compile(rf"<\|{_THOUGHT}\|>")
UNSEEN_START = "<think>\n"
"""Beginning of a reply that closes a thought which it never opened."""


def template_of(processor: Any, tokenizer: Any) -> str:
    """Chat template of a model: the processor's, which transformers and vLLM prefer, else the tokenizer's.

    Some checkpoints have it in one of the two only (``chat_template.jinja``, ``chat_template.json``).
    """
    of_processor, of_tokenizer = (_text(getattr(holder, "chat_template", None)) for holder in (processor, tokenizer))
    if of_processor and of_tokenizer and of_processor != of_tokenizer:
        logger.warning("the processor's chat template and the tokenizer's differ: the processor's is used")
    if found := of_processor or of_tokenizer:
        return found
    raise SetupError(
        "the model has no chat template, neither with its tokenizer nor with its processor (chat_template.jinja): copy "
        "it from the model that this one was made of, or set actor_rollout_ref.model.custom_chat_template",
        key="actor_rollout_ref.model.custom_chat_template",
    )


def template_in(folder: Path) -> str:
    """Chat template in a checkpoint's folder (see :func:`template_of`); empty if there is none."""
    file = folder / "chat_template.jinja"
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
        for name in ("chat_template.json", "processor_config.json", "tokenizer_config.json"):
            if (folder / name).is_file():
                held = json.loads((folder / name).read_text(encoding="utf-8"))
                template = held.get("chat_template") if isinstance(held, Mapping) else None
                if isinstance(template, list):  # as tokenizers write several
                    template = {
                        entry.get("name"): entry.get("template") for entry in template if isinstance(entry, Mapping)
                    }
                if text := _text(template):
                    return text
    except (OSError, ValueError, RecursionError):
        return ""  # loading it will report more
    return ""


def _text(template: Any) -> str:
    if isinstance(template, Mapping):
        template = template.get("default", "")
    return template if isinstance(template, str) else ""


def kwargs_of(data: Any) -> dict[str, Any]:
    """Variables for the chat template in a run's ``data`` block; SetupError if one is reserved."""
    found = data.get("apply_chat_template_kwargs") if data is not None else None
    if found is None:
        return {}
    if not isinstance(found, Mapping) and not hasattr(found, "keys"):
        raise SetupError(f"{KWARGS_KEY}: expected names and values, got {found!r}", key=KWARGS_KEY)
    kwargs = _plain(found)
    for name in kwargs:
        if not name.isidentifier():
            raise SetupError(f"{KWARGS_KEY}: {name!r} is no name of a template's variable", key=KWARGS_KEY)
        if name in OURS:
            raise SetupError(f"{KWARGS_KEY}.{name}: reserved for building prompts; leave it out", key=KWARGS_KEY)
    return kwargs


def _plain(values: Any) -> dict[str, Any]:
    from omegaconf import DictConfig, OmegaConf

    plain = OmegaConf.to_container(values, resolve=True) if isinstance(values, DictConfig) else dict(values)
    assert isinstance(plain, dict)
    return {str(name): value for name, value in plain.items()}


def check_kwargs(template: str, kwargs: Mapping[str, Any]) -> None:
    """Refuse variables that a template doesn't read: they would change no prompt."""
    read = variables_of(template)
    for name in kwargs:
        if name not in read:
            raise SetupError(
                f"{KWARGS_KEY}.{name}: the model's chat template reads no such variable, so it would change nothing; "
                "leave it out",
                key=KWARGS_KEY,
            )


def variables_of(template: str) -> set[str]:
    """Names that a template doesn't set in each of its branches: what it may read of its caller."""
    from jinja2 import Environment, TemplateSyntaxError
    from jinja2.meta import find_undeclared_variables

    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    try:
        # transformers' own tag, around what an assistant says
        return find_undeclared_variables(environment.parse(re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", template)))
    except TemplateSyntaxError:
        return set(re.findall(r"\w+", template))


def is_thought_tag(token: str) -> bool:
    """Return True for a tag that opens or closes a thought: a model writes it, even where it is a special token."""
    return bool(_OPENED.fullmatch(token) or _CLOSED.fullmatch(token))


def thought_switch(opening: str, special_tokens: Collection[str]) -> str:
    """Special token of an opening that makes a model think in special tokens of its own; empty if there is none."""
    return next((token for token in special_tokens if _SWITCH.fullmatch(token) and token in opening), "")


def reply_start(prompt_end: str, reply_head: str, special_tokens: Collection[str] = ()) -> str:
    """Beginning of a reply that a template writes into the generation prompt; empty for most templates.

    ``prompt_end`` is the text after the last message, ``reply_head`` the text between that message and a recorded
    reply. Special tokens are markup of the template.
    """
    if both := [token for token in special_tokens if token in prompt_end and token in reply_head]:
        # between messages there may be other white space than before the generation prompt
        last = max(both, key=reply_head.rindex)
        prompt_end, reply_head = (text[text.rindex(last) + len(last) :] for text in (prompt_end, reply_head))
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(prompt_end, reply_head, strict=False)))
    header = prompt_end[:shared]
    # templates that write an empty thought before each recorded reply
    if opened := _OPENED.search(header):
        header = header[: opened.start()]
    start = prompt_end[len(header) :]
    if closed := list(_CLOSED.finditer(start)):
        start = start[closed[-1].end() :].lstrip()
    if markup := [token for token in special_tokens if token in start]:
        start = start[max(start.rindex(token) + len(token) for token in markup) :]
    return start if start.strip() else ""


def begin_with(start: str, prefix: str) -> tuple[str, str]:
    """Beginning of a reply with ``prefix``, and the part of it that isn't in the template's own ``start``."""
    if not start or not prefix:
        return start + prefix, prefix
    if prefix.startswith(start):
        return prefix, prefix[len(start) :]
    begun = start.rstrip()
    if prefix.startswith(begun):
        rest = prefix[len(begun) :].lstrip()
        return start + rest, rest
    if start.startswith(prefix.rstrip()):
        return start, ""
    return start + prefix, prefix


def without_beginning(text: str, beginning: str) -> str | None:
    """Return the text after a reply's beginning, white space aside; None if it begins otherwise."""
    if text.startswith(beginning):
        return text[len(beginning) :]
    wanted, given = beginning.strip(), text.lstrip()
    return given[len(wanted) :].lstrip() if wanted and given.startswith(wanted) else None


def closes_unopened_thought(text: str) -> bool:
    """Return True if a reply ends a thought that it didn't begin: a template began it."""
    closed = _CLOSED.search(text)
    return closed is not None and _OPENED.search(text, 0, closed.start()) is None
