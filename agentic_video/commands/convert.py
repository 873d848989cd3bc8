"""Make rows of a published data set."""

import argparse
import sys
from pathlib import Path

from agentic_video.commands.guard import refused
from agentic_video.commands.numbers import positive
from agentic_video.commands.paths import path
from agentic_video.converters import CONVERTERS
from agentic_video.converters.base import ConvertError

TAKES_OVERRIDES = False


def listing() -> str:
    """All data sets, one a line."""
    lines = [("NAME", "KIND", "SPLITS (OFFICIAL ROWS)", "LICENCE", "SOURCE")]
    for converter in CONVERTERS.values():
        splits = ", ".join(
            name if split.rows is None else f"{name} ({split.rows:,})" for name, split in converter.splits.items()
        )
        lines.append((converter.name, converter.kind, splits, converter.licence, converter.source))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video convert``."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the data set; --list names all")
    parser.add_argument("--list", action="store_true", help="list the data sets and stop")
    parser.add_argument("--source", type=path, metavar="PATH", help="folder of the annotations, or one annotation file")
    parser.add_argument("--videos", type=path, metavar="FOLDER", help="folder of the videos (default: the source)")
    parser.add_argument("--out", type=path, metavar="FILE", help="file of rows to write: .parquet or .jsonl")
    parser.add_argument("--split", metavar="NAME", help="official split (default: the first that --list names)")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N rows (default: all)")
    parser.add_argument(
        "--sample",
        type=positive,
        metavar="N",
        help="N of all rows, drawn evenly, the same ones each time (default: all)",
    )
    parser.add_argument(
        "--subtitles",
        type=_subtitles,
        nargs="?",
        const="all",
        metavar="N",
        help="put the subtitles before each question: all of them, or those that are on at N evenly spaced frames "
        "(Video-MME's own protocol, with as many frames as the model is shown)",
    )


def _subtitles(text: str) -> int | str:
    return text if text == "all" else positive(text)


def run(arguments: argparse.Namespace) -> int:
    """Convert.

    Returns:
        Exit status: 0 when rows were written, 1 when none could be, 2 when the options don't fit.
    """
    if arguments.list:
        print(listing())
        return 0
    try:
        if arguments.name not in CONVERTERS:
            named = f"no data set {arguments.name!r}" if arguments.name else "name a data set"
            raise ConvertError(f"{named}; there are {', '.join(CONVERTERS)}")
        if arguments.source is None or arguments.out is None:
            raise ConvertError("--source and --out are needed")
        source: Path = arguments.source
        from agentic_video.converters.run import convert, summary

        report = convert(
            CONVERTERS[arguments.name],
            source,
            arguments.videos or (source.parent if source.is_file() else source),
            arguments.out,
            split=arguments.split,
            limit=arguments.limit,
            sample=arguments.sample,
            subtitles=arguments.subtitles,
            progress=sys.stderr.isatty(),
        )
    except ConvertError as error:
        return refused(str(error))
    print(summary(report))
    return 0 if report.rows else 1
