"""The packaged systems by name."""

from pathlib import Path

import pytest

import agentic_video.systems
from agentic_video.systems.base import System
from agentic_video.systems.registry import METHODS, SYSTEMS, system_class, system_module


def test_every_system_with_a_folder_is_registered() -> None:
    [root] = agentic_video.systems.__path__
    assert set(SYSTEMS) == {file.parent.name for file in Path(root).glob("*/system.py")}


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_name_gives_the_class_of_that_name(name: str) -> None:
    found = system_class(name)
    assert issubclass(found, System)
    assert (found.__name__, found().name) == (SYSTEMS[name], name)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("module", ["grammar", "oracle", "reward", "system"])
def test_a_system_s_modules_by_name(name: str, module: str) -> None:
    assert system_module(name, module).__name__ == f"agentic_video.systems.{name}.{module}"


def test_what_there_is_not() -> None:
    with pytest.raises(KeyError):
        system_class("base")
    with pytest.raises(ModuleNotFoundError):
        system_module("videozoomer", "verification")


def test_ways_of_making_data_are_of_packaged_systems() -> None:
    assert set(METHODS.values()) <= set(SYSTEMS)
