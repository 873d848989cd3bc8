"""Frames with their pixels, and references without."""

from __future__ import annotations

import hashlib
import io
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Protocol

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from agentic_video.types.plain import as_float, as_int
from agentic_video.types.schema import Int, Natural, Number, Positive
from agentic_video.types.text import short

MAX_PICTURE_BYTES = 2 * 2**20
"""Largest PNG file of a picture that a tool made; a larger one isn't recorded."""


_MOST_PIXEL_BYTES = 32 * MAX_PICTURE_BYTES
"""Largest picture that is converted to PNG at all."""


@dataclass(frozen=True)
class Origin:
    """Address of a frame in a frame store, which decodes it again to the same bytes.

    Attributes:
        index: The frame's position in presentation order.
        size: Requested (width, height) in pixels; None for the video's own.
    """

    video: str
    index: int
    size: tuple[int, int] | None


@dataclass(frozen=True)
class Crop:
    """Region of a frame that a tool cut out.

    Attributes:
        box: Left, top, right and bottom edge in pixels of the frame, right and bottom not included.
        frame_width: In pixels, of the frame as it was cut.
    """

    box: tuple[Int, Int, Int, Int]
    frame_width: Int
    frame_height: Int


@dataclass(frozen=True, eq=False)
class Frame:
    """One picture of a video.

    Attributes:
        index: Position in presentation order, 0 for the first frame.
        time: Real presentation time in seconds from the file's start.
        image: RGB uint8 array of shape (height, width, 3).
        origin: Its address in a store; None for a picture that a tool made. ``dataclasses.replace`` doesn't copy it,
            so that a picture with other pixels never has it.
        crop: Region that a tool cut out; None for a whole frame, and for other pictures of tools. It isn't copied
            either.
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
        """Make a picture that was cut out of a frame (:func:`agentic_video.video.sizes.crop`)."""
        frame = cls(index, time, image)
        object.__setattr__(frame, "crop", crop)
        return frame

    @classmethod
    def stored(cls, index: int, time: float, image: np.ndarray, origin: Origin, key: str) -> Frame:
        """Make a frame of a store, with the key that was computed when it was decoded."""
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
        """See :func:`image_key`; a stored frame has it already."""
        return image_key(self.image)

    @property
    def has_key(self) -> bool:
        """True where the key is known: computing one takes up to a millisecond a megabyte."""
        return "key" in self.__dict__


def _check_crop(crop: Crop) -> Crop:
    left, top, right, bottom = crop.box
    if not (0 <= left < right <= crop.frame_width and 0 <= top < bottom <= crop.frame_height):
        raise ValueError(f"is no region of a frame: {short(crop)}")
    return crop


RecordedCrop = Annotated[Crop, AfterValidator(_check_crop)]


def _absent(value: object) -> bool:
    return not value


def _picture_of(text: object) -> object:
    """The file that a record holds in base64; other values are refused later."""
    try:
        return b64decode(text, validate=True) if isinstance(text, str) else text
    except ValueError:
        return b""


Picture = Annotated[
    bytes,
    BeforeValidator(_picture_of),
    Field(min_length=1, max_length=MAX_PICTURE_BYTES),
    PlainSerializer(lambda file: b64encode(file).decode("ascii")),
]


@dataclass(frozen=True)
class FrameRef:
    """A shown frame without its pixels: number in the video, time in seconds, shown size in pixels.

    Attributes:
        made: Key (:func:`image_key`) of a picture that a tool made, which no video has; empty for others.
        picture: Such a picture as a PNG file; None where it wasn't recorded.
    """

    index: Natural
    time: Number
    width: Positive
    height: Positive
    crop: Annotated[RecordedCrop | None, Field(exclude_if=_absent)] = None
    made: Annotated[str, Field(exclude_if=_absent)] = ""
    picture: Annotated[Picture | None, Field(exclude_if=_absent)] = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, frame: Frame, video: str = "") -> FrameRef:
        """Make the reference of a frame; a picture that a tool made keeps its content.

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
        """Decode a made picture to an RGB uint8 array of shape (height, width, 3); a damaged one raises ValueError."""
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
            raise ValueError("the picture differs from the shown one")
        return image


def _png(image: np.ndarray) -> bytes | None:
    """Encode a picture as PNG; None where it would be too large for a record."""
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
        origin: Its address in a store; None for a picture that a tool made.
        node: Id of the Ray node whose store has it; empty for any.
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
        """Make the reference of a frame: with its pixels only if no store has it."""
        image = frame.image if frame.origin is None else None
        return cls(frame.key, frame.width, frame.height, frame.origin, node, image)

    def bare(self) -> ImageRef:
        """Return a copy without pixels."""
        return replace(self, image=None)


class ImageSize(Protocol):
    """A frame or a reference to one."""

    @property
    def width(self) -> int:
        """In pixels."""
        ...

    @property
    def height(self) -> int:
        """In pixels."""
        ...


class SameSizeFrames:
    """Frames that share one size."""

    frames: tuple[ImageSize, ...]

    @property
    def width(self) -> int:
        """Width of each frame in pixels."""
        return self.frames[0].width

    @property
    def height(self) -> int:
        """Height of each frame in pixels."""
        return self.frames[0].height


@dataclass(frozen=True, eq=False)
class Clip(SameSizeFrames):
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
        """The frames' times in seconds, which the model gets."""
        return tuple(frame.time for frame in self.frames)

    @cached_property
    def key(self) -> str:
        """See :func:`clip_key`."""
        return clip_key([frame.key for frame in self.frames], self.times)

    @property
    def has_key(self) -> bool:
        """True where the keys of its frames are known."""
        return all(frame.has_key for frame in self.frames)


def _check_picture(frame: FrameRef) -> FrameRef:
    if frame.picture is not None and not frame.made:
        raise ValueError("has a 'picture' without its key in 'made'")
    return frame


RecordedFrame = Annotated[FrameRef, AfterValidator(_check_picture)]
"""A frame of a record, checked where it is read."""


@dataclass(frozen=True)
class ClipRef(SameSizeFrames):
    """A shown clip without its pixels: frames of one size in order of time."""

    frames: tuple[RecordedFrame, ...]

    @property
    def times(self) -> tuple[float, ...]:
        """The frames' times in seconds."""
        return tuple(frame.time for frame in self.frames)


def _check_clip(clip: ClipRef) -> ClipRef:
    sizes, times = {(frame.width, frame.height) for frame in clip.frames}, list(clip.times)
    if len(times) < 2 or len(sizes) > 1 or times != sorted(times):
        raise ValueError("is no clip: at least 2 frames of one size in order of time")
    return clip


RecordedClip = Annotated[ClipRef, AfterValidator(_check_clip)]
"""A clip of a record, checked where it is read."""


@dataclass(frozen=True)
class VideoRef(SameSizeFrames):
    """A clip that travels between processes by its key (:func:`clip_key`); times are in seconds."""

    key: str
    frames: tuple[ImageRef, ...]
    times: tuple[float, ...]

    @classmethod
    def of(cls, clip: Clip, node: str = "") -> VideoRef:
        """Make the reference of a clip: frames with their pixels only if no store has them."""
        frames = tuple(ImageRef.of(frame, node if frame.origin else "") for frame in clip.frames)
        return cls(clip.key, frames, clip.times)


def is_picture(image: object) -> bool:
    """Return True for an array of the type and shape of :attr:`Frame.image`."""
    if not isinstance(image, np.ndarray) or image.dtype != _UINT8:
        return False
    return image.ndim == 3 and image.shape[2] == 3 and image.size > 0


_UINT8 = np.dtype(np.uint8)


def clip_key(keys: Sequence[str], times: Sequence[float]) -> str:
    """Key that is equal for frames of equal keys at equal times (in seconds) only."""
    return hashlib.blake2b(repr((tuple(keys), tuple(map(float, times)))).encode(), digest_size=16).hexdigest()


def image_key(image: np.ndarray) -> str:
    """Key that is equal for equal images only: uint8 arrays of shape (height, width, 3)."""
    # Processors have instructions for SHA-256: a third of BLAKE2's time.
    digest = hashlib.sha256(repr(image.shape).encode())
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()[:32]
