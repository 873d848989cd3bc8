from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ImageFont

from agentic_video.report import episode_picture
from agentic_video.report.episode_picture import choose_episodes, draw_episode, draw_record, plain, thin, wrap
from agentic_video.report.viewer.pictures import FrameStrip
from agentic_video.types.action import Illegal
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import FrameRef, Turn
from agentic_video.video.store import FrameStore
from tests.types.test_trajectory import FULL
from tests.video.conftest import video  # noqa: F401 (a fixture)

QA = VideoQA(id="q", video="/none.mp4", question="What?", answer="B", options=("x", "y"), data_source="toy")
HOSTILE = "\x1b[31m\u202e\x00\ud800 <script>" + "\N{COMBINING TILDE}" * 500 + "W" * 100_000
EMPTY_COLOUR = (0xD9, 0xD9, 0xD9)


def record(source: str = "toy", name: str = "q", rollout: int = 0) -> Record:
    return Record(replace(QA, id=name, data_source=source), replace(FULL, qa_id=name, rollout_index=rollout))


def test_the_same_questions_are_drawn_whatever_the_order() -> None:
    records = [record(source, f"{source}{i}", rollout) for source in "ab" for i in range(9) for rollout in (1, 0)]
    chosen = choose_episodes(records, 4)
    assert choose_episodes(records[::-1], 4) == chosen
    assert [one.qa.data_source for one in chosen] == ["a", "b", "a", "b"]
    assert [one.trajectory.rollout_index for one in chosen] == [0] * 4
    assert len({one.qa.id for one in chosen}) == 4


def test_a_small_validation_is_drawn_whole() -> None:
    assert len(choose_episodes([record("a", "1"), record("b", "1"), record("a", "2")], 9)) == 3
    assert choose_episodes([], 3) == []


def test_frames_come_from_the_video(video: Callable[[str], str]) -> None:  # noqa: F811
    whole = Record(replace(QA, video=video("h264_b_frames")), FULL, {"reward": 1.5, "acc": 1.0, "term_tool": 0.5})
    seen = np.asarray(draw_record(whole, FrameStore()))
    without = np.asarray(draw_record(Record(QA, FULL, whole.rewards), FrameStore()))
    assert seen.shape[1] == 960
    # the red corner of the test pictures
    assert ((seen[..., 0] > 200) & (seen[..., 1] < 60) & (seen[..., 2] < 60)).sum() > 100
    assert (seen == EMPTY_COLOUR).all(-1).sum() < (without == EMPTY_COLOUR).all(-1).sum()


@pytest.mark.parametrize("content", [None, b"", b"no video", b"\x00" * 4096])
def test_a_video_that_cannot_be_read_leaves_boxes(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "v.mp4"
    if content is not None:
        file.write_bytes(content)
    picture = np.asarray(draw_record(Record(replace(QA, video=str(file)), FULL), FrameStore()))
    # two boxes, of the overview and of the first turn
    assert (picture == EMPTY_COLOUR).all(-1).sum() > 2 * 6000


def test_size_is_bounded_whatever_the_model_says() -> None:
    frames = tuple(FrameRef(i, float(i), 56, 28) for i in range(200))
    turns = tuple(Turn(HOSTILE, Illegal(HOSTILE), 9, observation=(HOSTILE, *frames)) for _ in range(40))
    qa = replace(QA, id=HOSTILE, question=HOSTILE, options=(HOSTILE,) * 26, extra={"class": HOSTILE})
    whole = Record(qa, replace(FULL, turns=turns, error=HOSTILE), {"acc": 1.0})
    picture = draw_episode(whole, FrameStrip(error=HOSTILE))
    assert picture.width == 960 and 2000 < picture.height <= episode_picture.MAX_HEIGHT


def test_the_last_turn_is_drawn_and_the_middle_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def seen(text: str, limit: int = 500) -> str:
        texts.append(text)
        return plain(text, limit)

    monkeypatch.setattr(episode_picture, "plain", seen)
    turns = tuple(Turn(f"t{number}", Illegal("x"), 1) for number in range(1, 13))
    draw_episode(Record(QA, replace(FULL, turns=turns)), FrameStrip())
    assert [text for text in texts if "urn" in text] == [
        *(f"Turn {number}: t{number}" for number in range(1, 8)),
        "4 turns left out",
        "Turn 12: t12",
    ]


def test_text_is_made_plain() -> None:
    assert plain("a\n\t b\x1b[0m\u202ec\ud800") == "a b\ufffd[0m\ufffdc\ufffd"
    assert plain("abcdef", 3) == "abc ..."
    assert plain("") == ""


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_plain_text_prints_and_fits(text: str) -> None:
    shown = plain(text, 50)
    assert shown.isprintable() and len(shown) <= 54
    font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), 14)
    lines = wrap(shown, 120, font)
    assert all(font.getlength(line) <= 120 for line in lines)
    assert "".join(lines).replace(" ", "") == shown.replace(" ", "")


def test_frames_are_chosen_evenly() -> None:
    refs = [FrameRef(i, float(i), 56, 28) for i in range(7)]
    assert [ref.index for ref in thin(refs, 4)] == [0, 2, 4, 6]
    assert thin(refs, 7) == refs
