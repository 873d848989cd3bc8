"""Decoding a stream from its beginning: what its packets alone don't tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import av
import av.error
import numpy as np
import numpy.typing as npt
from av.container import InputContainer
from av.video.stream import VideoStream

from agentic_video.video.container import check_size, open_container, video_stream
from agentic_video.video.deadline import Deadline
from agentic_video.video.errors import VideoError, raise_video_error, says_nothing_of_the_video
from agentic_video.video.limits import Limits
from agentic_video.video.packets import Packets, is_end

_CHECKED_FRAMES = 8

Turn = tuple[bool, bool, bool]
"""How the stored picture becomes the displayed one: (transpose, mirror columns, mirror rows)."""


@dataclass(frozen=True, eq=False)
class StreamStart:
    """What decoding the first few frames of a stream shows.

    Attributes:
        given: Places of the packets whose frames came out, in the order in which they came.
        expected: Places of the packets whose frames should have come out by then.
        width: Stored width in pixels.
        height: Stored height in pixels.
        turn: How the stored picture becomes the displayed one.
        pixel_format: Stored pixel format.
        codec: Name of the codec.
        time_base: Seconds of one unit of a time stamp.
        rate: Frames per second as the container says; 0 where it doesn't.
        aspect: Width of a stored pixel divided by its height.
        container: FFmpeg's name of the file format.
    """

    given: list[int]
    expected: npt.NDArray[np.int64]
    width: int
    height: int
    turn: Turn
    pixel_format: str
    codec: str
    time_base: float
    rate: float
    aspect: float
    container: str


def decode_start(path: str, number: int, packets: Packets, deadline: Deadline, limits: Limits) -> StreamStart:
    """Decode until the first few frames are out.

    Args:
        path: Video file.
        number: Index of the stream in its container.
        packets: The packets of the stream.
        deadline: Checked before each packet.
        limits: Of what is decoded.

    Raises:
        VideoError: Not one frame comes out, its pictures are too large, or the deadline has passed.
    """
    with open_container(path, deadline) as container:
        stream = video_stream(path, container, number, limits)
        given: list[int] = []
        sent = 0
        first: av.VideoFrame | None = None
        error: Exception | None = None
        decoder = _ordinal_frames(path, container, stream)
        while len(given) < _CHECKED_FRAMES:
            deadline.check()
            step = next(decoder, None)
            if step is None:
                break
            sent, frames, failure = step
            error = error or failure
            for frame in frames:
                first = first or frame
                assert frame.pts is not None
                given.append(frame.pts)
        if first is None:
            if error is not None:
                raise_video_error(path, error)
            raise VideoError(path, "no_frames", "not one frame could be decoded; replace or re-encode the file")
        check_size(path, first.width, first.height, limits)
        # Only frames presented before the last one that came out must have come out themselves.
        expected = np.flatnonzero(~packets.hidden[: sent + 1])
        if not error:
            expected = expected[packets.pts[expected] <= packets.pts[given].max()]
        else:
            expected = np.array(given, dtype=np.int64)
        rate = stream.average_rate or stream.guessed_rate or 0
        return StreamStart(
            given=given,
            expected=expected,
            width=first.width,
            height=first.height,
            turn=_turn_of(first),
            pixel_format=first.format.name,
            codec=stream.codec_context.codec.canonical_name,
            time_base=float(stream.time_base or 0),
            rate=float(rate),
            aspect=float(stream.sample_aspect_ratio or 1),
            container=container.format.name,
        )


def decode_order(path: str, number: int, deadline: Deadline, limits: Limits) -> list[int]:
    """Decode the whole stream for the order in which packets become frames.

    Args:
        path: Video file.
        number: Index of the stream in its container.
        deadline: Checked before each packet.
        limits: Of what is decoded.

    Returns:
        Places of packets in the order in which their frames are presented; damaged frames are left out.

    Raises:
        VideoError: The file can't be opened, or the deadline has passed.
    """
    order: list[int] = []
    with open_container(path, deadline) as container:
        stream = video_stream(path, container, number, limits)
        for _, frames, _ in _ordinal_frames(path, container, stream):
            deadline.check()
            order += [frame.pts for frame in frames if frame.pts is not None and not frame.is_corrupt]
    return list(dict.fromkeys(order))


def _ordinal_frames(
    path: str, container: InputContainer, stream: VideoStream
) -> Iterator[tuple[int, list[av.VideoFrame], Exception | None]]:
    """Decode from the start; frames carry their packet's place in the file as pts."""
    ordinal = -1
    for packet in container.demux(stream):
        last = is_end(packet)
        frames: list[av.VideoFrame] = []
        failure: Exception | None = None
        try:
            if last:
                frames = list(stream.codec_context.decode(None))
            else:
                ordinal += 1
                packet.pts = ordinal
                frames = list(stream.codec_context.decode(packet))
        except av.FFmpegError as error:
            if says_nothing_of_the_video(path, error):
                raise
            failure = error
        yield ordinal, frames, failure
        if last:
            break


def _turn_of(frame: av.VideoFrame) -> Turn:
    """Read the display matrix: x' = a x + c y, y' = b x + d y, each axis running right and down."""
    side_data: Any = frame.side_data.get("DISPLAYMATRIX")
    if side_data is None:
        return False, False, False
    a, b, _, c, d = (int(value) for value in np.frombuffer(bytes(side_data), dtype=np.int32)[:5])
    if abs(b) > abs(a):
        return True, c < 0, b < 0
    return False, a < 0, d < 0
