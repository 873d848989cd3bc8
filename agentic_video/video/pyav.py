"""Frame-accurate decoding with PyAV, exact for every file in the test suite.

A reader continues from where it is as long as that costs less than jumping to a keyframe. Whatever a seek does, each
packet is identified by its stamp and gets its ordinal (position in the file) as pts, which its frame brings back: a
frame is never mistaken for another.
"""

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import av
import av.error
import numpy as np
from av.container import InputContainer

from agentic_video.video.container import open_container, video_stream
from agentic_video.video.demux import NO_STAMP, is_end
from agentic_video.video.errors import Deadline, VideoError, is_machine_error, raise_video_error
from agentic_video.video.index import Orientation, VideoIndex
from agentic_video.video.limits import DEFAULT_LIMITS, Limits
from agentic_video.video.reader import RgbConverter, VideoReader

_REORDER_LIMIT = 64
"""Packets after a frame's own within which the decoder must return it."""

_SKIPPING_CODECS = frozenset({"h264"})
"""Codecs whose decoder can skip exactly the frames that no other frame depends on."""

_SKIP_MARGIN = 32
"""Packets before a wanted one from which on nothing is skipped."""

_ONE_THREAD: dict[str, Any] = {"threads": 1} if int(av.__version__.split(".")[0]) >= 18 else {}
"""Starting threads to convert one frame takes longer than converting it."""

_WORTH_A_JUMP = 16
"""Packets between two wanted frames above which the reader jumps instead of decoding them."""

_SEEK_TRIES = 3

_UNKNOWN_PACKETS_LIMIT = 512
"""Unidentified packets after a seek before the seek counts as failed."""


class _UnexpectedPacketError(Exception):
    """A packet after a seek is not the one in the index."""


class PyavReader(VideoReader):
    """A reader that decodes with PyAV.

    Attributes:
        packets: Packets given to the decoder so far.
        jumps: Times that decoding continued from another packet than the next one.
    """

    def __init__(self, path: str, index: VideoIndex, time_limit: float | None, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(path, index, time_limit)
        self._limits = limits
        self.packets = 0
        self.jumps = 0
        self._container: InputContainer | None = None
        self._seekable = True
        self._can_skip = index.info.codec in _SKIPPING_CODECS
        self._whole_packets = index.ordinals.size == index.stamps.size
        self._known_broken: set[int] = set()
        self._restart()

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
            self._container = None

    def _restart(self) -> None:
        """Open the file again: the one way to its first packet that every format supports."""
        self.close()
        container = open_container(self._path, Deadline(self._path, self._time_limit))
        try:
            stream = video_stream(self._path, container, self.index.stream, self._limits)
        except BaseException:
            container.close()
            raise
        self._container = container
        self._stream = stream
        self._begin(0, None, container.demux(stream))

    def _begin(self, ordinal: int, first: av.Packet | None, rest: Iterator[av.Packet]) -> None:
        """Start a run of decoding at a packet; ``first`` is that packet if it has been read already."""
        self._run_start = self._next = ordinal
        self._first = first
        self._rest = rest
        self._inside: set[int] = set()
        self._broken: list[int] = []
        self._drained = False

    def _decode(self, wanted: list[int], deadline: Deadline) -> Iterator[tuple[int, RgbConverter | VideoError]]:
        if self._container is None:
            raise ValueError("the reader is closed")
        ordinals = self.index.ordinals
        missing = {int(ordinals[index]): index for index in wanted}
        nearest = [self._entries(index) for index in wanted]
        for place, index in enumerate(wanted):
            ordinal = int(ordinals[index])
            entries = nearest[place]
            if ordinal in missing and self._is_damaged(index, self._known_broken):
                del missing[ordinal]
                yield index, self._damaged(index)
            # Nothing after this frame is wanted that continuing would give, or decoding it again is free.
            if place + 1 < len(wanted):
                last = self._whole_packets and nearest[place + 1][0] > ordinal + _WORTH_A_JUMP
            else:
                last = self._whole_packets and ordinal == entries[0]
            try:
                if ordinal in missing and self._can_continue(ordinal, entries[0]):
                    yield from self._decode_until(ordinal, missing, deadline, last)
                for entry in entries:
                    if ordinal in missing:
                        self._go_to(entry, deadline)
                        yield from self._decode_until(ordinal, missing, deadline, last)
            except _UnexpectedPacketError:
                self._seekable = False
                self._go_to(entries[-1], deadline)
                yield from self._decode_until(ordinal, missing, deadline)
            if ordinal in missing:
                del missing[ordinal]
                yield index, self._damaged(index)

    def _entries(self, index: int) -> list[int]:
        """Packets from which decoding gives the frame, closest first; a few, as keyframe flags can be wrong."""
        place = int(np.searchsorted(self.index.keyframes, self.index.ordinals[index], side="right")) - 1
        entries: list[int] = []
        while place >= 0 and len(entries) < _SEEK_TRIES:
            if self.index.key_ranks[place] <= index:
                entries.append(int(self.index.keyframes[place]))
            place -= 1
        return entries or [0]

    def _can_continue(self, ordinal: int, entry: int) -> bool:
        """Return True if a packet's frame will come without a jump to ``entry``."""
        if self._drained:
            return False
        return ordinal in self._inside or self._run_start <= entry <= self._next <= ordinal

    def _decode_until(
        self, ordinal: int, missing: dict[int, int], deadline: Deadline, last: bool = False
    ) -> Iterator[tuple[int, RgbConverter | VideoError]]:
        """Continue decoding until a packet's frame is out, or can't come any more."""
        while ordinal in missing and not self._drained and self._next <= ordinal + _REORDER_LIMIT:
            deadline.check()
            found: list[tuple[int, RgbConverter | VideoError]] = []
            for frame in self._step(skip=self._can_skip and self._next + _SKIP_MARGIN < ordinal):
                assert frame.pts is not None
                self._inside.discard(frame.pts)
                index = missing.pop(frame.pts, None)
                if index is None:
                    continue
                damaged = frame.is_corrupt or self._is_damaged(index, self._broken)
                found.append((index, self._damaged(index) if damaged else self._converter(frame)))
            yield from found
            if last and self._next > ordinal:
                self._rest = iter(())
            if ordinal in missing and ordinal in self._broken:
                index = missing.pop(ordinal)
                yield index, self._damaged(index)

    def _step(self, skip: bool) -> list[av.VideoFrame]:
        """Send one packet, or the end, to the decoder; with ``skip`` it may skip frames no other one depends on."""
        try:
            packet = self._first or next(self._rest, None)
            self._first = None
            if packet is None or is_end(packet) or self._next >= self.index.stamps.size:
                self._drained = True
                return list(self._stream.codec_context.decode(None))
        except av.FFmpegError as error:
            self._check(error)
            self._drained = True
            return []
        ordinal = self._next
        stamp = self._stamp(packet)
        if stamp != self.index.stamps[ordinal]:
            raise _UnexpectedPacketError
        self._next += 1
        packet.pts = ordinal
        self._stream.codec_context.skip_frame = "NONREF" if skip else "DEFAULT"
        if not skip:
            self._inside.add(ordinal)
        if packet.is_corrupt:
            self._note_broken(ordinal)
        self.packets += 1
        try:
            return list(self._stream.codec_context.decode(packet))
        except av.FFmpegError as error:
            self._check(error)
            self._note_broken(ordinal)
            return []

    def _note_broken(self, ordinal: int) -> None:
        self._broken.append(ordinal)
        self._known_broken.add(ordinal)

    def _check(self, error: av.FFmpegError) -> None:
        """Raise errors that are not the video's fault."""
        if is_machine_error(self._path, error):
            raise_video_error(self._path, error)

    def _is_damaged(self, index: int, broken: Collection[int]) -> bool:
        """Return True if a packet that the frame may depend on did not decode."""
        if not broken:
            return False
        entry, ordinal = self._entries(index)[0], int(self.index.ordinals[index])
        return any(entry <= packet <= ordinal for packet in broken)

    def _go_to(self, entry: int, deadline: Deadline) -> None:
        """Make ``entry`` the next packet to decode, with a fresh decoder state."""
        self.jumps += 1
        if self._seekable:
            for stamp in self._seek_stamps(entry):
                assert self._container is not None
                try:
                    self._container.seek(stamp, stream=self._stream)
                    if self._land(entry, None, deadline):
                        return
                except av.FFmpegError as error:
                    self._check(error)
                    continue
        self._restart()
        try:
            landed = self._land(entry, 0, deadline)
        except av.FFmpegError as error:
            self._check(error)
            landed = False
        if not landed:
            self.close()
            raise VideoError(
                self._path, "corrupt", "the file no longer holds the packets it had when it was opened; open it again"
            )

    def _seek_stamps(self, entry: int) -> list[int]:
        """Stamps to seek to, best first: some formats seek by pts, some by dts, some land late."""
        place = int(np.searchsorted(self.index.keyframes, entry, side="right")) - 1
        stamps: list[int] = []
        for key in range(place, max(-1, place - _SEEK_TRIES), -1):
            for stamp in (int(self.index.key_pts[key]), int(self.index.key_dts[key])):
                if stamp != NO_STAMP and stamp not in stamps:
                    stamps.append(stamp)
        return stamps

    def _land(self, entry: int, ordinal: int | None, deadline: Deadline) -> bool:
        """Read packets without decoding them up to ``entry``; False if that packet is behind or not found."""
        assert self._container is not None
        rest = self._container.demux(self._stream)
        unknown = 0
        for packet in rest:
            deadline.check()
            if is_end(packet):
                return False
            stamp = self._stamp(packet)
            if ordinal is None:
                places = np.flatnonzero(self.index.stamps == stamp)
                if places.size != 1:
                    unknown += 1
                    if unknown > _UNKNOWN_PACKETS_LIMIT:
                        return False
                    continue
                ordinal = int(places[0])
            elif ordinal >= self.index.stamps.size or stamp != self.index.stamps[ordinal]:
                return False
            if ordinal > entry:
                return False
            if ordinal == entry:
                self._begin(entry, packet, rest)
                return True
            ordinal += 1
        return False

    def _stamp(self, packet: av.Packet) -> int:
        stamp = packet.pts if self.index.stamp_is_pts else packet.dts
        return NO_STAMP if stamp is None else stamp

    def _converter(self, frame: av.VideoFrame) -> RgbConverter:
        info, orientation = self.info, self.index.orientation
        # A stream may change its size midway; the caller is promised one.
        width, height = (info.height, info.width) if orientation[0] else (info.width, info.height)
        return partial(_convert, frame, width, height, orientation)

    def _damaged(self, index: int) -> VideoError:
        return VideoError(
            self._path,
            "corrupt",
            f"frame {index} at {self.timestamps[index]:.3f} s cannot be decoded; use other frames or replace the file",
        )


def _convert(frame: av.VideoFrame, width: int, height: int, orientation: Orientation) -> np.ndarray:
    picture = frame.to_ndarray(format="rgb24", width=width, height=height, **_ONE_THREAD)
    transpose, mirror_columns, mirror_rows = orientation
    if transpose:
        picture = picture.transpose(1, 0, 2)
    if mirror_columns:
        picture = picture[:, ::-1]
    if mirror_rows:
        picture = picture[::-1]
    return np.ascontiguousarray(picture)
