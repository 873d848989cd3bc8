"""The commands in the documentation: the pages' bash blocks, taken apart as a shell would."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.tables import REPOSITORY

PAGES = sorted(
    page
    for pattern in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/**/*.md",
        "docker/README.md",
        "recipes/*/README.md",
        "examples/**/README.md",
    )
    for page in REPOSITORY.glob(pattern)
)
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ASSIGNED = re.compile(r"\w+=")
SEPARATORS = set("\n;&|<>")


@dataclass(frozen=True)
class Block:
    """A bash block of a page.

    Attributes:
        page: Path of the page in the repository.
        line: Where it begins.
        needs: Its title: what it needs to run; empty where it must run as it is.
        text: What is in it.
        shown: Whether it is a file that the page shows, not something to type.
    """

    page: str
    line: int
    needs: str
    text: str
    shown: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks() -> Iterator[Block]:
    """All bash blocks of all pages."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in FENCE.finditer(text):
            if found[1] != "bash":
                continue
            title = re.fullmatch(r'(?: title="([^"]+)")?', found[2])
            assert title, f"{page}: {found[2]}"
            before = text[: found.start()]
            shown = bool(re.search(r"^`[\w./]+`:\n\n\Z", before, re.MULTILINE))
            yield Block(name_of(page), before.count("\n") + 1, title[1] or "", found[3], shown)


def listing_with(function: str, name: str = "extending.md") -> str:
    """The listing of a page that defines a function."""
    page = (REPOSITORY / "docs" / name).read_text(encoding="utf-8")
    listings = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (found,) = [listing for listing in listings if f"\ndef {function}(" in listing]
    return str(found)


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def outside_blocks(page: Path) -> str:
    """A page without its bash blocks."""
    return FENCE.sub(lambda found: "" if found[1] == "bash" else found[0], page.read_text(encoding="utf-8"))


def commands(block: str) -> Iterator[tuple[str, ...]]:
    """The simple commands of a block as words, variables that it sets itself put in, without their environment.

    What a command substitution or an arithmetic expansion gives is ``1``.
    """
    text = re.sub(r"(^|\s)#.*$", r"\1", block, flags=re.MULTILINE).replace("\\\n", " ")
    text = re.sub(r"\$\((?:\(.*?\)|[^()]*)\)", "1", text)
    for name, quoted, plain in re.findall(r"^(\w+)=(?:\"([^\"]*)\"|(\S*))$", text, re.MULTILINE):
        text = re.sub(rf"\${name}\b", lambda _, value=quoted or plain: value, text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars="".join(SEPARATORS))
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    command: list[str] = []
    for word in [*lexer, "\n"]:
        if not set(word) <= SEPARATORS:
            command.append(word)
            continue
        while command and ASSIGNED.match(command[0]):
            del command[0]
        if command:
            yield tuple(command)
        command = []


def environment_of(block: str) -> dict[str, str]:
    """Environment variables that a block sets for what follows, or for one command."""
    text = re.sub(r"(^|\s)#.*$", r"\1", block, flags=re.MULTILINE).replace("\\\n", " ")
    return dict(re.findall(r"\b([A-Z][A-Z_]+)=(\S+)", text))


def ours(command: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """The program of this repository that a command starts, and its arguments; None for others.

    A program is ``agentic-video``, a shell script of the repository, or a module of the package.
    """
    if command[0] in ("pip", "git"):  # whose arguments may have our names
        return None
    for number, word in enumerate(command):
        rest = tuple(command[number + 1 :])
        if re.fullmatch(r"(\S*/)?agentic-video", word):
            return "agentic-video", rest
        if word == "-m" and rest and rest[0].startswith("agentic_video."):
            return rest[0], rest[1:]
        if re.fullmatch(r"(recipes|examples|benchmarks)/\S+\.(sh|py)|run_tests\.sh", word):
            return word, rest
    return None
