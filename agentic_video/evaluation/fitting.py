"""First views that fit no budget: an episode that begins with one has no turn, and counts as wrong."""

from collections.abc import Mapping, Sequence

from agentic_video.evaluation.results import Failure, key_of
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason
from agentic_video.utils.errors import SetupError

FIRST_VIDEOS = 8
"""Where none of the first so many videos fits, the others aren't played."""
ROOM: Mapping[EndReason, str] = {
    EndReason.TOKEN_BUDGET: "data.max_prompt_length, and actor_rollout_ref.rollout.max_model_len with it",
    EndReason.IMAGE_BUDGET: "agentic_video.system.max_images",
}
"""The keys of the budgets that a first view has to fit."""


def unfit(record: Record) -> bool:
    """Return True if the first view, with the question, fitted no budget."""
    return record.trajectory.end in ROOM and not record.trajectory.turns


def remedy(ends: Sequence[EndReason]) -> str:
    """The keys to change, in a few words."""
    keys = [key for end, key in ROOM.items() if end in ends]
    return f"raise {'; '.join(keys)}; or show fewer or smaller frames"


class NothingFits(SetupError):
    """No first view fits the budgets."""


class FirstViews:
    """Stops an evaluation none of whose first videos can be shown.

    Of each of the first :data:`FIRST_VIDEOS` videos one question is awaited, whichever episodes end before it: those
    that don't fit end soonest. One that fits, of whatever video, ends the wait. Data of fewer videos are played to the
    end."""

    def __init__(self, rows: Sequence[VideoQA], before: Sequence[Record]):
        first: dict[str, VideoQA] = {}
        for qa in rows:
            first.setdefault(qa.video, qa)
        awaited = list(first.values())[:FIRST_VIDEOS]
        # empty as soon as one of the first views is known to fit
        self._awaited = {key_of(qa) for qa in awaited} if len(awaited) == FIRST_VIDEOS else set()
        self._ends: list[EndReason] = []
        if not all(map(unfit, before)):
            self._awaited = set()
        for record in before:
            self.look(record)

    def look(self, result: Record | Failure) -> None:
        """Take note of a question's end; an error once the last awaited one doesn't fit either."""
        if isinstance(result, Failure):
            return
        if not unfit(result):
            self._awaited = set()
        if key_of(result.qa) not in self._awaited:
            return
        self._awaited.remove(key_of(result.qa))
        self._ends.append(result.trajectory.end)
        if not self._awaited:
            raise NothingFits(
                f"the first view and the question don't fit for any of the first {FIRST_VIDEOS} videos: "
                f"{remedy(self._ends)}; choose another --out then, or remove this one"
            )
