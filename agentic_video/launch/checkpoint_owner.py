"""Owner of a folder of checkpoints that the user chooses: verl resumes from any checkpoint that it finds there.

In a run's own folder that is the run. In one that ``trainer.default_local_dir`` names, a command with another rate,
other data or another model would resume from an earlier run's weights, optimizer and place in the data; where that run
had finished, it would train nothing and end as finished.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from agentic_video.launch.options import ChangedData
from agentic_video.launch.run_folder import changed_content, forget_rows, without_content
from agentic_video.utils.checkpoints import TRACKER
from agentic_video.utils.errors import SetupError
from agentic_video.utils.workdir import write_whole

OWNER_FILE = "made_by.json"
"""Next to the checkpoints: the identity of the run that wrote them."""


@dataclass(frozen=True)
class Signature:
    """Identity of a run, the last checkpoint that it found at its first start, and whether it has finished."""

    owner: list[str]
    found: str
    finished: bool


def owner_identity(title: str, identity: Sequence[str]) -> list[str]:
    """Identity of the run whose checkpoints a folder holds; how it resumes doesn't count.

    Args:
        title: Of the recipe, the stage and the profile: a folder may be named for any of them.
        identity: See :func:`agentic_video.launch.run_folder.run_identity`.
    """
    resuming = ("trainer.resume_mode=", "trainer.resume_from_path=")
    return [title, *(entry for entry in identity if not entry.lstrip("+").startswith(resuming))]


def check_owner(folder: str, owner: Sequence[str], resume_mode: str, changed: ChangedData = "refuse") -> None:
    """Refuse to resume from another run's checkpoints.

    Unsigned ones were put there on purpose, and so were those that are no newer than the signature.

    Args:
        folder: Named by the user; empty for the run's own.
        owner: See :func:`owner_identity`.
        resume_mode: verl's ``trainer.resume_mode``; only ``auto`` resumes from whatever is there.
    """
    if not folder or resume_mode != "auto":
        return
    signed, latest = _signed(folder), _latest(folder)
    if not signed or not latest or latest == signed.found:
        return
    place = f"trainer.default_local_dir={folder} holds checkpoints of"
    remedy = (
        "name another folder, begin again there with trainer.resume_mode=disable this once, or remove "
        f"{Path(folder) / OWNER_FILE} to resume from them"
    )
    key = "trainer.default_local_dir"
    same = without_content(signed.owner) == without_content(owner)
    differing = changed_content(signed.owner, owner)
    if same and differing and changed != "continue":
        raise SetupError(
            f"{place} this run, which read something else: the content of {' and '.join(differing)} has changed; "
            f"--changed-data continue resumes from them, from the first row; or {remedy}",
            key=key,
        )
    if not same:
        differs = [
            f"{whose} {', '.join(sorted(only)[:4])}"
            for whose, only in (("theirs:", {*signed.owner} - {*owner}), ("this one's:", {*owner} - {*signed.owner}))
            if only
        ]
        raise SetupError(f"{place} another run ({'; '.join(differs) or 'in another order'}): {remedy}", key=key)
    if signed.finished:
        raise SetupError(f"{place} this run, which has finished: {remedy}", key=key)


def forget_other_rows(folder: str, owner: Sequence[str]) -> None:
    """Let a run that resumes from a folder's checkpoints begin with its first row, where they are of other rows."""
    signed = _signed(folder) if folder else None
    if signed and "TRAIN_FILES" in changed_content(signed.owner, owner):
        forget_rows(Path(folder))


def sign(folder: str, owner: Sequence[str], *, finished: bool) -> None:
    """Write whose checkpoints a folder of the user's choice holds; an empty one, or one not on this machine, isn't."""
    if not folder:
        return
    before = _signed(folder)
    # a resumed run keeps what it found at its very first start
    same = before and without_content(before.owner) == without_content(owner)
    found = before.found if before and same else _latest(folder)
    with suppress(OSError):
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_whole(Path(folder) / OWNER_FILE, [json.dumps(asdict(Signature([*owner], found, finished)))])


def _signed(folder: str) -> Signature | None:
    """A folder's signature; None where there is none that can be read."""
    try:
        return TypeAdapter(Signature).validate_json((Path(folder) / OWNER_FILE).read_bytes())
    except (OSError, ValueError):
        return None


def _latest(folder: str) -> str:
    """Number of the last complete checkpoint; empty where there is none."""
    try:
        return (Path(folder) / TRACKER).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
