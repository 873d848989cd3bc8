"""Progress of an evaluation: which rows are done, stale or missing, and the bar that shows it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tqdm import tqdm

from agentic_video.evaluation.results import Failure, key_of, same_gold, same_question
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA


@dataclass(frozen=True)
class EvalProgress:
    """Sorting of rows into done, stale and missing ones."""

    played: tuple[Record, ...]  # episodes that count, each with its row as it is now
    to_grade: tuple[tuple[Record, VideoQA], ...]  # stale: the row's gold has changed, or the grade is missing
    missing: tuple[VideoQA, ...]
    corrected: int  # missing rows that were played when they asked something else


def eval_progress(rows: Sequence[VideoQA], records: Sequence[Record], *, judged: bool = False) -> EvalProgress:
    """Sort rows by their recorded episodes, one a question; with a judge, episodes without a grade are stale."""
    found = {key_of(record.qa): record for record in records}
    pairs = [(found.get(key_of(qa)), qa) for qa in rows]
    good = [(record, qa) for record, qa in pairs if record is not None and same_question(record.qa, qa)]
    kept = {key_of(qa) for _, qa in good}
    missing = tuple(qa for qa in rows if key_of(qa) not in kept)
    return EvalProgress(
        played=tuple(replace(record, qa=qa) for record, qa in good if same_gold(record.qa, qa)),
        to_grade=tuple(
            (record, qa) for record, qa in good if (judged and ungraded(record)) or not same_gold(record.qa, qa)
        ),
        missing=missing,
        corrected=sum(key_of(qa) in found for qa in missing),
    )


def ungraded(record: Record) -> bool:
    """Return True if an episode lacks a grade that it could have."""
    return not record.qa.hidden and "acc" not in record.rewards


@contextmanager
def progress(missing: int, before: Sequence[Record]) -> Iterator[Callable[[Record | Failure], None]]:
    """Show a bar of episodes, accuracy and failures; yields its update. ``before`` counts in it."""
    grades = [record.rewards["acc"] for record in before if "acc" in record.rewards]
    failed = 0
    with tqdm(total=len(before) + missing, initial=len(before), unit="episode", smoothing=0.05) as bar:

        def update(result: Record | Failure) -> None:
            nonlocal failed
            if isinstance(result, Failure):
                failed += 1
            elif "acc" in result.rewards:
                grades.append(result.rewards["acc"])
            shown = f"accuracy {100 * sum(grades) / len(grades):.1f} %" if grades else "nothing graded"
            bar.set_postfix_str(shown + (f", failed {failed}" if failed else ""), refresh=False)
            bar.update()

        yield update
