"""A chat template's text at the beginning of a reply is part of every turn and never trained on."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from transformers import Qwen2VLImageProcessor

from agentic_video.rollout.chat_template import (
    KWARGS_KEY,
    OURS,
    begin_with,
    check_kwargs,
    kwargs_of,
    reply_start,
    template_in,
    template_of,
    without_beginning,
)
from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ReplayError, ScriptEngine, replay
from agentic_video.rollout.tokens import ChatFormat, TokenPolicy
from agentic_video.systems.paravt.system import ParaVT
from agentic_video.systems.videozoomer.reward import format_ok
from agentic_video.types.message import AsideRequest, Message
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from agentic_video.utils.errors import SetupError
from tests.conftest import MemorySource
from tests.families.processors import processor_of
from tests.golden.episodes import systems as golden_systems
from tests.rollout.chat_templates import format_of, template
from tests.rollout.scripted import result_of, scripts
from tests.rollout.test_tokens import ROOMY, SYSTEM

ZOOM = 'a</think><video_zoom>{"segment": [1, 3], "fps": 1}</video_zoom>'
ANSWER = "b</think><answer>B</answer>"
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


@pytest.fixture
def tokenizer(chat_format: ChatFormat) -> Any:
    return chat_format.tokenizer


def played(
    chat_format: ChatFormat, qa: VideoQA, turns: Sequence[str], system: Any = SYSTEM
) -> tuple[Trajectory, TokenPolicy, list[list[int]]]:
    said = [chat_format.encode(turn) for turn in turns]
    policy = TokenPolicy(ScriptEngine(said), chat_format, ROOMY, system)
    return asyncio.run(play(system, policy, qa, MemorySource(60.0))), policy, said


def test_a_thought_that_the_template_opens_begins_each_turn(tokenizer: Any, qa: VideoQA) -> None:
    thinking = format_of(tokenizer, template())
    trajectory, policy, said = played(thinking, qa, [ZOOM, ANSWER])
    assert [turn.text for turn in trajectory.turns] == ["<think>\n" + ZOOM, "<think>\n" + ANSWER]
    assert format_ok(trajectory) and trajectory.answer == "B"
    sequence = policy.sequence
    assert sequence is not None
    assert thinking.decode(sequence.prompt_ids).endswith("<|im_end|>\n<|im_start|>assistant\n<think>\n")
    # 1 on exactly what the model said, the beginning of the second turn is the environment's
    learnt = [token for token, mask in zip(sequence.response_ids, sequence.response_mask, strict=True) if mask]
    assert learnt == [token for ids in said for token in ids]
    shown = thinking.decode(
        [t for t, mask in zip(sequence.response_ids, sequence.response_mask, strict=True) if not mask]
    )
    assert shown.endswith("<|im_start|>assistant\n<think>\n") and shown.count("<|im_start|>assistant") == 1
    assert [turn.token_ids for turn in trajectory.turns] == [tuple(ids) for ids in said]


def test_a_thought_that_the_template_closes_is_no_part_of_the_reply(tokenizer: Any, qa: VideoQA) -> None:
    plain = format_of(tokenizer, template(), enable_thinking=False)
    trajectory, policy, _ = played(plain, qa, ["<think>" + ZOOM, "<think>" + ANSWER])
    assert trajectory.turns[0].text == "<think>" + ZOOM and format_ok(trajectory)
    assert policy.sequence is not None
    assert plain.decode(policy.sequence.prompt_ids).endswith("assistant\n<think>\n\n</think>\n\n")
    # an answer without a thought earns no format for the template's
    assert not format_ok(played(plain, qa, ["<answer>B</answer>"])[0])


def test_an_opened_thought_isn_t_opened_again_by_the_system(tokenizer: Any, qa: VideoQA) -> None:
    system = ParaVT(min_pixels=784, max_pixels=3136, overview_least=4, overview_frames=8)
    thinking, plain = format_of(tokenizer, template()), format_of(tokenizer, template(opens=""))
    ours, theirs = (played(chat_format, qa, [ANSWER], system) for chat_format in (thinking, plain))
    assert system.reply_prefix == "<think>\n"
    assert ours[0].turns[0].text == theirs[0].turns[0].text == "<think>\n" + ANSWER
    assert ours[1].sequence is not None and theirs[1].sequence is not None
    assert thinking.decode(ours[1].sequence.prompt_ids) == plain.decode(theirs[1].sequence.prompt_ids)


@pytest.mark.parametrize("before_reply", ["", "<think>\\n\\n</think>\\n\\n", "<think></think>"])
@pytest.mark.parametrize("system", ["", "Think hard."])
def test_a_template_may_rewrite_earlier_replies(tokenizer: Any, qa: VideoQA, before_reply: str, system: str) -> None:
    thinking = format_of(tokenizer, template(before_reply=before_reply, system=system))
    assert thinking.reply_start == "<think>\n"
    _, policy, _ = played(thinking, qa, [ZOOM, ANSWER])
    assert policy.sequence is not None
    text = thinking.decode(policy.sequence.ids)
    # the template's own text stands at the start only, and no reply is rewritten
    assert text.count("<|im_start|>system") == bool(system)
    assert f"<think>\n{ZOOM}<|im_end|>\n<|im_start|>user\n" in text


def test_a_template_may_want_parts(tokenizer: Any, qa: VideoQA) -> None:
    whole = format_of(tokenizer, template(opens=""))
    parts = format_of(tokenizer, template(opens="", parts_only=True))
    message = [Message("user", ("What is it?",))]
    assert parts.opening_ids(message) == whole.opening_ids(message)
    assert parts.observation_ids(("seen",), [5]) == whole.observation_ids(("seen",), [5])


@pytest.mark.parametrize("options", [{"tool": False}, {"generation": False}])
def test_a_role_that_a_template_lacks_is_refused_by_its_key(tokenizer: Any, options: dict[str, bool]) -> None:
    chat_format = format_of(tokenizer, template(opens="", **options))
    chat_format.check_role("user")
    with pytest.raises(ValueError, match=r"^agentic_video\.system\.observation_role: "):
        chat_format.check_role("tool")


def test_images_that_a_template_numbers_are_refused(tokenizer: Any) -> None:
    assert format_of(tokenizer, template(numbered=True)).reply_start == "<think>\n"
    with pytest.raises(ValueError, match="add_vision_id"):
        format_of(tokenizer, template(numbered=True), add_vision_id=True)


def test_variables_reach_the_template_or_are_refused(tokenizer: Any) -> None:
    with pytest.raises(SetupError, match="enable_thinkin") as caught:
        format_of(tokenizer, template(), enable_thinkin=False)
    assert caught.value.key == KWARGS_KEY
    assert kwargs_of(None) == kwargs_of({}) == {}
    data = OmegaConf.create({"apply_chat_template_kwargs": {"enable_thinking": False, "more": {"a": [1]}}})
    assert kwargs_of(data) == {"enable_thinking": False, "more": {"a": [1]}}
    for values in (3, *({name: True} for name in (*OURS, "a b"))):
        with pytest.raises(SetupError) as caught:
            kwargs_of({"apply_chat_template_kwargs": values})
        assert caught.value.key == KWARGS_KEY


@pytest.mark.parametrize("tag", ["{% generation %}{{ a }}{%- endgeneration -%}", "{% unknown %}"])
def test_variables_of_a_template_with_tags_of_its_own(tag: str) -> None:
    check_kwargs(tag + "{% if think %}{% endif %}", {"think": True})
    with pytest.raises(SetupError):
        check_kwargs(tag + "{% if think %}{% endif %}", {"effort": True})


def test_the_processor_s_template_comes_first(tokenizer: Any) -> None:
    ours, theirs = SimpleNamespace(chat_template="P"), SimpleNamespace(chat_template="T")
    nothing = SimpleNamespace(chat_template=None)
    assert (
        template_of(ours, theirs) == "P" and template_of(nothing, theirs) == "T" and template_of(ours, nothing) == "P"
    )
    assert template_of(SimpleNamespace(chat_template={"default": "D", "tool_use": "U"}), nothing) == "D"
    with pytest.raises(SetupError, match="chat_template"):
        template_of(nothing, SimpleNamespace())
    bare = SimpleNamespace(
        **vars(processor_of(Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352))), chat_template=template()
    )
    assert ChatFormat.of(bare, tokenizer).reply_start == "<think>\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chat_template.jinja", "T"),
        ("chat_template.json", json.dumps({"chat_template": "T"})),
        ("tokenizer_config.json", json.dumps({"chat_template": "T"})),
        ("tokenizer_config.json", json.dumps({"chat_template": [{"name": "default", "template": "T"}]})),
    ],
)
def test_the_template_in_a_folder(tmp_path: Path, name: str, text: str) -> None:
    assert template_in(tmp_path) == ""
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / name).write_text(text)
    assert template_in(tmp_path) == "T"
    (tmp_path / "chat_template.json").write_text("[")
    assert template_in(tmp_path) in ("", "T")


@pytest.mark.parametrize(
    ("prompt_end", "reply_head", "specials", "expected"),
    [
        ("<e>\n<s>assistant\n", "<e>\n<s>assistant\n", (), ""),
        ("<e>\n<s>assistant\n<think>\n", "<e>\n<s>assistant\n", (), "<think>\n"),
        ("<e>\n<s>assistant\n<think>\n", "<e>\n<s>assistant\n<think>\n\n</think>\n\n", (), "<think>\n"),
        ("<e>\n<s>assistant\n<think>\n\n</think>\n\n", "<e>\n<s>assistant\n", (), ""),
        ("<e>\n<s>assistant\n<think></think><think>", "<e>\n<s>assistant\n", (), "<think>"),
        ("<e><s>assistant", "<e><s>assistant\n<think></think>\n", (), ""),
        ("<s>model\n<c>thought\n<d>", "<s>model\n", ("<s>", "<c>", "<d>"), ""),
        ("<s>Assistant:", "<s>Assistant: ", (), ""),
        ("<s>assistant\nSure, ", "<s>assistant\n", (), "Sure, "),
        ("<e>\n<s>assistant\n<think>\n", "<e>\n\n<s>assistant\n", ("<s>", "<e>"), "<think>\n"),
        ("<s>model\n", "<s>model\n<c>thought\n<d>", ("<s>", "<c>", "<d>"), ""),
        ("<s>assistant\n<seed:think>", "<s>assistant\n", (), "<seed:think>"),
    ],
)
def test_where_a_reply_begins(prompt_end: str, reply_head: str, specials: tuple[str, ...], expected: str) -> None:
    assert reply_start(prompt_end, reply_head, specials) == expected


@pytest.mark.parametrize(
    ("start", "prefix", "expected"),
    [
        ("", "<think>\n", ("<think>\n", "<think>\n")),
        ("<think>\n", "", ("<think>\n", "")),
        ("<think>\n", "<think>\n", ("<think>\n", "")),
        ("<think>\n", "<think>", ("<think>\n", "")),
        ("<think>", "<think>\n", ("<think>\n", "\n")),
        ("<think>\n", "<think>\nLet me", ("<think>\nLet me", "Let me")),
        ("<think>\n", "<think>Let me", ("<think>\nLet me", "Let me")),
        ("<think>\n", "<plan>", ("<think>\n<plan>", "<plan>")),
    ],
)
def test_the_part_of_a_prefix_that_is_still_to_be_written(start: str, prefix: str, expected: tuple[str, str]) -> None:
    assert begin_with(start, prefix) == expected


@given(st.sampled_from(["", "<think>", "<think>\n", "Sure, "]), st.text("<think>/ \nab", max_size=12))
def test_a_beginning_is_the_template_s_then_ours(start: str, prefix: str) -> None:
    whole, written = begin_with(start, prefix)
    assert whole == start + written and whole.startswith(start)
    assert without_beginning(whole + "x", whole) == "x"
    assert "".join(prefix.split()) in "".join(whole.split())


def test_records_are_learnt_with_the_template_that_the_learner_has(tokenizer: Any, qa: VideoQA) -> None:
    thinking, plain = format_of(tokenizer, template()), format_of(tokenizer, template(opens=""))

    def learnt(trajectory: Trajectory, chat_format: ChatFormat) -> tuple[str, str]:
        (one,) = asyncio.run(replay(trajectory, qa, SYSTEM, chat_format, ROOMY))
        spelled = [token for token, mask in zip(one.ids, one.loss_mask, strict=True) if mask]
        first = one.ids[slice(*one.replies[0])]
        return chat_format.decode(spelled), chat_format.decode(first)

    by_thinker, policy, _ = played(thinking, qa, [ZOOM, ANSWER])
    (again,) = asyncio.run(replay(by_thinker, qa, SYSTEM, thinking, ROOMY))
    assert policy.sequence is not None and list(again.ids) == policy.sequence.ids
    assert list(again.response_mask) == policy.sequence.response_mask
    # a reply's span holds its forced beginning, without loss
    assert learnt(by_thinker, thinking) == (ZOOM + ANSWER, "<think>\n" + ZOOM)
    # learnt by a model whose template opens nothing: it has to open the thought itself
    assert learnt(by_thinker, plain)[0] == f"<think>\n{ZOOM}<think>\n{ANSWER}"
    # and the other way round; white space is the template's
    by_plain = played(plain, qa, ["<think>" + ZOOM, "<think>" + ANSWER])[0]
    assert learnt(by_plain, thinking) == (ZOOM + ANSWER, "<think>\n" + ZOOM)
    # a reply that begins otherwise than this model's can't be trained on
    thoughtless = played(plain, qa, ["<answer>B</answer>"])[0]
    with pytest.raises(ReplayError, match=r"^turn 1 .*data\.apply_chat_template_kwargs"):
        learnt(thoughtless, thinking)


def test_a_side_query_begins_with_the_templates_text(tokenizer: Any) -> None:
    thinking = format_of(tokenizer, template())
    policy = TokenPolicy(ScriptEngine([thinking.encode("x</think>red")] * 2), thinking, ROOMY, SYSTEM)
    request = AsideRequest((Message("user", ("What is this?",)),), 50)
    first, second = (asyncio.run(policy.ask(replace(request, prefix=prefix))) for prefix in ("", "<think>\nIt "))
    assert (first.text, first.prefix, first.reply) == ("<think>\nx</think>red", "<think>\n", "x</think>red")
    assert second.text == "<think>\nIt x</think>red"
    assert second.prompt_tokens == first.prompt_tokens + len(thinking.encode("It "))


@pytest.mark.parametrize("name", golden_systems())
def test_every_system_reads_an_opened_thought_like_a_generated_one(tokenizer: Any, name: str) -> None:
    thinking, plain = format_of(tokenizer, template()), format_of(tokenizer, template(opens=""))
    played_scripts = [*scripts(name, range(12))]
    for system, texts in played_scripts:
        found = [result_of(chat_format, system, texts) for chat_format in (plain, thinking)]
        assert found[0] == found[1]
        assert all(turn["text"].startswith("<think>\n") for turn in found[1][0]["turns"])
    assert played_scripts
