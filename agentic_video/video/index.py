"""Facts about a video and the index of its frames: their times, and where decoding can start."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Orientation = tuple[bool, bool, bool]
"""Steps from the stored to the displayed picture: (transpose, mirror columns, mirror rows)."""

ROTATIONS: dict[Orientation, int] = {
    (False, False, False): 0,
    (True, False, True): 90,
    (False, True, True): 180,
    (True, True, False): 270,
}
"""Degrees counterclockwise of the orientations that don't mirror a picture."""

_KEYFRAME_COST = 3
_PICTURE_COST = 2
"""Cost of finding and decoding a keyframe, and of converting a picture, in packets to decode."""


@dataclass(frozen=True)
class VideoInfo:
    """Facts about a video."""

    path: str
    fps: float
    """Frames per second. Where frames are evenly spaced, a frame's number is its time since the first one times this,
    however long the last one is shown; elsewhere the average, num_frames / duration."""
    num_frames: int
    """Frames that can be decoded."""
    duration: float
    """Seconds from the file's start to the end of the last frame."""
    width: int
    height: int
    """Pixels as displayed, i.e. after rotation; non-square pixels are left as stored unless
    ``frame_store.square_pixels`` is set."""
    rotation: int
    """Degrees counterclockwise from the stored to the displayed picture: 0, 90, 180 or 270."""
    variable_frame_rate: bool
    """True if the distance between frames varies beyond the rounding of the time base, the last one aside."""
    codec: str
    pixel_format: str
    """Stored format, e.g. "yuv420p10le"."""
    start_time: float
    """Seconds of the first frame on the file's own clock."""
    first_time: float = 0.0
    """Seconds of the first frame from the file's start: above 0 where the sound starts earlier."""
    missing_seconds: float = 0.0
    """Length of what the file's header promises behind the last frame, where the file is cut off."""

    @property
    def shown_seconds(self) -> float:
        """Seconds from the presentation of the first frame to the end of the last one."""
        return self.duration - self.first_time

    def place(self, time: float) -> float:
        """Fractional number of the frame shown at a time, as if all were shown equally long; not below 0."""
        return max(time - self.first_time, 0.0) * self.fps


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """Result of demuxing a file once; opening the file again with it skips that work.

    ``ordinal``: a packet's position in the file. ``rank``: a frame's position in presentation order.
    """

    info: VideoInfo
    timestamps: npt.NDArray[np.float64]
    """Presentation times in seconds, shape (num_frames,), read-only."""
    stream: int
    """Index of the video stream in its container."""
    ordinals: npt.NDArray[np.int64]
    """Ordinal of each frame's packet, shape (num_frames,)."""
    stamps: npt.NDArray[np.int64]
    """Stamp that identifies a packet after a seek, shape (num_packets,)."""
    stamp_is_pts: bool
    """True if ``stamps`` are pts, False if dts."""
    keyframes: npt.NDArray[np.int64]
    """Ordinals of the packets where decoding can start, ascending; ``key_pts`` and ``key_dts`` are their stamps."""
    key_pts: npt.NDArray[np.int64]
    key_dts: npt.NDArray[np.int64]
    key_ranks: npt.NDArray[np.int64]
    """Rank of the first frame that decoding from each keyframe gives right."""
    orientation: Orientation
    container: str
    """FFmpeg's name of the file format, e.g. "matroska,webm"."""
    closed: bool
    """True if every frame after a keyframe in the file decodes from that keyframe."""
    stretched: bool = False
    """True if frames are wider than stored, so that their pixels are square."""

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        arrays = (self.timestamps, self.ordinals, self.stamps, self.keyframes, self.key_pts, self.key_dts)
        return sum(array.nbytes for array in arrays) + self.key_ranks.nbytes

    def keyframe_indices(self) -> list[int]:
        """Frames that decode from their own packet alone, ascending."""
        own = self.key_ranks < self.ordinals.size
        own[own] = self.ordinals[self.key_ranks[own]] == self.keyframes[own]
        return [int(rank) for rank in np.unique(self.key_ranks[own])]

    def decode_ranges(self, wanted: Sequence[int]) -> list[tuple[list[int], int]]:
        """Group frames (ascending, distinct) by the keyframe that their decoding begins at.

        Returns:
            Frame indices and the number of packets from their keyframe to the last of them, in order of time.
        """
        ranges: list[tuple[list[int], int]] = []
        last = -1
        for number in wanted:
            ordinal = int(self.ordinals[number])
            key = int(np.searchsorted(self.keyframes, ordinal, side="right")) - 1
            while key > 0 and self.key_ranks[key] > number:
                key -= 1
            packets = ordinal - (int(self.keyframes[key]) if key >= 0 else 0) + 1
            if ranges and key == last:
                ranges[-1][0].append(number)
                ranges[-1] = ranges[-1][0], max(ranges[-1][1], packets)
            else:
                ranges.append(([number], packets))
            last = key
        return ranges

    def decoded_pixels(self, wanted: Sequence[int]) -> int:
        """Pixels of the pictures that must be decoded for these frames (ascending, distinct, within the video)."""
        return sum(packets for _, packets in self.decode_ranges(wanted)) * self.info.width * self.info.height

    def split_work(self, wanted: Sequence[int], most: int, least: int) -> list[list[int]]:
        """Split frames (ascending, distinct) into parts that take about as long to decode, none sharing a keyframe.

        Args:
            wanted: Frame indices within the video.
            most: Most parts.
            least: Work that is worth another decoder, in packets to decode.

        Returns:
            At least one part, in order of time.
        """
        if most < 2 or len(wanted) < 2:
            return [list(wanted)]
        ranges = [
            (numbers, packets + _KEYFRAME_COST + _PICTURE_COST * len(numbers))
            for numbers, packets in self.decode_ranges(wanted)
        ]
        total = sum(cost for _, cost in ranges)
        count = max(1, min(most, len(ranges), total // max(1, least)))
        parts: list[list[int]] = [[]]
        done = 0
        for position, (numbers, cost) in enumerate(ranges):
            left = len(ranges) - position
            if parts[-1] and len(parts) < count and (done >= total * len(parts) / count or left <= count - len(parts)):
                parts.append([])
            parts[-1] += numbers
            done += cost
        return parts
