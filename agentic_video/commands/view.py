"""``agentic-video view``: look at recorded episodes in a browser."""

import argparse
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentic_video.report.viewer.episodes import Decode

PORT = 8765
THUMBNAIL = 160
"""Longest side of a small picture, in pixels."""
LARGE = 150 * 2**20
"""Bytes of a report beyond which a server is the better way."""
_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "paths", nargs="+", type=Path, metavar="RUN_OR_FILE",
        help="a run's folder (outputs/<recipe>-<profile>/run-NNN), any folder, or a jsonl file of episodes",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="the report to write (default: episodes.html in the run's folder)")
    parser.add_argument(
        "--images",
        type=_count,
        default=60,
        metavar="N",
        help="only the newest N episodes get pictures (default %(default)s)",
    )
    parser.add_argument(
        "--side",
        type=_side,
        default=THUMBNAIL,
        metavar="PIXELS",
        help="longest side of pictures (default %(default)s)",
    )
    parser.add_argument(
        "--videos", type=Path, metavar="FOLDER", help="where videos are that aren't where their records say"
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FOLDER",
        help="a checkpoint; its tokenizer gives recorded ids their texts",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="serve on 127.0.0.1 instead, pictures on demand",
    )
    parser.add_argument("--port", type=int, default=PORT, help="of the server, 0 for a free one (default %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Write the report, or serve it until interrupted; the exit status."""
    # Here, as the command's other subcommands need none of it.
    from agentic_video.report.viewer.episodes import by_number
    from agentic_video.report.viewer.page import write_page
    from agentic_video.report.viewer.server import HOST, ViewServer
    from agentic_video.report.viewer.sources import ViewError, load_episodes, missing_videos

    if arguments.serve and arguments.out:
        return _fail("--out writes a report and --serve serves one; choose one of them")
    try:
        decode = _decoder(arguments.tokenizer) if arguments.tokenizer else by_number
        episodes, grouping = load_episodes(arguments.paths, arguments.videos, decode)
    except ViewError as error:
        return _fail(str(error))
    _tell(f"{len(episodes.problems)} lines or files left out", episodes.problems)
    total, missing = missing_videos(episodes.questions)
    _tell(f"{len(missing)} of {total} videos are missing (--videos FOLDER looks elsewhere)", missing)
    first = arguments.paths[0].resolve()
    title = f"{first.parent.name}/{first.name}" + (f" and {len(arguments.paths) - 1} more" * (len(arguments.paths) > 1))
    if arguments.serve:
        try:
            server = ViewServer(episodes, grouping, title, arguments.port, arguments.side)
        except (OSError, OverflowError) as error:
            return _fail(f"can't serve on port {arguments.port}: {error}; name another with --port (0: a free one)")
        print(f"{len(episodes)} episodes at http://{HOST}:{server.server_port}/ (Ctrl-C ends)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            server.server_close()
        return 0
    out = arguments.out or (first / "episodes.html" if first.is_dir() else first.with_suffix(".html"))
    try:
        written = write_page(out, episodes, grouping, title, images=arguments.images, side=arguments.side)
    except OSError as error:
        return _fail(f"can't write {out}: {error}; name another file with --out")
    unreadable = f" ({written.unreadable} of their videos couldn't be read)" if written.unreadable else ""
    print(
        f"{len(episodes)} episodes, {written.pictured} with pictures{unreadable}, {written.size / 2**20:.1f} MiB: {out}"
    )
    if written.size > LARGE:
        print("this report is large: `agentic-video view --serve` opens faster")
    return 0


def _decoder(folder: Path) -> "Decode":
    """Texts of single tokens by a checkpoint's tokenizer. Nothing is downloaded.

    Raises:
        ViewError: There is none.
    """
    from agentic_video.report.viewer.sources import ViewError

    if not folder.is_dir():
        raise ViewError(f"{folder} isn't a folder; --tokenizer wants a checkpoint's folder")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ViewError(f"{folder} holds no tokenizer: {error}") from error
    return lru_cache(maxsize=None)(lambda token: str(tokenizer.decode([token])))


def _tell(what: str, items: Sequence[str]) -> None:
    """Say that there are some, and name the first of them."""
    if items:
        print(f"{what}:", *items[:_SHOWN], *(["..."] if len(items) > _SHOWN else []), sep="\n  ", file=sys.stderr)


def _fail(message: str) -> int:
    print(f"agentic-video view: {message}", file=sys.stderr)
    return 1


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _side(text: str) -> int:
    value = int(text)
    if not 16 <= value <= 1024:
        raise argparse.ArgumentTypeError("must be from 16 to 1024")
    return value
