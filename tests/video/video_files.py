"""Small videos whose frames carry their number as a pattern of blocks, so that a wrong frame is obvious."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.open import open_video

CELL = 16
WIDTH, HEIGHT = 8 * CELL, 4 * CELL
FPS = 25


def picture(number: int) -> np.ndarray:
    """Row 0: the number's bits, row 1: their inverse, row 2: something that moves, row 3: which way is up."""
    image = np.full((HEIGHT, WIDTH, 3), 60, dtype=np.uint8)
    for bit in range(8):
        value = 235 if number >> bit & 1 else 20
        columns = slice(bit * CELL, (bit + 1) * CELL)
        image[:CELL, columns] = value
        image[CELL : 2 * CELL, columns] = 255 - value
    image[2 * CELL : 3 * CELL] = ((np.arange(WIDTH) * 5 + number * 11) % 200)[None, :, None]
    image[3 * CELL :, :CELL] = (250, 20, 20)
    return image


def number_in(image: np.ndarray) -> int:
    """Read the number back; fails on a picture that is damaged or turned."""
    assert image.dtype == np.uint8 and image.shape == (HEIGHT, WIDTH, 3)
    cells = image.mean(axis=2).reshape(4, CELL, 8, CELL)[:, 4:12, :, 4:12].mean(axis=(1, 3))
    bits = cells[0] > 128
    assert ((cells[1] > 128) == ~bits).all() and (np.abs(cells[0] - cells[1]) > 100).all(), "damaged picture"
    red, green, _ = image[3 * CELL + 4 : -4, 4 : CELL - 4].mean(axis=(0, 1))
    assert red > 150 and green < 100, "turned picture"
    return sum(1 << bit for bit in range(8) if bits[bit])


@dataclass(frozen=True)
class Spec:
    """How to make one file; ``last`` is how long its last frame is shown, in frames, where it isn't as others are."""

    suffix: str
    codec: str
    options: dict[str, str] = field(default_factory=dict)
    count: int = 60
    pixel_format: str = "yuv420p"
    rotation: int = 0
    pts: Callable[[int], int] = lambda number: number
    rate: int = FPS
    shift: int = 0
    muxing: dict[str, str] = field(default_factory=dict)
    container: str | None = None
    audio: bool = False
    audio_start: float = 0.0
    last: int = 0


X264 = {"preset": "veryfast", "bf": "3", "g": "12"}
SPECS = {
    "h264_b_frames": Spec("mp4", "libx264", X264),
    "h264_long_gop": Spec("mp4", "libx264", {**X264, "g": "250", "sc_threshold": "0"}, count=120),
    "h264_open_gop": Spec("mkv", "libx264", {**X264, "x264-params": "open-gop=1:keyint=12:scenecut=0"}),
    "h264_intra_refresh": Spec("mp4", "libx264", {"preset": "veryfast", "g": "15", "x264-params": "intra-refresh=1"}),
    "h264_10_bit": Spec("mp4", "libx264", X264, pixel_format="yuv420p10le"),
    "h264_ts": Spec("ts", "libx264", X264),
    "h264_fragmented": Spec("mp4", "libx264", X264, muxing={"movflags": "frag_keyframe+empty_moov"}),
    "h264_raw": Spec("h264", "libx264", X264, count=40),
    "hevc": Spec("mp4", "libx265", {"preset": "ultrafast", "x265-params": "log-level=none:keyint=12:bframes=3"}),
    "hevc_10_bit_ts": Spec(
        "ts", "libx265", {"preset": "ultrafast", "x265-params": "log-level=none:keyint=12"}, pixel_format="yuv420p10le"
    ),
    "vp8": Spec("webm", "libvpx", {"g": "20", "b": "400k"}),
    "vp9": Spec(
        "webm", "libvpx-vp9", {"auto-alt-ref": "1", "lag-in-frames": "12", "g": "20", "b": "400k", "cpu-used": "8"}
    ),
    "av1": Spec("mkv", "libsvtav1", {"preset": "12", "g": "20", "svtav1-params": "lp=1"}),
    "mpeg4_avi": Spec("avi", "mpeg4", {"bf": "2", "g": "12", "b": "800k"}),
    "mpeg2_ps": Spec("mpg", "mpeg2video", {"bf": "2", "g": "12", "b": "1500k"}),
    "variable_rate": Spec("mp4", "libx264", X264, rate=1000, pts=lambda n: n * 40 + (n * n % 7) * 5 + (n > 30) * 2000),
    "variable_rate_mkv": Spec("mkv", "libx264", X264, rate=1000, pts=lambda n: n * 33 + (n * n % 7) * 4),
    "late_start": Spec("mkv", "libx264", X264, shift=50),
    "late_start_mp4": Spec("mp4", "libx264", X264, shift=50),
    "edit_list": Spec("mp4", "libx264", X264, shift=-17),
    "rotated_90": Spec("mp4", "libx264", X264, rotation=90),
    "rotated_180": Spec("mp4", "libx264", X264, rotation=180),
    "rotated_270": Spec("mkv", "libx264", X264, rotation=270),
    "with_audio": Spec("mp4", "libx264", X264, audio=True),
    "long_last_frame": Spec("mp4", "libx264", {**X264, "bf": "0"}, last=100),
    "long_last_frame_mkv": Spec("mkv", "libx264", X264, rate=30, last=100),
    "one_frame": Spec("mp4", "libx264", X264, count=1),
}


def make(path: Path, spec: Spec) -> Path:
    with av.open(str(path), "w", format=spec.container, options=spec.muxing) as container:
        stream = container.add_stream(spec.codec, rate=spec.rate, options={"threads": "1", **spec.options})
        turns = spec.rotation // 90
        stream.width, stream.height = (HEIGHT, WIDTH) if turns % 2 else (WIDTH, HEIGHT)
        stream.pix_fmt = spec.pixel_format
        if spec.rotation:
            stream.set_display_rotation(spec.rotation)
        sound = container.add_stream("aac", rate=44100) if spec.audio else None
        packets = []
        for number in range(spec.count):
            stored = np.ascontiguousarray(np.rot90(picture(number), -turns))
            frame = av.VideoFrame.from_ndarray(stored, format="rgb24")
            frame.pts = spec.pts(number)
            packets += stream.encode(frame)
        packets += stream.encode(None)
        if spec.last:
            final = max(packets, key=lambda packet: packet.pts)
            final.duration = int(spec.last / spec.rate / final.time_base)
        for packet in packets:
            packet.pts += spec.shift
            packet.dts += spec.shift
            container.mux(packet)
        if sound is not None:
            samples = av.AudioFrame.from_ndarray(np.zeros((1, 44100), dtype=np.float32), format="fltp", layout="mono")
            samples.sample_rate, samples.pts = 44100, int(44100 * spec.audio_start)
            samples.time_base = Fraction(1, 44100)
            for packet in [*sound.encode(samples), *sound.encode(None)]:
                container.mux(packet)
    return path


def remux(source: str, target: Path, change: Callable[[int, bytearray], None]) -> Path:
    """Copy a video's packets into another file of the same format.

    Args:
        source: A file with one video stream.
        target: The copy.
        change: Is given each packet's place in the file and its data, to change in place.
    """
    with av.open(source) as original, av.open(str(target), "w") as container:
        stream = container.add_stream_from_template(original.streams.video[0])
        for number, packet in enumerate(original.demux(video=0)):
            if packet.size == 0:
                continue
            data = bytearray(bytes(packet))
            change(number, data)
            copy = av.Packet(bytes(data))
            copy.stream, copy.pts, copy.dts, copy.time_base = stream, packet.pts, packet.dts, packet.time_base
            copy.is_keyframe = packet.is_keyframe
            container.mux(copy)
    return target


@dataclass(frozen=True)
class Truth:
    """A full sequential decode, done without the code under test."""

    images: list[np.ndarray]
    times: list[float]


def sequential(path: str, rotation: int = 0, stream: int | None = None) -> Truth:
    with av.open(path) as container:
        source = container.streams.best("video") if stream is None else container.streams[stream]
        frames = [(f.pts, np.rot90(f.to_ndarray(format="rgb24"), rotation // 90)) for f in container.decode(source)]
        base = source.time_base
    first = frames[0][0]
    times = [
        float((pts - first) * base) if pts is not None and first is not None else float("nan") for pts, _ in frames
    ]
    return Truth([image for _, image in frames], times)


def shuffled(count: int, seed: int = 0) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def reason_of(path: Path) -> str:
    with pytest.raises(VideoError) as caught, open_video(path):
        pass
    assert caught.value.path == str(path) and str(path) in str(caught.value) and caught.value.message
    return caught.value.reason
