"""The session's test videos."""

from __future__ import annotations

from collections.abc import Callable

import av
import pytest

from tests.video.video_files import SPECS, make


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Makes the named file once and returns its path; skips when its encoder is missing."""
    folder = tmp_path_factory.mktemp("videos")

    def get(name: str) -> str:
        spec = SPECS[name]
        path = folder / f"{name}.{spec.suffix}"
        if not path.exists():
            try:
                av.codec.Codec(spec.codec, "w")
            except av.codec.codec.UnknownCodecError:
                pytest.skip(f"this build of FFmpeg has no encoder {spec.codec}")
            make(path, spec)
        return str(path)

    return get
