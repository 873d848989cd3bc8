"""From runs' folders and files to the page: what ``agentic-video view`` writes or serves."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agentic_video.report.viewer.episodes import Decode, Episodes, by_number
from agentic_video.report.viewer.page import Written, may_replace, write_page
from agentic_video.report.viewer.server import ViewServer
from agentic_video.report.viewer.sources import Reader, ViewError, missing_videos
from agentic_video.utils.workdir import check_output


@dataclass(frozen=True)
class View:
    """Episodes that were read, to be written or served.

    Attributes:
        reader: Has read them.
        title: Of the page.
        default_out: The report's file where no other is named.
        videos: How many the episodes are about.
        missing: Those among them that aren't there.
    """

    reader: Reader
    title: str
    default_out: Path
    videos: int
    missing: tuple[str, ...]

    @property
    def episodes(self) -> Episodes:
        """All of them."""
        return self.reader.episodes

    def write(self, out: Path | None, *, images: int, side: int) -> tuple[Path, Written]:
        """Write the report.

        Args:
            out: Its file; None takes the default one.
            images: Most episodes that get pictures; the newest ones do.
            side: Longest side of a picture in pixels.

        Returns:
            The file, and what it holds.

        Raises:
            SetupError: The file can't be written, was read, or is there and no report; it is left as it was.
        """
        out = out or self.default_out
        check_output(out, self.reader.files)
        try:
            if not may_replace(out):
                raise ViewError(f"{out}: is there and isn't a report of episodes; name another file with --out")
            written = write_page(out, self.episodes, self.reader.grouping, self.title, images=images, side=side)
        except OSError as error:
            raise ViewError(f"can't write {out}: {error.strerror}; name another file with --out") from error
        return out, written

    def server(self, port: int, side: int) -> ViewServer:
        """A server of the same page, to be started and closed by the caller.

        Args:
            port: 0 for a free one.
            side: Longest side of a picture in pixels.

        Raises:
            ViewError: The port can't be had.
        """
        try:
            return ViewServer(self.reader, self.title, port, side)
        except (OSError, OverflowError) as error:
            raise ViewError(f"can't serve on port {port}: {error}; name another with --port (0: a free one)") from error


def load_view(
    paths: Sequence[Path], videos: Path | None = None, tokenizer: Path | None = None, *, wait: bool = False
) -> View:
    """Read episodes.

    Args:
        paths: Runs' folders, any folders with files of records, or such files; the page is named after the first.
        videos: Where to look for a video, by its name, that isn't where its record says.
        tokenizer: A checkpoint's folder, whose tokenizer gives recorded ids their texts.
        wait: A run's folder that has no episode yet will do.

    Raises:
        ViewError: A path doesn't exist, there isn't a single episode, or there is no tokenizer.
    """
    reader = Reader(paths, videos, decoder(tokenizer) if tokenizer else by_number)
    reader.read()
    reader.check(wait=wait)
    total, missing = missing_videos(reader.episodes.questions)
    first = paths[0].resolve()
    return View(
        reader,
        title=f"{first.parent.name}/{first.name}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else ""),
        default_out=first / "episodes.html" if first.is_dir() else first.with_suffix(".html"),
        videos=total,
        missing=tuple(missing),
    )


def decoder(folder: Path) -> Decode:
    """Texts of single tokens by a checkpoint's tokenizer. Nothing is downloaded.

    Raises:
        ViewError: There is none.
    """
    if not folder.is_dir():
        raise ViewError(f"{folder} isn't a folder; --tokenizer wants a checkpoint's folder")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ViewError(f"{folder} holds no tokenizer: {error}") from error
    return lru_cache(maxsize=None)(lambda token: str(tokenizer.decode([token])))
