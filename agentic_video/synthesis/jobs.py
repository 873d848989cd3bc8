"""Jobs of many items that survive a kill: each item is done exactly once, and the same command resumes.

A job has a folder. Every finished item is one line of its journal, on disk before it counts. An item that fails (a
server that is gone, an unreadable video) is listed in ``failures.jsonl`` and retried at the next start. Outputs are
written from the journal in the order of the items, so that they depend neither on which item finished first nor on
kills. Results stay on disk until they are asked for: those of a hundred thousand episodes don't fit into memory.

    with open_job(options, settings, kind="distillation") as job:
        asyncio.run(job.play({("a", 0): first, ("b", 0): second}, work))
        job.write_rows("kept.jsonl", (outcome.result for _, outcome in job.results(kept=True)))
        print(job.write_report("Distillation"))
"""

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar

from pydantic import PositiveInt
from tqdm import tqdm

from agentic_video.evaluation.pool import run_pool
from agentic_video.rollout.chat_policy import ChatConfig, Usage
from agentic_video.types.jsonl import json_line
from agentic_video.utils.errors import described
from agentic_video.utils.option_types import Amount, OutputFolder, PositiveAmount
from agentic_video.utils.workdir import claim_folder, open_journal, settle, write_whole

logger = logging.getLogger(__name__)

T = TypeVar("T")

SETTINGS_FILE = "settings.json"
JOURNAL_FILE = "journal.jsonl"
FAILURES_FILE = "failures.jsonl"
REPORT_FILE = "report.json"
KEPT = "kept"
KNOWN_LATER = ("judge", "retrieval", "teacher_content")
"""Settings that folders of earlier versions lack; without a judge nothing was graded by one."""

Key = tuple[str | int, ...]
"""Permanent name of an item, e.g. data source, id of the row and number of the sample."""


@dataclass(frozen=True)
class Outcome:
    """A finished item."""

    verdict: str = KEPT  # or why the item is rejected, in a few words that the report counts
    result: Any = None  # plain data from which outputs are written; also of rejected items, where it is of use
    usage: Usage = field(default_factory=Usage)

    @property
    def kept(self) -> bool:
        return self.verdict == KEPT


@dataclass(frozen=True, slots=True)
class JournalLine:
    """The part of a finished item that is in memory, and the place of the rest in the journal, in bytes."""

    verdict: str
    usage: Usage
    start: int
    size: int


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """A job that asks servers."""

    out: OutputFolder
    """folder of the results; the same command resumes there"""
    limit: PositiveInt | None = None
    """only the first N rows, failures or videos (default: all)"""
    timeout: PositiveAmount = ChatConfig.timeout
    """most seconds for a server's reply"""
    concurrency: PositiveInt = 16
    """episodes, or videos, at a time"""
    api_key_env: str = "OPENAI_API_KEY"
    """environment variable that holds the server's key"""
    price_in: Amount = 0.0
    """price of a million prompt tokens"""
    price_out: Amount = 0.0
    """price of a million completion tokens"""

    @property
    def folder(self) -> Path:
        """The folder, resolved."""
        return self.out.resolve()

    def cost(self, usage: Usage) -> float:
        """Price of so many tokens."""
        return (usage.prompt_tokens * self.price_in + usage.completion_tokens * self.price_out) / 1e6


@dataclass(frozen=True)
class JobReport:
    """The end of a job, for its command."""

    text: str
    complete: bool  # every item was done and every output holds something
    warning: str = ""


class SynthesisJob:
    """An open job (see :func:`open_job`); ``failures`` holds the errors of this run's items."""

    def __init__(self, options: JobOptions, journal: TextIO, written: BinaryIO, failed: TextIO, bar: "tqdm[Any]"):
        self.options, self.folder = options, options.folder
        self.failures: dict[Key, str] = {}
        self._journal, self._written, self._failed, self._bar = journal, written, failed, bar
        self._finished = read_journal(self.folder / JOURNAL_FILE)
        self._items: dict[Key, None] = {}
        self._kept = self._done = self._tokens = 0

    async def play(self, items: Mapping[Key, T], work: Callable[[T], Awaitable[Outcome]]) -> list[Key]:
        """Do those of some items that aren't done yet, some at a time; returns the finished ones, in order.

        Whatever ``work`` raises makes its item a failed one. A job may call this several times with new items; the
        order of all calls is the order of the outputs, and must be the same at every start.
        """
        if repeated := next((key for key in items if key in self._items), None):
            raise ValueError(f"item {repeated}: its key was there before")
        self._items.update(dict.fromkeys(items))
        self._bar.total = max(self._bar.total or 0, len(self._items))
        missing = [(key, item) for key, item in items.items() if key not in self._finished]
        for key in items:
            if key in self._finished:
                self._count(self._finished[key])
        self._bar.refresh()  # the total, before the first item is done

        async def finish(keyed: tuple[Key, T]) -> None:
            key, item = keyed
            try:
                line = json_line({"key": key, **asdict(await work(item))})
                outcome = _read(line)[1]  # read back: what a restart would see
            except Exception as error:  # one item never stops the others
                self._fail(key, described(error))
                return
            self._journal.write(line)
            settle(self._journal)
            size = len(line.encode())
            start = os.fstat(self._journal.fileno()).st_size - size
            self._finished[key] = JournalLine(sys.intern(outcome.verdict), outcome.usage, start, size)
            self._count(self._finished[key])

        await run_pool(missing, finish, self.options.concurrency)
        return [key for key in items if key in self._finished]

    def outcome(self, key: Key) -> Outcome:
        """The outcome of a finished item, read from the journal."""
        line = self._finished[key]
        self._written.seek(line.start)
        return _read(self._written.read(line.size))[1]

    def _count(self, line: JournalLine) -> None:
        self._done, self._kept = self._done + 1, self._kept + (line.verdict == KEPT)
        self._tokens += line.usage.prompt_tokens + line.usage.completion_tokens
        self._show()

    def _fail(self, key: Key, error: str) -> None:
        logger.warning("item %s failed: %s", "/".join(map(str, key)), error[:300])
        self.failures[key] = error
        self._failed.write(json_line({"key": key, "error": error}))
        self._failed.flush()
        self._show()

    def _show(self) -> None:
        counts = f"kept {self._kept}, rejected {self._done - self._kept}, failed {len(self.failures)}"
        self._bar.set_postfix_str(f"{counts}, {self._tokens:,} tokens", refresh=False)
        self._bar.update()

    def finished(self, *, kept: bool | None = None) -> list[Key]:
        """The finished items in input order; only kept ones, or only rejected ones, where ``kept`` is given."""
        lines = ((key, self._finished[key]) for key in self._items if key in self._finished)
        return [key for key, line in lines if kept is None or (line.verdict == KEPT) == kept]

    def results(self, *, kept: bool | None = None) -> Iterator[tuple[Key, Outcome]]:
        """The outcomes of :meth:`finished` items, read from the journal one after the other."""
        for key in self.finished(kept=kept):
            yield key, self.outcome(key)

    def summary(self) -> dict[str, Any]:
        """Counts and costs of all that was played, as ``report.json`` holds them."""
        lines = [self._finished[key] for key in self.finished()]
        verdicts = Counter(line.verdict for line in lines)
        kept = verdicts.pop(KEPT, 0)
        usage = sum((line.usage for line in lines), Usage())
        return {
            "items": len(self._items),
            "kept": kept,
            "rejected": dict(sorted(verdicts.items())),
            "failed": len(self._items) - len(lines),
            "usage": asdict(usage),
            "cost": round(self.options.cost(usage), 6),
            "cost_per_kept": round(self.options.cost(usage) / kept, 6) if kept else None,
        }

    def write_rows(self, name: str, rows: Iterable[Any]) -> Path:
        """Write an output, one JSON value a line; the file is there as a whole or not at all."""
        path = self.folder / name
        write_whole(path, map(json_line, rows))
        return path

    def write_report(self, title: str, more: Mapping[str, Any] | None = None) -> str:
        """Write ``report.json`` with further numbers; returns a table of all that aren't structures."""
        summary = {**self.summary(), **(more or {})}
        write_whole(self.folder / REPORT_FILE, [json.dumps(summary, indent=2) + "\n"])
        return table(title, summary)


def table(title: str, summary: Mapping[str, Any]) -> str:
    """A job's summary as text: one name and number a line."""
    numbers: dict[str, Any] = {"items": summary["items"], "kept": summary["kept"]}
    numbers |= {f"rejected: {reason}": count for reason, count in summary["rejected"].items()}
    numbers["failed (tried again at the next start)"] = summary["failed"]
    more = {name: summary["usage"][name] for name in ("prompt_tokens", "completion_tokens")}
    more |= {name: f"{summary[name]:.4f}" for name in ("cost", "cost_per_kept") if summary[name]}
    shown = {"items", "kept", "rejected", "failed", "usage", "cost", "cost_per_kept"}
    more |= {name: value for name, value in summary.items() if name not in shown}
    numbers |= {name.replace("_", " "): value for name, value in more.items() if isinstance(value, int | float | str)}
    rows = [(name, f"{value:,}" if isinstance(value, int) else str(value)) for name, value in numbers.items()]
    width = max(map(len, numbers))
    return "\n".join([title, *(f"  {name:<{width}}  {value:>12}" for name, value in rows)])


@contextmanager
def open_job(
    options: JobOptions, settings: Mapping[str, Any], kind: str, total: int | None = None
) -> Iterator[SynthesisJob]:
    """Start a job, or resume the one in its folder, which must have been started with the same settings.

    Args:
        settings: Plain data; everything that results depend on.
        kind: Name of the job in messages, e.g. ``distillation``.
        total: Items of the progress bar; None counts those of each ``play``.
    """
    article, folder = "an" if kind[0] in "aeiou" else "a", options.folder
    claim_folder(folder, {"job": kind, **settings}, SETTINGS_FILE, f"{article} {kind}", KNOWN_LATER)
    with (
        open_journal(folder / JOURNAL_FILE, kind) as journal,
        (folder / JOURNAL_FILE).open("rb") as written,
        (folder / FAILURES_FILE).open("w", encoding="utf-8") as failed,
        tqdm(total=total, desc=kind, unit="item", smoothing=0.05, file=sys.stderr) as bar,
    ):
        yield SynthesisJob(options, journal, written, failed, bar)


def read_journal(path: Path) -> dict[Key, JournalLine]:
    """The outcomes in a journal. A line that isn't one is reported and skipped: its item is done again."""
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
