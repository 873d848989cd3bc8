"""Whose checkpoints a folder of the user's choice holds: verl goes on from any that it finds there.

In a run's own folder that is the run. In one that ``trainer.default_local_dir`` names, a command with another rate,
other data or another model would go on from an earlier run's weights, optimizer and place in the data; where that run
had finished, it would train nothing and end as finished.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentic_video.launch.options import ChangedData
from agentic_video.launch.run_folder import but_for_content, changed_content, forget_rows
from agentic_video.utils.checkpoints import TRACKER
from agentic_video.utils.errors import SetupError
from agentic_video.utils.journal import write_whole

OWNER_FILE = "made_by.json"
"""Beside the checkpoints: what makes two commands the run that wrote them."""


def owner_identity(title: str, identity: Sequence[str]) -> list[str]:
    """What makes two commands the run whose checkpoints a folder holds.

    Args:
        title: Of the recipe, the stage and the profile: a folder of the user's choice may be named for any of them.
        identity: See :func:`agentic_video.launch.run_folder.run_identity`. How it resumes isn't counted: who begins
            anew goes on without saying so again.
    """
    resuming = ("trainer.resume_mode=", "trainer.resume_from_path=")
    return [title, *(one for one in identity if not one.lstrip("+").startswith(resuming))]


def check_owner(folder: str, owner: Sequence[str], resume_mode: str, changed: ChangedData = "refuse") -> None:
    """Make sure that the checkpoints from which verl would go on are this run's.

    Those that nobody signed were put there on purpose, or before there were signatures. So were those that are no newer
    than the signature: who signed has written none.

    Args:
        folder: Named by the user; empty for the run's own.
        owner: See :func:`owner_identity`.
        resume_mode: verl's ``trainer.resume_mode``; only ``auto`` goes on from whatever is there.
        changed: Whether they may be of a run that read something else from the same files: then ``continue``.

    Raises:
        SetupError: They are another run's.
    """
    if not folder or resume_mode != "auto":
        return
    signed, latest = _signed(folder), _latest(folder)
    if not signed or not latest or latest == signed["found"]:
        return
    held = f"trainer.default_local_dir={folder} holds checkpoints of"
    ways = (
        "name another folder, begin anew there with trainer.resume_mode=disable this once, or remove "
        f"{Path(folder) / OWNER_FILE} to go on from them"
    )
    made_by = [str(one) for one in signed["owner"]]
    same = but_for_content(made_by) == but_for_content(owner)
    differing = changed_content(made_by, owner)
    if same and differing and changed != "continue":
        raise SetupError(
            f"{held} this run, which read something else: the content of {' and '.join(differing)} has changed; "
            f"--changed-data continue goes on from them, from the first row; or {ways}"
        )
    if not same:
        differs = [
            f"{whose} {', '.join(sorted(only)[:4])}"
            for whose, only in (("theirs:", {*made_by} - {*owner}), ("this one's:", {*owner} - {*made_by}))
            if only
        ]
        why = "; ".join(differs) or "the same in another order"
        raise SetupError(f"{held} another run ({why}): {ways}")
    if signed["finished"]:
        raise SetupError(f"{held} this run, which has finished: {ways}")


def forget_other_rows(folder: str, owner: Sequence[str]) -> None:
    """Let a run that goes on from a folder's checkpoints begin with its first row, where they are of other rows."""
    signed = _signed(folder) if folder else None
    if signed and "TRAIN_FILES" in changed_content([str(one) for one in signed["owner"]], owner):
        forget_rows(Path(folder))


def sign(folder: str, owner: Sequence[str], *, finished: bool) -> None:
    """Note whose checkpoints a folder of the user's choice holds; one that only the run's machines see stays without.

    Args:
        folder: Empty for the run's own, which needs no signature.
        owner: See :func:`owner_identity`.
        finished: Whether the run has come to its end.
    """
    if not folder:
        return
    before = _signed(folder)
    # Of a run that goes on, what it found at its very first start.
    same = before and but_for_content(before["owner"]) == but_for_content(owner)
    found = before["found"] if before and same else _latest(folder)
    with suppress(OSError):
        Path(folder).mkdir(parents=True, exist_ok=True)
        record = {"owner": list(owner), "found": found, "finished": finished}
        write_whole(Path(folder) / OWNER_FILE, [json.dumps(record)])


def _signed(folder: str) -> dict[str, Any] | None:
    """A folder's signature; None where there is none that can be read."""
    try:
        signed = json.loads((Path(folder) / OWNER_FILE).read_text(encoding="utf-8"))
        kinds = {"owner": list, "found": str, "finished": bool}
        return dict(signed) if all(isinstance(signed[key], kind) for key, kind in kinds.items()) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _latest(folder: str) -> str:
    """The number of the last whole checkpoint; empty where there is none."""
    try:
        return (Path(folder) / TRACKER).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
