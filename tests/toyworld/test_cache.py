import errno
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

from agentic_video.config.settings import limits_of, settings_of
from agentic_video.evaluation.model import TAUGHT
from agentic_video.systems.base import System
from agentic_video.toyworld.build import cache as caching
from agentic_video.toyworld.build.base import BaseRecipe, tokenizer_corpus
from agentic_video.toyworld.build.cache import (
    FACTS_FILE,
    LOCK_FILE,
    SHIPPED,
    Cache,
    Facts,
    content_key,
    ensure_base,
    ensure_world,
    reason,
    remove_abandoned,
    system_facts,
    taught,
)
from agentic_video.toyworld.build.ensure import GATE_FILE, ToyPaths, ensure
from agentic_video.toyworld.build.gate import GateLimits, GateReport, check, missed_thresholds
from agentic_video.toyworld.build.recipe import ToyRecipe, toy_recipe
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.model import build_model, build_tokenizer, save_checkpoint
from tests.config.configs import composed
from tests.toyworld.conftest import laptop_setting

FACTS = {"a": 1}
NAME = f"thing-{content_key(FACTS)}"
OUTDATED = (
    "a shipped model is out of date: run python -m agentic_video.toyworld.ship recipes/videozoomer and commit its files"
)


def facts_of(setting: Setting, system: System | None = None) -> Facts:
    return system_facts(system or setting.system, setting.limits, setting.turns, ToyRecipe())


def default_job(cache: Cache) -> ToyPaths:
    config = composed("videozoomer", "laptop")
    return ensure(settings_of(config).system, limits_of(config), toy_recipe(config), cache)


def test_a_build_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    built = []

    def half(folder: Path) -> None:
        built.append(folder)
        (folder / "half").write_text("done")
        if len(built) == 1:
            raise KeyboardInterrupt

    cache = Cache(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cache.once("thing", FACTS, half)
    assert not list(tmp_path.iterdir())
    assert (cache.once("thing", FACTS, half) / "half").exists()
    assert cache.once("thing", FACTS, half) == tmp_path / NAME
    assert len(built) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]
    assert json.loads((tmp_path / NAME / FACTS_FILE).read_text()) == FACTS


def test_a_last_file_of_a_killed_writer_is_removed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer's end isn't the end of what the machine does for it."""
    removed: list[Path] = []
    remove = shutil.rmtree

    def rmtree(folder: Path, **how: bool) -> None:
        remove(folder, **how)
        removed.append(folder)
        if len(removed) < 3:
            folder.mkdir()
            (folder / "late.mp4").write_bytes(b"x")

    def build(folder: Path) -> None:
        raise SystemExit(143)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(SystemExit):
        Cache(tmp_path).once("world", {}, build)
    assert len(removed) == 3 and list(tmp_path.iterdir()) == []


def test_of_two_processes_that_build_the_same_the_first_wins(tmp_path: Path) -> None:
    def slow(folder: Path) -> None:
        (folder / "mine").touch()
        (tmp_path / NAME).mkdir()
        (tmp_path / NAME / "theirs").touch()

    assert [entry.name for entry in Cache(tmp_path).once("thing", FACTS, slow).iterdir()] == ["theirs"]
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]


def test_what_is_built_and_why_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Cache(tmp_path).once("thing", FACTS, lambda folder: None)
    Cache(tmp_path).once("thing", FACTS, lambda folder: None)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"[toyworld] building {tmp_path / NAME} (the first one)"
    assert said[2] == f"[toyworld] found {tmp_path / NAME}"


def test_the_reason_is_what_differs_from_the_nearest_build(tmp_path: Path) -> None:
    Cache(tmp_path).once("thing", {"system": {"turns": 3, "name": "x"}}, lambda folder: None)
    Cache(tmp_path).once("thing", {"system": {"turns": 9, "name": "y"}}, lambda folder: None)
    Cache(tmp_path).once("thing-other", {"system": {"turns": 2, "name": "x"}}, lambda folder: None)
    like = f"thing-{content_key({'system': {'turns': 3, 'name': 'x'}})}"
    assert reason(tmp_path, "thing", {"system": {"turns": 2, "name": "x"}}) == f"system.turns is 2, 3 in {like}"
    assert reason(tmp_path, "thing", {"system": {"turns": 3, "name": "x"}}) == "made again by this version"
    assert reason(tmp_path, "else", {}) == "the first one"
    many = reason(tmp_path, "thing", {"a": 1, "b": 2, "c": 3, "d": "x" * 50})
    assert many.endswith(" and 3 more") and many.startswith("a is 1, null in thing-")


def test_what_a_killed_build_left_goes_with_the_next(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from agentic_video.toyworld.build.cache import Cache\n"
        "def build(folder):\n"
        "    (folder / 'half').touch()\n"
        "    os.kill(os.getpid(), 9)\n"
        "Cache(Path(sys.argv[1])).once('thing', {'b': 2}, build)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)]).returncode == -9
    (left,) = tmp_path.iterdir()
    # of another machine, whose locks may not be seen here; of a file system without locks; just being made
    host, kept = socket.gethostname(), (".x-1-elsewhere-7-ab", ".x-1-host-7-ab", ".x-1-host-8-ab")
    for name in kept:
        (tmp_path / name.replace("host", host)).mkdir()
    (tmp_path / kept[0] / LOCK_FILE).write_text("7")
    (tmp_path / kept[2].replace("host", host) / LOCK_FILE).touch()
    old = tmp_path / f".x-1-{host}-9-ab"  # an earlier version's, which had no locks
    old.mkdir()
    os.utime(old, (0, time.time() - 2 * 86_400))
    Cache(tmp_path).once("thing", FACTS, lambda folder: None)
    assert sorted(entry.name.replace(host, "host") for entry in tmp_path.iterdir()) == sorted((*kept, NAME))
    assert not left.exists()


def test_a_build_is_left_alone_as_long_as_it_runs_though_nobody_sees_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers on one cache may have the same name, and don't see each other's processes."""
    monkeypatch.setattr(psutil, "pid_exists", lambda number: False)

    def build(folder: Path) -> None:
        (folder / "half").touch()
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(os, "getpid", lambda: 7)
            assert Cache(tmp_path).once("other", {}, lambda folder: None)
            with Cache(tmp_path):
                remove_abandoned(tmp_path)
        assert (folder / "half").exists()

    assert [entry.name for entry in Cache(tmp_path).once("thing", FACTS, build).iterdir()] != []
    built = {entry.name: sorted(file.name for file in entry.iterdir()) for entry in tmp_path.iterdir()}
    assert built == {NAME: ["half", FACTS_FILE], f"other-{content_key({})}": [FACTS_FILE]}


def test_a_file_system_without_locks_is_built_on_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    def build(folder: Path) -> None:
        remove_abandoned(tmp_path)
        (folder / "half").touch()

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert (Cache(tmp_path).once("thing", FACTS, build) / "half").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]


def test_as_a_context_it_leaves_nothing_half_built_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(building: Path) -> None:
        raise SystemExit(143)

    remove = caching._remove
    monkeypatch.setattr(caching, "_remove", stop)  # a signal, while it is being removed
    with pytest.raises(SystemExit), Cache(tmp_path) as cache:
        try:
            cache.once("thing", {}, stop)
        finally:
            assert len(list(tmp_path.iterdir())) == 1
            monkeypatch.setattr(caching, "_remove", remove)
    assert list(tmp_path.iterdir()) == []


def test_only_what_a_build_is_made_from_names_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("write_world", "make_base"):
        monkeypatch.setattr(caching, name, lambda *args, **kwargs: None)
    monkeypatch.setattr(caching, "SHIPPED", tmp_path / "none")
    recipe, cache = ToyRecipe(), Cache(tmp_path)
    worlds = [ensure_world(one, cache) for one in (recipe, replace(recipe, attempts=9), replace(recipe, seed=1))]
    assert worlds[0] == worlds[1] != worlds[2]
    other = replace(recipe, base=BaseRecipe(reading=5))
    bases = [ensure_base(one, cache) for one in (recipe, replace(recipe, seed=1), other)]
    assert bases[0] == bases[1] != bases[2]


@pytest.mark.parametrize("system", ["videozoomer", "framethinker", "framemind", "eva", "longvt"])
def test_the_base_that_most_recipes_need_is_shipped(
    tmp_path: Path, system: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = toy_recipe(composed(system, "laptop"))
    shipped = ensure_base(recipe, Cache(tmp_path))
    assert shipped.parent == SHIPPED, OUTDATED
    assert capsys.readouterr().out == f"[toyworld] found {shipped}\n" and not list(tmp_path.iterdir())


def test_the_default_job_finds_all_its_models_in_the_package(tmp_path: Path) -> None:
    paths = default_job(Cache(tmp_path, dry=True))
    assert {paths.base, paths.model} == set(SHIPPED.iterdir()), OUTDATED


def test_the_key_shipped_builds_models_afresh(tmp_path: Path) -> None:
    paths = default_job(Cache(tmp_path, dry=True, shipped=False))
    assert paths.base and paths.model and {paths.base.parent, paths.model.parent} == {tmp_path}
    assert not toy_recipe(composed("videozoomer", "laptop", "++agentic_video.toyworld.shipped=False")).shipped


def test_a_renamed_class_or_module_needs_no_other_cold_start(setting: Setting) -> None:
    elsewhere = type("Elsewhere", (type(setting.system),), {"__module__": "agentic_video.systems.elsewhere"})
    system = elsewhere(**{field.name: getattr(setting.system, field.name) for field in fields(setting.system)})  # type: ignore[arg-type]
    assert facts_of(setting, system) == facts_of(setting)


def test_a_shipped_cold_start_has_passed_its_gate() -> None:
    for shipped in SHIPPED.glob("videozoomer-*"):
        report = GateReport(**json.loads((shipped / GATE_FILE).read_text()))
        assert report.episodes == 160 and not missed_thresholds(report, GateLimits())


@pytest.mark.slow
def test_a_shipped_cold_start_passes_its_gate(tmp_path: Path, setting: Setting) -> None:
    recipe = toy_recipe(composed("videozoomer", "laptop"))
    world = ensure_world(recipe, Cache(tmp_path))
    for shipped in SHIPPED.glob("videozoomer-*"):
        check(shipped, world.heldout, setting, recipe.gate)


def test_what_is_shipped_is_as_it_would_be_made(tmp_path: Path) -> None:
    """Only its weights depend on the machine."""
    recipe = toy_recipe(composed("videozoomer", "laptop"))
    tokenizer = build_tokenizer(tokenizer_corpus())
    save_checkpoint(build_model(tokenizer, recipe.model), tokenizer, tmp_path)
    made = {path.name for path in tmp_path.iterdir()}
    for shipped in SHIPPED.iterdir():
        cold_start = not shipped.name.startswith("base-")
        assert {path.name for path in shipped.iterdir()} == {*made, FACTS_FILE, *([GATE_FILE] if cold_start else [])}
        changed = {"model.safetensors", *(["config.json"] if cold_start else [])}
        for name in made - changed:
            assert (shipped / name).read_bytes() == (tmp_path / name).read_bytes(), name
        assert (TAUGHT in json.loads((shipped / "config.json").read_text())) == cold_start
        assert load_file(shipped / "model.safetensors").keys() == load_file(tmp_path / "model.safetensors").keys()


def test_a_key_follows_from_its_content(setting: Setting) -> None:
    assert content_key({"a": 1, "b": 2}) == content_key({"b": 2, "a": 1}) != content_key({"a": 1, "b": 3})
    system, limits, turns = setting.system, setting.limits, setting.turns
    facts = facts_of(setting)
    assert facts != facts_of(setting, replace(system, max_turns=2))  # type: ignore[type-var]
    assert facts != system_facts(system, replace(limits, turn=1), turns, ToyRecipe())
    assert "code" not in facts  # this package's own


def test_a_user_s_own_code_is_part_of_what_is_built(
    tmp_path: Path, setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool, an oracle and a module beside them, edited in their files; the class's name stays."""
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = {
        "my_tool_of_tests.py": "from agentic_video.systems.videozoomer.system import VideoZoomer\n"
        "import my_helper_of_tests\n\n\nclass Mine(VideoZoomer):\n    pass\n",
        "my_helper_of_tests.py": "SIDE = 56\n",
        "my_oracle_of_tests.py": "def turns(view, aim, word, letter, seen=''):\n    return ('<answer>A</answer>',)\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    tool, oracle = import_module("my_tool_of_tests"), import_module("my_oracle_of_tests")
    mine = tool.Mine(**{one.name: getattr(setting.system, one.name) for one in fields(setting.system)})  # type: ignore[arg-type]

    def key() -> str:
        return content_key(system_facts(mine, setting.limits, oracle.turns, ToyRecipe()))

    before = key()
    assert key() == before
    for name, text in texts.items():
        (tmp_path / name).write_text(text + "# edited\n", encoding="utf-8")
        assert key() != before
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert key() == before


def test_what_any_prompt_file_says_is_part_of_a_system(tmp_path: Path) -> None:
    own, file = laptop_setting("longvt"), tmp_path / "task.txt"

    def key(text: str, field: str) -> str:
        file.write_text(text, encoding="utf-8")
        system = replace(own.system, **{field: str(file)})  # type: ignore[type-var]
        return content_key(facts_of(own, system))

    for field in ("prompt", "task_prompt"):
        assert key("a", field) == key("a", field) != key("b", field)
    # names of packaged ones say enough
    assert "files" not in facts_of(own)


def test_a_system_is_taught_with_its_own_reward(setting: Setting) -> None:
    weights = replace(setting.system.weights, acc=0.0)  # type: ignore[attr-defined]
    assert taught(replace(setting.system, weights=weights)) == setting.system  # type: ignore[type-var]


def test_whether_sub_agents_are_trained_on_needs_no_other_start() -> None:
    system = laptop_setting("paravt").system
    assert taught(replace(system, train_asides=True)) == system  # type: ignore[type-var]
