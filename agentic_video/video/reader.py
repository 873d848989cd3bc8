"""Frame-accurate reading of video files.

Index `i` always means the i-th frame in presentation order of a full sequential decode. Times are the file's real
presentation times in seconds, counted from the first frame, which is therefore at 0; where the file's own clock puts
that frame is `VideoInfo.start_time`.

Damage: a frame that is missing, or that leans on a packet which does not decode, raises VideoError and keeps its index.
Bits that are wrong yet decode are beyond this: FFmpeg conceals them, and the concealed picture is returned.

Two backends share the interface. PyAV is exact for every file in the test suite. decord 0.6 brings its own FFmpeg 4 and
is refused (VideoError "unsupported") where it was found wrong, frame by frame:

- open GOPs (H.264, HEVC as x265 makes it by default) and gradual intra refresh: wrong frames after seeking;
- containers other than MP4 and Matroska/WebM: in MPEG-TS it begins at the second keyframe, in AVI and MPEG-PS its times
  are wrong, raw streams do not open;
- edit lists: it shows the frames that the file hides;
- rotation outside MP4: ignored; mirrored pictures: ignored;
- AV1: no decoder.

Beyond these, its frame count, times and picture size must equal those of the demuxed index.
"""

from __future__ import annotations

import errno
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import av
import av.error
import numpy as np
import numpy.typing as npt
from av.container import InputContainer
from av.video.stream import VideoStream

Backend = Literal["pyav", "decord"]
Reason = Literal[
    "missing",
    "unreadable",
    "empty",
    "corrupt",
    "truncated",
    "no_video_stream",
    "no_frames",
    "timeout",
    "out_of_range",
    "unsupported",
]

MAX_SIDE = 16384
"""Longest side in pixels that is decoded."""
_NO_STAMP = np.iinfo(np.int64).min
_CHECKED_FRAMES = 8
_REORDER_LIMIT = 64
_SKIPPING_CODECS = frozenset({"h264"})
"""Codecs that mark the frames no other frame leans on, and whose decoder leaves out just those when told to."""
_SKIP_MARGIN = 32
_SEEK_TRIES = 3
_UNKNOWN_PACKETS_LIMIT = 512


class VideoError(Exception):
    """A video, or a frame of it, that cannot be had.

    Attributes:
        path: The video file.
        reason: What kind of failure it is.
        message: What happened and what to do about it.
    """

    def __init__(self, path: str, reason: Reason, message: str) -> None:
        super().__init__(path, reason, message)
        self.path = path
        self.reason: Reason = reason
        self.message = message

    def bare(self) -> VideoError:
        """A copy without traceback and cause: to keep, to raise again, or to send to another process."""
        return VideoError(self.path, self.reason, self.message)

    def __str__(self) -> str:
        return f"{self.path}: {self.message} [{self.reason}]"


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


class VideoReader(ABC):
    """An open video; a context manager. Not thread-safe."""

    def __init__(self, path: str, index: VideoIndex, time_limit: float | None) -> None:
        self._path = path
        self._index = index
        self._time_limit = time_limit

    @property
    def info(self) -> VideoInfo:
        """Facts about the video."""
        return self._index.info

    @property
    def timestamps(self) -> npt.NDArray[np.float64]:
        """Presentation times in seconds, shape (num_frames,), first frame at 0, read-only."""
        return self._index.timestamps

    @property
    def index(self) -> VideoIndex:
        """The index, to open the same file again without demuxing it."""
        return self._index

    def read(self, indices: Sequence[int]) -> list[np.ndarray]:
        """Decodes frames.

        Args:
            indices: Frame indices in any order; duplicates are allowed.

        Returns:
            RGB uint8 arrays of shape (height, width, 3), one per index in the asked order; duplicates share one array.

        Raises:
            VideoError: "out_of_range" before anything is decoded; "corrupt", "truncated" or "timeout" when a frame
                cannot be had.
        """
        images = dict(self.stream(indices, self._time_limit))
        return [images[int(index)] for index in indices]

    def stream(self, indices: Sequence[int], time_limit: float | None) -> Iterator[tuple[int, np.ndarray]]:
        """Decodes frames one at a time, so that a caller can shrink each before the next one is decoded.

        Args:
            indices: Frame indices in any order.
            time_limit: Seconds for all of them; None for no limit.

        Yields:
            (index, RGB uint8 array (height, width, 3)), each distinct index once, in no promised order.

        Raises:
            VideoError: As `read`.
        """
        wanted = sorted({int(index) for index in indices})
        for index in wanted:
            if not 0 <= index < self.info.num_frames:
                raise VideoError(
                    self._path,
                    "out_of_range",
                    f"frame {index} was asked for but the video has frames 0 to {self.info.num_frames - 1}",
                )
        return self._decode(wanted, _Deadline(self._path, time_limit))

    @abstractmethod
    def _decode(self, wanted: list[int], deadline: _Deadline) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the frames of `wanted` (ascending, distinct, in range)."""

    @abstractmethod
    def close(self) -> None:
        """Releases the file and the decoder; harmless when closed already."""

    def __enter__(self) -> VideoReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_video(
    path: str | os.PathLike[str],
    backend: Backend = "pyav",
    time_limit: float | None = None,
    index: VideoIndex | None = None,
) -> VideoReader:
    """Opens a video; use as a context manager.

    Args:
        path: Video file.
        backend: "pyav" (exact, the default) or "decord".
        time_limit: Seconds that opening, and later each `read`, may take; checked between packets. None: no limit.
        index: The index of an earlier reader of the same unchanged file; saves demuxing it again.

    Returns:
        The open reader.

    Raises:
        VideoError: When the file cannot be read as a video, or takes too long.
        ValueError: On an unknown backend or a time limit that is not positive.
    """
    if backend not in ("pyav", "decord"):
        raise ValueError(f"unknown backend {backend!r}: choose 'pyav' or 'decord'")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit must be positive seconds or None, got {time_limit}")
    name = os.fspath(path)
    deadline = _Deadline(name, time_limit)
    _check_file(name)
    if index is None:
        index = _build_index(name, deadline)
    if backend == "decord":
        return _DecordReader(name, index, time_limit)
    return _PyavReader(name, index, time_limit)


class _Deadline:
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


def _check_file(path: str) -> None:
    try:
        if os.path.isdir(path):
            raise VideoError(path, "unsupported", "is a directory; give a video file")
        if os.path.getsize(path) == 0:
            raise VideoError(path, "empty", "the file has no bytes; copy or download it again")
    except OSError as error:
        raise_video_error(path, error)


def raise_video_error(path: str, error: Exception) -> NoReturn:
    """Raises the VideoError that says what an error of the system or of FFmpeg means for a video."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise VideoError(path, "missing", "no such file; check the path and the video root") from error
    if isinstance(error, PermissionError):
        raise VideoError(path, "unreadable", "permission denied; make the file readable for this user") from error
    if isinstance(error, (av.error.DecoderNotFoundError, av.error.PatchWelcomeError)):
        raise VideoError(
            path, "unsupported", f"FFmpeg cannot decode this file ({error}); re-encode it as H.264"
        ) from error
    if isinstance(error, OSError) and error.errno == errno.EIO:
        raise VideoError(path, "unreadable", f"reading the file failed ({error}); check the disk") from error
    raise VideoError(path, "corrupt", f"not a readable video ({error}); replace or re-encode the file") from error


def _open_container(path: str) -> InputContainer:
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


def _prepare(path: str, container: InputContainer, stream: VideoStream) -> None:
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


def _build_index(path: str, deadline: _Deadline) -> VideoIndex:
    with _open_container(path) as container:
        stream = _pick_stream(path, container)
        _prepare(path, container, stream)
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
    regular = bool((shown_pts != _NO_STAMP).all() and np.unique(shown_pts).size == shown.size)
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


def _demux(container: InputContainer, stream: VideoStream, deadline: _Deadline) -> _Packets:
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
        if _is_end(packet):
            break
        deadline.check()
        pts.append(_NO_STAMP if packet.pts is None else packet.pts)
        dts.append(_NO_STAMP if packet.dts is None else packet.dts)
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


def _decode_start(path: str, number: int, packets: _Packets, deadline: _Deadline) -> _Start:
    """Decodes until the first few frames are out."""
    with _open_container(path) as container:
        stream = container.streams[number]
        assert isinstance(stream, VideoStream)
        _prepare(path, container, stream)
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
        last = _is_end(packet)
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


def _decode_order(path: str, number: int, deadline: _Deadline) -> list[int]:
    """Decodes the whole stream for the order in which packets become frames."""
    order: list[int] = []
    with _open_container(path) as container:
        stream = container.streams[number]
        assert isinstance(stream, VideoStream)
        _prepare(path, container, stream)
        for _, frames, _ in _ordinal_frames(container, stream):
            deadline.check()
            order += [frame.pts for frame in frames if frame.pts is not None and not frame.is_corrupt]
    return list(dict.fromkeys(order))


def _usable(stamps: npt.NDArray[np.int64]) -> bool:
    return bool((stamps != _NO_STAMP).all() and np.unique(stamps).size == stamps.size)


def _irregular_times(packets: _Packets, order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Times of frames whose packets lack sound pts; None when only the frame rate can tell."""
    pts = packets.pts[order]
    if (pts != _NO_STAMP).all() and (np.diff(pts) > 0).all():
        return pts
    dts = np.sort(packets.dts[order])
    if (dts != _NO_STAMP).all() and (np.diff(dts) > 0).all():
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
        rotation=_ROTATIONS.get(start.turn, 0),
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
    if (pts != _NO_STAMP).all() and (np.diff(pts) > 0).all():
        known = packets.pts[keyframes] != _NO_STAMP
        ranks[known] = np.searchsorted(pts, packets.pts[keyframes][known])
    return ranks


def _without_leading_frames(
    keyframes: npt.NDArray[np.int64], key_ranks: npt.NDArray[np.int64], order: npt.NDArray[np.int64]
) -> bool:
    """Whether no frame stored after a keyframe is presented before it."""
    latest = np.maximum.accumulate(order)
    inner = key_ranks > 0
    return bool((latest[key_ranks[inner] - 1] < keyframes[inner]).all())


_ROTATIONS = {
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


def _displayed(picture: np.ndarray, turn: tuple[bool, bool, bool]) -> np.ndarray:
    transpose, mirror_columns, mirror_rows = turn
    if transpose:
        picture = picture.transpose(1, 0, 2)
    if mirror_columns:
        picture = picture[:, ::-1]
    if mirror_rows:
        picture = picture[::-1]
    return np.ascontiguousarray(picture)


class _LostTrack(Exception):
    """The packets after a seek are not those the index promises."""


class _PyavReader(VideoReader):
    """Decodes with PyAV; each packet is given its place in the file as pts, which its frame brings back."""

    def __init__(self, path: str, index: VideoIndex, time_limit: float | None) -> None:
        super().__init__(path, index, time_limit)
        self._container: InputContainer | None = None
        self._seekable = True
        self._can_skip = index.info.codec in _SKIPPING_CODECS
        self._restart()

    def close(self) -> None:
        if self._container is not None:
            self._container.close()
            self._container = None

    def _restart(self) -> None:
        """Opens the file anew: the one way to its first packet that every format supports."""
        self.close()
        container = _open_container(self._path)
        try:
            stream = container.streams[self._index.stream]
            assert isinstance(stream, VideoStream)
            _prepare(self._path, container, stream)
        except BaseException:
            container.close()
            raise
        self._container = container
        self._stream = stream
        self._begin(0, None, container.demux(stream))

    def _begin(self, ordinal: int, first: av.Packet | None, rest: Iterator[av.Packet]) -> None:
        """Starts a run of decoding at a packet; `first` is that packet when it has been read already."""
        self._run_start = self._next = ordinal
        self._first = first
        self._rest = rest
        self._inside: set[int] = set()
        self._broken: list[int] = []
        self._drained = False

    def _decode(self, wanted: list[int], deadline: _Deadline) -> Iterator[tuple[int, np.ndarray]]:
        if self._container is None:
            raise ValueError("the reader is closed")
        ordinals = self._index.ordinals
        missing = {int(ordinals[index]): index for index in wanted}
        for index in wanted:
            ordinal = int(ordinals[index])
            entries = self._entries(index)
            try:
                if ordinal in missing and self._can_decode_on(ordinal, entries[0]):
                    yield from self._decode_until(ordinal, missing, deadline)
                for entry in entries:
                    if ordinal in missing:
                        self._go_to(entry, deadline)
                        yield from self._decode_until(ordinal, missing, deadline)
            except _LostTrack:
                self._seekable = False
                self._go_to(entries[-1], deadline)
                yield from self._decode_until(ordinal, missing, deadline)
            if ordinal in missing:
                self._fail(index)

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
        if self._drained:
            return False
        return ordinal in self._inside or self._run_start <= entry <= self._next <= ordinal

    def _decode_until(
        self, ordinal: int, missing: dict[int, int], deadline: _Deadline
    ) -> Iterator[tuple[int, np.ndarray]]:
        while ordinal in missing and not self._drained and self._next <= ordinal + _REORDER_LIMIT:
            deadline.check()
            found: list[tuple[int, np.ndarray]] = []
            for frame in self._step(skip=self._can_skip and self._next + _SKIP_MARGIN < ordinal):
                assert frame.pts is not None
                self._inside.discard(frame.pts)
                index = missing.pop(frame.pts, None)
                if index is None:
                    continue
                if frame.is_corrupt or self._is_damaged(index):
                    self._fail(index)
                found.append((index, self._picture(frame)))
            yield from found
            if ordinal in missing and ordinal in self._broken:
                self._fail(missing[ordinal])

    def _step(self, skip: bool) -> list[av.VideoFrame]:
        """Sends one packet, or the end, to the decoder; with `skip` it may leave out frames no other one leans on."""
        try:
            packet = self._first or next(self._rest, None)
            self._first = None
            if packet is None or _is_end(packet) or self._next >= self._index.stamps.size:
                self._drained = True
                return list(self._stream.codec_context.decode(None))
        except av.FFmpegError:
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
            self._broken.append(ordinal)
        try:
            return list(self._stream.codec_context.decode(packet))
        except av.FFmpegError:
            self._broken.append(ordinal)
            return []

    def _is_damaged(self, index: int) -> bool:
        """Whether a packet that the frame may lean on did not decode."""
        if not self._broken:
            return False
        entry, ordinal = self._entries(index)[0], int(self._index.ordinals[index])
        return any(entry <= broken <= ordinal for broken in self._broken)

    def _go_to(self, entry: int, deadline: _Deadline) -> None:
        """Makes `entry` the next packet to decode, with a decoder that remembers nothing."""
        if self._seekable:
            for stamp in self._seek_stamps(entry):
                assert self._container is not None
                try:
                    self._container.seek(stamp, stream=self._stream)
                    if self._land(entry, None, deadline):
                        return
                except av.FFmpegError:
                    continue
        self._restart()
        try:
            landed = self._land(entry, 0, deadline)
        except av.FFmpegError:
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
                if stamp != _NO_STAMP and stamp not in stamps:
                    stamps.append(stamp)
        return stamps

    def _land(self, entry: int, ordinal: int | None, deadline: _Deadline) -> bool:
        """Reads packets without decoding them up to `entry`; False when that packet is behind or not to be found.

        `ordinal` is the place of the next packet when it is known.
        """
        assert self._container is not None
        rest = self._container.demux(self._stream)
        unknown = 0
        for packet in rest:
            deadline.check()
            if _is_end(packet):
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
        return _NO_STAMP if stamp is None else stamp

    def _picture(self, frame: av.VideoFrame) -> np.ndarray:
        info, turn = self.info, self._index.turn
        width, height = (info.height, info.width) if turn[0] else (info.width, info.height)
        # A stream may change its size midway; the caller is promised one.
        return _displayed(frame.to_ndarray(format="rgb24", width=width, height=height), turn)

    def _fail(self, index: int) -> NoReturn:
        raise VideoError(
            self._path,
            "corrupt",
            f"frame {index} at {self.timestamps[index]:.3f} s cannot be decoded; use other frames or replace the file",
        )


class _DecordReader(VideoReader):
    """Decodes with decord, once it has been seen to agree with the index."""

    def __init__(self, path: str, index: VideoIndex, time_limit: float | None) -> None:
        super().__init__(path, index, time_limit)
        try:
            import decord
        except ImportError as error:
            raise VideoError(
                path, "unsupported", "the decord backend needs `pip install decord` (x86-64 only); or use 'pyav'"
            ) from error
        objection = _decord_objection(index)
        if objection is not None:
            self._refuse(objection)
        decord.logging.set_level(decord.logging.QUIET)
        try:
            self._video: Any = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
            count = len(self._video)
            spans = np.asarray(self._video.get_frame_timestamp(list(range(count))), dtype=np.float64)
        except Exception as error:
            self._refuse("cannot open it", error)
        if count != index.info.num_frames:
            self._refuse(f"finds {count} frames where the file has {index.info.num_frames}")
        if np.abs(spans[:, 0] - spans[0, 0] - index.timestamps).max() > 1e-3:
            self._refuse("gives other frame times than the file")

    def close(self) -> None:
        self._video = None

    def _decode(self, wanted: list[int], deadline: _Deadline) -> Iterator[tuple[int, np.ndarray]]:
        if self._video is None:
            raise ValueError("the reader is closed")
        for index in wanted:
            deadline.check()
            try:
                picture = self._video[index].asnumpy()
            except Exception as error:
                raise VideoError(
                    self._path, "corrupt", f"decord cannot decode frame {index} ({error}); try the pyav backend"
                ) from error
            if picture.shape != (self.info.height, self.info.width, 3):
                self._refuse(f"gives pictures of shape {picture.shape}")
            yield index, picture

    def _refuse(self, what: str, error: Exception | None = None) -> NoReturn:
        detail = f" ({str(error).splitlines()[-1] if str(error) else type(error).__name__})" if error else ""
        raise VideoError(self._path, "unsupported", f"decord {what}{detail}; use the pyav backend") from error


def _decord_objection(index: VideoIndex) -> str | None:
    """Why decord would return wrong frames of a file without noticing."""
    mp4 = "mp4" in index.container.split(",")
    if not mp4 and "matroska" not in index.container.split(","):
        return f"loses its place in {index.container} files"
    if not index.closed:
        return "gives wrong frames after seeking in a file with open GOPs or gradual refresh"
    if index.turn not in _ROTATIONS or (any(index.turn) and not mp4):
        return "does not turn the pictures of this file upright"
    return None


def _is_end(packet: av.Packet) -> bool:
    """Whether this is the empty packet with which PyAV ends a stream."""
    return packet.size == 0 and packet.pts is None and packet.dts is None
