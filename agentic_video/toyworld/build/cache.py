"""A cache of finished builds, each in a folder named by a digest of everything it depends on."""

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

from agentic_video.families.registry import family_of
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.base import System
from agentic_video.systems.prompts import instructions_of, named_files
from agentic_video.toyworld.build.base import make_base, tokenizer_corpus
from agentic_video.toyworld.build.recipe import ToyRecipe
from agentic_video.toyworld.build.rehearsal import episodes_digest
from agentic_video.toyworld.build.write_world import write_world
from agentic_video.toyworld.oracles import CustomVocabulary, Turns
from agentic_video.toyworld.questions import ROWS, World
from agentic_video.toyworld.world import kinds_of
from agentic_video.utils.environment import DEFAULT_CACHE
from agentic_video.utils.errors import SetupError

VERSION = 6
"""Raise it when a change of the code changes what is built."""

FACTS_FILE = "made_from.json"
"""File of each build with everything it depends on."""
LOCK_FILE = ".lock"
"""File in a build that is being made; its maker holds its lock."""
SHIPPED = Path(__file__).parents[1] / "shipped"
"""The models of the default job, small and the same on every machine; most recipes share the base model.
``python -m agentic_video.toyworld.ship RECIPE`` builds them again."""
MOST_REASONS = 3
"""Most differences from an earlier build that are reported."""
VALUE_CHARACTERS = 40
"""Most characters of a reported value."""
DAY = 86_400.0
"""Seconds."""
REMOVALS = 40
"""Attempts (two seconds) to remove a half-built folder into which a process still writes."""

Facts = Mapping[str, Any]
"""Everything that a build depends on: nested plain data by name."""


@dataclass(frozen=True)
class Cache:
    """A folder of finished builds. As a context it removes half-built folders, whatever ends it.

    Attributes:
        dry: Build nothing; only print what is missing.
    """

    folder: Path = DEFAULT_CACHE
    dry: bool = False
    shipped: bool = True
    _building: set[Path] = field(default_factory=set, init=False, repr=False, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for left in list(self._building):
            _remove(left)

    def folder_of(self, kind: str, facts: Facts) -> Path:
        """Folder of the build of these facts, existing or not."""
        name = f"{kind}-{content_key(facts)}"
        return SHIPPED / name if self.shipped and (SHIPPED / name).is_dir() else self.folder / name

    def _unfit(self, kind: str, facts: Facts) -> Path:
        return self.folder / f"{kind}-{content_key(facts)}.unfit"

    def note_unfit(self, kind: str, facts: Facts, message: str) -> None:
        """Remember that a build of these facts failed its gate; another one would, too."""
        with contextlib.suppress(OSError):
            self._unfit(kind, facts).write_text(message, encoding="utf-8")

    def check_unfit(self, kind: str, facts: Facts) -> None:
        """Check that no build of these facts has failed its gate."""
        note = self._unfit(kind, facts)
        with contextlib.suppress(OSError):
            message = note.read_text(encoding="utf-8")
            raise SetupError(f"nothing has changed since this was tried: {message}. To try it again: rm {note}")

    def once(self, kind: str, facts: Facts, build: Callable[[Path], None]) -> Path:
        """Return the build of these facts; make it if it is neither shipped nor cached. Prints what is built, and why.

        It is made in a temporary folder next to its final one and renamed at the end: an interrupted build leaves
        nothing that a later call could mistake for a finished one.

        Args:
            build: Fills the folder it is given.
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
    """Hold the lock of a folder that is being filled, which processes of other containers see, too.

    Without file locks the folder counts as in use for ever."""
    with (building / LOCK_FILE).open("wb", buffering=0) as file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # until it is locked it is empty, and not to be removed
            file.write(b"held\n")
        yield


def _is_abandoned(building: Path) -> bool:
    """Return True if the process that filled a folder has ended; False if that can't be known.

    A folder without a lock (of an earlier version, or of a process killed before it locked) is abandoned after a day.
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
    """Remove a folder, even one into which a process that was just killed puts a last file."""
    for _ in range(REMOVALS):
        shutil.rmtree(building, ignore_errors=True)
        if not building.exists():
            return
        time.sleep(0.05)


def content_key(facts: Facts) -> str:
    """Short digest of what a build depends on."""
    return hashlib.sha256(json.dumps([VERSION, facts], sort_keys=True, default=str).encode()).hexdigest()[:12]


def reason(folder: Path, kind: str, facts: Facts) -> str:
    """Differences from the most similar build of the same kind, as text."""
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
        return "made again by this version"
    more = f" and {len(nearest) - MOST_REASONS} more" if len(nearest) > MOST_REASONS else ""
    return "; ".join(nearest[:MOST_REASONS]) + more


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Nested plain data as one level with dotted keys."""
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
    """Remove what killed builds of this machine left in a cache."""
    for left in folder.glob(f".*-{socket.gethostname()}-*-*"):
        if _is_abandoned(left):
            _remove(left)


def ensure_world(recipe: ToyRecipe, cache: Cache) -> World:
    """Return the videos and rows of a recipe; build them if the cache lacks them."""

    def make_world(folder: Path) -> None:
        write_world(folder, train=recipe.train, heldout=recipe.heldout, seed=recipe.seed, recipe=recipe.world)

    return World.of(cache.once("world", world_facts(recipe), make_world))


def world_facts(recipe: ToyRecipe) -> Facts:
    """Everything that a recipe's world depends on."""
    return {
        "world": asdict(recipe.world),
        "train": recipe.train,
        "heldout": recipe.heldout,
        "seed": recipe.seed,
        "rows": ROWS,
    }


def taught(system: System) -> System:
    """A system as its cold start learns it: with the reward's default weights and without training on side queries.

    Another reward, or loss, needs no other cold start."""
    changes: dict[str, Any] = {}
    weights: Any = getattr(system, "weights", None)
    if is_dataclass(weights):
        cls: Any = type(weights)
        changes["weights"] = cls()
    if any(field.name == "train_asides" for field in fields(system)):  # type: ignore[arg-type]
        changes["train_asides"] = False
    return replace(system, **changes) if changes else system  # type: ignore[type-var]


def own_code(*things: object) -> dict[str, str]:
    """Digests, by file name, of a user's Python files that classes and functions come from, and of files next to them.

    The package's own code is covered by :data:`VERSION`."""
    found = {}
    for name in sorted({part.__module__ for thing in things for part in getattr(thing, "__mro__", (thing,))}):
        file = getattr(sys.modules.get(name), "__file__", None)
        top = name.partition(".")[0]
        if not file or top == __name__.partition(".")[0] or top in sys.stdlib_module_names:
            continue
        folder = Path(file).resolve().parent
        neighbours = folder.glob("*.py") if folder.name != "site-packages" else [Path(file)]
        while (folder / "__init__.py").is_file():
            neighbours, folder = folder.rglob("*.py"), folder.parent
        for code in sorted(neighbours):
            found[str(code.relative_to(folder))] = hashlib.sha256(code.read_bytes()).hexdigest()[:16]
    return found


def system_facts(system: System, limits: TokenLimits, turns: Turns, recipe: ToyRecipe) -> Facts:
    """Everything that an oracle's episodes of a system depend on: constants, prompt, budgets, texts, a user's code.

    Of the package's own code only what a model sees counts: modules and classes may be renamed."""
    constants = asdict(system)  # type: ignore[call-overload]
    constants.pop("weights", None)  # see taught()
    constants["prompt"] = instructions_of(system)
    files = named_files({**constants, "prompt": ""})
    return {
        "system": constants,
        **({"files": files} if files else {}),
        **({"code": code} if (code := own_code(type(system), turns)) else {}),
        "limits": asdict(limits),
        "episodes": episodes_digest(system, turns, recipe),
    }


def ensure_base(recipe: ToyRecipe, cache: Cache, own: CustomVocabulary | None = None) -> Path:
    """Return the base model of a recipe; build it if it is neither shipped nor cached."""
    return cache.once("base", base_facts(recipe, own), lambda folder: make_base(folder, recipe.model, recipe.base, own))


def base_facts(recipe: ToyRecipe, own: CustomVocabulary | None = None) -> Facts:
    """Everything that a recipe's base model depends on."""
    family = family_of(recipe.model.family)
    return {
        "model": asdict(recipe.model),
        "clips": family.tiny.clip_settings,
        **({"family": code} if (code := own_code(type(family))) else {}),
        "base": asdict(recipe.base),
        "corpus": content_key({"": tokenizer_corpus("search" in kinds_of(recipe.base.world), own)}),
    }
