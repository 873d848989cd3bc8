from hashlib import sha256
from typing import Any

import pytest

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.systems.registry import TOY_VOCABULARY
from agentic_video.toyworld.build.base import answer_text, make_reading, single_turn, tokenizer_corpus
from agentic_video.toyworld.model import ModelRecipe, build_model
from agentic_video.toyworld.world import COLOURS, WorldRecipe
from agentic_video.types.message import Message


@pytest.mark.parametrize(
    ("searched", "digest"),
    [(False, "de5005c93db901bb"), (True, "c9c76f58590af61c")],
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
