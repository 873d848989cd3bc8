import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.evaluation.model import ModelOptions
from agentic_video.synthesis.teachers import Teacher, TeacherOptions, prepare, sampler, samples_of
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError
from tests.faulty_server import Reply
from tests.synthesis.conftest import RECIPES, Serve
from tests.types.test_trajectory import FULL

GONE = "http://127.0.0.1:1/v1"


@pytest.fixture
def url(serve: Serve) -> str:
    """A server, which nobody asks here but whether it is there."""
    return serve(lambda body, request: Reply("x")).url


def options(url: str = GONE, name: str = "m", **more: Any) -> TeacherOptions:
    return TeacherOptions(RECIPES / "videozoomer", "laptop", ModelOptions(url, "chat", name), **more)


def test_a_server_has_no_budgets_but_the_replys(url: str) -> None:
    teacher = prepare(options(url, timeout=7.0, max_tokens=99))
    assert (teacher.name, teacher.spec.chat.timeout, teacher.spec.chat.max_tokens) == ("m", 7.0, 99)
    assert teacher.limits.turn == 99 and teacher.limits.prompt == teacher.limits.response > 1 << 20
    assert prepare(options(url)).spec.chat.max_tokens == prepare(options(url)).limits.turn


def test_what_results_depend_on_knows_the_seed_only_where_one_is_sent(url: str) -> None:
    teacher = prepare(options(url))
    assert teacher.identity()["sampling"]["seed"] is None
    seeded = replace(teacher, spec=replace(teacher.spec, seed=7), seeded=True)
    assert seeded.identity()["sampling"]["seed"] == 7
    assert seeded.identity()["system"]["class"] == "VideoZoomer"


def test_what_results_depend_on_knows_who_grades_and_how_frames_are_found(url: str, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").touch()

    def identity(*overrides: str) -> dict[str, Any]:
        words = tuple(f"agentic_video.{word}" for word in overrides)
        return prepare(options(url, overrides=words)).identity()

    there = ("judge.base_url=http://h/v1", "judge.model=m")
    assert identity()["judge"] is None and identity()["retrieval"]["model"] == ""
    assert identity(*there)["judge"] == {"model": "m", "temperature": 0.0, "max_tokens": 8, "max_answer_chars": 2_000}
    # another address of the same judge is no other judge
    assert identity(*there, "judge.base_url=http://other/v1") == identity(*there)
    for changed in (
        (*there, "judge.model=n"),
        (*there, "judge.temperature=0.3"),
        (*there, "retrieval.model=ViT-B-32", f"retrieval.pretrained={tmp_path}/weights.pt"),
    ):
        assert identity(*changed) != identity(*there)


def test_a_server_that_teaches_is_shown_everything_by_the_user(url: str) -> None:
    def role(recipe: str, profile: str, *overrides: str) -> str:
        model = ModelOptions(url, "chat", "m")
        return prepare(TeacherOptions(RECIPES / recipe, profile, model, overrides=overrides)).system.observation_role

    asked = [f"data.train_files={GONE}", f"data.val_files={GONE}"]
    assert role("eva", "cluster", *asked) == "user", "a tool's there"
    assert role("eva", "cluster", *asked, "agentic_video.system.observation_role=tool") == "tool"
    assert role("longvt", "cluster", *asked) == "user", "which has no such key"


def test_a_sample_s_record_says_which_it_is(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, rows = prepare(options(url)), [VideoQA(name, f"{name}.mp4", "Who?", "he") for name in ("a", "b")]

    async def play_one(context: Any, retriever: Any, qa: VideoQA, rollout_index: int) -> Record:
        return Record(qa, replace(FULL, rollout_index=rollout_index), {"acc": 1.0}, {})

    async def played() -> list[Record]:
        context = teacher.context(tmp_path, 1)
        play = sampler(teacher, context, None, 2, "here")
        try:
            return [await play(*sample) for sample in samples_of(rows, 2).values()]
        finally:
            context.close()

    monkeypatch.setattr("agentic_video.synthesis.teachers.play_one", play_one)
    records = asyncio.run(played())
    assert [(one.qa.id, one.trajectory.rollout_index) for one in records] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert records[1].provenance == {"source": "here", "model": "m", "sample": 1} and records[1].rewards == {"acc": 1.0}


def test_samples_need_chance(url: str) -> None:
    teacher = prepare(options(url))
    sure = replace(teacher, spec=replace(teacher.spec, temperature=0.0))
    sure.check_samples(1)
    with pytest.raises(SetupError, match="set --temperature"):
        sure.check_samples(2)
    replace(teacher, spec=replace(teacher.spec, temperature=0.5)).check_samples(2)


def test_options_that_make_no_sense_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="neither an option nor a Hydra override"):
        options(overrides=("nonsense",))
    with pytest.raises(SetupError, match="no recipe"):
        TeacherOptions(tmp_path, "laptop", ModelOptions(GONE, "chat", "m"))


@pytest.mark.parametrize("name", ["", "m"])
def test_a_server_that_is_not_there_is_named_with_its_option(name: str) -> None:
    with pytest.raises(SetupError, match=r"^--base http://127\.0\.0\.1:1/v1: no server answers there"):
        prepare(options(name=name, option="--base"))


def test_a_server_without_a_list_of_models_needs_their_name(url: str) -> None:
    with pytest.raises(
        SetupError, match=rf"^--base {url}: no list of models there \(HTTP 501\); name one with --base-name"
    ):
        prepare(options(url, name="", option="--base"))


def backends_of(teacher: Teacher, folder: Path, samples: int) -> int:
    """How many different backends play so many samples."""

    async def count() -> int:
        context = teacher.context(folder, 1)
        try:
            return len({id(one) for one in teacher.backends(context, samples)})
        finally:
            context.close()

    return asyncio.run(count())


def test_each_sample_has_a_seed_of_its_own_where_a_server_gets_one(tmp_path: Path, serve: Serve) -> None:
    teacher = prepare(options(serve(lambda body, request: Reply("x")).url))
    assert backends_of(teacher, tmp_path, 3) == 1
    assert backends_of(replace(teacher, seeded=True), tmp_path, 3) == 3
