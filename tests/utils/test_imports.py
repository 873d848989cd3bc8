"""A recipe's folder on the path of this process and of its children."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentic_video.utils.errors import SetupError
from agentic_video.utils.imports import check_import_path, check_working_folder, make_importable, own_modules


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    yield


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes" / "mine"
    (folder / "config").mkdir(parents=True)
    (folder / "config" / "laptop.yaml").write_text("")
    return folder


def test_a_child_imports_what_the_folder_holds_and_the_rest_as_before(recipe: Path) -> None:
    (recipe / "glances_of_mine.py").write_text("WORD = 'found'\n")
    assert make_importable(recipe)
    assert sys.path[-1] == str(recipe)
    import glances_of_mine  # type: ignore[import-not-found]

    assert glances_of_mine.WORD == "found"
    code = "import glances_of_mine, bisect; print(glances_of_mine.WORD, bisect.__file__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    assert said.startswith("found ") and str(recipe) not in said
    # once is enough
    before = (list(sys.path), os.environ["PYTHONPATH"])
    assert make_importable(recipe) and (list(sys.path), os.environ["PYTHONPATH"]) == before


def test_what_was_on_the_path_stays_before_it(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (recipe / "glances_of_mine.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", "/first:/second")
    make_importable(recipe)
    assert os.environ["PYTHONPATH"] == f"/first:/second:{recipe}"
    monkeypatch.delenv("PYTHONPATH")
    make_importable(recipe)
    assert os.environ["PYTHONPATH"] == str(recipe)


def test_a_recipe_without_modules_changes_nothing(recipe: Path) -> None:
    before = (list(sys.path), os.environ["PYTHONPATH"])
    assert not make_importable(recipe)
    assert (list(sys.path), os.environ["PYTHONPATH"]) == before


@pytest.mark.parametrize(
    ("name", "whose"),
    [("bisect", "Python's own library"), ("sys", "Python's own library"), ("numpy", "numpy/__init__.py")],
)
def test_a_module_that_would_hide_another_is_refused(name: str, whose: str, recipe: Path) -> None:
    (recipe / f"{name}.py").write_text("")
    before = list(sys.path)
    with pytest.raises(SetupError) as refused:
        make_importable(recipe)
    said = str(refused.value)
    assert said.startswith(f"{recipe / name}.py: ") and whose in said and "rename yours" in said and "\n" not in said
    assert sys.path == before


def test_so_is_a_package_and_one_that_is_found_first_elsewhere(recipe: Path, tmp_path: Path) -> None:
    (recipe / "json").mkdir()
    (recipe / "json" / "__init__.py").write_text("")
    with pytest.raises(SetupError, match=r"recipes/mine/json: "):
        make_importable(recipe)
    (recipe / "json").rename(recipe / "glances_of_mine")
    (tmp_path / "glances_of_mine.py").write_text("")
    sys.path.insert(0, str(tmp_path))
    with pytest.raises(SetupError, match=str(tmp_path / "glances_of_mine.py")):
        make_importable(recipe)


def test_the_folder_itself_may_be_on_the_path_already(recipe: Path) -> None:
    (recipe / "glances_of_mine.py").write_text("")
    sys.path.insert(0, str(recipe))
    assert make_importable(recipe) and sys.path.count(str(recipe)) == 1


def test_a_file_that_hides_a_module_of_python_from_a_job_is_refused(tmp_path: Path) -> None:
    for name in ("mine.py", "test.py", "trace.py", "profile.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "queue").mkdir()  # without modules, a folder hides nothing
    check_working_folder(tmp_path)
    (tmp_path / "profile.py").write_text("")
    with pytest.raises(SetupError, match=r"/profile\.py: "):
        check_working_folder(tmp_path)


@pytest.mark.parametrize("name", ["random", "torch", "numpy", "verl"])
def test_so_is_one_on_the_import_path(name: str, tmp_path: Path) -> None:
    path = f"{tmp_path / 'missing'}{os.pathsep}{tmp_path}"
    check_import_path(path)
    (tmp_path / name).mkdir()  # a checkout of that name isn't in the way
    check_import_path(path)
    (tmp_path / f"{name}.py").write_text("")
    for refuse in (lambda: check_import_path(path), lambda: check_working_folder(tmp_path)):
        with pytest.raises(SetupError, match=rf"^{tmp_path}/{name}\.py: .*"):
            refuse()


def test_what_counts_as_a_module(recipe: Path) -> None:
    for name in ("a.py", "not-a-module.py", "__main__.py", "words.txt"):
        (recipe / name).write_text("")
    assert own_modules(recipe) == {"a": recipe / "a.py"}
