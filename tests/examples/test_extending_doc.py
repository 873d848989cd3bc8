"""The listings of docs/extending.md work as they stand."""

import re
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from agentic_video.data.dataset import load_rows
from agentic_video.rollout.trajectory import EndReason

DOC = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="module")
def listings() -> dict[str, Any]:
    """All names that the page's listings define."""
    names: dict[str, Any] = {"__name__": "extending"}
    for listing in re.findall(r"^```python\n(.*?)^```", DOC.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(compile(listing, str(DOC), "exec"), names)
    return names


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> str:
    """5 s at 10 frames a second."""
    path = tmp_path_factory.mktemp("video") / "v.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"threads": "1"})
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for number in range(50):
            picture = np.full((64, 64, 3), 4 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return str(path)


def test_the_small_system_plays(listings: dict[str, Any], video: str) -> None:
    system = listings["Moments"](side=56)
    trajectory, score = listings["rehearse"](system, video, "<at>3.5</at>", "<answer>B</answer>")
    assert trajectory.end is EndReason.ANSWER
    assert [(frame.index, frame.width) for frame in trajectory.frames] == [(0, 56), (35, 56)]
    # right, after one look of 0.05
    assert (score.acc, score.format) == (1.0, 1.0)
    assert score.reward == pytest.approx(0.95)


@pytest.mark.parametrize("asked", ["99", "-1", "nan", "x", "", "1e999", "</at></at>"])
def test_the_small_system_refuses_times_that_do_not_exist(asked: str, listings: dict[str, Any], video: str) -> None:
    turns = (f"<at>{asked}</at>", "<answer>A</answer>")
    trajectory, score = listings["rehearse"](listings["Moments"](side=56), video, *turns)
    assert (trajectory.tool_calls, trajectory.illegal_calls, len(trajectory.frames)) == (0, 1, 1)
    assert score.reward == pytest.approx(-0.05)


def test_a_turn_that_is_neither_ends_the_episode(listings: dict[str, Any], video: str) -> None:
    trajectory, score = listings["rehearse"](listings["Moments"](side=56), video, "hm")
    assert trajectory.end is EndReason.ILLEGAL
    assert score.reward == 0.0


def test_rows_of_one_s_own(listings: dict[str, Any], video: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    listings["write_rows"](file, [(video, "What?", ["red", "blue"], "B"), (video, "Why?", ["a", "b"], "a.")])
    rows, problems = load_rows([file], "probe")
    assert not problems
    assert [(row.id, row.answer, row.options) for row in rows] == [
        ("mine-0", "B", ("red", "blue")),
        ("mine-1", "A", ("a", "b")),
    ]
