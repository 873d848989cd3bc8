"""What demuxing a video once teaches: its facts, the times of its frames, where decoding can start."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import av
import av.error
import numpy as np
import numpy.typing as npt
from av.container import InputContainer
from av.video.stream import VideoStream

from agentic_video.video.errors import VideoError, raise_video_error

MAX_SIDE = 16384
"""Longest side in pixels that is decoded."""


NO_STAMP = np.iinfo(np.int64).min


_CHECKED_FRAMES = 8


@dataclass(frozen=True)
class VideoInfo:
    """Facts about a video.

    Attributes:
        path: The file.
        fps: Average frames per second: num_frames / duration.
        num_frames: Frames that can be decoded.
        duration: Seconds from the presentation of the first frame to the end of the last one.
        width: Width in pixels as displayed, i.e. after rotation (non-square pixels are left as stored).
        height: Height in pixels as displayed, i.e. after rotation.
        rotation: Degrees counterclockwise that the stored picture is turned for display: 0, 90, 180 or 270.
        variable_frame_rate: Whether the distance between frames varies beyond the rounding of the time base.
        codec: Name of the codec, e.g. "h264".
        pixel_format: Stored pixel format, e.g. "yuv420p10le".
        start_time: Time of the first frame on the file's own clock in seconds.
    """

    path: str
    fps: float
    num_frames: int
    duration: float
    width: int
    height: int
    rotation: int
    variable_frame_rate: bool
    codec: str
    pixel_format: str
    start_time: float


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """What demuxing a file once teaches; opening the file again with it skips that work.

    Attributes:
        info: Facts about the video.
        timestamps: Presentation times in seconds, float64 of shape (num_frames,), read-only.
        stream: Index of the video stream in its container.
        ordinals: For each frame in presentation order its packet's place in the file, shape (num_frames,).
        stamps: Stamp by which a packet is known again after a seek, shape (num_packets,).
        stamp_is_pts: Whether `stamps` are pts; dts otherwise.
        keyframes: Places of the packets where decoding can start, ascending.
        key_pts: Their pts.
        key_dts: Their dts.
        key_ranks: Index of the first frame (in presentation order) that decoding from there gives right.
        turn: How the stored picture becomes the displayed one: (transpose, mirror columns, mirror rows).
        container: FFmpeg's name of the file format, e.g. "matroska,webm".
        closed: Whether every frame after a keyframe in the file can be decoded from that keyframe.
    """

    info: VideoInfo
    timestamps: npt.NDArray[np.float64]
    stream: int
    ordinals: npt.NDArray[np.int64]
    stamps: npt.NDArray[np.int64]
    stamp_is_pts: bool
    keyframes: npt.NDArray[np.int64]
    key_pts: npt.NDArray[np.int64]
    key_dts: npt.NDArray[np.int64]
    key_ranks: npt.NDArray[np.int64]
    turn: tuple[bool, bool, bool]
    container: str
    closed: bool

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        arrays = (self.timestamps, self.ordinals, self.stamps, self.keyframes, self.key_pts, self.key_dts)
        return sum(array.nbytes for array in arrays) + self.key_ranks.nbytes


class Deadline:
    def __init__(self, path: str, limit: float | None) -> None:
        self._path = path
        self._limit = limit
        self._end = math.inf if limit is None else time.monotonic() + limit

    def check(self) -> None:
        if time.monotonic() > self._end:
            raise VideoError(
                self._path,
                "timeout",
                f"decoding took longer than {self._limit:g} s; raise the time limit, ask for fewer frames, or "
                "re-encode the video with shorter keyframe intervals",
            )


@dataclass
class _Packets:
    """What one pass over the packets of a stream notes, one entry per packet."""

    pts: npt.NDArray[np.int64]
    dts: npt.NDArray[np.int64]
    duration: npt.NDArray[np.int64]
    keyframe: npt.NDArray[np.bool_]
    hidden: npt.NDArray[np.bool_]
    refreshed: bool


def open_container(path: str) -> InputContainer:
    try:
        return av.open(path, mode="r", metadata_errors="replace")
    except (av.FFmpegError, OSError, ValueError) as error:
        if _lacks_moov(path):
            raise VideoError(
                path,
                "truncated",
                "the MP4 index (moov) is missing: the file is cut off or still being written; copy it again",
            ) from error
        raise_video_error(path, error)


def _lacks_moov(path: str) -> bool:
    """Walks the top-level boxes of an MP4 file."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            position, first = 0, True
            while position + 8 <= size:
                file.seek(position)
                header = file.read(16)
                length, kind = int.from_bytes(header[:4], "big"), header[4:8]
                if first and kind != b"ftyp":
                    return False
                if kind == b"moov":
                    return False
                first = False
                if length == 1:
                    length = int.from_bytes(header[8:16], "big")
                if length < 8:
                    break
                position += length
            return not first
    except OSError:
        return False


def _pick_stream(path: str, container: InputContainer) -> VideoStream:
    """The stream FFmpeg itself would play, cover art aside."""
    streams = [
        stream for stream in container.streams.video if not stream.disposition & av.stream.Disposition.attached_pic
    ]
    best = container.streams.best("video")
    for stream in streams:
        if best is not None and stream.index == best.index:
            streams = [stream]
    if not streams:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise VideoError(path, "no_video_stream", f"has no video stream (it holds: {kinds}); give a video file")
    return streams[0]


def prepare(path: str, container: InputContainer, stream: VideoStream) -> None:
    """Checks that a stream can be decoded and sets up its decoder."""
    context = stream.codec_context
    if context is None or not context.is_decoder:
        raise VideoError(path, "unsupported", "no decoder for the video's codec; re-encode it as H.264")
    if max(context.width, context.height) > MAX_SIDE:
        raise VideoError(
            path,
            "unsupported",
            f"{context.width}x{context.height} pixels exceed {MAX_SIDE} a side; scale the video down first",
        )
    # One thread: errors then surface at the packet that causes them and cost no neighbouring frame, and a node decodes
    # many videos at once anyway.
    context.thread_count = 1


def build_index(path: str, deadline: Deadline) -> VideoIndex:
    with open_container(path) as container:
        stream = _pick_stream(path, container)
        prepare(path, container, stream)
        number = stream.index
        try:
            packets = _demux(container, stream, deadline)
        except (av.FFmpegError, OSError) as error:
            raise_video_error(path, error)
    if packets.pts.size == 0:
        raise VideoError(path, "no_frames", "the video stream holds no complete frame; copy or download the file again")

    # The start of the stream is decoded once: for facts only the decoder knows, and to see which frames it really
    # gives (leading frames without their references never appear, fields may need two packets a frame).
    start = _decode_start(path, number, packets, deadline)
    shown = np.flatnonzero(~packets.hidden)
    shown_pts = packets.pts[shown]
    regular = bool((shown_pts != NO_STAMP).all() and np.unique(shown_pts).size == shown.size)
    if regular:
        order = shown[np.argsort(shown_pts, kind="stable")]
        lost = np.setdiff1d(start.expected, np.array(start.given, dtype=np.int64))
        first_given = packets.pts[start.given].min()
        if (packets.pts[lost] < first_given).all() and not packets.hidden[start.given].any():
            order = order[~np.isin(order, lost)]
        else:
            regular = False
    times: npt.NDArray[np.int64] | None
    if regular:
        stamps, stamp_is_pts = packets.pts, True
        times = packets.pts[order]
    else:
        order = np.array(_decode_order(path, number, deadline), dtype=np.int64)
        stamp_is_pts = not bool(_usable(packets.dts))
        stamps = packets.pts if stamp_is_pts else packets.dts
        times = _irregular_times(packets, order)
    return _assemble(path, number, packets, order, times, stamps, stamp_is_pts, start)


@dataclass
class _Start:
    """What decoding the start of a stream shows."""

    given: list[int]
    expected: npt.NDArray[np.int64]
    width: int
    height: int
    turn: tuple[bool, bool, bool]
    pixel_format: str
    codec: str
    time_base: float
    rate: float
    container: str


def _demux(container: InputContainer, stream: VideoStream, deadline: Deadline) -> _Packets:
    pts: list[int] = []
    dts: list[int] = []
    duration: list[int] = []
    keyframe: list[bool] = []
    hidden: list[bool] = []
    refreshed = True
    extradata = stream.codec_context.extradata
    avc = stream.codec_context.name == "h264" and extradata is not None and extradata[:1] == b"\x01"
    vp8 = stream.codec_context.name in ("vp8", "libvpx")
    for packet in container.demux(stream):
        if is_end(packet):
            break
        deadline.check()
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
    return _Packets(
        np.array(pts, dtype=np.int64),
        np.array(dts, dtype=np.int64),
        np.array(duration, dtype=np.int64),
        np.array(keyframe, dtype=np.bool_),
        np.array(hidden, dtype=np.bool_),
        refreshed,
    )


def _has_idr(packet: memoryview) -> bool:
    """Whether an H.264 packet of an MP4 or MKV file starts anew (IDR), as opposed to a mere recovery point."""
    position = 0
    while position + 4 < len(packet):
        if packet[position + 4] & 0x1F == 5:
            return True
        position += 4 + int.from_bytes(packet[position : position + 4], "big")
    return False


def _decode_start(path: str, number: int, packets: _Packets, deadline: Deadline) -> _Start:
    """Decodes until the first few frames are out."""
    with open_container(path) as container:
        stream = container.streams[number]
        assert isinstance(stream, VideoStream)
        prepare(path, container, stream)
        given: list[int] = []
        sent = 0
        first: av.VideoFrame | None = None
        error: Exception | None = None
        decoder = _ordinal_frames(container, stream)
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
        if max(first.width, first.height) > MAX_SIDE:
            raise VideoError(path, "unsupported", f"{first.width}x{first.height} pixels exceed {MAX_SIDE} a side")
        # Only frames presented before the last one that came out must have come out themselves.
        expected = np.flatnonzero(~packets.hidden[: sent + 1])
        if not error:
            expected = expected[packets.pts[expected] <= packets.pts[given].max()]
        else:
            expected = np.array(given, dtype=np.int64)
        rate = stream.average_rate or stream.guessed_rate or 0
        return _Start(
            given=given,
            expected=expected,
            width=first.width,
            height=first.height,
            turn=_turn_of(first),
            pixel_format=first.format.name,
            codec=stream.codec_context.codec.canonical_name,
            time_base=float(stream.time_base or 0),
            rate=float(rate),
            container=container.format.name,
        )


def _ordinal_frames(
    container: InputContainer, stream: VideoStream
) -> Iterator[tuple[int, list[av.VideoFrame], Exception | None]]:
    """Decodes from the start; frames carry their packet's place in the file as pts."""
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
            failure = error
        yield ordinal, frames, failure
        if last:
            break


def _decode_order(path: str, number: int, deadline: Deadline) -> list[int]:
    """Decodes the whole stream for the order in which packets become frames."""
    order: list[int] = []
    with open_container(path) as container:
        stream = container.streams[number]
        assert isinstance(stream, VideoStream)
        prepare(path, container, stream)
        for _, frames, _ in _ordinal_frames(container, stream):
            deadline.check()
            order += [frame.pts for frame in frames if frame.pts is not None and not frame.is_corrupt]
    return list(dict.fromkeys(order))


def _usable(stamps: npt.NDArray[np.int64]) -> bool:
    return bool((stamps != NO_STAMP).all() and np.unique(stamps).size == stamps.size)


def _irregular_times(packets: _Packets, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Times of frames whose packets lack sound pts; None when only the frame rate can tell."""
    pts = packets.pts[order]
    if (pts != NO_STAMP).all() and (np.diff(pts) > 0).all():
        return pts
    dts = np.sort(packets.dts[order])
    if (dts != NO_STAMP).all() and (np.diff(dts) > 0).all():
        return dts
    return None


def _assemble(
    path: str,
    number: int,
    packets: _Packets,
    order: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64] | None,
    stamps: npt.NDArray[np.int64],
    stamp_is_pts: bool,
    start: _Start,
) -> VideoIndex:
    if order.size == 0:
        raise VideoError(path, "no_frames", "not one frame could be decoded; replace or re-encode the file")
    if times is None:
        if start.rate <= 0:
            raise VideoError(path, "unsupported", "has neither timestamps nor a frame rate; remux it into MP4 or MKV")
        timestamps = np.arange(order.size) / start.rate
        start_time, last = 0.0, 1 / start.rate
    else:
        timestamps = (times - times[0]) * start.time_base
        start_time = float(times[0] * start.time_base)
        last = float(packets.duration[order[-1]] * start.time_base)
        if last <= 0:
            steps = np.diff(timestamps)
            last = float(np.median(steps)) if steps.size else (1 / start.rate if start.rate > 0 else 0.04)
    duration = float(timestamps[-1]) + last
    steps = np.diff(timestamps)
    uneven = bool(steps.size > 1 and np.ptp(steps) > max(2.5 * start.time_base, 0.01 * float(np.median(steps))))
    timestamps.setflags(write=False)
    width, height = (start.height, start.width) if start.turn[0] else (start.width, start.height)
    keyframes = np.flatnonzero(packets.keyframe)
    key_ranks = _key_ranks(packets, keyframes, order)
    info = VideoInfo(
        path=path,
        fps=order.size / duration,
        num_frames=int(order.size),
        duration=duration,
        width=width,
        height=height,
        rotation=ROTATIONS.get(start.turn, 0),
        variable_frame_rate=uneven,
        codec=start.codec,
        pixel_format=start.pixel_format,
        start_time=start_time,
    )
    return VideoIndex(
        info=info,
        timestamps=timestamps,
        stream=number,
        ordinals=order,
        stamps=stamps,
        stamp_is_pts=stamp_is_pts,
        keyframes=keyframes,
        key_pts=packets.pts[keyframes],
        key_dts=packets.dts[keyframes],
        key_ranks=key_ranks,
        turn=start.turn,
        container=start.container,
        closed=packets.refreshed and _without_leading_frames(keyframes, key_ranks, order),
    )


def _key_ranks(
    packets: _Packets, keyframes: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Frames presented before a keyframe may lean on what came before it, frames after it never do."""
    rank_of = np.full(packets.pts.size, order.size, dtype=np.int64)
    rank_of[order] = np.arange(order.size)
    ranks = rank_of[keyframes]
    pts = packets.pts[order]
    if (pts != NO_STAMP).all() and (np.diff(pts) > 0).all():
        known = packets.pts[keyframes] != NO_STAMP
        ranks[known] = np.searchsorted(pts, packets.pts[keyframes][known])
    return ranks


def _without_leading_frames(
    keyframes: npt.NDArray[np.int64], key_ranks: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
) -> bool:
    """Whether no frame stored after a keyframe is presented before it."""
    latest = np.maximum.accumulate(order)
    inner = key_ranks > 0
    return bool((latest[key_ranks[inner] - 1] < keyframes[inner]).all())


ROTATIONS = {
    (False, False, False): 0,
    (True, False, True): 90,
    (False, True, True): 180,
    (True, True, False): 270,
}


def _turn_of(frame: av.VideoFrame) -> tuple[bool, bool, bool]:
    """Reads the display matrix: x' = a x + c y, y' = b x + d y, each axis running right and down."""
    side_data: Any = frame.side_data.get("DISPLAYMATRIX")
    if side_data is None:
        return False, False, False
    a, b, _, c, d = (int(value) for value in np.frombuffer(bytes(side_data), dtype=np.int32)[:5])
    if abs(b) > abs(a):
        return True, c < 0, b < 0
    return False, a < 0, d < 0


def is_end(packet: av.Packet) -> bool:
    """Whether this is the empty packet with which PyAV ends a stream."""
    return packet.size == 0 and packet.pts is None and packet.dts is None
