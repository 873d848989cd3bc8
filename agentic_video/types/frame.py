"""Frames as they flow through the package: with their pixels, and as references without."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from agentic_video.types.plain import as_float, as_int

MAX_PICTURE_BYTES = 2 * 2**20
"""Of the PNG file of a picture that a tool made; a larger one isn't recorded."""


_MOST_PIXEL_BYTES = 32 * MAX_PICTURE_BYTES
"""Of a picture that is made a PNG file at all."""


@dataclass(frozen=True)
class Origin:
    """Where a frame store finds a frame again, or decodes it again to the same bytes.

    Attributes:
        video: Video file.
        index: The frame's position in presentation order.
        size: (width, height) in pixels that was asked for; None for the video's own.
    """

    video: str
    index: int
    size: tuple[int, int] | None


@dataclass(frozen=True)
class Crop:
    """Where in a frame a tool cut a picture out.

    Attributes:
        box: Left, top, right and bottom edge in pixels of the frame, right and bottom not included.
        frame_width: Of the frame as it was cut, in pixels.
        frame_height: Likewise.
    """

    box: tuple[int, int, int, int]
    frame_width: int
    frame_height: int


@dataclass(frozen=True, eq=False)
class Frame:
    """One picture of a video.

    Attributes:
        index: Position in presentation order, 0 for the first frame.
        time: Real presentation time in seconds from the file's start.
        image: RGB uint8 array of shape (height, width, 3).
        origin: Where a store finds it again; None for a picture that a tool made. It isn't passed on by
            ``dataclasses.replace``, so that a picture with other pixels never goes by it.
        crop: Where a tool cut it out of the frame; None for a whole one, and for other pictures that tools make. It
            isn't passed on either.

    Raises:
        TypeError: The index is no whole number, or the time no number. Those of numpy are, and become plain ones.
        ValueError: The index is below 0.
    """

    index: int
    time: float
    image: np.ndarray
    origin: Origin | None = field(default=None, init=False)
    crop: Crop | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if type(self.index) is not int:
            object.__setattr__(self, "index", as_int(self.index, "Frame.index"))
        if type(self.time) not in (float, int):
            object.__setattr__(self, "time", as_float(self.time, "Frame.time"))
        if self.index < 0:
            raise ValueError(f"Frame.index must be 0 or above, got {self.index}")

    @classmethod
    def cropped(cls, index: int, time: float, image: np.ndarray, crop: Crop) -> Frame:
        """A picture that was cut out of a frame (:func:`agentic_video.video.sizes.crop`)."""
        frame = cls(index, time, image)
        object.__setattr__(frame, "crop", crop)
        return frame

    @classmethod
    def stored(cls, index: int, time: float, image: np.ndarray, origin: Origin, key: str) -> Frame:
        """A frame that a store has, with the key that it computed when it decoded it."""
        frame = cls(index, time, image)
        object.__setattr__(frame, "origin", origin)
        frame.__dict__["key"] = key  # where the cached property looks first
        return frame

    @property
    def width(self) -> int:
        """Width in pixels."""
        return int(self.image.shape[1])

    @property
    def height(self) -> int:
        """Height in pixels."""
        return int(self.image.shape[0])

    @cached_property
    def key(self) -> str:
        """See :func:`image_key`; a stored frame's is at hand."""
        return image_key(self.image)

    @property
    def has_key(self) -> bool:
        """Whether its key is at hand: computing one takes up to a millisecond a megabyte."""
        return "key" in self.__dict__


@dataclass(frozen=True)
class FrameRef:
    """A shown frame without its pixels: number in the video, time in seconds, shown size in pixels.

    Attributes:
        crop: Where it was cut out of the frame; None for a whole frame.
        made: Key (:func:`image_key`) of a picture that no video gives again, as a tool made it; empty for others.
        picture: Such a picture as a PNG file; None where it wasn't recorded.
    """

    index: int
    time: float
    width: int
    height: int
    crop: Crop | None = None
    made: str = ""
    picture: bytes | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, frame: Frame, video: str = "") -> FrameRef:
        """The reference of a frame; of a picture that a tool made, its content.

        Args:
            video: The episode's video: a frame of another one can't be found again by its number. Empty for any.
        """
        ref = cls(frame.index, frame.time, frame.width, frame.height, frame.crop)
        foreign = frame.origin is not None and video and frame.origin.video != video
        if frame.crop is not None or (frame.origin is not None and not foreign):
            return ref
        return replace(ref, made=frame.key, picture=_png(frame.image))

    @property
    def unrecorded(self) -> bool:
        """True if the pixels that were shown are lost."""
        return bool(self.made) and self.picture is None

    def recorded(self) -> np.ndarray:
        """A made picture's pixels, as an RGB uint8 array of shape (height, width, 3).

        Raises:
            ValueError: It wasn't recorded, or the file is damaged.
        """
        from PIL import Image, UnidentifiedImageError

        if self.picture is None:
            raise ValueError("the picture wasn't recorded")
        try:
            with Image.open(io.BytesIO(self.picture), formats=("PNG",)) as file:
                if file.size != (self.width, self.height):  # before its pixels take memory
                    raise ValueError(f"the picture has {file.size} pixels, not {(self.width, self.height)}")
                image = np.array(file.convert("RGB"))
        except (OSError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise ValueError(f"the picture can't be read: {error}") from error
        if image_key(image) != self.made:
            raise ValueError("the picture isn't the one that was shown")
        return image


def _png(image: np.ndarray) -> bytes | None:
    """A picture as a PNG file; None where it would be too large for a record."""
    from PIL import Image

    if image.nbytes > _MOST_PIXEL_BYTES:
        return None
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue() if buffer.tell() <= MAX_PICTURE_BYTES else None


@dataclass(frozen=True)
class ImageRef:
    """An image that travels between processes by its key.

    Attributes:
        key: See :func:`image_key`.
        width: In pixels.
        height: In pixels.
        origin: Where a store finds it; None for a picture that a tool made.
        node: Id of the Ray node whose store has it; empty where that doesn't matter.
        image: Its pixels as an RGB uint8 array of shape (height, width, 3), where they travel with it.
    """

    key: str
    width: int
    height: int
    origin: Origin | None = None
    node: str = ""
    image: np.ndarray | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, frame: Frame, node: str = "") -> ImageRef:
        """The reference of a frame: with its pixels only if a store can't find it."""
        image = frame.image if frame.origin is None else None
        return cls(frame.key, frame.width, frame.height, frame.origin, node, image)

    def bare(self) -> ImageRef:
        """Itself without pixels."""
        return replace(self, image=None)


class Sized(Protocol):
    """A frame, or what stands for one."""

    @property
    def width(self) -> int:
        """In pixels."""
        ...

    @property
    def height(self) -> int:
        """In pixels."""
        ...


class OneSize:
    """What is made of frames of one size."""

    frames: tuple[Sized, ...]

    @property
    def width(self) -> int:
        """Width of each frame in pixels."""
        return self.frames[0].width

    @property
    def height(self) -> int:
        """Height of each frame in pixels."""
        return self.frames[0].height


@dataclass(frozen=True, eq=False)
class Clip(OneSize):
    """Frames that the model takes as one video: it merges them two by two, so they cost half the tokens.

    Attributes:
        frames: At least two, of one size, in order of time.
    """

    frames: tuple[Frame, ...]

    def __post_init__(self) -> None:
        if len(self.frames) < 2:
            raise ValueError(f"a clip has at least 2 frames, got {len(self.frames)}: a single one is an image")
        if len({frame.image.shape for frame in self.frames}) > 1:
            raise ValueError("the frames of a clip must be of one size")
        if any(late.time < early.time for early, late in zip(self.frames, self.frames[1:], strict=False)):
            raise ValueError("the frames of a clip must be in order of time")

    @property
    def times(self) -> tuple[float, ...]:
        """The frames' times in seconds, which a model is told."""
        return tuple(frame.time for frame in self.frames)

    @cached_property
    def key(self) -> str:
        """See :func:`clip_key`."""
        return clip_key([frame.key for frame in self.frames], self.times)

    @property
    def has_key(self) -> bool:
        """Whether the keys of its frames are at hand."""
        return all(frame.has_key for frame in self.frames)


@dataclass(frozen=True)
class ClipRef(OneSize):
    """A shown clip without its pixels.

    Attributes:
        frames: Of one size, in order of time.
    """

    frames: tuple[FrameRef, ...]

    @property
    def times(self) -> tuple[float, ...]:
        """The frames' times in seconds."""
        return tuple(frame.time for frame in self.frames)


@dataclass(frozen=True)
class VideoRef(OneSize):
    """A clip that travels between processes by its key.

    Attributes:
        key: See :func:`clip_key`.
        frames: Of its frames.
        times: Their times in seconds.
    """

    key: str
    frames: tuple[ImageRef, ...]
    times: tuple[float, ...]

    @classmethod
    def of(cls, clip: Clip, node: str = "") -> VideoRef:
        """The reference of a clip: frames with their pixels only if a store can't find them."""
        frames = tuple(ImageRef.of(frame, node if frame.origin else "") for frame in clip.frames)
        return cls(clip.key, frames, clip.times)


def is_picture(image: object) -> bool:
    """Whether it is what :attr:`Frame.image` must be; pixels aren't looked at."""
    if not isinstance(image, np.ndarray) or image.dtype != _UINT8:
        return False
    return image.ndim == 3 and image.shape[2] == 3 and image.size > 0


_UINT8 = np.dtype(np.uint8)


def clip_key(keys: Sequence[str], times: Sequence[float]) -> str:
    """Equal for equal frames at equal times only.

    Args:
        keys: Of the frames.
        times: Of the frames, in seconds.
    """
    return hashlib.blake2b(repr((tuple(keys), tuple(map(float, times)))).encode(), digest_size=16).hexdigest()


def image_key(image: np.ndarray) -> str:
    """Equal for equal images only.

    Args:
        image: uint8 array of shape (height, width, 3).
    """
    # Processors have instructions for SHA-256: a third of BLAKE2's time.
    digest = hashlib.sha256(repr(image.shape).encode())
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()[:32]
