"""Chat templates and ends of replies of all families; published templates too, where a package or a folder has them.

``AGENTIC_VIDEO_TEMPLATES`` names a folder of ``*.jinja`` files.
"""

import asyncio
import os
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import GenerationConfig

from agentic_video.families.registry import family_of
from agentic_video.rollout.chat_template import KWARGS_KEY
from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ScriptEngine, replay, written_ids
from agentic_video.rollout.tokens import ChatFormat, TokenPolicy
from agentic_video.systems.videozoomer.reward import format_ok
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.types.message import Message
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, FrameRef, Trajectory
from agentic_video.utils.errors import SetupError
from tests.conftest import MemorySource
from tests.golden.episodes import systems as golden_systems
from tests.rollout.family_templates import MARKUPS, TEMPLATES, Markup, family_format, format_with, tokenizer_of
from tests.rollout.scripted import result_of, scripts
from tests.rollout.test_tokens import ROOMY, SYSTEM

SCRIPTS = range(6)
ZOOM = '<think>a</think><video_zoom>{"segment": [1, 3], "fps": 1}</video_zoom>'
ANSWER = "<think>b</think><answer>B</answer>"
CLIP = ClipRef(tuple(FrameRef(number, float(number), 56, 56) for number in range(4)))


class ToolZoomer(VideoZoomer):
    observation_role = "tool"


class LatestZoomer(VideoZoomer):
    context = "latest_evidence"


def published() -> list[Path]:
    """Published templates in an installed trl, whose files are read only, and in the folder that is named."""
    spec = find_spec("trl")
    folders = [Path(place) / "chat_templates" for place in (spec.submodule_search_locations or [] if spec else [])]
    if named := os.environ.get("AGENTIC_VIDEO_TEMPLATES"):
        folders.append(Path(named))
    return [file for folder in folders for file in sorted(folder.glob("*.jinja")) if markup_in(file.read_text())]


def markup_in(template: str) -> Markup | None:
    """The family whose turns and pictures a template writes; None for others, and for texts without pictures."""
    signs = {MARKUPS[0]: ("<|image_pad|>", "<|im_start|>"), MARKUPS[1]: ("<|begin_of_image|>", "<|assistant|>")}
    signs |= {MARKUPS[2]: ("<|turn>", "<|image|>"), MARKUPS[3]: ("<IMG_CONTEXT>", "<|im_start|>")}
    return next((markup for markup, needed in signs.items() if all(sign in template for sign in needed)), None)


@cache
def plain_results(name: str, role: str, end: str) -> list[Any]:
    plain = family_format("plain")
    return [result_of(plain, with_role(system, role), texts, [end]) for system, texts in given(name)]


def with_role(system: Any, role: str) -> Any:
    """A system whose observations have a role."""
    return system if system.observation_role == role else replace(system, observation_role=role)


@cache
def given(name: str) -> list[tuple[Any, list[str]]]:
    return [*scripts(name, SCRIPTS)]


def check_episodes(chat_format: ChatFormat, ends: tuple[str, ...], name: str) -> None:
    """Compare a system's episodes, field by field, with those under a plain template."""
    for number, (system, texts) in enumerate(given(name)):
        role = system.observation_role
        try:
            chat_format.check_role(role)
        except ValueError:
            role = "user"
        found = result_of(chat_format, with_role(system, role), texts, ends)
        assert found == plain_results(name, role, "<|im_end|>")[number]


@pytest.mark.parametrize("family", [name for name in TEMPLATES if name != "plain"])
@pytest.mark.parametrize("name", golden_systems())
def test_every_system_plays_alike_with_every_family(family: str, name: str) -> None:
    check_episodes(family_format(family), tuple(TEMPLATES[family][0].ends), name)


@pytest.mark.parametrize("file", published() or [None], ids=lambda file: file.stem if file else "none")
def test_published_templates(file: Path | None) -> None:
    if file is None:
        pytest.skip("no published templates here: install trl, or set AGENTIC_VIDEO_TEMPLATES")
    template = file.read_text()
    markup = markup_in(template)
    assert markup is not None
    chat_format = format_with(markup, template)
    assert chat_format.reply_start.strip() in ("", "<think>")
    assert chat_format.tokenizer.decode([chat_format.end_id]) == markup.ends[0]
    chat_format.opening_ids([Message("user", (CLIP, "\nWhat?", FrameRef(0, 0.0, 56, 56)))])
    for name in golden_systems():
        check_episodes(chat_format, tuple(markup.ends), name)


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_end_that_the_template_writes_is_known(family: str) -> None:
    markup, template = TEMPLATES[family]
    chat_format = family_format(family)
    ends = chat_format.tokenizer.convert_tokens_to_ids([*markup.ends])
    assert chat_format.eos_ids == frozenset(ends) and chat_format.end_id == ends[0]
    assert chat_format.banned_ids.isdisjoint(ends) and chat_format.visual_token_ids <= chat_format.banned_ids
    # a tokenizer's file that names another end, without a generation config
    bare = format_with(replace(markup, ends=()), template)
    assert bare.end_id == ends[0]


def test_a_model_that_ends_no_reply_is_refused() -> None:
    markup, template = TEMPLATES["plain"]
    unmarked = template.replace("<|im_start|>", "[").replace("<|im_end|>", "]")
    # the template's end is no special token, the tokenizer's is
    chat_format = format_with(replace(markup, ends=()), unmarked)
    end = chat_format.tokenizer.eos_token_id
    assert (chat_format.eos_ids, chat_format.end_id) == ({end}, end)
    assert chat_format.decode(chat_format.observation_ids(("seen",), [end])) == "]\n[user\nseen]\n[assistant\n"
    assert chat_format.replaced_ids([5, end]) == 0
    with pytest.raises(ValueError, match="ends a reply"):
        format_with(replace(markup, end="", ends=()), unmarked)


def test_ends_come_from_the_checkpoint_s_files(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(TEMPLATES["plain"][0])
    end, pad = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    family, config = family_of("qwen2_5_vl"), SimpleNamespace(name_or_path=str(tmp_path), eos_token_id=None)
    processor = SimpleNamespace(config=config)
    assert family.end_ids(tokenizer, SimpleNamespace()) == family.end_ids(tokenizer, processor) == {end}
    GenerationConfig(eos_token_id=[end, pad, 10**9]).save_pretrained(tmp_path)
    assert family.end_ids(tokenizer, processor) == {end, pad}
    (tmp_path / "generation_config.json").write_text("{")
    config.text_config = SimpleNamespace(eos_token_id=[True, "x", None, pad])
    assert family.end_ids(tokenizer, processor) == {end, pad}


def played(chat_format: ChatFormat, qa: VideoQA, end: str, system: Any = SYSTEM) -> tuple[Trajectory, TokenPolicy]:
    """Two turns, the first without a stop text so that a token ends it."""
    system = replace(system, stop=())
    ids = [chat_format.encode(text) + chat_format.encode(end) for text in (ZOOM, ANSWER)]
    policy = TokenPolicy(ScriptEngine(ids), chat_format, ROOMY, system)
    return asyncio.run(play(system, policy, qa, MemorySource(60.0))), policy


@pytest.mark.parametrize(
    ("family", "role", "end", "between"),
    [
        ("plain", "user", "<|im_end|>", "<|im_end|>\n<|im_start|>user\n"),
        ("plain", "user", "<|endoftext|>", "<|endoftext|>\n<|im_start|>user\n"),
        ("gaps", "user", "<|im_end|>", "<|im_end|>\n\n<|im_start|>user\n"),
        ("glm4_1v", "user", "<|user|>", "<|user|>\n"),
        ("glm4_1v", "user", "<|observation|>", "<|user|>\n"),
        ("glm4_6v", "tool", "<|observation|>", "<|observation|>\n<tool_response>\n"),
        ("glm4_6v", "tool", "<|user|>", "<|observation|>\n<tool_response>\n"),
        ("gemma4", "user", "<turn|>", "<turn|>\n<|turn>user\n"),
        ("gemma4", "user", "<eos>", "<eos>\n<|turn>user\n"),
    ],
)
def test_what_stands_between_a_reply_and_the_next_message(
    qa: VideoQA, family: str, role: Any, end: str, between: str
) -> None:
    chat_format = family_format(family)
    system = ToolZoomer(**vars(SYSTEM)) if role == "tool" else SYSTEM
    trajectory, policy = played(chat_format, qa, end, system)
    assert trajectory.answer == "B" and trajectory.turns[0].text.endswith(ZOOM)
    assert policy.sequence is not None
    text = chat_format.decode(policy.sequence.ids)
    assert text.split(ZOOM.removeprefix("<think>"))[1].startswith(between)
    assert text.endswith(ANSWER.removeprefix("<think>") + end)
    # learnt from its record, it is the same sequence
    (again,) = asyncio.run(replay(trajectory, qa, replace(system, stop=()), chat_format, ROOMY))
    assert [*again.ids] == policy.sequence.ids and [*again.response_mask] == policy.sequence.response_mask
    (begin, stop), _ = again.replies
    assert chat_format.said(again.ids[begin:stop]).endswith(ZOOM.removeprefix("<think>"))


@pytest.mark.parametrize("context", ["all", "latest_evidence"])
def test_an_end_that_begins_another_role_s_message_is_learnt_at_the_end_only(qa: VideoQA, context: Any) -> None:
    chat_format = family_format("glm4_1v")
    system = LatestZoomer(**vars(SYSTEM)) if context == "latest_evidence" else SYSTEM
    trajectory, policy = played(chat_format, qa, "<|observation|>", system)
    end = chat_format.encode("<|observation|>")[0]
    assert [turn.token_ids[-1] for turn in trajectory.turns if turn.token_ids] == [end, end]
    whole = [sequence.ids for sequence in policy.sequences]
    assert [ids.count(end) for ids in whole] == [1] * len(policy.sequences) and all(
        ids[-1] == end for ids in whole[-1:]
    )
    replayed = asyncio.run(replay(trajectory, qa, replace(system, stop=()), chat_format, ROOMY))
    assert [[*sequence.ids] for sequence in replayed] == whole
    for sequence in policy.sequences:
        assert len(sequence.response_ids) == len(sequence.response_mask) == len(sequence.log_probs)


def test_records_without_ids_end_as_the_next_message_begins(qa: VideoQA) -> None:
    chat_format = family_format("glm4_6v")
    system = ToolZoomer(**{**vars(SYSTEM), "stop": ()})
    trajectory, _ = played(chat_format, qa, "<|user|>", system)
    turns = tuple(replace(turn, token_ids=()) for turn in trajectory.turns)
    (learnt,) = asyncio.run(replay(replace(trajectory, turns=turns), qa, system, chat_format, ROOMY))
    ids = [token for token, mask in zip(learnt.ids, learnt.loss_mask, strict=True) if mask]
    assert chat_format.decode(ids) == f"{ZOOM}<|observation|>{ANSWER}<|user|>"


def test_an_end_that_is_a_word_stays_in_the_text(qa: VideoQA) -> None:
    markup, template = TEMPLATES["glm4_1v"]
    chat_format = format_with(replace(markup, ends=(*markup.ends, "</answer>")), template)
    trajectory, policy = played(chat_format, qa, "")
    assert trajectory.turns[-1].text == ANSWER and trajectory.turns[-1].finished and format_ok(trajectory)
    assert written_ids(ANSWER, chat_format, ()) == chat_format.encode(ANSWER)
    thought = "<think>not </answer> yet</think>" + ANSWER
    assert written_ids(thought, chat_format, ()) == chat_format.encode(thought)
    (again,) = asyncio.run(replay(trajectory, qa, replace(SYSTEM, stop=()), chat_format, ROOMY))
    assert policy.sequence is not None and [*again.ids] == policy.sequence.ids


@pytest.mark.parametrize("family", TEMPLATES)
@pytest.mark.parametrize("texts", [("", ""), ("", "\nWhat?"), ("Look:\n", "What?"), ("Look:", "\n\n"), ("a", "b")])
def test_white_space_around_clips_and_images(family: str, texts: tuple[str, str]) -> None:
    chat_format, image = family_format(family), FrameRef(0, 0.0, 56, 84)
    for visual in (CLIP, image):
        ids = chat_format.opening_ids([Message("user", (texts[0], visual, texts[1]))])
        made = chat_format.visual_ids(visual)
        # 56x56 pixels are four tokens of 28x28, twice in a clip of four frames; 56x84 are six
        assert sum(token in chat_format.visual_token_ids for token in made) == (8 if visual is CLIP else 6)
        assert any(ids[at : at + len(made)] == made for at in range(len(ids)))
    before, after = (chat_format.encode(text) for text in TEMPLATES[family][0].around_image)
    whole = chat_format.image_ids(56, 84)[1]
    assert whole == [*before, *[chat_format.image_token_id] * 6, *after]


def test_a_template_s_refusal_is_passed_on() -> None:
    with pytest.raises(ValueError, match=r"system.*No user query found"):
        family_format("qwen3_5").opening_ids([Message("system", ("Be brief.",))])


def test_thoughts_in_special_tokens_are_refused() -> None:
    assert family_format("gemma4", enable_thinking=False).reply_start == ""
    with pytest.raises(SetupError, match="enable_thinking") as caught:
        family_format("gemma4", enable_thinking=True)
    assert caught.value.key == KWARGS_KEY


def test_special_tokens_that_tag_thoughts_are_the_model_s() -> None:
    markup, template = TEMPLATES["qwen3_5"]
    chat_format = format_with(replace(markup, special=(*markup.special, "<think>", "</think>"), plain=()), template)
    assert chat_format.reply_start == "<think>\n"
    assert chat_format.banned_ids.isdisjoint(chat_format.encode("<think></think>"))
    assert "<think>" in chat_format.decode(chat_format.opening_ids([Message("user", ("Use <think>.",))])[:-2])


@pytest.mark.parametrize("name", ["role", "m", "text", "Effort"])
def test_words_that_a_template_reads_from_no_caller_are_refused(name: str) -> None:
    assert family_format("qwen3_8", reasoning_effort="low").reply_start == "<think>\n"
    with pytest.raises(SetupError) as caught:
        family_format("qwen3_8", **{name: 1})
    assert caught.value.key == KWARGS_KEY
