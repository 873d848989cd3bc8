from hashlib import sha256
from typing import Any

import pytest

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.systems.registry import TOY_VOCABULARY
from agentic_video.systems.videoo3 import VideoO3
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.toyworld.base import answer_text, make_reading, single_turn, tokenizer_corpus
from agentic_video.toyworld.cache import base_facts
from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer
from agentic_video.toyworld.oracles import own_words
from agentic_video.toyworld.recipe import ToyRecipe
from agentic_video.toyworld.world import COLOURS, WorldRecipe
from agentic_video.types.message import Message


@pytest.mark.parametrize(
    ("searched", "digest"),
    [(False, "de5005c93db901bb"), (True, "f65c144706d884ef")],
)
def test_the_corpus_is_always_the_same(searched: bool, digest: str) -> None:
    # Other texts give another tokenizer, and with it other tiny models than those whose results are on record.
    whole = "\0".join(tokenizer_corpus(searched))
    assert sha256(whole.encode()).hexdigest()[:16] == digest


def test_the_corpus_holds_the_grammars_that_it_is_made_from() -> None:
    whole = "\n".join(tokenizer_corpus())
    for mark in ("<video_zoom>", "<action>", "<turn_sum>", "uniform_sample", "frame_select"):
        assert mark in whole
    assert len(TOY_VOCABULARY) == 5  # one mark each


def test_a_system_s_own_tags_are_tokens_of_its_own_tokenizer_alone(tokenizer: Any) -> None:
    system = VideoO3()
    own = own_words(system)
    assert own is not None and own.tags == ("<grounding>", "</grounding>")
    assert own_words(VideoZoomer()) is None
    theirs = build_tokenizer(tokenizer_corpus(own=own), own.tags)
    look = '<grounding>{"temporal_segment": [42, 43], "sampling_strategy": "fine"}</grounding>'
    ids = theirs(look)["input_ids"]
    assert theirs.convert_ids_to_tokens([ids[0], ids[-1]]) == ["<grounding>", "</grounding>"]
    assert len(ids) < len(tokenizer(look)["input_ids"])
    assert "<grounding>" not in tokenizer.get_vocab()
    assert tokenizer_corpus() == tokenizer_corpus(own=None) != tokenizer_corpus(own=own)


def test_a_system_s_own_base_model_is_another() -> None:
    plain, own = base_facts(ToyRecipe()), base_facts(ToyRecipe(), own_words(VideoO3()))
    assert {key for key in plain if plain[key] != own[key]} == {"corpus"}


def test_a_reply_that_ends_with_a_stop_text_has_no_end_of_turn(tokenizer: Any, tiny_chat_format: ChatFormat) -> None:
    model, message = build_model(tokenizer, ModelRecipe()), Message("user", ("look",))
    stopped = single_turn(model, tiny_chat_format, message, "go</video_zoom>", ("</video_zoom>",))
    ended = single_turn(model, tiny_chat_format, message, "go</video_zoom>")
    (last,) = tiny_chat_format.eos_ids
    assert ended.ids == (*stopped.ids, last)
    assert ended.trained.sum() == stopped.trained.sum() + 1 == len(tiny_chat_format.encode("go</video_zoom>")) + 1


def test_reading_asks_about_few_frames_and_answers_with_the_word(tokenizer: Any, tiny_chat_format: ChatFormat) -> None:
    model, world = build_model(tokenizer, ModelRecipe()), WorldRecipe(mixture=(("colour", 1.0),))
    for one in make_reading(model, tokenizer, world, 20, 0):
        # one to six others, and one that shows the event
        assert 2 <= len(one.images) <= 7
        said = tiny_chat_format.decode(
            [token for token, trained in zip(one.ids, one.trained, strict=True) if trained][:-1]
        )
        assert said in {answer_text(colour) for colour in COLOURS}
