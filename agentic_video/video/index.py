"""What demuxing a video once teaches: its facts, the times of its frames, where decoding can start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import av
import av.error
import numpy as np
import numpy.typing as npt

from agentic_video.video.container import (
    check_boxes,
    check_size,
    file_start,
    open_container,
    other_starts,
    pick_stream,
    set_up_decoder,
    stream_bytes,
    too_many_packets,
)
from agentic_video.video.deadline import Deadline
from agentic_video.video.errors import VideoError, raise_video_error
from agentic_video.video.limits import MAX_SECONDS, PACKET_BYTES, USUAL, Hold, Limits, unheld
from agentic_video.video.packets import NO_STAMP, Packets, is_complete, is_increasing, read_packets
from agentic_video.video.sequential import StreamStart, Turn, decode_order, decode_start

ROTATIONS: dict[Turn, int] = {
    (False, False, False): 0,
    (True, False, True): 90,
    (False, True, True): 180,
    (True, True, False): 270,
}
"""Degrees counterclockwise of the turns that leave a picture unmirrored."""

_HALF_MPEG_CLOCK = 2**32
"""Ticks of half the time that an MPEG stream's clock counts: 13 hours."""


@dataclass(frozen=True)
class VideoInfo:
    """Facts about a video.

    Attributes:
        path: The file.
        fps: Frames per second. Where frames follow each other evenly, a frame's number is its time since the first one
            times this, however long the last one is shown; elsewhere the average, num_frames / duration.
        num_frames: Frames that can be decoded.
        duration: Seconds from the file's start to the end of the last frame.
        width: Width in pixels as displayed, i.e. after rotation (non-square pixels are left as stored unless
            ``frame_store.square_pixels`` is set).
        height: Height in pixels as displayed, i.e. after rotation.
        rotation: Degrees counterclockwise that the stored picture is turned for display: 0, 90, 180 or 270.
        variable_frame_rate: Whether the distance between frames varies beyond the rounding of the time base. How long
            the last one is shown doesn't count.
        codec: Name of the codec, e.g. "h264".
        pixel_format: Stored pixel format, e.g. "yuv420p10le".
        start_time: Time of the first frame on the file's own clock in seconds.
        first_time: Time of the first frame in seconds from the file's start: above 0 where the sound starts earlier.
        missing_seconds: Length of what the file's header promises behind the last frame, where the file is cut off.
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
    first_time: float = 0.0
    missing_seconds: float = 0.0

    @property
    def shown_seconds(self) -> float:
        """Seconds from the presentation of the first frame to the end of the last one."""
        return self.duration - self.first_time

    def place(self, time: float) -> float:
        """Number of the frame shown at a time, with fractions, as if all were shown equally long; not below 0."""
        return max(time - self.first_time, 0.0) * self.fps


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """What demuxing a file once teaches; opening the file again with it skips that work.

    Attributes:
        info: Facts about the video.
        timestamps: Presentation times in seconds, float64 of shape (num_frames,), read-only.
        stream: Index of the video stream in its container.
        ordinals: For each frame in presentation order its packet's place in the file, shape (num_frames,).
        stamps: Stamp by which a packet is known again after a seek, shape (num_packets,).
        stamp_is_pts: Whether ``stamps`` are pts; dts otherwise.
        keyframes: Places of the packets where decoding can start, ascending.
        key_pts: Their pts.
        key_dts: Their dts.
        key_ranks: Index of the first frame (in presentation order) that decoding from there gives right.
        turn: How the stored picture becomes the displayed one: (transpose, mirror columns, mirror rows).
        container: FFmpeg's name of the file format, e.g. "matroska,webm".
        closed: Whether every frame after a keyframe in the file can be decoded from that keyframe.
        stretched: Whether frames are wider than stored, so that their pixels are square.
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
    turn: Turn
    container: str
    closed: bool
    stretched: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        arrays = (self.timestamps, self.ordinals, self.stamps, self.keyframes, self.key_pts, self.key_dts)
        return sum(array.nbytes for array in arrays) + self.key_ranks.nbytes


def build_index(
    path: str, deadline: Deadline, limits: Limits = USUAL, hold: Hold = unheld, square: bool = False
) -> VideoIndex:
    """Demux a file, and decode as much of it as that takes.

    The start of the stream is always decoded: for facts only the decoder knows, and to see which frames it really
    gives (leading frames without their references never appear, fields may need two packets a frame). The whole of it
    is decoded only where the packets' presentation times don't say how its frames follow each other.

    Args:
        path: Video file.
        deadline: Checked between packets.
        limits: How large the video may be.
        hold: Sets the memory aside that each step needs.
        square: Whether frames with non-square pixels are made as wide as they are displayed.

    Raises:
        VideoError: The file can't be read as a video, is too large, or the deadline has passed.
    """
    boxes = check_boxes(path, limits)
    with hold(boxes.samples * PACKET_BYTES, deadline), open_container(path, deadline) as container:
        stream = pick_stream(path, container)
        set_up_decoder(path, stream, limits)
        number, needed = stream.index, stream_bytes(stream)
        others = other_starts(container, number)
        promised = float((stream.duration or 0) * (stream.time_base or 0)) if boxes.cut else 0.0
        try:
            packets = read_packets(container, stream, deadline, limits.packets)
        except (av.FFmpegError, OSError, MemoryError) as error:
            raise_video_error(path, error)
    if packets is None:
        raise too_many_packets(path, limits)
    if packets.pts.size == 0:
        raise VideoError(path, "no_frames", "the video stream holds no complete frame; copy or download the file again")
    with hold(needed, deadline):
        try:
            start = decode_start(path, number, packets, deadline, limits)
            order = _order_by_pts(packets, start) or _order_by_decoding(path, number, packets, deadline, limits)
        except (av.FFmpegError, OSError, MemoryError) as error:
            raise_video_error(path, error)
    if order.ordinals.size == 0:
        raise VideoError(path, "no_frames", "not one frame could be decoded; replace or re-encode the file")
    index = _assemble(path, number, packets, start, order, others, promised)
    return _squared(path, index, start.aspect, limits) if square else index


@dataclass(frozen=True, eq=False)
class _Order:
    """How the packets of a stream become its frames.

    Attributes:
        ordinals: For each frame in presentation order its packet's place in the file.
        times: For each frame its time in units of the stream's time base; None when only the frame rate can tell.
        stamps: Stamp by which each packet is known again.
        stamp_is_pts: Whether these are pts; dts otherwise.
    """

    ordinals: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64] | None
    stamps: npt.NDArray[np.int64]
    stamp_is_pts: bool


def _order_by_pts(packets: Packets, start: StreamStart) -> _Order | None:
    """The order that the packets' presentation times give; None when they can't be trusted."""
    shown = np.flatnonzero(~packets.hidden)
    shown_pts = packets.pts[shown]
    if not is_complete(shown_pts) or _starts_again(packets, packets.pts):
        return None
    ordinals = shown[np.argsort(shown_pts, kind="stable")]
    lost = np.setdiff1d(start.expected, np.array(start.given, dtype=np.int64))
    first_given = packets.pts[start.given].min()
    if (packets.pts[lost] >= first_given).any() or packets.hidden[start.given].any():
        return None
    ordinals = ordinals[~np.isin(ordinals, lost)]
    return _Order(ordinals, packets.pts[ordinals], packets.pts, stamp_is_pts=True)


def _starts_again(packets: Packets, stamps: npt.NDArray[np.int64]) -> bool:
    """Whether a keyframe has an earlier stamp than a packet before it in the file. Frames between keyframes may come in
    another order than they are shown in; what is stored before a keyframe is shown before it."""
    known = ~packets.hidden & (stamps != NO_STAMP)
    latest = np.maximum.accumulate(stamps[known])
    return bool((packets.keyframe[known][1:] & (stamps[known][1:] < latest[:-1])).any())


def _clock_starts_again(path: str) -> VideoError:
    return VideoError(
        path,
        "unsupported",
        "its clock starts again on the way, as where recordings were joined; remux it (ffmpeg -i IN -c copy OUT.mp4)",
    )


def _order_by_decoding(path: str, number: int, packets: Packets, deadline: Deadline, limits: Limits) -> _Order:
    """The order in which frames come out of the decoder."""
    ordinals = np.array(decode_order(path, number, deadline, limits), dtype=np.int64)
    pts, dts = packets.pts[ordinals], np.sort(packets.dts[ordinals])
    if not is_increasing(pts) and (_starts_again(packets, packets.pts) or _starts_again(packets, packets.dts)):
        raise _clock_starts_again(path)
    times = pts if is_increasing(pts) else dts if is_increasing(dts) else None
    stamp_is_pts = not is_complete(packets.dts)
    return _Order(ordinals, times, packets.pts if stamp_is_pts else packets.dts, stamp_is_pts)


def _assemble(
    path: str,
    number: int,
    packets: Packets,
    start: StreamStart,
    order: _Order,
    others: list[float],
    promised: float,
) -> VideoIndex:
    timestamps, start_time, duration = _clock(path, packets, start, order, others)
    first_time = float(timestamps[0])
    fps, uneven = _rate(timestamps - first_time, duration - first_time, start)
    width, height = (start.height, start.width) if start.turn[0] else (start.width, start.height)
    keyframes = np.flatnonzero(packets.keyframe)
    key_ranks = _key_ranks(packets, keyframes, order.ordinals)
    info = VideoInfo(
        path=path,
        fps=fps,
        num_frames=int(order.ordinals.size),
        duration=duration,
        width=width,
        height=height,
        rotation=ROTATIONS.get(start.turn, 0),
        variable_frame_rate=uneven,
        codec=start.codec,
        pixel_format=start.pixel_format,
        start_time=start_time,
        first_time=first_time,
        missing_seconds=max(0.0, promised - (duration - first_time)),
    )
    return VideoIndex(
        info=info,
        timestamps=timestamps,
        stream=number,
        ordinals=order.ordinals,
        stamps=order.stamps,
        stamp_is_pts=order.stamp_is_pts,
        keyframes=keyframes,
        key_pts=packets.pts[keyframes],
        key_dts=packets.dts[keyframes],
        key_ranks=key_ranks,
        turn=start.turn,
        container=start.container,
        closed=packets.refreshed and _without_leading_frames(keyframes, key_ranks, order.ordinals),
    )


_WIDEST_PIXEL = 4.0
"""Pixels that claim to be wider, or higher, than this times their other side are taken for square ones."""


def _squared(path: str, index: VideoIndex, aspect: float, limits: Limits) -> VideoIndex:
    """Frames with non-square pixels as wide as they are displayed: their stored height, the stored width times the
    pixels' aspect ratio."""
    if aspect == 1 or not 1 / _WIDEST_PIXEL <= aspect <= _WIDEST_PIXEL:
        return index
    width, height = index.info.width, index.info.height
    if index.turn[0]:  # the stored width is the displayed height
        height = max(1, round(height * aspect))
    else:
        width = max(1, round(width * aspect))
    check_size(path, width, height, limits)
    return replace(index, info=replace(index.info, width=width, height=height), stretched=True)


def _clock(
    path: str, packets: Packets, start: StreamStart, order: _Order, others: list[float]
) -> tuple[npt.NDArray[np.float64], float, float]:
    """Seconds: the time of each frame since the file's start, the first one's on the file's clock, and the duration."""
    timestamps: npt.NDArray[np.float64]
    if order.times is None:
        if start.rate <= 0:
            raise VideoError(path, "unsupported", "has neither timestamps nor a frame rate; remux it into MP4 or MKV")
        timestamps = np.arange(order.ordinals.size) / start.rate
        start_time, last = 0.0, 1 / start.rate
    else:
        start_time = float(order.times[0] * start.time_base)
        first_time = start_time - file_start(start_time, others)
        timestamps = (order.times - order.times[0]) * start.time_base + first_time
        last = float(packets.duration[order.ordinals[-1]] * start.time_base)
        if last <= 0:
            steps = np.diff(timestamps)
            last = float(np.median(steps)) if steps.size else (1 / start.rate if start.rate > 0 else 0.04)
        if start.container == "mpegts" and (np.diff(order.times) > _HALF_MPEG_CLOCK).any():
            raise _clock_starts_again(path)  # which FFmpeg took for the end of what the clock can count to
    if not np.isfinite(timestamps).all() or (np.diff(timestamps) < 0).any():
        raise VideoError(path, "corrupt", "its frames are at times that can't be; remux or re-encode it")
    duration = float(timestamps[-1]) + last
    if not duration <= MAX_SECONDS:
        raise VideoError(
            path,
            "unsupported",
            f"lasts {duration:.3g} s, more than {MAX_SECONDS:g} s; its time stamps may be wrong: remux it",
        )
    timestamps.setflags(write=False)
    return timestamps, start_time, duration


def _rate(timestamps: npt.NDArray[np.float64], duration: float, start: StreamStart) -> tuple[float, bool]:
    """Frames per second, and whether it varies; see :class:`VideoInfo`."""
    average = timestamps.size / duration
    steps = np.diff(timestamps)
    if not steps.size:
        return average, False
    usual = float(np.median(steps))
    tolerance = max(2.5 * start.time_base, 0.01 * usual)
    if np.ptp(steps) > tolerance:
        return average, True
    last = float(timestamps[-1])
    if last <= 0 or abs(duration - last - usual) <= tolerance:
        return average, False
    # The container's rate is free of the rounding of the time stamps, but it may be an average with the last frame.
    if start.rate > 0 and abs(steps.size / start.rate - last) <= start.time_base:
        return start.rate, False
    return steps.size / last, False


def _key_ranks(
    packets: Packets, keyframes: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """For each keyframe the first frame that decoding from there gives right.

    Frames presented before a keyframe may lean on what came before it, frames after it never do.
    """
    rank_of = np.full(packets.pts.size, order.size, dtype=np.int64)
    rank_of[order] = np.arange(order.size)
    ranks = rank_of[keyframes]
    pts = packets.pts[order]
    if is_increasing(pts):
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
