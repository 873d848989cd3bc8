"""Report what a checkpoint's folder holds, and what its processor and chat template do with each system's frames."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentic_video.commands.health import HealthCheck
from agentic_video.config.compose import compose_recipe, find_recipe
from agentic_video.config.settings import settings_of
from agentic_video.families.base import ProcessorRules, UnplannedError
from agentic_video.families.registry import family_of, load_processor
from agentic_video.planning.pictures import check_rollout_room, fitted_system, opening_pictures
from agentic_video.planning.shapes import shape_of
from agentic_video.rollout.chat_template import template_of, variables_of
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.systems.base import System
from agentic_video.systems.registry import SYSTEMS
from agentic_video.utils.errors import SetupError, one_line

SWITCHES = ("enable_thinking", "preserve_thinking", "reasoning_effort", "add_vision_id")
"""Variables of published chat templates that change prompts."""


def checkpoint_checks(folder: Path) -> Iterator[HealthCheck]:
    """Check a checkpoint's family, processor and chat template, then each system's first views with them."""
    try:
        shape = shape_of(str(folder))
        yield HealthCheck("model", f"{shape.family}, {shape.parameters / 1e9:.2f} billion parameters")
    except UnplannedError as error:
        yield HealthCheck("model", f"not planned: {one_line(error)}")
    except SetupError as error:
        yield HealthCheck("model", "refused", one_line(error))
        return
    try:
        processor = load_processor(folder)
        rules = family_of(processor).rules(processor)
    except Exception as error:  # whatever transformers raises of broken files
        remedy = f"{one_line(error)}; copy the processor's files from the model that this one was made of"
        yield HealthCheck("processor", "can't be loaded", remedy)
        return
    takes = "images and clips" if rules.takes_clips else "images alone"
    yield HealthCheck("processor", f"{type(processor).__name__}: {takes}, visual tokens of {rules.side} pixels")
    chat_format = None
    try:
        chat_format = ChatFormat.of(processor)
    except (ValueError, SetupError) as error:
        yield HealthCheck("chat template", "refused", one_line(error))
    else:
        yield _template(chat_format, template_of(processor, chat_format.tokenizer))
    for name in SYSTEMS:
        config = compose_recipe(find_recipe(name), "cluster")
        yield _system(settings_of(config).system, rules, chat_format, config.actor_rollout_ref.rollout)


def _template(chat_format: ChatFormat, template: str) -> HealthCheck:
    """What a chat template writes before a reply, what ends one, and which variables change prompts."""
    start = chat_format.reply_start
    ends = chat_format.tokenizer.convert_ids_to_tokens(sorted(chat_format.eos_ids))
    read = variables_of(template)
    parts = [
        f"opens {start!r} in each reply" if start else "opens nothing in a reply",
        f"replies end with {' or '.join(ends)}",
        *(f"reads {name}" for name in SWITCHES if name in read),
    ]
    return HealthCheck("chat template", "; ".join(parts))


def _system(system: System, rules: ProcessorRules, chat_format: ChatFormat | None, rollout: Any) -> HealthCheck:
    """Sizes and tokens of a system's frames, and what a job would refuse."""
    try:
        system = fitted_system(system, rules)
        views = opening_pictures(system, rules, int(rollout.n))
        check_rollout_room(views, rules, rollout)
    except SetupError as error:
        return HealthCheck(system.name, "frames are refused", one_line(error))
    remedy = ""
    if chat_format is not None:
        try:
            chat_format.check_role(system.observation_role)
        except ValueError as error:
            remedy = one_line(error)
    if not views.image_tokens and not views.clip_tokens:
        return HealthCheck(system.name, "its first view has no frames", remedy)
    shown = [f"{width}x{height} becomes {wide}x{high}" for (width, height), (wide, high) in views.changed]
    if len(shown) > 2:
        shown[2:] = [f"{len(shown) - 2} more sizes change"]
    parts = [", ".join(shown) or "frames keep their sizes"]
    tokens = {"an image": views.image_tokens, "a clip": views.clip_tokens}
    parts += [f"{kind} has up to {count} tokens" for kind, count in tokens.items() if count]
    return HealthCheck(system.name, "; ".join(parts), remedy)
