"""The packaged systems by name: the one place outside a system's own folder that names it."""

from importlib import import_module
from types import ModuleType
from typing import Any

SYSTEMS: dict[str, str] = {
    "videozoomer": "VideoZoomer",
    "framethinker": "FrameThinker",
    "framemind": "FrameMind",
    "videobrain": "VideoBrain",
    "eva": "Eva",
    "longvt": "LongVT",
    "timesearch": "TimeSearch",
    "paravt": "ParaVT",
}
"""The class of each system, in the package ``agentic_video.systems.<name>``."""

TOY_VOCABULARY = ("eva", "framemind", "framethinker", "videobrain", "videozoomer")
"""The systems whose texts the laptop's tiny tokenizer is learnt from. A longer list would be another tokenizer, and so
other tiny models for all of them; the texts of other systems are written in the same tokens."""

TOY_VOCABULARY = ("eva", "framemind", "framethinker", "videobrain", "videozoomer")
"""The systems whose texts the laptop's tiny tokenizer is learnt from. A longer list would be another tokenizer, and so
other tiny models for all of them; the texts of other systems are written in the same tokens."""

TOY_VOCABULARY = ("eva", "framemind", "framethinker", "videobrain", "videozoomer")
"""The systems whose texts the laptop's tiny tokenizer is learnt from. A longer list would be another tokenizer, and so
other tiny models for all of them; the texts of other systems are written in the same tokens."""

METHODS: dict[str, str] = {
    "classify": "videobrain",
    "enhance": "eva",
    "preferences": "eva",
    "templates": "framethinker",
}
"""Whose paper a way of making data is from, by its ``agentic-video`` command. ``classify`` and ``preferences`` play
this system unless told otherwise, ``enhance`` names its rows after it, ``templates`` reads its episodes."""


def system_class(name: str) -> type[Any]:
    """The class of a packaged system.

    Raises:
        KeyError: There is none of this name.
    """
    class_name = SYSTEMS[name]
    found: type[Any] = getattr(import_module(f"agentic_video.systems.{name}"), class_name)
    return found


def system_module(name: str, module: str) -> ModuleType:
    """A module of a packaged system's folder, e.g. its ``oracle``."""
    return import_module(f"agentic_video.systems.{name}.{module}")
