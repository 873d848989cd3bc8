from typing import Any

import pytest

from agentic_video.types.row import RowError, VideoQA

GOOD = {
    "id": "1",
    "data_source": "d",
    "video": "v.mp4",
    "question": "What?",
    "options": ["x", "y"],
    "answer": "b.",
    "answer_type": "multiple_choice",
    "extra_info": {"k": 1},
}


def deep(depth: int) -> dict[str, Any]:
    """Lists in lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return {"k": value}


def test_good_row() -> None:
    qa = VideoQA.from_row(GOOD)
    assert (qa.answer, qa.options, qa.extra) == ("B", ("x", "y"), {"k": 1})
    assert VideoQA.from_row(qa.to_row()) == qa


def test_answer_type_follows_the_options() -> None:
    assert VideoQA.from_row({**GOOD, "answer_type": None}).answer_type == "multiple_choice"
    row = {**GOOD, "answer_type": None, "options": None, "answer": "a cat"}
    assert VideoQA.from_row(row).answer_type == "open_ended"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": None}, "id"),
        ({"video": ""}, "video"),
        ({"question": 3}, "question"),
        ({"answer": "C"}, "answer"),
        ({"answer": "AB"}, "answer"),
        ({"answer": "red"}, "answer"),
        ({"options": ["x"]}, "options"),
        ({"options": ["x", None]}, "options"),
        ({"options": ["x", ""]}, "options"),
        ({"options": 5}, "options"),
        ({"options": True}, "options"),
        ({"options": 1.5}, "options"),
        ({"options": "xy"}, "options"),
        ({"options": {"x": 1, "y": 2}}, "options"),
        ({"options": ["x", "\ud800"]}, "options"),
        ({"question": "\udfff?"}, "question"),
        ({"video": "a\0.mp4"}, "video"),
        ({"video": "\udc80.mp4"}, "video"),
        ({"answer_type": "essay"}, "answer_type"),
        ({"answer_type": ["x"]}, "answer_type"),
        ({"answer_type": {"x": 1}}, "answer_type"),
        ({"extra_info": deep(200)}, "extra_info"),
        ({"extra_info": deep(100_000)}, "extra_info"),
        ({"extra_info": [1]}, "extra_info"),
    ],
)
def test_bad_rows_name_the_row_and_the_field(change: dict, field: str) -> None:
    with pytest.raises(RowError, match=f"train row 7.*'{field}'"):
        VideoQA.from_row({**GOOD, **change}, "train row 7")
