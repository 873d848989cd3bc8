"""Clips as Qwen-VL's models take them: temporal patches, their times and positions.

Qwen2.5-VL and Qwen3-VL merge the frames of a clip two by two (an odd last one is repeated) into temporal patches.
Qwen2.5-VL has one run of placeholders for a clip, and time is the distance of their positions; Qwen3-VL reads the time
of each temporal patch as text before the patch's placeholders. All of it follows from sizes and times, without pixels.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

FRAMES_OF_PATCH = 2
"""Frames of a temporal patch, in both families."""


def patch_times(times: Sequence[float]) -> list[float]:
    """Time of each temporal patch: the mean of its two frames' times."""
    paired = [*times, *times[-1:]] if len(times) % FRAMES_OF_PATCH else list(times)
    return [(first + second) / 2 for first, second in zip(paired[::2], paired[1::2], strict=True)]


def seconds_per_patch(times: Sequence[float]) -> float:
    """Seconds between temporal patches for Qwen2.5-VL: twice the mean distance of the frames' real times.

    Hugging Face's processors compute it from a number of frames a second.
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
    """M-RoPE positions (3, tokens) of a sequence with clips for Qwen2.5-VL, whose positions follow the time in a clip.

    The distance of a clip's temporal patches is rounded down, and positions continue from the largest one: as the model
    was published, and as in vLLM. transformers from 5.0 on rounds the seconds between two patches down first, and
    continues from a clip's height or width: a model would be trained on other sequences than it played.

    Args:
        ids: Shape (tokens,).
        images: Size of each image in patches: time, height, width.
        clips: The same of each clip, and the distance of its temporal patches: seconds times ``tokens_per_second``.
        image_token: Placeholder of images; ``video_token`` that of clips.
        merge: Patches along a side of a visual token.
    """
    shown: dict[int, Iterator[tuple[Sequence[int], float]]] = {
        image_token: ((grid, 1.0) for grid in images),
        video_token: iter(clips),
    }
    pieces: list[np.ndarray] = []
    at = start = 0  # in the ids; the next position
    for position in np.flatnonzero(np.isin(ids, (image_token, video_token))).tolist():
        if position < at:
            continue
        found = next(shown[int(ids[position])], None)
        if found is None:
            raise ValueError(f"a sequence has a placeholder at {position} that belongs to no image or clip")
        (time, height, width), distance = found
        pieces.append(np.tile(np.arange(start, start + position - at), (3, 1)))
        cells = np.indices((time, height // merge, width // merge))
        cells[0] = (cells[0] * distance).astype(np.int64)
        pieces.append(cells.reshape(3, -1) + start + position - at)
        at = position + pieces[-1].shape[1]
        start = int(pieces[-1].max()) + 1
    pieces.append(np.tile(np.arange(start, start + len(ids) - at), (3, 1)))
    return np.concatenate(pieces, 1)
