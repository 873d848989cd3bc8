import os
import shutil
from pathlib import Path

import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.identity import identify


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "video.mp4"
    file.write_bytes(b"video")
    os.utime(file, ns=(5, 7))
    return str(file)


def test_a_files_identity(path: str) -> None:
    identity = identify(path)
    assert (identity.path, identity.mtime_ns, identity.size) == (path, 7, 5)
    assert identity == identify(path)


def test_a_changed_file_is_another_video(path: str, tmp_path: Path) -> None:
    before = identify(path)
    os.utime(path, ns=(5, 8))
    assert identify(path) != before
    os.utime(path, ns=(5, 7))
    assert identify(path) == before
    # another file in its place, of the same size and time
    shutil.copy2(path, tmp_path / "copy")
    os.replace(tmp_path / "copy", path)
    assert identify(path) != before


def test_a_missing_file_is_a_video_error(tmp_path: Path) -> None:
    with pytest.raises(VideoError) as caught:
        identify(str(tmp_path / "none.mp4"))
    assert caught.value.reason == "missing"
