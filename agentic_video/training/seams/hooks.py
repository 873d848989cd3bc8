"""Hooks that change a module of another package right after its import."""

import traceback
from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType

from wrapt import register_post_import_hook

from agentic_video.training.seams.patches import on_cpu
from agentic_video.utils.seam import Seam

Hook = Callable[[ModuleType], object]


def loudly(hook: Hook) -> Hook:
    """A hook that ends the process with the reason when it fails: verl logs a plugin's failure at debug level only."""

    def run(imported: ModuleType) -> None:
        try:
            hook(imported)
        except Exception as error:
            traceback.print_exc()
            raise SystemExit(f"agentic_video could not extend {imported.__name__}: {error}") from error

    return run


def _patching(patch: str) -> Hook:
    """A hook that calls ``module:function`` of ours with the imported module."""
    module, _, name = patch.partition(":")
    return lambda imported: getattr(import_module(module), name)(imported)


def register_seams(seams: Iterable[Seam]) -> None:
    """Have patches applied when their modules are imported."""
    for seam in seams:
        if on_cpu() or not seam.cpu_only:
            register_post_import_hook(loudly(_patching(seam.patch)), seam.module)
