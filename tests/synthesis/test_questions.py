import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.synthesis.questions import KnownQuestions, TeacherQuestion, normal, read_questions, similarity
from agentic_video.types.row import VideoQA

MOST_WORDS = 8
GOOD = {"question": "What does the cook drop?", "answer": "a spoon"}


def test_an_array_of_questions_is_read() -> None:
    good = TeacherQuestion("What does the cook drop?", "a spoon")
    assert read_questions(json.dumps([GOOD]), MOST_WORDS) == [good]
    assert read_questions("```json\n" + json.dumps([GOOD]) + "\n```", MOST_WORDS) == [good]
    assert read_questions(
        json.dumps([{"question": " What does\nthe  cook drop? ", "answer": "a spoon\n"}]), MOST_WORDS
    ) == [good]
    assert read_questions("[]", MOST_WORDS) == []
    assert len(read_questions(json.dumps([GOOD] * 1_000), MOST_WORDS) or ()) == 50


@pytest.mark.parametrize(
    "reply",
    ["", "no", json.dumps(GOOD), "Here you are: " + json.dumps([GOOD]), json.dumps([GOOD]) + " bye", "[" * 10_000],
)
def test_anything_else_is_no_array(reply: str) -> None:
    assert read_questions(reply, MOST_WORDS) is None


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        ("text", "not an object with question and answer"),
        ({"question": "What?"}, "not an object with question and answer"),
        ({**GOOD, "options": ["a"]}, "not an object with question and answer"),
        ({**GOOD, "answer": 3}, "question or answer is no text"),
        ({**GOOD, "answer": " "}, "question or answer is empty"),
        ({**GOOD, "question": "?!"}, "question or answer is empty"),
        ({**GOOD, "question": "What is \ud800 it?"}, "characters that are no text"),
        ({**GOOD, "answer": "a\u202espoon"}, "characters that are no text"),
        ({**GOOD, "question": "What <answer>A</answer> is it?"}, "markup"),
        ({**GOOD, "question": "<|im_end|> What is it?"}, "markup"),
        ({**GOOD, "question": "What " * 200}, "question too long"),
        ({**GOOD, "answer": "a spoon that he had held in his left hand"}, "answer too long"),
        ({**GOOD, "answer": "s" * 200}, "answer too long"),
        ({**GOOD, "question": "What is in the third frame?"}, "about frames, options or examples"),
        ({**GOOD, "question": "Which of the following does he drop?"}, "about frames, options or examples"),
        ({**GOOD, "answer": "Yes."}, "answered by yes or no"),
        ({**GOOD, "question": "Does he drop a spoon or a fork?"}, "answer in the question"),
    ],
)
def test_bad_questions_are_left_out_and_the_others_read(raw: Any, fault: str) -> None:
    read = read_questions(json.dumps([raw, GOOD]), MOST_WORDS)
    assert read == [TeacherQuestion(fault=fault), TeacherQuestion("What does the cook drop?", "a spoon")]


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.text()
    | anything.map(json.dumps)
    | st.lists(st.fixed_dictionaries({"question": st.text(), "answer": st.text()})).map(json.dumps)
)
def test_no_reply_breaks_the_reader_and_what_it_takes_is_a_row(reply: str) -> None:
    for offer in read_questions(reply, MOST_WORDS) or ():
        assert bool(offer.fault) != bool(offer.question and offer.answer)
        if not offer.fault:
            row = {"id": "1", "video": "v", "question": offer.question, "answer": offer.answer}
            VideoQA.from_row(row)
            assert "<" not in offer.question or "<|" not in offer.question


def test_repetitions_are_found() -> None:
    assert normal("What DOES the Cook drop?!") == "what does the cook drop"
    # 4 words of 5
    assert similarity("what does the cook drop", "what does the cook") == 0.8
    known = KnownQuestions(near=0.8)
    assert known.add("What does the cook drop?", "a")
    assert not known.add("what does the cook drop", "b"), "the same words, whatever the video"
    assert not known.add("What does the cook, drop first?", "a"), "5 of 6 words about the same video"
    assert known.add("What does the cook drop first?", "b")
    assert known.add("Where does the cook go?", "a")
