"""How the two families of models take a clip: in how many patches, at which times, and as which token ids.

Both merge the frames of a clip two by two (an odd last one is repeated) into temporal patches. Qwen2.5-VL has one run
of placeholders for a clip, and hears of time from the distance of its positions; Qwen3-VL reads the time of each
temporal patch as text before the patch's placeholders. All of it follows from sizes and times: no pixels are needed.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

FRAMES_OF_PATCH = 2
"""Frames that a temporal patch stands for, in both families."""


class ClipLike(Protocol):
    """A clip, with or without its pixels."""

    @property
    def width(self) -> int:
        """Of each frame, in pixels."""
        ...

    @property
    def height(self) -> int:
        """Of each frame, in pixels."""
        ...

    @property
    def times(self) -> tuple[float, ...]:
        """Of the frames, in seconds."""
        ...


def clip_frames(shown: object) -> int:
    """Frames of a clip, with or without its pixels; 0 for an image."""
    times = getattr(shown, "times", None)
    return 0 if times is None else len(times)


def patch_times(times: Sequence[float]) -> list[float]:
    """The time of each temporal patch: the mean of its two frames' times."""
    paired = [*times, *times[-1:]] if len(times) % FRAMES_OF_PATCH else list(times)
    return [(first + second) / 2 for first, second in zip(paired[::2], paired[1::2], strict=True)]


def seconds_per_patch(times: Sequence[float]) -> float:
    """Seconds from one temporal patch to the next, as Qwen2.5-VL is told them: twice the mean of the frames' distances.

    Hugging Face's processors have it from a number of frames a second; a clip's frames have their real times.
    """
    return FRAMES_OF_PATCH * (times[-1] - times[0]) / (len(times) - 1)


def timed_positions(
    ids: np.ndarray,
    images: Iterable[Sequence[int]],
    clips: Iterable[tuple[Sequence[int], float]],
    *,
    image_token: int,
    video_token: int,
    merge: int,
) -> np.ndarray:
    """M-RoPE positions of a sequence with clips for Qwen2.5-VL, whose positions follow the time in a clip.

    A clip's temporal patches are as far apart as it says, rounded down, and what follows goes on from the largest
    position: as the model was published with, and as vLLM has it. transformers from 5.0 on rounds the seconds between
    two patches down first, and goes on from a clip's height or width: trained by its positions, a model would see other
    sequences than those that it played.

    Args:
        ids: Shape (tokens,).
        images: Size of each image in patches: time, height, width.
        clips: The same of each clip, and how far its temporal patches are apart: seconds times ``tokens_per_second``.
        image_token: Placeholder of images.
        video_token: Placeholder of clips.
        merge: Patches along a side of a visual token.

    Returns:
        Time, height and width of each token, shape (3, tokens).

    Raises:
        ValueError: There are placeholders of more than these images and clips.
    """
    shown: dict[int, Iterator[tuple[Sequence[int], float]]] = {
        image_token: ((grid, 1.0) for grid in images),
        video_token: iter(clips),
    }
    pieces: list[np.ndarray] = []
    at = start = 0  # in the ids; the next position
    for place in np.flatnonzero(np.isin(ids, (image_token, video_token))).tolist():
        if place < at:
            continue
        found = next(shown[int(ids[place])], None)
        if found is None:
            raise ValueError(f"a sequence has a placeholder at {place} that belongs to no image or clip")
        (time, height, width), apart = found
        pieces.append(np.tile(np.arange(start, start + place - at), (3, 1)))
        cells = np.indices((time, height // merge, width // merge))
        cells[0] = (cells[0] * apart).astype(np.int64)
        pieces.append(cells.reshape(3, -1) + start + place - at)
        at = place + pieces[-1].shape[1]
        start = int(pieces[-1].max()) + 1
    pieces.append(np.tile(np.arange(start, start + len(ids) - at), (3, 1)))
    return np.concatenate(pieces, 1)


def timestamp(seconds: float) -> str:
    """What Qwen3-VL reads before a temporal patch."""
    return f"<{seconds:.1f} seconds>"


def expanded(ids: Sequence[int], short: Sequence[Sequence[int]], whole: Sequence[Sequence[int]]) -> list[int]:
    """Ids with each of some pieces put in the place of another one, in order.

    Args:
        ids: Of a prompt.
        short: What is replaced, in the order in which it stands there.
        whole: What it is replaced with.

    Raises:
        ValueError: One isn't there.
    """
    found: list[int] = []
    at = 0
    for piece, place in zip(whole, _places(ids, short), strict=True):
        start, end = place
        found += [*ids[at:start], *piece]
        at = end
    return [*found, *ids[at:]]


def _places(ids: Sequence[int], pieces: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    at = 0
    for piece in pieces:
        wanted = list(piece)
        while at < len(ids) and (ids[at] != wanted[0] or list(ids[at : at + len(wanted)]) != wanted):
            at += 1
        if at >= len(ids):
            raise ValueError(f"an image's or a clip's {len(wanted)} tokens aren't in the prompt where they should be")
        yield at, at + len(wanted)
        at += len(wanted)
