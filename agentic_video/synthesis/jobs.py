"""Jobs of many items that a kill can't spoil: each item is done exactly once, and the same command goes on.

A job has a folder. Every finished item is one line of its journal, on disk before it counts; a restart does what is
missing. An item that fails (a server that is gone, an unreadable video) is no result: it is listed in
``failures.jsonl``, and tried again at the next start. Outputs are written from the journal in the order of the items,
so that they don't depend on which item finished first or on how often the job was killed. Results stay on disk until
they are asked for: those of a hundred thousand episodes don't fit into memory.

    with open_job(out, settings, kind="distillation") as job:
        asyncio.run(job.play({("a", 0): first, ("b", 0): second}, work, concurrency=16))
        job.write_rows("kept.jsonl", (outcome.result for _, outcome in job.results(kept=True)))
        print(job.write_report("Distillation", prices))
"""

import asyncio
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar

from tqdm import tqdm

from agentic_video.rollout.chat_policy import Usage
from agentic_video.types.jsonl import json_line
from agentic_video.utils.errors import described
from agentic_video.utils.journal import claim_folder, open_journal, settle, write_whole

logger = logging.getLogger(__name__)

T = TypeVar("T")

SETTINGS_FILE = "settings.json"
JOURNAL_FILE = "journal.jsonl"
FAILURES_FILE = "failures.jsonl"
REPORT_FILE = "report.json"
KEPT = "kept"
KNOWN_LATER = ("judge", "retrieval", "teacher_content")
"""Settings that folders of earlier versions don't know; without a judge nothing was graded by one."""

Key = tuple[str | int, ...]
"""What names an item for good, e.g. data source, id of the row and number of the sample."""


@dataclass(frozen=True)
class Outcome:
    """A finished item."""

    verdict: str = KEPT  # `kept`, or in a few words why not: the report counts how often each was given
    result: Any = None  # plain data (JSON) from which outputs are written; also of a rejected item, where it is of use
    usage: Usage = field(default_factory=Usage)  # tokens that it cost

    @property
    def kept(self) -> bool:
        return self.verdict == KEPT


@dataclass(frozen=True, slots=True)
class JournalLine:
    """What of a finished item is in memory; the rest is a line of the journal."""

    verdict: str  # of its outcome
    usage: Usage  # the same
    start: int  # where the line begins, in bytes
    size: int  # how many it has

    @property
    def kept(self) -> bool:
        return self.verdict == KEPT


@dataclass(frozen=True)
class Prices:
    """Money for a million tokens, in whatever currency; 0 where it costs nothing."""

    prompt: float = 0.0
    completion: float = 0.0

    def cost(self, usage: Usage) -> float:
        """Money for so many tokens."""
        return (usage.prompt_tokens * self.prompt + usage.completion_tokens * self.completion) / 1e6


@dataclass(frozen=True)
class JobOptions:
    """What a command says about its job; none of it changes a result, but for how many there are."""

    out: Path  # folder of the job
    limit: int = 0  # only the first so many inputs; 0 takes all
    concurrency: int = 16  # items at a time
    prices: Prices = field(default_factory=Prices)  # of the tokens


@dataclass(frozen=True)
class JobReport:
    """What a command tells when its job is done."""

    text: str  # for people
    complete: bool  # whether every item was done and every output holds something
    warning: str = ""  # what is missing, where that isn't in the text


class SynthesisJob:
    """An open job (see :func:`open_job`)."""

    def __init__(self, folder: Path, journal: TextIO, written: BinaryIO, failed: TextIO, bar: "tqdm[Any]"):
        self.folder = folder
        self.failures: dict[Key, str] = {}
        self._journal, self._written, self._failed, self._bar = journal, written, failed, bar
        self._finished = read_journal(folder / JOURNAL_FILE)
        self._items: dict[Key, None] = {}
        self._kept = self._done = self._tokens = 0

    async def play(
        self, items: Mapping[Key, T], work: Callable[[T], Awaitable[Outcome]], concurrency: int
    ) -> Mapping[Key, Outcome]:
        """Do those of some items that aren't done yet, some at a time.

        A job may call this several times with new items; the order of all calls is the order of the outputs, and must
        be the same at every start."""
        if repeated := next((key for key in items if key in self._items), None):
            raise ValueError(f"item {repeated}: its key was there before")
        self._items.update(dict.fromkeys(items))
        self._bar.total = max(self._bar.total or 0, len(self._items))
        missing = []
        for key, item in items.items():
            if key in self._finished:
                self._count(self._finished[key])
            else:
                missing.append((key, item))
        self._show()
        self._bar.refresh()  # how many there are, before the first is done
        waiting = iter(missing)

        async def worker() -> None:
            for key, item in waiting:
                try:
                    line = json_line({"key": key, **asdict(await work(item))})
                    # Read back: what a restart would see is what this run goes on with.
                    outcome = _read(line)[1]
                except Exception as error:  # one item never stops the others
                    self._fail(key, described(error))
                else:
                    self._journal.write(line)
                    settle(self._journal)
                    size = len(line.encode())
                    start = os.fstat(self._journal.fileno()).st_size - size
                    self._finished[key] = done = JournalLine(sys.intern(outcome.verdict), outcome.usage, start, size)
                    del line, outcome  # not to be held while the next one is waited for
                    self._count(done)
                self._show()

        await asyncio.gather(*(worker() for _ in range(min(max(1, concurrency), len(missing)))))
        return _Outcomes([key for key in items if key in self._finished], self._read)

    def _read(self, key: Key) -> Outcome:
        done = self._finished[key]
        self._written.seek(done.start)
        return _read(self._written.read(done.size))[1]

    def _count(self, outcome: JournalLine) -> None:
        self._done, self._kept = self._done + 1, self._kept + outcome.kept
        self._tokens += outcome.usage.prompt_tokens + outcome.usage.completion_tokens
        self._bar.update()

    def _fail(self, key: Key, error: str) -> None:
        logger.warning("item %s failed: %s", "/".join(map(str, key)), error[:300])
        self.failures[key] = error
        self._failed.write(json_line({"key": key, "error": error}))
        self._failed.flush()
        self._bar.update()

    def _show(self) -> None:
        self._bar.set_postfix_str(
            f"kept {self._kept}, rejected {self._done - self._kept}, failed {len(self.failures)}, "
            f"{self._tokens:,} tokens",
            refresh=False,
        )

    def finished(self, *, kept: bool | None = None) -> list[Key]:
        """The finished items in input order."""
        found = ((key, self._finished[key]) for key in self._items if key in self._finished)
        return [key for key, done in found if kept is None or done.kept == kept]

    def results(self, *, kept: bool | None = None) -> Iterator[tuple[Key, Outcome]]:
        """What came of the finished items in input order, read from the journal one after the other."""
        for key in self.finished(kept=kept):
            yield key, self._read(key)

    def summary(self, prices: Prices) -> dict[str, Any]:
        """Counts and costs of all that was played, as ``report.json`` holds them."""
        outcomes = [self._finished[key] for key in self.finished()]
        usage = sum((outcome.usage for outcome in outcomes), Usage())
        kept = sum(outcome.kept for outcome in outcomes)
        rejected = Counter(outcome.verdict for outcome in outcomes if not outcome.kept)
        return {
            "items": len(self._items),
            "kept": kept,
            "rejected": dict(sorted(rejected.items())),
            "failed": len(self._items) - len(outcomes),
            "usage": asdict(usage),
            "cost": round(prices.cost(usage), 6),
            "cost_per_kept": round(prices.cost(usage) / kept, 6) if kept else None,
        }

    def write_rows(self, name: str, rows: Iterable[Any]) -> Path:
        """Write an output, one JSON value a line; the file is there as a whole or not at all."""
        path = self.folder / name
        write_whole(path, map(json_line, rows))
        return path

    def write_report(self, title: str, prices: Prices, more: Mapping[str, Any] | None = None) -> str:
        """Write ``report.json``."""
        summary = {**self.summary(prices), **(more or {})}
        write_whole(self.folder / REPORT_FILE, [json.dumps(summary, indent=2) + "\n"])
        return table(title, summary)


def table(title: str, summary: Mapping[str, Any]) -> str:
    """A job's summary as text for people: one name and number a line."""
    usage, rows = summary["usage"], [("items", f"{summary['items']:,}"), ("kept", f"{summary['kept']:,}")]
    rows += [(f"rejected: {reason}", f"{count:,}") for reason, count in summary["rejected"].items()]
    rows.append(("failed (tried again at the next start)", f"{summary['failed']:,}"))
    rows += [(name.replace("_", " "), f"{usage[name]:,}") for name in ("prompt_tokens", "completion_tokens")]
    if summary["cost"]:
        rows += [
            (name.replace("_", " "), f"{summary[name]:.4f}") for name in ("cost", "cost_per_kept") if summary[name]
        ]
    shown = {"items", "kept", "rejected", "failed", "usage", "cost", "cost_per_kept"}
    for name, value in summary.items():
        if name not in shown and isinstance(value, int | float | str):
            rows.append((name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value)))
    width = max(len(name) for name, _ in rows)
    return "\n".join([title, *(f"  {name:<{width}}  {value:>12}" for name, value in rows)])


class _Outcomes(Mapping[Key, Outcome]):
    """Outcomes that are read when they are looked at."""

    def __init__(self, keys: Sequence[Key], read: Callable[[Key], Outcome]):
        self._keys, self._read = dict.fromkeys(keys), read

    def __getitem__(self, key: Key) -> Outcome:
        if key not in self._keys:
            raise KeyError(key)
        return self._read(key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


@contextmanager
def open_job(folder: Path, settings: Mapping[str, Any], kind: str, total: int | None = None) -> Iterator[SynthesisJob]:
    """Start a job, or go on with the one that a folder holds."""
    article = "an" if kind[0] in "aeiou" else "a"
    claim_folder(folder, {"job": kind, **settings}, SETTINGS_FILE, f"{article} {kind}", KNOWN_LATER)
    with (
        open_journal(folder / JOURNAL_FILE, kind) as journal,
        (folder / JOURNAL_FILE).open("rb") as written,
        (folder / FAILURES_FILE).open("w", encoding="utf-8") as failed,
        tqdm(total=total, desc=kind, unit="item", smoothing=0.05, file=sys.stderr) as bar,
    ):
        yield SynthesisJob(folder, journal, written, failed, bar)


def read_journal(path: Path) -> dict[Key, JournalLine]:
    """The outcomes in a journal. A line that isn't one is reported and passed over: its item is done again."""
    finished: dict[Key, JournalLine] = {}
    end = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            start, end = end, end + len(line)
            try:
                key, outcome = _read(line)
            except (ValueError, KeyError, TypeError) as error:
                logger.warning("%s line %d: no outcome (%s); its item is done again", path, number, error)
                continue
            finished.setdefault(key, JournalLine(sys.intern(outcome.verdict), outcome.usage, start, len(line)))
    return finished


def _read(line: str | bytes) -> tuple[Key, Outcome]:
    raw = json.loads(line if isinstance(line, str) else line.decode("utf-8", errors="replace"))
    return tuple(raw["key"]), Outcome(str(raw["verdict"]), raw["result"], Usage(**raw["usage"]))
