"""The rules of the house: which room may import which, where verl is, where a published system is named."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from agentic_video.families.registry import FAMILY_OF
from agentic_video.systems.registry import SYSTEMS
from tests import rooms

TOYWORLD_USERS = {"toyworld", "commands"}
"""Beside tests and benchmarks."""
NAMED_IN = ("systems/registry.py", "converters/")
"""Where code may name a published system, beside the system's own folder: the registry, and data sets of that name."""
CLASSES = (r"\bQwen\d\w*VL\w+", r"\bGlm4\w*", r"\bInternVL\w+", r"\bGemma4\w*")
"""Beginnings of transformers' and vLLM's classes of models."""


def test_every_room_has_a_floor() -> None:
    found = {path.stem for path in rooms.PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    found |= {path.stem for path in rooms.PACKAGE.glob("*.py")} - {"__init__"}
    assert found == set(rooms.FLOOR_OF)


def test_no_arrow_runs_up() -> None:
    floor = rooms.FLOOR_OF
    up = [
        f"{module} -> {other}"
        for module, others in rooms.file_graph().items()
        for other in others
        if (room := rooms.room_of(module)) and (to := rooms.room_of(other)) and to != room and floor[to] >= floor[room]
    ]
    assert up == []


def test_no_circle_of_files() -> None:
    assert rooms.circles(rooms.file_graph()) == []


def test_the_ground_imports_no_other_room() -> None:
    assert rooms.room_graph()["types"] == rooms.room_graph()["utils"] == set()


def test_verl_is_imported_in_one_room() -> None:
    users = {
        rooms.room_of(rooms.module_of(path))
        for path in rooms.python_files()
        for name, _ in rooms.imports_of(path)
        if name == "verl" or name.startswith("verl.")
    }
    assert users == {"training"}


def test_the_toy_world_has_few_users() -> None:
    users = {room for room, others in rooms.room_graph().items() if "toyworld" in others}
    assert users <= TOYWORLD_USERS


@cache
def words_of(path: Path) -> set[str]:
    """The words in a file's code: its names, and its texts but docstrings, in lower case and without underscores."""
    tree = rooms.tree_of(path)
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    texts: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            texts.append(node.value)
        elif isinstance(node, ast.Name):
            texts.append(node.id)
        elif isinstance(node, ast.Attribute):
            texts.append(node.attr)
        elif isinstance(node, ast.ImportFrom):
            texts += [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            texts.append(node.name)
        elif isinstance(node, ast.arg):
            texts.append(node.arg)
    return {word for text in texts for word in re.findall(r"[a-z][a-z0-9]*", text.lower())}


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_named_in_its_folder_and_in_one_registry(name: str) -> None:
    elsewhere = [
        str(path.relative_to(rooms.PACKAGE))
        for path in rooms.python_files()
        if not str(path.relative_to(rooms.PACKAGE)).startswith((f"systems/{name}/", *NAMED_IN))
        if name in words_of(path)
    ]
    assert elsewhere == []


def test_a_family_is_named_in_its_room() -> None:
    named = re.compile("|".join([*map(re.escape, FAMILY_OF), "smart_resize", re.escape("<|image_pad|>"), *CLASSES]))
    elsewhere = [
        f"{path.relative_to(rooms.PACKAGE)}: {found[0]}"
        for path in rooms.python_files()
        if path.relative_to(rooms.PACKAGE).parts[0] != "families"
        if (found := named.search(path.read_text(encoding="utf-8")))
    ]
    assert elsewhere == []


def test_the_check_for_names_sees_code_and_not_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        '"""Eva."""\n# eva\nfrom a.videozoomer import B as c\nx = "framemind:1"\ndef f(framethinker): "VideoBrain"\n'
    )
    assert words_of(file) & set(SYSTEMS) == {"videozoomer", "framemind", "framethinker"}


def test_the_page_draws_the_rooms_as_they_are() -> None:
    """``python -m tests.rooms`` draws them anew."""
    drawn, arrows = rooms.drawn_on_the_page()
    assert arrows == rooms.drawn_arrows()
    assert set(drawn) == set(rooms.FLOOR_OF)
    for room, lines in drawn.items():
        assert abs(lines - rooms.lines_of(room)) <= max(20, 0.1 * lines), room


def test_the_page_says_what_each_room_is_for() -> None:
    text = rooms.PAGE.read_text(encoding="utf-8")
    for room in rooms.FLOOR_OF:
        assert re.search(rf"^\| `{room}(?:/|\.py)` \|", text, re.MULTILINE), room
