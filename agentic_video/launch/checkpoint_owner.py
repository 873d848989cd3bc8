"""Whose checkpoints a folder of the user's choice holds: verl goes on from any that it finds there.

In a run's own folder that is the run. In one that ``trainer.default_local_dir`` names, a command with another rate,
other data or another model would go on from an earlier run's weights, optimizer and place in the data; where that run
had finished, it would train nothing and end as finished.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentic_video.utils.errors import SetupError
from agentic_video.utils.journal import write_whole

OWNER_FILE = "made_by.json"
"""Beside the checkpoints: what makes two commands the run that wrote them."""
LATEST = "latest_checkpointed_iteration.txt"
"""verl's: the number of the last whole checkpoint."""


def check_owner(folder: str, identity: Sequence[str], resume_mode: str) -> None:
    """Make sure that the checkpoints from which verl would go on are this run's.

    Those that nobody signed were put there on purpose, or before there were signatures.

    Args:
        folder: Named by the user; empty for the run's own.
        identity: See :func:`agentic_video.launch.run_folder.run_identity`.
        resume_mode: verl's ``trainer.resume_mode``; only ``auto`` goes on from whatever is there.

    Raises:
        SetupError: They are another run's.
    """
    if not folder or resume_mode != "auto" or not (Path(folder) / LATEST).exists():
        return
    owner = Path(folder) / OWNER_FILE
    try:
        signed = json.loads(owner.read_text(encoding="utf-8"))
        made_by, finished = [str(one) for one in signed["identity"]], bool(signed["finished"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    held = f"trainer.default_local_dir={folder} holds checkpoints of"
    ways = (
        f"name another folder, begin anew there with trainer.resume_mode=disable, or remove {owner} to go on from them"
    )
    if made_by != list(identity):
        differs = [
            f"{whose} {', '.join(sorted(only)[:4])}"
            for whose, only in (("theirs:", {*made_by} - {*identity}), ("this one's:", {*identity} - {*made_by}))
            if only
        ]
        why = "; ".join(differs) or "the same in another order"
        raise SetupError(f"{held} another run ({why}): {ways}")
    if finished:
        raise SetupError(f"{held} this run, which has finished: {ways}")


def sign(folder: str, identity: Sequence[str], *, finished: bool) -> None:
    """Note whose checkpoints a folder of the user's choice holds; one that only the run's machines see stays without.

    Args:
        folder: Empty for the run's own, which needs no signature.
        identity: As :func:`check_owner` takes it.
        finished: Whether the run has come to its end.
    """
    if folder:
        with suppress(OSError):
            Path(folder).mkdir(parents=True, exist_ok=True)
            write_whole(Path(folder) / OWNER_FILE, [json.dumps({"identity": list(identity), "finished": finished})])
