"""How large a video may be: what a file claims must not take a machine's memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import av

from agentic_video.video.deadline import Deadline

MAX_SIDE = 16384
"""Longest side in pixels that is decoded."""

MAX_SECONDS = 10 * 86_400.0
"""Longest duration. Whoever looks at a video at a rate has so many times to think of."""

_LEAST_PIXELS = 2**21
"""A stream may grow to this many pixels midway: broadcasts change their size."""

_PICTURES = {"h264": 17, "hevc": 17, "vvc": 17, "vp9": 12, "av1": 12, "vp8": 6}
"""Pictures that a codec's decoder holds at most, the one that is decoded included."""

_OTHER_PICTURES = 4

_MOTION_BYTES = 0.75
"""Of each pixel of a picture: vectors and kinds of its blocks, which the pictures after it lean on."""

_RGB_BYTES = 3
_RESIZING_BYTES = 7
"""Of each pixel of a picture while it is turned and resized: copies of three and four bytes."""

NEGATIVES = 8
"""Decoded pictures of one decoder that wait to become RGB; each holds memory of the decoder's."""

PACKET_BYTES = 256
"""Memory of a packet while a file is indexed: FFmpeg's tables of an MP4 and ours."""

Hold = Callable[[int, Deadline], AbstractContextManager[None]]
"""Sets bytes of memory aside while something is done; waiting for them doesn't count towards the deadline."""


@dataclass(frozen=True)
class Limits:
    """Bounds of one video.

    Attributes:
        pixels: Most pixels of a picture.
        packets: Most packets of the stream.
        memory: Most bytes that a decoder may need; None for no bound.
    """

    pixels: int = 2**26
    packets: int = 2**22
    memory: int | None = None


USUAL = Limits()
"""Those of a reader that stands alone."""


def unheld(nbytes: int, deadline: Deadline) -> AbstractContextManager[None]:
    """Sets nothing aside."""
    return nullcontext()


def coded_pixels(width: int, height: int) -> int:
    """Pixels that a decoder of pictures of this size may be let have: whole blocks, and room to change its size."""
    return max(_LEAST_PIXELS, -(-width // 128) * -(-height // 128) * 128 * 128)


def negatives(pixels: int) -> int:
    """How many decoded pictures may wait to become RGB: fewer of large ones."""
    return max(1, min(NEGATIVES, 2**24 // pixels))


def held_bytes(codec: str, pixel_format: str | None, width: int, height: int) -> int:
    """Memory that a decoder of pictures of a size holds at most between two of them.

    Args:
        codec: FFmpeg's name of it.
        pixel_format: Stored pixel format; None where it isn't known.
        width: Stored width in pixels.
        height: Stored height in pixels.
    """
    pictures = _PICTURES.get(codec, _OTHER_PICTURES)
    return int(coded_pixels(width, height) * _pixel_bytes(pixel_format) * pictures)


def decoder_bytes(codec: str, pixel_format: str | None, width: int, height: int) -> int:
    """Memory that decoding takes at most: what :func:`held_bytes` counts, and the pictures on their way to RGB."""
    pixels = coded_pixels(width, height)
    waiting = negatives(pixels)
    under_way = pixels * (waiting * (_pixel_bytes(pixel_format) + _RGB_BYTES) + _RESIZING_BYTES)
    return held_bytes(codec, pixel_format, width, height) + int(under_way)


def _pixel_bytes(pixel_format: str | None) -> float:
    bits = av.VideoFormat(pixel_format).padded_bits_per_pixel if pixel_format else 64
    return bits / 8 + _MOTION_BYTES
