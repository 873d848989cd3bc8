"""Opening a video file with FFmpeg: its container, the one stream that is read, that stream's decoder."""

from __future__ import annotations

import os

import av
import av.error
from av.container import InputContainer
from av.video.stream import VideoStream

from agentic_video.video.errors import VideoError, raise_video_error

MAX_SIDE = 16384
"""Longest side in pixels that is decoded."""


def open_container(path: str) -> InputContainer:
    """Open a file; whoever gets it closes it.

    Raises:
        VideoError: FFmpeg can't read the file, or an MP4 file ends before its index.
    """
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
    """Whether a file is an MP4 without an index, by its top-level boxes."""
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


def pick_stream(path: str, container: InputContainer) -> VideoStream:
    """The stream FFmpeg itself would play, cover art aside.

    Raises:
        VideoError: There is no video stream.
    """
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


def video_stream(path: str, container: InputContainer, number: int) -> VideoStream:
    """A stream that was picked before, ready to be decoded.

    Args:
        path: The file, for the error.
        container: The file, opened once more.
        number: Index of the stream in the container.

    Raises:
        VideoError: See :func:`set_up_decoder`.
    """
    stream = container.streams[number]
    assert isinstance(stream, VideoStream)
    set_up_decoder(path, stream)
    return stream


def set_up_decoder(path: str, stream: VideoStream) -> None:
    """Check that a stream can be decoded, and prepare its decoder.

    Raises:
        VideoError: There is no decoder for it, or its pictures are too large.
    """
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
