"""Where recorded episodes and their videos are: runs' folders, files of records, folders of videos."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from agentic_video.report.viewer.episodes import Decode, Episodes, Grouping, Question, Source, by_number
from agentic_video.types.record import Record, RecordError
from agentic_video.utils.errors import SetupError


class ViewError(SetupError):
    """There is nothing to view; the message says what was looked for."""


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
            "of records (agentic_video/types/record.py)"
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
                    yield Record.from_dict({"version": 1, **raw} if isinstance(raw, dict) else raw, where)
                except RecordError as error:
                    problems.append(str(error))
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                    problems.append(f"{where}: not a record: {type(error).__name__}: {error}")
    except OSError as error:
        problems.append(f"{path}: can't be read: {error.strerror}")


def _step(record: Record, path: Path) -> int | None:
    step = record.provenance.get("step")
    if isinstance(step, int) and not isinstance(step, bool) and abs(step) < 2**53:
        return step
    match = re.fullmatch(r"(?:step_)?(\d{1,9})", path.stem)
    return int(match[1]) if match else None
