"""A row, and a folder with a good video's file and an empty one."""

from pathlib import Path

import pytest


def row(video: str, **change: object) -> dict:
    return {
        "id": video,
        "data_source": "d",
        "video": video,
        "question": "What?",
        "options": ["x", "y"],
        "answer": "A",
        "answer_type": "multiple_choice",
        **change,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.mp4").write_bytes(b"not a video, but not empty")
    (tmp_path / "empty.mp4").touch()
    return tmp_path
