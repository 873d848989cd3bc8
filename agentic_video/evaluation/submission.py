"""What is sent to those who keep a benchmark's answers: the options that an evaluation chose, as they want them."""

from collections.abc import Sequence

from agentic_video.evaluation.results import Failure
from agentic_video.graders.answer import MAX_ANSWER_CHARS, named_option
from agentic_video.types.record import Record
from agentic_video.types.row import LETTERS

UNANSWERED = -1
"""Stands for no option."""


def submissions(records: Sequence[Record], failures: Sequence[Failure] = ()) -> dict[str, dict[str, int]]:
    """Files to submit, by name (``submission-<data source>.json``): the number of the chosen option, from 0, by the
    question's published id. There is one for each data source with multiple-choice rows whose answers aren't published.

    An answer is read by the shared rule of multiple choice. One that names no option is :data:`UNANSWERED`, and so is a
    question that couldn't be played.

    Args:
        records: What was played.
        failures: Questions that couldn't be played.
    """
    found: dict[str, dict[str, int]] = {}
    for record in records:
        if record.qa.hidden and record.qa.options:
            chosen = found.setdefault(record.qa.data_source, {})
            chosen[str(record.qa.extra.get("original_id", record.qa.id))] = _option(record)
    for failure in failures:
        source, name = failure.key
        if source in found:
            found[source].setdefault(name.removeprefix(f"{source}-"), UNANSWERED)
    return {f"submission-{source}.json": chosen for source, chosen in sorted(found.items())}


def _option(record: Record) -> int:
    answer = record.trajectory.answer
    if answer is None or len(answer) > MAX_ANSWER_CHARS:
        return UNANSWERED
    letter = named_option(answer, record.qa.options)
    return UNANSWERED if letter is None else LETTERS.index(letter)
