"""Finished builds, each in a folder that is named after what it was made from."""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Self

from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.systems.prompts import load_prompt
from agentic_video.toyworld.base import make_base, tokenizer_corpus
from agentic_video.toyworld.model import FAMILIES
from agentic_video.toyworld.named_files import named_files
from agentic_video.toyworld.oracles import OwnWords, Turns
from agentic_video.toyworld.questions import ROWS, World
from agentic_video.toyworld.recipe import ToyRecipe
from agentic_video.toyworld.world import kinds_of
from agentic_video.toyworld.write_world import write_world
from agentic_video.utils.environment import DEFAULT_CACHE
from agentic_video.utils.errors import SetupError

VERSION = 6
"""Raise it when a change of the code changes what is built."""

FACTS_FILE = "made_from.json"
"""In each build: what it was made from."""
LOCK_FILE = ".lock"
"""In each build as long as it is made: whoever makes it holds its lock."""
SHIPPED = Path(__file__).parent / "shipped"
"""The base model of most recipes comes with the package: it is small, takes half a minute to train, and is then the
same on every machine. Where a test says that it is out of date, empty this folder and make it anew:
``python -m agentic_video.toyworld.build recipes/videozoomer --no-data --model base --cache FOLDER``."""
MOST_REASONS = 3
"""So many differences from an earlier build are named."""
VALUE_CHARACTERS = 40
"""A value is named up to this many characters."""
DAY = 86_400.0
"""Seconds."""
REMOVALS = 40
"""So often what is half built is removed, as long as somebody still writes there: two seconds."""

Facts = Mapping[str, Any]
"""What a build is made from: plain data by name, nested."""


@dataclass(frozen=True)
class Cache:
    """A folder of finished builds. As a context it leaves nothing half built, whatever ends it.

    Attributes:
        folder: Where they are.
        dry: Whether nothing is built: what is missing is only named.
    """

    folder: Path = DEFAULT_CACHE
    dry: bool = False
    _building: set[Path] = field(default_factory=set, init=False, repr=False, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for left in list(self._building):
            _remove(left)

    def folder_of(self, kind: str, facts: Facts) -> Path:
        """Where the build of these facts is, or would be; see :meth:`once`."""
        name = f"{kind}-{content_key(facts)}"
        return SHIPPED / name if (SHIPPED / name).is_dir() else self.folder / name

    def _unfit(self, kind: str, facts: Facts) -> Path:
        return self.folder / f"{kind}-{content_key(facts)}.unfit"

    def note_unfit(self, kind: str, facts: Facts, message: str) -> None:
        """Note that a build of these facts came out unfit: another would come out the same."""
        with contextlib.suppress(OSError):
            self._unfit(kind, facts).write_text(message, encoding="utf-8")

    def check_unfit(self, kind: str, facts: Facts) -> None:
        """Make sure that a build of these facts hasn't come out unfit before.

        Raises:
            SetupError: It has; nothing that it is made from has changed since.
        """
        note = self._unfit(kind, facts)
        with contextlib.suppress(OSError):
            message = note.read_text(encoding="utf-8")
            raise SetupError(f"nothing has changed since this was tried: {message}. To try it again: rm {note}")

    def once(self, kind: str, facts: Facts, build: Callable[[Path], None]) -> Path:
        """The build of these facts, made if it is neither shipped nor there; what is made, and why, is said.

        It happens in a temporary folder beside its final one and is renamed when it is done: an interrupted one leaves
        nothing that a later call could mistake for a finished one.

        Args:
            kind: What is built, in a word or two; its folder's name begins with it.
            facts: What it is made from.
            build: Fills the folder that it is given.

        Returns:
            Its folder; in a dry cache one that may not exist.
        """
        folder = self.folder_of(kind, facts)
        if folder.is_dir():
            print(f"[toyworld] found {folder}", flush=True)
            return folder
        why = reason(self.folder, kind, facts)
        print(f"[toyworld] {'would build' if self.dry else 'building'} {folder} ({why})", flush=True)
        if self.dry:
            return folder
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_abandoned(self.folder)
        started = time.monotonic()
        building = self.folder / f".{folder.name}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._building.add(building)
        try:
            building.mkdir()  # in here: a signal that ends the build may come right after it
            with _in_hand(building):
                build(building)
                (building / FACTS_FILE).write_text(json.dumps(facts, default=str, indent=2), encoding="utf-8")
                try:
                    building.rename(folder)
                except OSError:
                    # Another process finished the same build first; its files are as good.
                    if not folder.is_dir():
                        raise
        finally:
            _remove(building)
            self._building.discard(building)  # not where a second signal ends this: the context comes after it
        (folder / LOCK_FILE).unlink(missing_ok=True)
        print(f"[toyworld] built {folder} in {time.monotonic() - started:.0f} s", flush=True)
        return folder


@contextlib.contextmanager
def _in_hand(building: Path) -> Iterator[None]:
    """Show, for as long as the context lasts, that a folder is being filled, also to who doesn't see this process.

    Where a file system has no locks the folder is taken to be in use for ever.
    """
    with (building / LOCK_FILE).open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # before it is locked it is empty, and nobody's to remove
            file.write(b"held\n")
        yield


def _is_abandoned(building: Path) -> bool:
    """Whether a folder was being filled by a process that has ended; False where that can't be known.

    One without a lock is an earlier version's, or its process was killed before it had one: after a day it is taken to
    be left.
    """
    try:
        with (building / LOCK_FILE).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return bool(file.read(1))
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return time.time() - building.stat().st_mtime > DAY
        return False
    except OSError:
        return False


def _remove(building: Path) -> None:
    """Remove a folder, also one into which a process that was just killed puts a last file."""
    for _ in range(REMOVALS):
        shutil.rmtree(building, ignore_errors=True)
        if not building.exists():
            return
        time.sleep(0.05)


def content_key(facts: Facts) -> str:
    """A short name of what something is made from; another for any other content."""
    return hashlib.sha256(json.dumps([VERSION, facts], sort_keys=True, default=str).encode()).hexdigest()[:12]


def reason(folder: Path, kind: str, facts: Facts) -> str:
    """Why something isn't there: what differs from the build of its kind that is most like it.

    Args:
        folder: Of finished builds.
        kind: See :meth:`Cache.once`.
        facts: What it is to be made from.
    """
    wanted = _flat(json.loads(json.dumps(facts, default=str)))
    nearest: list[str] | None = None
    for file in sorted(folder.glob(f"{kind}-*/{FACTS_FILE}")):
        if "-" in file.parent.name.removeprefix(f"{kind}-"):  # another kind, whose name begins alike
            continue
        with contextlib.suppress(OSError, ValueError):
            found = _flat(json.loads(file.read_text(encoding="utf-8")))
            differences = [
                f"{key} is {_short(wanted.get(key))}, {_short(found.get(key))} in {file.parent.name}"
                for key in sorted({*wanted, *found})
                if wanted.get(key) != found.get(key)
            ]
            if nearest is None or len(differences) < len(nearest):
                nearest = differences
    if nearest is None:
        return "the first one"
    if not nearest:
        return "made anew by this version"
    more = f" and {len(nearest) - MOST_REASONS} more" if len(nearest) > MOST_REASONS else ""
    return "; ".join(nearest[:MOST_REASONS]) + more


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Nested plain data as one level, its keys dotted."""
    if not isinstance(value, dict):
        return {path: value}
    return {
        key: item
        for name, part in value.items()
        for key, item in _flat(part, f"{path}.{name}" if path else name).items()
    }


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}..."


def remove_abandoned(folder: Path) -> None:
    """Remove what builds left that were killed on this machine.

    Processes of another container can't be seen, but the locks that they hold can.

    Args:
        folder: Of finished builds.
    """
    for left in folder.glob(f".*-{socket.gethostname()}-*-*"):
        if _is_abandoned(left):
            _remove(left)


def ensure_world(recipe: ToyRecipe, cache: Cache) -> World:
    """The videos and rows of a recipe, built if they aren't in the cache."""

    def make_world(folder: Path) -> None:
        write_world(folder, train=recipe.train, heldout=recipe.heldout, seed=recipe.seed, recipe=recipe.world)

    return World.of(cache.once("world", world_facts(recipe), make_world))


def world_facts(recipe: ToyRecipe) -> Facts:
    """What a recipe's world is made from."""
    return {
        "world": asdict(recipe.world),
        "train": recipe.train,
        "heldout": recipe.heldout,
        "seed": recipe.seed,
        "rows": ROWS,
    }


def taught(system: System) -> System:
    """A system as its cold start is taught and gated: with the default weights of its reward, whatever a run sets, and
    without a say in whether its asides are trained on.

    Another reward, or loss, needs no other start.
    """
    changes: dict[str, Any] = {}
    weights: Any = getattr(system, "weights", None)
    if is_dataclass(weights):
        cls: Any = type(weights)
        changes["weights"] = cls()
    if any(one.name == "train_asides" for one in fields(system)):  # type: ignore[arg-type]
        changes["train_asides"] = False
    return replace(system, **changes) if changes else system  # type: ignore[type-var]


def own_code(*things: object) -> dict[str, str]:
    """The Python files of a user's own that classes and functions are from, and those beside them: a digest of each
    one's content by its name. What this package's are is said by :data:`VERSION`.

    Args:
        things: Classes, with those that they are made of; functions.
    """
    found = {}
    for name in sorted({part.__module__ for thing in things for part in getattr(thing, "__mro__", (thing,))}):
        file = getattr(sys.modules.get(name), "__file__", None)
        top = name.partition(".")[0]
        if not file or top == __name__.partition(".")[0] or top in sys.stdlib_module_names:
            continue
        folder = Path(file).resolve().parent
        beside = folder.glob("*.py") if folder.name != "site-packages" else [Path(file)]
        while (folder / "__init__.py").is_file():
            beside, folder = folder.rglob("*.py"), folder.parent
        for code in sorted(beside):
            found[str(code.relative_to(folder))] = hashlib.sha256(code.read_bytes()).hexdigest()[:16]
    return found


def system_facts(system: System, limits: TokenLimits, turns: Turns) -> Facts:
    """Facts that an oracle's episodes of a system depend on: constants, instructions, budgets, a user's code."""
    constants = asdict(system)  # type: ignore[call-overload]
    files = named_files({**constants, "prompt": ""})
    return {
        "system": {"class": f"{type(system).__module__}.{type(system).__qualname__}", **constants},
        "instructions": load_prompt(system.prompt) if system.prompt else "",
        **({"files": files} if files else {}),
        **({"code": code} if (code := own_code(type(system), turns)) else {}),
        "limits": asdict(limits),
    }


def ensure_base(recipe: ToyRecipe, cache: Cache, own: OwnWords | None = None) -> Path:
    """The base model of a recipe, built if it is neither shipped nor in the cache."""
    return cache.once("base", base_facts(recipe, own), lambda folder: make_base(folder, recipe.model, recipe.base, own))


def base_facts(recipe: ToyRecipe, own: OwnWords | None = None) -> Facts:
    """What a recipe's base model is made from."""
    clips = FAMILIES[recipe.model.family].video_processor
    return {
        "model": asdict(recipe.model),
        "clips": clips,
        "base": asdict(recipe.base),
        "corpus": content_key({"": tokenizer_corpus("search" in kinds_of(recipe.base.world), own)}),
    }
