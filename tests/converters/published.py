"""Small hand-written files in the published formats, and the rows that they must become (``published.yaml``)."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml


@dataclass(frozen=True)
class Sample:
    file: str  # Its path below the source
    rows: Any  # Good rows (an object of rows for a keyed file)
    videos: Sequence[str]  # Files below the videos' folder
    # Of each resulting row: id without the data set's name, video, question, options, answer
    expected: Sequence[tuple[Any, ...]]
    extra: Mapping[str, Any]  # Some of the first row's extra_info
    fields: Sequence[str]  # Fields of the first row without which it is bad, as paths
    split: str | None = None
    subtitles: Mapping[str, str] = field(default_factory=dict)  # Other files below the source
    # The gold windows of each resulting row; None for a set without any
    windows: Sequence[list[list[float]] | None] | None = None

    def write(self, folder: Path, rows: Any = None) -> Path:
        """Write the file and the videos to ``source`` and ``videos`` below a folder; the file's path."""
        path = folder / "source" / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[path.suffix](path, self.rows if rows is None else rows)
        for name, text in self.subtitles.items():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "source" / name).write_text(text, encoding="utf-8")
        for name in self.videos:
            (folder / "videos" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "videos" / name).write_bytes(b"not read")
        return path


def _json(path: Path, rows: Any) -> None:
    path.write_text(json.dumps(rows), encoding="utf-8")


def _lines(path: Path, rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _csv(path: Path, rows: Any) -> None:
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def _parquet(path: Path, rows: Any) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def _text(path: Path, rows: Any) -> None:
    path.write_text("".join(row["line"] + "\n" for row in rows), encoding="utf-8")


WRITERS: dict[str, Callable[[Path, Any], None]] = {
    ".json": _json,
    ".jsonl": _lines,
    ".csv": _csv,
    ".parquet": _parquet,
    ".txt": _text,
}

SAMPLES: dict[str, Sample] = {
    name: Sample(**fields)
    for name, fields in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).items()
}
"""By name of the converter."""
