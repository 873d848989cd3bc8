"""Look at recorded episodes in a browser: a report of one file, or a local server for large runs."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentic_video.commands.numbers import natural, picture_side, port
from agentic_video.commands.paths import path
from agentic_video.types.text import printable
from agentic_video.utils.errors import SetupError

if TYPE_CHECKING:
    from agentic_video.report.viewer.view import View

TAKES_OVERRIDES = False

PORT = 8765
THUMBNAIL = 160
"""Longest side of a small picture, in pixels."""
LARGE = 150 * 2**20
"""Bytes of a report beyond which a server is the better way."""
_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agentic-video view``."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=path,
        metavar="RUN_OR_FILE",
        help="a run's folder (outputs/<recipe>-<profile>/run-NNN), any folder, or a jsonl file of episodes",
    )
    parser.add_argument(
        "--out", type=path, metavar="FILE", help="the report to write (default: episodes.html in the run's folder)"
    )
    parser.add_argument(
        "--images",
        type=natural,
        default=60,
        metavar="N",
        help="only the newest N episodes get pictures (default: %(default)s)",
    )
    parser.add_argument(
        "--side",
        type=picture_side,
        default=THUMBNAIL,
        metavar="PIXELS",
        help="longest side of pictures (default: %(default)s)",
    )
    parser.add_argument(
        "--videos", type=path, metavar="FOLDER", help="where videos are that aren't where their records say"
    )
    parser.add_argument(
        "--tokenizer",
        type=path,
        metavar="FOLDER",
        help="a checkpoint; its tokenizer gives recorded ids their texts",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="serve on 127.0.0.1 instead, pictures on demand; new episodes of a running job appear by themselves",
    )
    parser.add_argument(
        "--port", type=port, default=PORT, metavar="N", help="of the server; 0 for a free one (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report, or serve it until interrupted.

    Returns:
        Exit status: 0.

    Raises:
        SetupError: There is nothing to view, or no way to show it.
    """
    from agentic_video.report.viewer.view import load_view

    if arguments.serve and arguments.out:
        raise SetupError("--out writes a report and --serve serves one; choose one of them")
    if arguments.videos is not None and not arguments.videos.is_dir():
        what = "a file; name a folder" if arguments.videos.exists() else "no such folder"
        raise SetupError(f"--videos {arguments.videos}: {what}")
    view = load_view(arguments.paths, arguments.videos, arguments.tokenizer, wait=arguments.serve)
    problems = view.episodes.problems
    _tell(f"{len(problems)} lines or files left out", problems)
    _tell(f"{len(view.missing)} of {view.videos} videos are missing (--videos FOLDER looks elsewhere)", view.missing)
    if arguments.serve:
        _serve(view, arguments.port, arguments.side)
    else:
        _write(view, arguments.out, images=arguments.images, side=arguments.side)
    return 0


def _serve(view: "View", port: int, side: int) -> None:
    from agentic_video.report.viewer.server import HOST

    server = view.server(port, side)
    there = f"{len(view.episodes)} episodes" if len(view.episodes) else "no episode yet: new ones will be shown"
    print(f"{there} at http://{HOST}:{server.server_port}/ (Ctrl-C ends)", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()


def _write(view: "View", out: Path | None, *, images: int, side: int) -> None:
    out, written = view.write(out, images=images, side=side)
    unreadable = f" ({written.unreadable} of their videos couldn't be read)" if written.unreadable else ""
    megabytes = f"{written.size / 2**20:.1f} MiB"
    print(f"{len(view.episodes)} episodes, {written.pictured} with pictures{unreadable}, {megabytes}: {out}")
    if written.size > LARGE:
        print("this report is large: `agentic-video view --serve` opens faster")


def _tell(what: str, items: Sequence[str]) -> None:
    """Say that there are some, and name the first of them."""
    if items:
        print(
            f"{what}:",
            *map(printable, items[:_SHOWN]),
            *(["..."] if len(items) > _SHOWN else []),
            sep="\n  ",
            file=sys.stderr,
        )
