"""What one pass over the packets of a stream tells, nothing decoded."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import av
import numpy as np
import numpy.typing as npt
from av.container import InputContainer
from av.video.stream import VideoStream

from agentic_video.video.deadline import Deadline

NO_STAMP = int(np.iinfo(np.int64).min)
"""Stands for a time stamp that a packet lacks."""


@dataclass(frozen=True, eq=False)
class Packets:
    """What was noted of the packets of a stream: arrays with one entry per packet, in the order of the file.

    Attributes:
        pts: Presentation time stamps, ``NO_STAMP`` where there is none.
        dts: Decoding time stamps, likewise.
        duration: In units of the stream's time base; 0 where it isn't known.
        keyframe: Whether decoding can start there.
        hidden: Whether its frame is never shown.
        refreshed: Whether every H.264 keyframe is one that starts anew; True for other codecs.
    """

    pts: npt.NDArray[np.int64]
    dts: npt.NDArray[np.int64]
    duration: npt.NDArray[np.int64]
    keyframe: npt.NDArray[np.bool_]
    hidden: npt.NDArray[np.bool_]
    refreshed: bool


def read_packets(container: InputContainer, stream: VideoStream, deadline: Deadline, most: int) -> Packets | None:
    """Demux a whole stream; None where it has more than ``most`` packets.

    Raises:
        VideoError: The deadline has passed.
        av.FFmpegError: The file can't be demuxed.
    """
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
    """Whether an H.264 packet of an MP4 or MKV file starts anew (IDR), as opposed to a mere recovery point."""
    position = 0
    while position + 4 < len(packet):
        if packet[position + 4] & 0x1F == 5:
            return True
        position += 4 + int.from_bytes(packet[position : position + 4], "big")
    return False


def is_end(packet: av.Packet) -> bool:
    """Whether this is the empty packet with which PyAV ends a stream."""
    return packet.size == 0 and packet.pts is None and packet.dts is None


def is_complete(stamps: npt.NDArray[np.int64]) -> bool:
    """Whether each packet has a stamp, and one of its own."""
    return bool((stamps != NO_STAMP).all() and np.unique(stamps).size == stamps.size)


def is_increasing(stamps: npt.NDArray[np.int64]) -> bool:
    """Whether each packet has a stamp, and a later one than the packet before it."""
    return bool((stamps != NO_STAMP).all() and (np.diff(stamps) > 0).all())
