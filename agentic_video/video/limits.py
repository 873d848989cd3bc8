"""Bounds of one video's size and memory: a file's claims must not exhaust a machine's memory."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import av

from agentic_video.video.errors import Deadline

MAX_SIDE = 16384
"""Longest side in pixels that is decoded."""

MAX_SECONDS = 10 * 86_400.0
"""Longest duration: bounds how many frames a rate can ask for."""

_LEAST_PIXELS = 2**21
"""A stream may grow to this many pixels midway: broadcasts change their size."""

_REFERENCE_PICTURES = {"h264": 17, "hevc": 17, "vvc": 17, "vp9": 12, "av1": 12, "vp8": 6}
"""Most pictures that a codec's decoder holds, the current one included."""
_OTHER_REFERENCE_PICTURES = 4

_MOTION_BYTES = 0.75
_RGB_BYTES = 3
_RESIZING_BYTES = 7
"""Bytes per pixel: motion vectors; an RGB picture; the copies made while turning and resizing it."""

MAX_UNCONVERTED = 8
"""Most decoded pictures of one decoder that wait to become RGB; each holds the decoder's memory."""

DECODED_PIXELS_A_SECOND, OPENED_BYTES_A_SECOND = 2.5e7, 1e7
"""What the slowest decoder of a busy node surely does: a fortieth of what one does alone with HEVC
(docs/performance.md), and a network disk that many read. Requests get that much time beyond
``frame_store.time_limit``, ..."""
MOST_TIMES_LIMIT = 20
"""... but no more than so many times that limit: a video may claim any number of packets."""

PACKET_BYTES = 256
"""Memory of a packet while a file is indexed: FFmpeg's tables of an MP4 and ours."""

Hold = Callable[[int, Deadline], AbstractContextManager[None]]
"""Reserves bytes of memory during a step; waiting for them doesn't count towards the deadline."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one video."""

    pixels: int = 2**26
    packets: int = 2**22
    memory: int | None = None
    """Most bytes that a decoder may need; None for no bound."""


DEFAULT_LIMITS = Limits()


def no_hold(nbytes: int, deadline: Deadline) -> AbstractContextManager[None]:
    """Reserve nothing."""
    return nullcontext()


def coded_pixels(width: int, height: int) -> int:
    """Pixels a decoder may allocate per picture: whole blocks, with room to change its size."""
    return max(_LEAST_PIXELS, -(-width // 128) * -(-height // 128) * 128 * 128)


def max_unconverted(pixels: int) -> int:
    """Most decoded pictures that may wait to become RGB; fewer of large ones."""
    return max(1, min(MAX_UNCONVERTED, 2**24 // pixels))


def held_bytes(codec: str, pixel_format: str | None, width: int, height: int) -> int:
    """Most memory that an idle decoder holds; ``codec`` is FFmpeg's name, the size as stored."""
    pictures = _REFERENCE_PICTURES.get(codec, _OTHER_REFERENCE_PICTURES)
    return int(coded_pixels(width, height) * _pixel_bytes(pixel_format) * pictures)


def decoder_bytes(codec: str, pixel_format: str | None, width: int, height: int) -> int:
    """Most memory that decoding takes: :func:`held_bytes` and the pictures being converted to RGB."""
    pixels = coded_pixels(width, height)
    converting = pixels * (max_unconverted(pixels) * (_pixel_bytes(pixel_format) + _RGB_BYTES) + _RESIZING_BYTES)
    return held_bytes(codec, pixel_format, width, height) + int(converting)


def _pixel_bytes(pixel_format: str | None) -> float:
    bits = av.VideoFormat(pixel_format).padded_bits_per_pixel if pixel_format else 64
    return bits / 8 + _MOTION_BYTES
