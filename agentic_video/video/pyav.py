"""Frame-accurate decoding with PyAV, exact for every file in the test suite.

A reader decodes on from where it is as long as that costs less than jumping to a keyframe. Whatever a seek does, each
packet is known again by its stamp, and is given its place in the file as pts, which its frame brings back: a frame is
never taken for another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

import av
import av.error
import numpy as np
from av.container import InputContainer

from agentic_video.video.container import open_container, video_stream
from agentic_video.video.deadline import Deadline
from agentic_video.video.errors import VideoError, raise_video_error, says_nothing_of_the_video
from agentic_video.video.index import VideoIndex
from agentic_video.video.limits import USUAL, Limits
from agentic_video.video.packets import NO_STAMP, is_end
from agentic_video.video.reader import Developer, VideoReader
from agentic_video.video.sequential import Turn

_REORDER_LIMIT = 64
"""Packets after a frame's own within which the decoder must give the frame."""

_SKIPPING_CODECS = frozenset({"h264"})
"""Codecs that mark the frames no other frame leans on, and whose decoder leaves out just those when told to."""

_SKIP_MARGIN = 32
"""Packets before a wanted one from which on nothing is left out."""

_ONE_THREAD: dict[str, Any] = {"threads": 1} if int(av.__version__.split(".")[0]) >= 18 else {}
"""Starting threads to convert one frame takes longer than converting it; what comes out is the same."""

_WORTH_A_JUMP = 16
"""Packets between two wanted frames that are rather jumped over than decoded."""

_SEEK_TRIES = 3

_UNKNOWN_PACKETS_LIMIT = 512
"""Packets after a seek that may be none of the index's, or not tell which, before the seek counts as failed."""


class _LostTrack(Exception):
    """The packets after a seek are not those the index promises."""


class PyavReader(VideoReader):
    """A reader that decodes with PyAV.

    Attributes:
        packets: Packets that were given to the decoder so far: what reading has cost.
        jumps: How often decoding went on from another packet than the next one.
    """

    def __init__(self, path: str, index: VideoIndex, time_limit: float | None, limits: Limits = USUAL) -> None:
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
        """Open the file anew: the one way to its first packet that every format supports."""
        self.close()
        container = open_container(self._path, Deadline(self._path, self._time_limit))
        try:
            stream = video_stream(self._path, container, self._index.stream, self._limits)
        except BaseException:
            container.close()
            raise
        self._container = container
        self._stream = stream
        self._begin(0, None, container.demux(stream))

    def _begin(self, ordinal: int, first: av.Packet | None, rest: Iterator[av.Packet]) -> None:
        """Start a run of decoding at a packet; ``first`` is that packet when it has been read already."""
        self._run_start = self._next = ordinal
        self._first = first
        self._rest = rest
        self._inside: set[int] = set()
        self._broken: list[int] = []
        self._drained = False

    def _decode(self, wanted: list[int], deadline: Deadline) -> Iterator[tuple[int, Developer | VideoError]]:
        if self._container is None:
            raise ValueError("the reader is closed")
        ordinals = self._index.ordinals
        missing = {int(ordinals[index]): index for index in wanted}
        nearest = [self._entries(index) for index in wanted]
        for place, index in enumerate(wanted):
            ordinal = int(ordinals[index])
            entries = nearest[place]
            if ordinal in missing and self._is_damaged(index, self._known_broken):
                del missing[ordinal]
                yield index, self._damaged(index)
            # Nothing after this frame is wanted that decoding on would give, or what would is decoded again for free.
            if place + 1 < len(wanted):
                last = self._whole_packets and nearest[place + 1][0] > ordinal + _WORTH_A_JUMP
            else:
                last = self._whole_packets and ordinal == entries[0]
            try:
                if ordinal in missing and self._can_decode_on(ordinal, entries[0]):
                    yield from self._decode_until(ordinal, missing, deadline, last)
                for entry in entries:
                    if ordinal in missing:
                        self._go_to(entry, deadline)
                        yield from self._decode_until(ordinal, missing, deadline, last)
            except _LostTrack:
                self._seekable = False
                self._go_to(entries[-1], deadline)
                yield from self._decode_until(ordinal, missing, deadline)
            if ordinal in missing:
                del missing[ordinal]
                yield index, self._damaged(index)

    def _entries(self, index: int) -> list[int]:
        """Packets from which decoding gives the frame, the closest first; a few, as keyframe flags can be wrong."""
        place = int(np.searchsorted(self._index.keyframes, self._index.ordinals[index], side="right")) - 1
        entries: list[int] = []
        while place >= 0 and len(entries) < _SEEK_TRIES:
            if self._index.key_ranks[place] <= index:
                entries.append(int(self._index.keyframes[place]))
            place -= 1
        return entries or [0]

    def _can_decode_on(self, ordinal: int, entry: int) -> bool:
        """Whether a packet's frame will come without a jump to ``entry``, from which it could be decoded too."""
        if self._drained:
            return False
        return ordinal in self._inside or self._run_start <= entry <= self._next <= ordinal

    def _decode_until(
        self, ordinal: int, missing: dict[int, int], deadline: Deadline, last: bool = False
    ) -> Iterator[tuple[int, Developer | VideoError]]:
        """Decode on until a packet's frame is out, or can't come any more."""
        while ordinal in missing and not self._drained and self._next <= ordinal + _REORDER_LIMIT:
            deadline.check()
            found: list[tuple[int, Developer | VideoError]] = []
            for frame in self._step(skip=self._can_skip and self._next + _SKIP_MARGIN < ordinal):
                assert frame.pts is not None
                self._inside.discard(frame.pts)
                index = missing.pop(frame.pts, None)
                if index is None:
                    continue
                damaged = frame.is_corrupt or self._is_damaged(index, self._broken)
                found.append((index, self._damaged(index) if damaged else self._developer(frame)))
            yield from found
            if last and self._next > ordinal:
                self._rest = iter(())
            if ordinal in missing and ordinal in self._broken:
                index = missing.pop(ordinal)
                yield index, self._damaged(index)

    def _step(self, skip: bool) -> list[av.VideoFrame]:
        """Send one packet, or the end, to the decoder; with ``skip`` it may leave out frames no other one leans on."""
        try:
            packet = self._first or next(self._rest, None)
            self._first = None
            if packet is None or is_end(packet) or self._next >= self._index.stamps.size:
                self._drained = True
                return list(self._stream.codec_context.decode(None))
        except av.FFmpegError as error:
            self._check(error)
            self._drained = True
            return []
        ordinal = self._next
        stamp = self._stamp(packet)
        if stamp != self._index.stamps[ordinal]:
            raise _LostTrack
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
        """Pass on what is no fault of the video's."""
        if says_nothing_of_the_video(self._path, error):
            raise_video_error(self._path, error)

    def _is_damaged(self, index: int, broken: Collection[int]) -> bool:
        """Whether a packet that the frame may lean on is among those that did not decode."""
        if not broken:
            return False
        entry, ordinal = self._entries(index)[0], int(self._index.ordinals[index])
        return any(entry <= place <= ordinal for place in broken)

    def _go_to(self, entry: int, deadline: Deadline) -> None:
        """Make ``entry`` the next packet to decode, with a decoder that remembers nothing."""
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
        """Times to seek to, best first: some formats seek by pts, some by dts, some land late."""
        place = int(np.searchsorted(self._index.keyframes, entry, side="right")) - 1
        stamps: list[int] = []
        for key in range(place, max(-1, place - _SEEK_TRIES), -1):
            for stamp in (int(self._index.key_pts[key]), int(self._index.key_dts[key])):
                if stamp != NO_STAMP and stamp not in stamps:
                    stamps.append(stamp)
        return stamps

    def _land(self, entry: int, ordinal: int | None, deadline: Deadline) -> bool:
        """Read packets without decoding them up to ``entry``; False when that packet is behind or not to be found."""
        assert self._container is not None
        rest = self._container.demux(self._stream)
        unknown = 0
        for packet in rest:
            deadline.check()
            if is_end(packet):
                return False
            stamp = self._stamp(packet)
            if ordinal is None:
                places = np.flatnonzero(self._index.stamps == stamp)
                if places.size != 1:
                    unknown += 1
                    if unknown > _UNKNOWN_PACKETS_LIMIT:
                        return False
                    continue
                ordinal = int(places[0])
            elif ordinal >= self._index.stamps.size or stamp != self._index.stamps[ordinal]:
                return False
            if ordinal > entry:
                return False
            if ordinal == entry:
                self._begin(entry, packet, rest)
                return True
            ordinal += 1
        return False

    def _stamp(self, packet: av.Packet) -> int:
        stamp = packet.pts if self._index.stamp_is_pts else packet.dts
        return NO_STAMP if stamp is None else stamp

    def _developer(self, frame: av.VideoFrame) -> Developer:
        info, turn = self.info, self._index.turn
        # A stream may change its size midway; the caller is promised one.
        width, height = (info.height, info.width) if turn[0] else (info.width, info.height)
        return partial(_develop, frame, width, height, turn)

    def _damaged(self, index: int) -> VideoError:
        return VideoError(
            self._path,
            "corrupt",
            f"frame {index} at {self.timestamps[index]:.3f} s cannot be decoded; use other frames or replace the file",
        )


def _develop(frame: av.VideoFrame, width: int, height: int, turn: Turn) -> np.ndarray:
    return _displayed(frame.to_ndarray(format="rgb24", width=width, height=height, **_ONE_THREAD), turn)


def _displayed(picture: np.ndarray, turn: Turn) -> np.ndarray:
    """Turn a stored picture upright."""
    transpose, mirror_columns, mirror_rows = turn
    if transpose:
        picture = picture.transpose(1, 0, 2)
    if mirror_columns:
        picture = picture[:, ::-1]
    if mirror_rows:
        picture = picture[::-1]
    return np.ascontiguousarray(picture)
