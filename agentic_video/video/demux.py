"""Passes over a stream's packets: their stamps, and what decoding from the beginning shows."""

from array import array
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
from agentic_video.video.errors import Deadline, VideoError, is_machine_error, raise_video_error
from agentic_video.video.index import Orientation
from agentic_video.video.limits import Limits

NO_STAMP = int(np.iinfo(np.int64).min)
"""Stands for a time stamp that a packet lacks."""
_CHECKED_FRAMES = 8


@dataclass(frozen=True, eq=False)
class Packets:
    """The packets of a stream: arrays with one entry per packet, in the order of the file."""

    pts: npt.NDArray[np.int64]
    dts: npt.NDArray[np.int64]
    """Time stamps, ``NO_STAMP`` where there is none."""
    duration: npt.NDArray[np.int64]
    """In units of the stream's time base; 0 if unknown."""
    keyframe: npt.NDArray[np.bool_]
    """True if decoding can start there."""
    hidden: npt.NDArray[np.bool_]
    """True if its frame is never shown."""
    refreshed: bool
    """True if every H.264 keyframe is an IDR; always for other codecs."""


@dataclass(frozen=True, eq=False)
class StreamStart:
    """Facts from decoding the first few frames of a stream; sizes as stored."""

    given: list[int]
    """Ordinals of the packets whose frames came out, in that order."""
    expected: npt.NDArray[np.int64]
    """Ordinals of the packets whose frames should have come out by then."""
    width: int
    height: int
    orientation: Orientation
    pixel_format: str
    codec: str
    time_base: float
    """Seconds of one unit of a time stamp."""
    rate: float
    """Frames per second according to the container; 0 if unknown."""
    aspect: float
    """Width of a stored pixel divided by its height."""
    container: str


def read_packets(container: InputContainer, stream: VideoStream, deadline: Deadline, most: int) -> Packets | None:
    """Demux a whole stream; None if it has more than ``most`` packets. Raises ``av.FFmpegError``, too."""
    pts, dts, duration = array("q"), array("q"), array("q")
    keyframe, hidden = array("b"), array("b")
    refreshed = True
    extradata = stream.codec_context.extradata
    avc = stream.codec_context.name == "h264" and extradata is not None and extradata[:1] == b"\x01"
    vp8 = stream.codec_context.name in ("vp8", "libvpx")
    for packet in container.demux(stream):
        if is_end(packet):
            break
        deadline.check()
        if len(pts) == most:
            return None
        pts.append(NO_STAMP if packet.pts is None else packet.pts)
        dts.append(NO_STAMP if packet.dts is None else packet.dts)
        duration.append(packet.duration or 0)
        keyframe.append(packet.is_keyframe)
        # A packet cut off by the end of the file is marked corrupt. VP8 keeps its alternate reference frames, which
        # are never shown, in packets of their own; bit 4 of the frame tag says so.
        invisible = vp8 and packet.size > 0 and not bytes(packet)[0] & 0x10
        hidden.append(packet.is_discard or packet.is_corrupt or invisible)
        if refreshed and avc and packet.is_keyframe:
            refreshed = _has_idr(memoryview(packet))
    return Packets(
        np.array(pts, dtype=np.int64),
        np.array(dts, dtype=np.int64),
        np.array(duration, dtype=np.int64),
        np.array(keyframe, dtype=np.bool_),
        np.array(hidden, dtype=np.bool_),
        refreshed,
    )


def _has_idr(packet: memoryview) -> bool:
    """Return True if an H.264 packet of an MP4 or MKV file holds an IDR, not a mere recovery point."""
    position = 0
    while position + 4 < len(packet):
        if packet[position + 4] & 0x1F == 5:
            return True
        position += 4 + int.from_bytes(packet[position : position + 4], "big")
    return False


def is_end(packet: av.Packet) -> bool:
    """Return True for the empty packet with which PyAV ends a stream."""
    return packet.size == 0 and packet.pts is None and packet.dts is None


def is_complete(stamps: npt.NDArray[np.int64]) -> bool:
    """Return True if each packet has a stamp of its own."""
    return bool((stamps != NO_STAMP).all() and np.unique(stamps).size == stamps.size)


def is_increasing(stamps: npt.NDArray[np.int64]) -> bool:
    """Return True if each packet has a later stamp than the packet before it."""
    return bool((stamps != NO_STAMP).all() and (np.diff(stamps) > 0).all())


def decode_start(path: str, number: int, packets: Packets, deadline: Deadline, limits: Limits) -> StreamStart:
    """Decode until the first few frames are out.

    Raises:
        VideoError: No frame comes out, its pictures are too large, or the deadline has passed.
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
            orientation=_orientation_of(first),
            pixel_format=first.format.name,
            codec=stream.codec_context.codec.canonical_name,
            time_base=float(stream.time_base or 0),
            rate=float(rate),
            aspect=float(stream.sample_aspect_ratio or 1),
            container=container.format.name,
        )


def decode_order(path: str, number: int, deadline: Deadline, limits: Limits) -> list[int]:
    """Decode a whole stream.

    Returns:
        Ordinals of packets in the order in which their frames are presented; damaged frames are left out.
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
    """Decode from the start; frames carry their packet's ordinal as pts."""
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
            if is_machine_error(path, error):
                raise
            failure = error
        yield ordinal, frames, failure
        if last:
            break


def _orientation_of(frame: av.VideoFrame) -> Orientation:
    """Read the display matrix: x' = a x + c y, y' = b x + d y, each axis running right and down."""
    side_data: Any = frame.side_data.get("DISPLAYMATRIX")
    if side_data is None:
        return False, False, False
    a, b, _, c, d = (int(value) for value in np.frombuffer(bytes(side_data), dtype=np.int32)[:5])
    if abs(b) > abs(a):
        return True, c < 0, b < 0
    return False, a < 0, d < 0
