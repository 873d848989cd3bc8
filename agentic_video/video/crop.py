"""A region of a frame, cut out so that a record of the episode can have it cut out again."""

from agentic_video.types.frame import Crop, Frame
from agentic_video.types.plain import as_int
from agentic_video.video.sizes import resize


def crop(frame: Frame, box: tuple[int, int, int, int], size: tuple[int, int] | None = None) -> Frame:
    """Cut a region out of a frame.

    The region is recorded with the picture (``FrameRef.crop``), so SFT on the record trains on the same pixels.
    Anything else that a tool draws isn't found again.

    Args:
        frame: As a store or a video gave it.
        box: Left, top, right and bottom edge in the frame's own pixels, right and bottom not included.
        size: (width, height) in pixels to resize the region to; None leaves it as it is.

    Raises:
        TypeError: An edge is no whole number.
        ValueError: The region is empty or goes beyond the frame, or the frame is a crop itself.
    """
    left, top, right, bottom = (as_int(edge, "an edge of a crop's box") for edge in box)
    if not (0 <= left < right <= frame.width and 0 <= top < bottom <= frame.height):
        raise ValueError(f"no region of a frame of {frame.width} x {frame.height} pixels: {(left, top, right, bottom)}")
    if frame.crop is not None:
        raise ValueError("a crop can't be cropped again: crop the frame itself")
    image = frame.image[top:bottom, left:right].copy()
    if size is not None:
        image = resize(image, *size)
    return Frame.cropped(frame.index, frame.time, image, Crop((left, top, right, bottom), frame.width, frame.height))
