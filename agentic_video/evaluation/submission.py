"""Files to submit where a benchmark's answers aren't published: the chosen options, in the benchmark's form."""

import json
from collections.abc import Sequence
from pathlib import Path

from agentic_video.evaluation.results import ExcludedRow, Failure
from agentic_video.graders.answer import MAX_ANSWER_CHARS, named_option
from agentic_video.types.record import Record
from agentic_video.types.row import LETTERS
from agentic_video.utils.workdir import write_whole

UNANSWERED = -1
"""Stands for no option."""


def submissions(
    records: Sequence[Record], failures: Sequence[Failure] = (), excluded: Sequence[ExcludedRow] = ()
) -> dict[str, dict[str, int]]:
    """Files to submit, by name (``submission-<data source>.json``): the number of the chosen option, from 0, by the
    question's published id. There is one for each data source with multiple-choice rows whose answers aren't published.

    An answer is read by the shared rule of multiple choice. One that names no option is :data:`UNANSWERED`, and so is a
    question that couldn't be played, or whose row was left out (its video is missing, say)."""
    found: dict[str, dict[str, int]] = {}
    for record in records:
        if record.qa.hidden and record.qa.options:
            chosen = found.setdefault(record.qa.data_source, {})
            chosen[str(record.qa.extra.get("original_id", record.qa.id))] = _option(record)
    for failure in failures:
        source, name = failure.key
        if source in found:
            found[source].setdefault(name.removeprefix(f"{source}-"), UNANSWERED)
    for row in excluded:
        if row.asked and row.submitted is not None and row.submitted[0] in found:
            source, name = row.submitted
            found[source].setdefault(name, UNANSWERED)
    return {f"submission-{source}.json": chosen for source, chosen in sorted(found.items())}


def write_submissions(
    folder: Path, records: Sequence[Record], failures: Sequence[Failure] = (), excluded: Sequence[ExcludedRow] = ()
) -> None:
    """Write the files to submit, if any, into an evaluation's folder; see :func:`submissions`."""
    for name, content in submissions(records, failures, excluded).items():
        write_whole(folder / name, [json.dumps(content, indent=1) + "\n"])


def _option(record: Record) -> int:
    answer = record.trajectory.answer
    if answer is None or len(answer) > MAX_ANSWER_CHARS:
        return UNANSWERED
    letter = named_option(answer, record.qa.options)
    return UNANSWERED if letter is None else LETTERS.index(letter)
