"""Opening a video file with FFmpeg: its container, its video stream, that stream's decoder."""

import av
import av.error
from av.container import InputContainer
from av.video.stream import VideoStream

from agentic_video.video.boxes import Boxes, read_boxes
from agentic_video.video.errors import Deadline, VideoError, raise_video_error
from agentic_video.video.limits import MAX_SIDE, Limits, coded_pixels, decoder_bytes
from agentic_video.video.sizes import MAX_ASPECT_RATIO

FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2",
    "matroska,webm",
    *("avi", "mpegts", "mpeg", "mpegvideo", "m4v", "h264", "hevc", "vvc", "av1", "obu", "ivf", "vc1"),
    *("flv", "live_flv", "asf", "ogg", "nut", "mxf", "rm", "yuv4mpegpipe", "gif", "apng", "dv"),
)
"""FFmpeg's names of the readable formats: each holds a video in one file."""

VIDEO_SUFFIXES = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".mpg", ".gif", ".flv", ".ts")
"""Suffixes of video files in a folder."""

_OPTIONS = {"format_whitelist": ",".join(FORMATS), "protocol_whitelist": "file"}


def open_container(path: str, deadline: Deadline) -> InputContainer:
    """Open a file; the caller closes it.

    FFmpeg may read this one file only, in a format that holds videos: playlists, lists of other files and texts that it
    would draw are refused. It stops opening at the deadline, and reading a packet after as much time again.
    """
    try:
        return av.open(path, mode="r", metadata_errors="replace", container_options=_OPTIONS, timeout=deadline.left())
    except (av.FFmpegError, OSError, ValueError, MemoryError) as error:
        if isinstance(error, av.error.ExitError):
            deadline.check()
        if isinstance(error, (av.error.InvalidDataError, av.error.EOFError)) and _lacks_moov(path):
            raise VideoError(
                path,
                "truncated",
                "the MP4 index (moov) is missing: the file is cut off or still being written; copy it again",
            ) from error
        if isinstance(error, av.error.ArgumentError):
            raise VideoError(
                path, "unsupported", f"damaged, or in no format that holds videos ({error}); give an MP4 or MKV file"
            ) from error
        raise_video_error(path, error)


def check_boxes(path: str, limits: Limits) -> Boxes:
    """Read an MP4 file's boxes, and refuse it if they claim too much."""
    try:
        boxes = read_boxes(path)
    except (OSError, ValueError) as error:
        raise_video_error(path, error)
    if boxes.compressed or boxes.endless:
        raise VideoError(
            path, "unsupported", "its MP4 index can't be looked into; remux it: ffmpeg -i it -c copy new.mp4"
        )
    if boxes.samples > limits.packets:
        raise too_many_packets(path, limits)
    return boxes


def too_many_packets(path: str, limits: Limits) -> VideoError:
    """Error of a stream with too many packets."""
    return VideoError(
        path,
        "unsupported",
        f"has more than {limits.packets} packets; cut it into shorter videos, or raise frame_store.max_packets and "
        ".decode_bytes",
    )


def _lacks_moov(path: str) -> bool:
    try:
        boxes = read_boxes(path)
    except (OSError, ValueError):
        return False
    return boxes.typed and not boxes.indexed


_LEAD_IN_SECONDS = 0.1
"""Longest stretch before time 0 that counts as an audio encoder's lead-in, which no player plays."""

_ANOTHER_CLOCK_SECONDS = 3600.0
"""A stream that starts this much earlier than the video has another clock: another program of a broadcast."""


def other_starts(container: InputContainer, number: int) -> list[float]:
    """Start times of the other audio and video streams, in seconds on the file's clock."""
    starts = []
    for stream in container.streams:
        cover = stream.disposition & av.stream.Disposition.attached_pic
        if stream.index == number or stream.type not in ("audio", "video") or cover:
            continue
        if stream.start_time is None or stream.time_base is None:
            continue
        start = float(stream.start_time * stream.time_base)
        starts.append(0.0 if stream.type == "audio" and -_LEAD_IN_SECONDS < start < 0 else start)
    return starts


def file_start(first: float, others: list[float]) -> float:
    """Start of a file's earliest stream in seconds on its own clock; ``first`` is the video's."""
    return min([first, *(start for start in others if first - start < _ANOTHER_CLOCK_SECONDS)])


def pick_stream(path: str, container: InputContainer) -> VideoStream:
    """Pick the stream that FFmpeg itself would play, cover art aside."""
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


def video_stream(path: str, container: InputContainer, number: int, limits: Limits) -> VideoStream:
    """Prepare a stream for decoding by its number in a container opened again."""
    streams = [stream for stream in container.streams.video if stream.index == number]
    if not streams:
        raise VideoError(path, "corrupt", "its streams are not those that it had a moment ago; open it again")
    set_up_decoder(path, streams[0], limits)
    return streams[0]


def set_up_decoder(path: str, stream: VideoStream, limits: Limits) -> None:
    """Check that a stream can be decoded within the limits, and prepare its decoder."""
    context = stream.codec_context
    if context is None or not context.is_decoder:
        raise VideoError(path, "unsupported", "no decoder for the video's codec; re-encode it as H.264")
    check_size(path, context.width, context.height, limits)
    needed = stream_bytes(stream)
    if limits.memory is not None and needed > limits.memory:
        raise VideoError(
            path,
            "unsupported",
            f"decoding {context.width}x{context.height} pixels may take {needed >> 20} MiB; scale the video down "
            "first, or raise frame_store.decode_bytes",
        )
    # One thread: errors then surface at the packet that causes them and cost no neighbouring frame, and a node decodes
    # many videos at once anyway.
    context.thread_count = 1
    context.options = {"max_pixels": str(coded_pixels(context.width, context.height))}


def stream_bytes(stream: VideoStream) -> int:
    """Most memory that decoding a stream takes."""
    context = stream.codec_context
    return decoder_bytes(context.codec.canonical_name, context.pix_fmt, context.width, context.height)


def check_size(path: str, width: int, height: int, limits: Limits) -> None:
    """Refuse pictures that are too large or too elongated."""
    if max(width, height) > MAX_SIDE:
        problem = f"{width}x{height} pixels exceed {MAX_SIDE} a side; scale the video down first"
    elif width * height > limits.pixels:
        problem = (
            f"{width}x{height} pixels are more than {limits.pixels}; scale the video down first, or raise "
            "frame_store.max_pixels"
        )
    elif max(width, height) > MAX_ASPECT_RATIO * max(1, min(width, height)) and width and height:
        problem = f"a picture of {width}x{height} is longer than {MAX_ASPECT_RATIO} times its width; crop it first"
    else:
        return
    raise VideoError(path, "unsupported", problem)
