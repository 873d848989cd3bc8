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
    "videoo3": "VideoO3",
}
"""The class of each system, in the package ``agentic_video.systems.<name>``."""

TOY_VOCABULARY = ("eva", "framemind", "framethinker", "videobrain", "videozoomer")
"""The systems whose texts train the laptop's tiny tokenizer. Another list would change it, and so all tiny models;
other systems use the same tokens."""

METHODS: dict[str, str] = {
    "classify": "videobrain",
    "enhance": "eva",
    "preferences": "eva",
    "templates": "framethinker",
}
"""The system whose paper describes a way of making data, by its ``agentic-video`` command. ``classify`` and
``preferences`` play it by default, ``enhance`` names its rows after it, ``templates`` reads its episodes."""


def system_class(name: str) -> type[Any]:
    """The class of a packaged system."""
    class_name = SYSTEMS[name]
    found: type[Any] = getattr(import_module(f"agentic_video.systems.{name}"), class_name)
    return found


def system_module(name: str, module: str) -> ModuleType:
    """A module of a packaged system's folder, e.g. its ``oracle``."""
    return import_module(f"agentic_video.systems.{name}.{module}")
