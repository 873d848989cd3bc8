"""The progress bar of an evaluation: episodes, accuracy so far, failures."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tqdm import tqdm

from agentic_video.evaluation.results import Failure
from agentic_video.types.record import Record


@contextmanager
def progress(missing: int, before: Sequence[Record]) -> Iterator[Callable[[Record | Failure], None]]:
    """Show a bar for as long as questions are played."""
    grades = [record.rewards["acc"] for record in before if "acc" in record.rewards]
    failed = 0
    with tqdm(total=len(before) + missing, initial=len(before), unit="episode", smoothing=0.05) as bar:

        def done(one: Record | Failure) -> None:
            nonlocal failed
            if isinstance(one, Record):
                grades.extend([one.rewards["acc"]] if "acc" in one.rewards else [])
            else:
                failed += 1
            shown = f"accuracy {100 * sum(grades) / len(grades):.1f} %" if grades else "nothing graded"
            bar.set_postfix_str(shown + (f", failed {failed}" if failed else ""), refresh=False)
            bar.update()

        yield done
