"""Recorded episodes as the page shows them: columns for the list, details of one episode, groups with advantages."""

import json
import math
import re
import statistics
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from agentic_video.data.records import VERSION, Record, RecordError
from agentic_video.rollout.trajectory import FrameRef, RecordedPart, Turn
from agentic_video.systems.base import Action, Answer, Calls, Illegal

ADVANTAGE_EPSILON = 1e-6
"""What verl adds to a group's standard deviation before it divides by it."""
LOG_PROBS = "log_probs"
"""Where a record's provenance may hold the log-probabilities of the generated ids: one list a turn."""
Decode = Callable[[int], str]
"""The text of a token."""
_SHOWN_PROBLEMS = 200
_PREVIEW = 200
"""Characters of an answer that the list shows."""


def by_number(token: int) -> str:
    """Stands in for a token's text where there is no tokenizer."""
    return f"#{token} "


class ViewError(Exception):
    """There is nothing to view; the message says what was looked for."""


@dataclass(frozen=True)
class Source:
    """A file of records.

    Attributes:
        path: The file.
        set_name: What the list calls the files of its kind, e.g. "episodes".
    """

    path: Path
    set_name: str


@dataclass(frozen=True)
class Grouping:
    """What the run's config says about its groups.

    Attributes:
        size: Rollouts a question; None where it isn't known.
        by_std: Whether the advantage is divided by the group's standard deviation.
    """

    size: int | None = None
    by_std: bool = True


@dataclass(frozen=True)
class Row:
    """One line of the list.

    Attributes:
        step: Training step, where the record or the file's name tells it.
        question: Number of its question in ``Episodes.questions``.
        group: Number of its group: the rollouts of one question in one file.
        advantage: As GRPO computes it over the group's recorded rewards; None where there is no second one.
        frames: Number of shown frames, overview included.
        tokens: Tokens of the whole sequence, 0 where none were counted.
    """

    set_name: str
    step: int | None
    question: int
    group: int
    rollout: int
    system: str
    end: str
    data_source: str
    answer: str | None
    reward: float | None
    acc: float | None
    calls: int
    refused: int
    turns: int
    frames: int
    tokens: int
    advantage: float | None = None


@dataclass(frozen=True)
class Question:
    """One question about one video; ``video`` is where the file is looked for."""

    id: str
    text: str
    video: str


class Episodes:
    """All episodes of a report, compact enough for tens of thousands.

    Args:
        decode: The texts of recorded token ids.

    Attributes:
        rows: The list, in the order in which the episodes were read.
        questions: What ``Row.question`` counts.
        problems: One message for each line or file that was left out.
    """

    def __init__(self, decode: Decode = by_number) -> None:
        self._decode = decode
        self.rows: list[Row] = []
        self.questions: list[Question] = []
        self.problems: list[str] = []
        self._details: list[bytes] = []
        self._words: list[str] = []

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, record: Record, source: Source, question: int, group: int, step: int | None) -> None:
        """Append an episode."""
        trajectory, rewards = record.trajectory, record.rewards
        answer = trajectory.answer
        self.rows.append(
            Row(
                set_name=source.set_name,
                step=step,
                question=question,
                group=group,
                rollout=trajectory.rollout_index,
                system=trajectory.system,
                end=trajectory.end.value,
                data_source=record.qa.data_source,
                answer=None if answer is None else answer[:_PREVIEW],
                reward=_finite(rewards.get("reward")),
                acc=_finite(rewards.get("acc")),
                calls=trajectory.tool_calls,
                refused=trajectory.illegal_calls,
                turns=len(trajectory.turns),
                frames=len(trajectory.frames),
                tokens=trajectory.num_tokens,
            )
        )
        self._details.append(zlib.compress(to_json(detail_of(record, self._decode)).encode("ascii"), 1))
        # Single spaces, so that words with a line break between them are found.
        said = (record.qa.id, record.qa.question, *record.qa.options, *(turn.text for turn in trajectory.turns))
        self._words.append(" ".join(" ".join(said).split()).lower())

    def detail(self, number: int) -> dict[str, Any]:
        """All about one episode (see :func:`detail_of`)."""
        detail: dict[str, Any] = json.loads(zlib.decompress(self._details[number]))
        return detail

    def search(self, text: str) -> list[int]:
        """Numbers of the episodes whose id, question, options or turns hold a text; case doesn't count."""
        wanted = " ".join(text.split()).lower()
        return [number for number, words in enumerate(self._words) if wanted in words]

    def video(self, number: int) -> str:
        """Where an episode's video is looked for."""
        return self.questions[self.rows[number].question].video

    def newest(self, count: int) -> list[int]:
        """Numbers of the episodes that the page lists first: of the latest steps, as they were read."""
        order = sorted(range(len(self)), key=lambda number: (-(_or(self.rows[number].step, -1)), number))
        return order[: max(0, count)]

    def set_advantages(self, by_std: bool) -> None:
        """Compute the advantages of all groups."""
        members: dict[int, list[int]] = {}
        for number, row in enumerate(self.rows):
            if row.reward is not None:
                members.setdefault(row.group, []).append(number)
        for numbers in members.values():
            rewards = [_or(self.rows[number].reward, 0.0) for number in numbers]
            for number, advantage in zip(numbers, group_advantages(rewards, by_std), strict=True):
                self.rows[number] = replace(self.rows[number], advantage=advantage)


def group_advantages(rewards: Sequence[float], by_std: bool = True) -> list[float | None]:
    """GRPO's advantages within one group: (reward - mean) / (standard deviation + 1e-6), as verl computes them.

    Args:
        rewards: Of the group's rollouts.
        by_std: False leaves the division out.

    Returns:
        One for each; None for a group of one, which compares with nothing.
    """
    if len(rewards) < 2:
        return [None] * len(rewards)
    mean = statistics.fmean(rewards)
    scale = statistics.stdev(rewards) + ADVANTAGE_EPSILON if by_std else 1.0
    return [(reward - mean) / scale for reward in rewards]


def detail_of(record: Record, decode: Decode = by_number) -> dict[str, Any]:
    """An episode as plain data; a frame is ``[number in the video, time in seconds, width, height]``."""
    trajectory = record.trajectory
    log_probs = record.provenance.get(LOG_PROBS)
    return {
        "options": list(record.qa.options),
        "right": record.qa.answer,
        "video": record.qa.video,
        "extra": dict(record.qa.extra),
        "opening": [{"role": message.role, "parts": _parts(message.parts)} for message in trajectory.opening],
        "turns": [
            {
                "text": turn.text,
                "action": _action(turn.action),
                "num_tokens": turn.num_tokens,
                "finished": turn.finished,
                "parts": _parts(turn.observation),
                "legal": turn.legal_calls,
                "illegal": turn.illegal_calls,
                "tokens": _tokens(turn, log_probs[number : number + 1] if isinstance(log_probs, list) else [], decode),
            }
            for number, turn in enumerate(trajectory.turns)
        ],
        "error": trajectory.error,
        "rewards": {name: _finite(value) for name, value in record.rewards.items()},
        "provenance": {key: value for key, value in record.provenance.items() if key != LOG_PROBS},
    }


def _parts(parts: Iterable[RecordedPart]) -> list[Any]:
    return [
        [part.index, round(part.time, 3), part.width, part.height] if isinstance(part, FrameRef) else part
        for part in parts
    ]


def _action(action: Action) -> dict[str, Any]:
    match action:
        case Answer(text):
            return {"kind": "answer", "text": text}
        case Illegal(reason):
            return {"kind": "illegal", "reason": reason}
        case Calls(calls):
            return {
                "kind": "calls",
                "calls": [{"name": call.name, "arguments": dict(call.arguments)} for call in calls],
            }


def _tokens(turn: Turn, log_probs: list[Any], decode: Decode) -> list[list[Any]] | None:
    """A turn's generated tokens as [text, log-probability or None]; None where their ids weren't recorded."""
    if not turn.token_ids:
        return None
    values = log_probs[0] if log_probs else None
    if not isinstance(values, list) or len(values) != len(turn.token_ids):
        values = [None] * len(turn.token_ids)
    return [[decode(token), _finite(value)] for token, value in zip(turn.token_ids, values, strict=True)]


def load_episodes(
    paths: Sequence[Path], videos: Path | None = None, decode: Decode = by_number
) -> tuple[Episodes, Grouping]:
    """Read the episodes below some folders or in some files. A bad line is left out and reported.

    Args:
        paths: Runs' folders, any folders with files of records, or such files.
        videos: Where to look for a video, by its name, that isn't where its record says.
        decode: The texts of recorded token ids.

    Returns:
        The episodes, and what the run's config says about groups.

    Raises:
        ViewError: A path doesn't exist, or there isn't a single episode.
    """
    sources = [source for path in paths for source in find_sources(path)]
    grouping = next((found for path in paths if (found := read_grouping(path))), Grouping())
    episodes = Episodes(decode)
    questions: dict[tuple[str, str, str], int] = {}
    groups: dict[tuple[int, int | None, int], int] = {}
    for number, source in enumerate(sources):
        for record in _read(source.path, episodes.problems):
            qa = record.qa
            key = (qa.id, qa.question, qa.video)
            if key not in questions:
                questions[key] = len(questions)
                episodes.questions.append(Question(qa.id, qa.question, locate_video(qa.video, source.path, videos)))
            step = _step(record, source.path)
            group = groups.setdefault((number, step, questions[key]), len(groups))
            episodes.add(record, source, questions[key], group, step)
    if not episodes.rows:
        looked = ", ".join(str(path) for path in paths)
        first = f"; the first problem: {episodes.problems[0]}" if episodes.problems else ""
        raise ViewError(
            f"no episode in {looked}{first}. Name a run's folder (outputs/<recipe>-<profile>/run-NNN) or a jsonl file "
            "of records (agentic_video/data/records.py)"
        )
    episodes.set_advantages(grouping.by_std)
    return episodes, grouping


def find_sources(path: Path) -> list[Source]:
    """Files of records: the path itself, or those below a folder, in order of their paths.

    Raises:
        ViewError: The path doesn't exist.
    """
    if path.is_file():
        return [Source(path, _unnumbered(path.stem))]
    if not path.is_dir():
        raise ViewError(f"{path} is neither a folder nor a file; name a run's folder or a jsonl file of records")
    files = [file for file in sorted(path.rglob("*.jsonl")) if file.is_file() and _holds_records(file)]
    return [Source(file, file.parent.name if file.parent != path else _unnumbered(file.stem)) for file in files]


def _unnumbered(stem: str) -> str:
    """A file's name without its number: "episodes" for "episodes-003", "step" for "step_000020"."""
    return re.sub(r"[-_]?\d+$", "", stem) or stem


def _holds_records(file: Path) -> bool:
    """Whether the first line looks like a record, be it a damaged one. Runs and data-making jobs have other json lines
    too, journals of records among them, whose records are also in a file of their own."""
    try:
        with file.open("rb") as lines:
            first = next((line for line in lines if line.strip()), b"")
    except OSError:
        return False
    try:
        read = json.loads(first)
    except (ValueError, RecursionError):
        return b'"trajectory"' in first
    return isinstance(read, dict) and "trajectory" in read


def read_grouping(path: Path) -> Grouping | None:
    """Group size and advantage from the config that a run left beside its episodes, if it is there."""
    for folder in (path, *path.parents[:2]):
        file = folder / "hydra" / ".hydra" / "config.yaml"
        if not file.is_file():
            continue
        try:
            config = yaml.safe_load(file.read_text(encoding="utf-8"))
            size = config["actor_rollout_ref"]["rollout"]["n"]
            by_std = config["algorithm"].get("norm_adv_by_std_in_grpo", True)
        except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError):
            return None
        return Grouping(size if isinstance(size, int) else None, by_std is not False)
    return None


def locate_video(video: str, file: Path, videos: Path | None) -> str:
    """Where a record's video is: where it says (a relative path starts at its file's folder), or below ``videos``."""
    path = Path(video)
    recorded = path if path.is_absolute() else file.parent / path
    if videos is not None and not _is_file(recorded):
        # The longest tail of the path that exists there: data sets keep folders of equally named files.
        parts = [part for part in path.parts if part not in ("/", "..")]
        for start in range(len(parts)):
            candidate = videos.joinpath(*parts[start:])
            if _is_file(candidate):
                return str(candidate)
    return str(recorded)


def missing_videos(questions: Iterable[Question]) -> tuple[int, list[str]]:
    """Number of distinct videos, and those of them that aren't there."""
    paths = dict.fromkeys(question.video for question in questions)
    return len(paths), [path for path in paths if not _is_file(Path(path))]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # ValueError: a null character
        return False


def _read(path: Path, problems: list[str]) -> Iterator[Record]:
    """A file's records. Those of versions of the trainer that wrote no ``version`` are read as well."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                where = f"{path} line {number}"
                try:
                    raw = json.loads(line.decode("utf-8"))
                    yield Record.from_dict({"version": VERSION, **raw} if isinstance(raw, dict) else raw, where)
                except RecordError as error:
                    problems.append(str(error))
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                    problems.append(f"{where}: not a record: {type(error).__name__}: {error}")
    except OSError as error:
        problems.append(f"{path}: can't be read: {error.strerror}")


def _step(record: Record, path: Path) -> int | None:
    step = record.provenance.get("step")
    if isinstance(step, int) and not isinstance(step, bool):
        return step
    match = re.fullmatch(r"(?:step_)?(\d{1,9})", path.stem)
    return int(match[1]) if match else None


def index_of(episodes: Episodes, grouping: Grouping, title: str) -> dict[str, Any]:
    """What the page needs before an episode is opened: the list as columns, with names counted once."""
    total, missing = missing_videos(episodes.questions)
    names: dict[str, list[str]] = {}

    def named(column: str) -> list[int]:
        numbers: dict[str, int] = {}
        values = [numbers.setdefault(getattr(row, column), len(numbers)) for row in episodes.rows]
        names[column] = list(numbers)
        return values

    columns: dict[str, list[Any]] = {
        column: named(column) for column in ("set_name", "system", "end", "data_source")
    }  # fmt: skip
    plain = ("step", "question", "group", "rollout", "answer", "acc", "calls", "refused", "turns", "frames", "tokens")
    columns.update({column: [getattr(row, column) for row in episodes.rows] for column in plain})
    for column in ("reward", "advantage"):
        values = [getattr(row, column) for row in episodes.rows]
        columns[column] = [None if value is None else round(value, 6) for value in values]
    return {
        "title": title,
        "columns": columns,
        "names": names,
        "questions": [[question.id, question.text] for question in episodes.questions],
        "group_size": grouping.size,
        "by_std": grouping.by_std,
        "videos": {"total": total, "missing": len(missing), "paths": missing[:_SHOWN_PROBLEMS]},
        "problems": {"total": len(episodes.problems), "messages": episodes.problems[:_SHOWN_PROBLEMS]},
    }


_COMPACT = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def to_json(value: Any) -> str:
    """JSON that is safe anywhere in an HTML page: ASCII, without ``<``, ``>`` and ``&``, and without NaN.

    Half surrogate pairs and U+2028 become escapes, as all characters beyond ASCII.
    """
    try:
        text = _COMPACT.encode(value)
    except ValueError:  # NaN or infinity somewhere
        text = _COMPACT.encode(_plain(value))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    """With None in place of numbers that JSON doesn't have."""
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
