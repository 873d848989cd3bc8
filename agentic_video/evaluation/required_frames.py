"""HERBench's minimum required frame-set (MRFS): the number of frames that a model needs to answer a question.

A model is asked without frames, and with 1 to 16 evenly spaced ones (``--baseline 16 --sweep frames 0,1,..,16``). A
question's MRFS is 0 where it is answered without any, undefined where 16 don't do, and else what halving finds, as in
the script of the benchmark's authors: it takes for granted that who is right with some frames is right with more. The
mean is over the questions that need frames and are answered with 16.

Their script's default lets BLIP choose the frames; evenly spaced ones are its other choice.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentic_video.evaluation.results import Key, key_of
from agentic_video.types.record import Record
from agentic_video.utils.standard_error import clustered_error

MOST = 16
"""Frames with which a question must be answered to have an MRFS (the authors' configuration)."""


def required_frames(right: Mapping[int, bool]) -> int | None:
    """The MRFS of a question; None where it is undefined."""
    if right[0]:
        return 0
    if not right[MOST]:
        return None
    least, most = 1, MOST
    while most - least > 1:
        middle = (least + most) // 2
        if right[middle]:
            most = middle
        else:
            least = middle + 1
    return least if right[least] else most


@dataclass(frozen=True)
class RequiredFrames:
    """The MRFS of a model over some questions."""

    questions: int  # those that are graded with every number of frames
    without: float  # share that is answered without frames
    never: float  # share that isn't answered with `MOST`, whose MRFS is undefined
    mean: float | None  # of the others; None where there are none
    error: float | None  # its standard error, clustered by video; None below two videos
    median: float | None  # of the same questions

    def __str__(self) -> str:
        shares = f"{self.without:.1%} answered without frames, {self.never:.1%} not with {MOST}"
        if self.mean is None:
            return f"MRFS: no question of {self.questions} that needs frames was answered ({shares})"
        error = "" if self.error is None else f" (standard error {self.error:.2f})"
        return f"MRFS: {self.mean:.2f}{error}, median {self.median:g}, of {self.questions} questions; {shares}"


def measure(by_frames: Mapping[int, Sequence[Record]]) -> RequiredFrames | None:
    """The MRFS of episodes that were played with each number of frames."""
    if not set(range(MOST + 1)) <= set(by_frames):
        return None
    graded: dict[int, dict[Key, bool]] = {}
    for count in range(MOST + 1):
        records = (record for record in by_frames[count] if "acc" in record.rewards)
        graded[count] = {key_of(record.qa): record.rewards["acc"] == 1.0 for record in records}
    videos = {key_of(record.qa): record.qa.video for record in by_frames[0]}
    shared = sorted(set.intersection(*(set(grades) for grades in graded.values())))
    if not shared:
        return None
    found = {key: required_frames({count: grades[key] for count, grades in graded.items()}) for key in shared}
    counted = {key: count for key, count in found.items() if count}
    kinds = Counter("never" if count is None else "without" if not count else "some" for count in found.values())
    values = [float(count) for count in counted.values()]
    return RequiredFrames(
        questions=len(shared),
        without=kinds["without"] / len(shared),
        never=kinds["never"] / len(shared),
        mean=statistics.fmean(values) if values else None,
        error=clustered_error(values, [videos[key] for key in counted]) if values else None,
        median=statistics.median(values) if values else None,
    )
