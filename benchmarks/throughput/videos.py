"""Videos to time decoders with: any codec, height and length, made in seconds and kept.

A short moving scene is encoded once and its packets are written again and again, so that two hours take no longer to
make than to copy. Each repetition begins with a keyframe that starts again, as the cuts of a real film do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal, get_args

import av
import numpy as np
from av.video.stream import VideoStream

logger = logging.getLogger(__name__)

Codec = Literal["h264", "hevc", "av1"]
CODECS: tuple[Codec, ...] = get_args(Codec)
FPS = 25
KEYFRAMES = 250
"""Frames from one keyframe to the next: 10 seconds, what x264 does unless told otherwise."""
SCENE_FRAMES = 2 * KEYFRAMES

_ENCODERS: dict[Codec, tuple[str, dict[str, str]]] = {
    "h264": ("libx264", {"preset": "superfast", "bf": "3", "sc_threshold": "0"}),
    "hevc": ("libx265", {"preset": "ultrafast", "x265-params": f"log-level=none:keyint={KEYFRAMES}:open-gop=0"}),
    "av1": ("libsvtav1", {"preset": "12", "svtav1-params": f"keyint={KEYFRAMES}:irefresh-type=2"}),
}
_BITS_PER_PIXEL = 0.05
"""Per pixel and frame: 0.3 Mbit/s at 360p, 2.6 Mbit/s at 1080p."""


@dataclass(frozen=True)
class VideoSpec:
    """One video."""

    codec: Codec  # its codec
    height: int  # in pixels; the width is 16/9 of it
    minutes: float  # how long it lasts

    @property
    def width(self) -> int:
        """In pixels, even."""
        return round(self.height * 16 / 9 / 2) * 2

    @property
    def name(self) -> str:
        """Short, for tables and files."""
        return f"{self.codec}-{self.height}p-{self.minutes:g}min"

    @property
    def scenes(self) -> int:
        """Repetitions of the scene."""
        return max(1, round(self.minutes * 60 * FPS / SCENE_FRAMES))


def make_video(spec: VideoSpec, folder: Path) -> Path:
    """Make a video in a folder unless it is there; return its file."""
    path = folder / f"{spec.name}.mp4"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        scene = folder / f"scene-{spec.codec}-{spec.height}p.mp4"
        if not scene.exists():
            logger.info("encoding %s", scene.name)
            _encode(spec, _beside(scene))
            os.replace(_beside(scene), scene)
        _repeat(scene, spec.scenes, _beside(path))
        os.replace(_beside(path), path)
    return path


def _beside(path: Path) -> Path:
    return path.with_name(f"part-{path.name}")


def _encode(spec: VideoSpec, path: Path) -> None:
    name, options = _ENCODERS[spec.codec]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(name, rate=FPS, options=options)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = spec.width, spec.height, "yuv420p"
        stream.gop_size = KEYFRAMES
        stream.bit_rate = round(_BITS_PER_PIXEL * spec.width * spec.height * FPS)
        for picture in _scene(spec.width, spec.height):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))


def _scene(width: int, height: int) -> Iterator[np.ndarray]:
    """A textured background that pans, before which things move at different speeds."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(40, 216, (height // 8 + 1, width // 4 + 1, 3), dtype=np.uint8)
    texture = coarse.repeat(8, axis=0).repeat(8, axis=1)[:height]
    grain = rng.integers(0, 12, texture.shape, dtype=np.uint8)
    texture = texture + grain
    side = height // 6
    for number in range(SCENE_FRAMES):
        shift = round((texture.shape[1] - width) * (0.5 - 0.5 * np.cos(np.pi * number / SCENE_FRAMES)))
        picture = texture[:, shift : shift + width].copy()
        for thing in range(6):
            x = int((number * (thing + 1) * width / 400 + thing * side) % (width - side))
            y = int((thing * side + number * (6 - thing) * height / 900) % (height - side))
            picture[y : y + side, x : x + side] = texture[y : y + side, :side][:, ::-1] // 2 + thing * 20
        yield picture


def _repeat(scene: Path, count: int, path: Path) -> None:
    """Write a file that shows another one ``count`` times."""
    with av.open(str(scene)) as source, av.open(str(path), "w", format="mp4") as target:
        template = source.streams.video[0]
        stream = target.add_stream_from_template(template, opaque=True)
        assert template.time_base is not None
        length = int(Fraction(SCENE_FRAMES, FPS) / template.time_base)
        packets = [
            (bytes(packet), packet.pts, packet.dts, packet.duration, packet.is_keyframe)
            for packet in source.demux(template)
            if packet.size
        ]
        for turn in range(count):
            for data, pts, dts, duration, keyframe in packets:
                assert pts is not None and dts is not None
                packet = av.Packet(data)
                packet.stream, packet.time_base = stream, template.time_base
                packet.pts, packet.dts, packet.duration = pts + turn * length, dts + turn * length, duration
                packet.is_keyframe = keyframe
                target.mux(packet)
