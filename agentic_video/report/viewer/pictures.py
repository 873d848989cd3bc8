"""Small pictures of frames that records refer to, decoded from the videos."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from agentic_video.types.frame import Frame
from agentic_video.video.errors import VideoError
from agentic_video.video.sizes import fit_within
from agentic_video.video.store import FrameStore

QUALITY = 72
"""Of the JPEG pictures."""


@dataclass(frozen=True)
class Strip:
    """Pictures of one video.

    Attributes:
        duration: Seconds; None when the video can't be opened.
        pictures: JPEG files in base64 by frame number.
        error: Why pictures are missing; empty when none is.
    """

    duration: float | None = None
    pictures: dict[int, str] = field(default_factory=dict)
    error: str = ""


def make_strip(store: FrameStore, video: str, indices: Sequence[int], side: int) -> Strip:
    """Pictures of some frames of a video.

    Args:
        store: Decodes.
        video: The file. Nothing but a regular file is opened: a record may hold any text here.
        indices: Frame numbers; those that the video doesn't have are left out and reported.
        side: Longest side in pixels; smaller frames aren't enlarged.
    """
    try:
        if not Path(video).is_file():
            return Strip(error="the video isn't there")
        info = store.probe(video)
        known = sorted({index for index in indices if 0 <= index < info.num_frames})
        size = fit_within(info.width, info.height, side, side)
        pictures = {frame.index: _jpeg(frame) for frame in store.frames(video, known, size)}
    except VideoError as error:
        return Strip(error=f"{error.message} [{error.reason}]")
    except (OSError, ValueError) as error:
        return Strip(error=f"{type(error).__name__}: {error}")
    beyond = len(set(indices)) - len(known)
    lacks = f"the video lacks {beyond} of the frames, so it isn't the one of the run" if beyond else ""
    return Strip(info.duration, pictures, lacks)


def _jpeg(frame: Frame) -> str:
    buffer = io.BytesIO()
    Image.fromarray(frame.image).save(buffer, "JPEG", quality=QUALITY)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
