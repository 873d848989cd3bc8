"""What ``agentic-video convert`` says of the rows that it has made, in a report beside them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentic_video.converters.base import ProblemKind
from agentic_video.converters.run import report_path

BAD: tuple[ProblemKind, ...] = ("bad_row", "duplicate_id", "unsupported")
"""Why rows are left out that whoever has the published files can't play either."""


def reports_of(files: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    """The reports beside files of rows, where they are there."""
    for file in files:
        try:
            report = json.loads(report_path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(report, dict):
            yield report


def lacking(report: Mapping[str, Any]) -> int:
    """How many questions were left out because their videos weren't there."""
    return int(report.get("counts", {}).get("missing_video", 0))
