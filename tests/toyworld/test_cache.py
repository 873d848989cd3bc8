from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.toyworld import cache
from agentic_video.toyworld.base import BaseRecipe
from agentic_video.toyworld.cache import content_key, ensure_base, ensure_world, once, system_facts
from agentic_video.toyworld.gate import Setting
from agentic_video.toyworld.recipe import ToyRecipe


def test_a_build_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    built = []

    def half(folder: Path) -> None:
        built.append(folder)
        (folder / "half").write_text("done")
        if len(built) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        once(tmp_path / "thing", half)
    assert not list(tmp_path.iterdir())
    assert (once(tmp_path / "thing", half) / "half").exists()
    assert once(tmp_path / "thing", half) == tmp_path / "thing"
    assert len(built) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["thing"]


def test_of_two_processes_that_build_the_same_the_first_wins(tmp_path: Path) -> None:
    def slow(folder: Path) -> None:
        (folder / "mine").touch()
        (tmp_path / "thing").mkdir()
        (tmp_path / "thing" / "theirs").touch()

    assert [entry.name for entry in once(tmp_path / "thing", slow).iterdir()] == ["theirs"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["thing"]


def test_only_what_a_build_is_made_from_names_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("build_world", "make_base"):
        monkeypatch.setattr(cache, name, lambda *args, **kwargs: None)
    recipe = ToyRecipe()
    worlds = [ensure_world(one, tmp_path) for one in (recipe, replace(recipe, attempts=9), replace(recipe, seed=1))]
    assert worlds[0] == worlds[1] != worlds[2]
    other = replace(recipe, base=BaseRecipe(reading=5))
    bases = [ensure_base(one, tmp_path) for one in (recipe, replace(recipe, seed=1), other)]
    assert bases[0] == bases[1] != bases[2]


def test_a_key_follows_from_its_content(setting: Setting) -> None:
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1}) != content_key({"a": 1, "b": 3})
    facts = system_facts(setting.system, setting.limits)
    assert facts != system_facts(replace(setting.system, max_turns=2), setting.limits)  # type: ignore[type-var]
    assert facts != system_facts(setting.system, replace(setting.limits, turn=1))
    assert system_facts(replace(setting.system, prompt=""), setting.limits)[1] == ""  # type: ignore[type-var]
