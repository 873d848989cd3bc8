"""Modules of a user's own: the folder of a recipe can be imported from, here and in the processes that are started."""

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from agentic_video.utils.errors import SetupError

UNUSED = (
    *("cgi", "chunk", "curses", "doctest", "graphlib", "imp", "mailbox", "pipes", "sched", "shelve", "sqlite3"),
    *("symtable", "test", "this", "trace", "turtle", "wave", "webbrowser"),
)
"""Modules of Python's own library that neither this package imports nor verl, Ray, vLLM or PyTorch, and whose names
files of one's own may well have."""
IMPORTED = (
    *("av", "datasets", "hydra", "numpy", "omegaconf", "openai", "pandas", "peft", "PIL", "psutil", "pyarrow", "ray"),
    *("safetensors", "tensordict", "tokenizers", "torch", "torchvision", "transformers", "verl", "vllm", "yaml"),
)
"""Packages that a job's processes import; a single file with such a name is never the package."""
_TAKES_PLACE = "a module that every process imports has the same name, and this file would take its place"


def make_importable(recipe: Path) -> bool:
    """Let what a recipe's config names be found among the modules in the recipe's folder.

    The folder is the last on the path of this process, and of those that inherit its environment (``PYTHONPATH``). A
    child has that variable's folders before Python's own library: a module that would hide another one is refused.

    Args:
        recipe: Folder of a recipe. One without modules changes nothing.

    Returns:
        Whether the folder holds modules.

    Raises:
        SetupError: One of them has the name of another module; the message says which to rename.
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
    """Make sure that no file in the folder from which a command is started takes the place of a module of Python's own
    library, or of a package that everything here imports, in the processes that it starts: Python looks there first.
    """
    if file := _hiding(folder):
        raise SetupError(f"{file}: {_TAKES_PLACE}: rename it, or start from another folder")


def check_import_path(path: str) -> None:
    """Make sure of the same for the folders of ``PYTHONPATH``."""
    for entry in path.split(os.pathsep):
        if file := _hiding(Path(entry)):
            raise SetupError(f"{file}: {_TAKES_PLACE}: take its folder out of PYTHONPATH, or rename it")


def _hiding(folder: Path) -> Path | None:
    """The first file of a folder that takes the place of another module."""
    hidden = (sys.stdlib_module_names - {*UNUSED}) | {*IMPORTED}
    return next((file for file in sorted(folder.glob("*.py")) if file.stem in hidden), None)


def own_modules(folder: Path) -> dict[str, Path]:
    """The modules and packages in a folder, by name."""
    found = {file.stem: file for file in sorted(folder.glob("*.py"))}
    found |= {file.parent.name: file.parent for file in sorted(folder.glob("*/__init__.py"))}
    return {name: file for name, file in found.items() if name.isidentifier() and not name.startswith("__")}


def _other(name: str, path: list[str]) -> str:
    """What else a name would import; empty when nothing."""
    if name in sys.stdlib_module_names:
        return "a module of Python's own library"
    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:  # without a loader: a folder that happens to have that name
        return ""
    return str(spec.origin or "an installed module")
