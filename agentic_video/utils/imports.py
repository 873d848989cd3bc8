"""Custom modules in a recipe's folder: importable here and in the processes that are started."""

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from agentic_video.utils.errors import SetupError

UNUSED = (
    *("cgi", "chunk", "curses", "doctest", "graphlib", "imp", "mailbox", "pipes", "sched", "shelve", "sqlite3"),
    *("symtable", "test", "this", "trace", "turtle", "wave", "webbrowser"),
)
"""Modules of Python's library that neither this package imports nor verl, Ray, vLLM or PyTorch; a user's file may have
such a name."""
IMPORTED = (
    *("av", "datasets", "hydra", "numpy", "omegaconf", "openai", "pandas", "peft", "PIL", "psutil", "pyarrow", "ray"),
    *("safetensors", "tensordict", "tokenizers", "torch", "torchvision", "transformers", "verl", "vllm", "yaml"),
)
"""Packages that a job's processes import; a user's file may not have such a name."""
_TAKES_PLACE = "a module that every process imports has the same name, and this file would take its place"


def make_importable(recipe: Path) -> bool:
    """Put a recipe's folder last on the path of this process and its children; return True if it holds modules.

    Children have ``PYTHONPATH`` before Python's own library: a module that would hide another one is refused.
    """
    folder = recipe.resolve()
    modules = own_modules(folder)
    if not modules:
        return False
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    for name, file in modules.items():
        if other := _other(name, elsewhere):
            raise SetupError(f"{file}: {other} is called {name} too; rename yours, and where the config names it")
    if len(elsewhere) == len(sys.path):
        sys.path.append(str(folder))
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if str(folder) not in entries:
        os.environ["PYTHONPATH"] = os.pathsep.join([*entries, str(folder)])
    return True


def check_working_folder(folder: Path) -> None:
    """Refuse files that hide a module of Python, or a package that everything imports: Python looks here first."""
    if file := _hiding(folder):
        raise SetupError(f"{file}: {_TAKES_PLACE}: rename it, or start from another folder")


def check_import_path(path: str) -> None:
    """Refuse such files in the folders of ``PYTHONPATH``."""
    for entry in path.split(os.pathsep):
        if file := _hiding(Path(entry)):
            raise SetupError(f"{file}: {_TAKES_PLACE}: take its folder out of PYTHONPATH, or rename it")


def _hiding(folder: Path) -> Path | None:
    """First file of a folder that hides another module."""
    hidden = (sys.stdlib_module_names - {*UNUSED}) | {*IMPORTED}
    return next((file for file in sorted(folder.glob("*.py")) if file.stem in hidden), None)


def own_modules(folder: Path) -> dict[str, Path]:
    """Modules and packages in a folder, by name."""
    found = {file.stem: file for file in sorted(folder.glob("*.py"))}
    found |= {file.parent.name: file.parent for file in sorted(folder.glob("*/__init__.py"))}
    return {name: file for name, file in found.items() if name.isidentifier() and not name.startswith("__")}


def _other(name: str, path: list[str]) -> str:
    """Other module that a name would import; empty for none."""
    if name in sys.stdlib_module_names:
        return "a module of Python's own library"
    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:  # without a loader: a folder that happens to have that name
        return ""
    return str(spec.origin or "an installed module")
