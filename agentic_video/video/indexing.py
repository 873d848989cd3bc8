"""Building a video's index: its packets, and as few decoded frames as that takes."""

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
from agentic_video.video.demux import (
    NO_STAMP,
    Packets,
    StreamStart,
    decode_order,
    decode_start,
    is_complete,
    is_increasing,
    read_packets,
)
from agentic_video.video.errors import Deadline, VideoError, raise_video_error
from agentic_video.video.index import ROTATIONS, VideoIndex, VideoInfo
from agentic_video.video.limits import DEFAULT_LIMITS, MAX_SECONDS, PACKET_BYTES, Hold, Limits, no_hold

_HALF_MPEG_CLOCK = 2**32
"""Ticks of half the time that an MPEG stream's clock counts: 13 hours."""

_WIDEST_PIXEL = 4.0
"""Pixels that claim to be wider, or higher, than this times their other side count as square."""


def build_index(
    path: str, deadline: Deadline, limits: Limits = DEFAULT_LIMITS, hold: Hold = no_hold, square: bool = False
) -> VideoIndex:
    """Demux a file and decode its start; all of it where presentation times don't say how frames follow each other.

    The start shows facts that only the decoder knows, and which frames it really gives: leading frames without their
    references never appear, fields may need two packets a frame.

    Args:
        path: Video file.
        deadline: Checked between packets.
        limits: Bounds of the video.
        hold: Reserves the memory that each step needs.
        square: Make frames with non-square pixels as wide as they are displayed.

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
class _FrameOrder:
    """Packets in the order of their frames; see :class:`VideoIndex`."""

    ordinals: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64] | None
    """In units of the stream's time base; None if only the frame rate can tell."""
    stamps: npt.NDArray[np.int64]
    stamp_is_pts: bool


def _order_by_pts(packets: Packets, start: StreamStart) -> _FrameOrder | None:
    """Order by presentation times; None if they can't be trusted."""
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
    return _FrameOrder(ordinals, packets.pts[ordinals], packets.pts, stamp_is_pts=True)


def _starts_again(packets: Packets, stamps: npt.NDArray[np.int64]) -> bool:
    """Return True if a keyframe has an earlier stamp than a packet before it in the file.

    Frames between keyframes may be stored out of order; frames stored before a keyframe are shown before it.
    """
    known = ~packets.hidden & (stamps != NO_STAMP)
    latest = np.maximum.accumulate(stamps[known])
    return bool((packets.keyframe[known][1:] & (stamps[known][1:] < latest[:-1])).any())


def _clock_starts_again(path: str) -> VideoError:
    return VideoError(
        path,
        "unsupported",
        "its clock starts again on the way, as where recordings were joined; remux it (ffmpeg -i IN -c copy OUT.mp4)",
    )


def _order_by_decoding(path: str, number: int, packets: Packets, deadline: Deadline, limits: Limits) -> _FrameOrder:
    """Order in which frames come out of the decoder."""
    ordinals = np.array(decode_order(path, number, deadline, limits), dtype=np.int64)
    pts, dts = packets.pts[ordinals], np.sort(packets.dts[ordinals])
    if not is_increasing(pts) and (_starts_again(packets, packets.pts) or _starts_again(packets, packets.dts)):
        raise _clock_starts_again(path)
    times = pts if is_increasing(pts) else dts if is_increasing(dts) else None
    stamp_is_pts = not is_complete(packets.dts)
    return _FrameOrder(ordinals, times, packets.pts if stamp_is_pts else packets.dts, stamp_is_pts)


def _assemble(
    path: str,
    number: int,
    packets: Packets,
    start: StreamStart,
    order: _FrameOrder,
    others: list[float],
    promised: float,
) -> VideoIndex:
    timestamps, start_time, duration = _clock(path, packets, start, order, others)
    first_time = float(timestamps[0])
    fps, uneven = _rate(timestamps - first_time, duration - first_time, start)
    width, height = (start.height, start.width) if start.orientation[0] else (start.width, start.height)
    keyframes = np.flatnonzero(packets.keyframe)
    key_ranks = _key_ranks(packets, keyframes, order.ordinals)
    info = VideoInfo(
        path=path,
        fps=fps,
        num_frames=int(order.ordinals.size),
        duration=duration,
        width=width,
        height=height,
        rotation=ROTATIONS.get(start.orientation, 0),
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
        orientation=start.orientation,
        container=start.container,
        closed=packets.refreshed and _without_leading_frames(keyframes, key_ranks, order.ordinals),
    )


def _squared(path: str, index: VideoIndex, aspect: float, limits: Limits) -> VideoIndex:
    """Widen frames with non-square pixels: their stored height, the stored width times the pixels' aspect ratio."""
    if aspect == 1 or not 1 / _WIDEST_PIXEL <= aspect <= _WIDEST_PIXEL:
        return index
    width, height = index.info.width, index.info.height
    if index.orientation[0]:  # the stored width is the displayed height
        height = max(1, round(height * aspect))
    else:
        width = max(1, round(width * aspect))
    check_size(path, width, height, limits)
    return replace(index, info=replace(index.info, width=width, height=height), stretched=True)


def _clock(
    path: str, packets: Packets, start: StreamStart, order: _FrameOrder, others: list[float]
) -> tuple[npt.NDArray[np.float64], float, float]:
    """Frame times since the file's start, the first one's on the file's clock, and the duration, in seconds."""
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
            raise _clock_starts_again(path)  # FFmpeg took it for the clock's wrap-around
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
    """Frames per second, and True if it varies; see :class:`VideoInfo`."""
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
    """Rank of the first frame that decoding from each keyframe gives right.

    Frames presented before a keyframe may depend on packets before it, frames after it never do.
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
    """Return True if no frame stored after a keyframe is presented before it."""
    latest = np.maximum.accumulate(order)
    inner = key_ranks > 0
    return bool((latest[key_ranks[inner] - 1] < keyframes[inner]).all())
