import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.synthesis.jobs import JobOptions, open_job
from agentic_video.synthesis.teachers import Teacher, TeacherOptions, play_samples, prepare
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError
from tests.faulty_server import Reply, Serve
from tests.synthesis.conftest import RECIPES
from tests.types.test_trajectory import FULL

GONE = "http://127.0.0.1:1/v1"


@pytest.fixture
def url(serve: Serve) -> str:
    """A server that is only asked whether it is there."""
    return serve(lambda body, request: Reply("x")).url


def prepared(url: str = GONE, recipe: str = "videozoomer", **more: Any) -> Teacher:
    options = {"out": Path("out"), "recipe": RECIPES / recipe, "profile": "laptop", **more}
    return prepare(TeacherOptions(**options), url, "m")


def test_a_server_has_no_budgets_but_the_replys(url: str) -> None:
    teacher = prepared(url, timeout=7.0, max_tokens=99)
    assert (teacher.name, teacher.spec.chat.timeout, teacher.spec.chat.max_tokens) == ("m", 7.0, 99)
    assert teacher.limits.turn == 99 and teacher.limits.prompt == teacher.limits.response > 1 << 20
    assert prepared(url).spec.chat.max_tokens == prepared(url).limits.turn


def test_what_results_depend_on_knows_the_seed_only_where_one_is_sent(url: str) -> None:
    teacher = prepared(url)
    assert teacher.identity()["sampling"]["seed"] is None
    seeded = replace(teacher, spec=replace(teacher.spec, seed=7), seeded=True)
    assert seeded.identity()["sampling"]["seed"] == 7
    assert seeded.identity()["system"]["class"] == "VideoZoomer"


def test_what_results_depend_on_knows_who_grades_and_how_frames_are_found(url: str, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").touch()

    def identity(*overrides: str) -> dict[str, Any]:
        words = tuple(f"agentic_video.{word}" for word in overrides)
        return prepared(url, overrides=words).identity()

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
        return prepared(url, recipe, profile=profile, overrides=overrides).system.observation_role

    asked = [f"data.train_files={GONE}", f"data.val_files={GONE}"]
    assert role("eva", "cluster", *asked) == "user", "a tool's there"
    assert role("eva", "cluster", *asked, "agentic_video.system.observation_role=tool") == "tool"
    assert role("longvt", "cluster", *asked) == "user", "which has no such key"


def test_samples_record_their_player_and_number(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, rows = (
        prepared(url),
        [VideoQA(name, f"{name}.mp4", "Who?", "he", "open_ended") for name in ("a", "b")],
    )

    async def play_one(context: Any, retriever: Any, qa: VideoQA, rollout_index: int) -> Record:
        trajectory = replace(FULL, qa_id=qa.id, rollout_index=rollout_index)
        return Record(qa, trajectory, {"prompt_tokens": 5.0, "completion_tokens": 3.0, "acc": float(qa.id == "a")}, {})

    monkeypatch.setattr("agentic_video.synthesis.teachers.play_one", play_one)
    with open_job(JobOptions(out=tmp_path), {}, "playing") as job:
        played = asyncio.run(play_samples(job, {("base",): teacher}, rows, 2, "here", need_grades=True))
        assert job.summary()["usage"]["prompt_tokens"] == 20
    assert [key[:4] for key, _ in played] == [("base", "unknown", name, number) for name in "ab" for number in (0, 1)]
    assert [record.trajectory.rollout_index for _, record in played] == [0, 1, 0, 1]
    assert played[1][1].provenance == {"source": "here", "model": "m", "sample": 1}


def test_samples_need_chance(url: str) -> None:
    teacher = prepared(url)
    sure = replace(teacher, spec=replace(teacher.spec, temperature=0.0))
    sure.check_samples(1)
    with pytest.raises(SetupError, match="--temperature"):
        sure.check_samples(2)
    replace(teacher, spec=replace(teacher.spec, temperature=0.5)).check_samples(2)


def test_options_that_make_no_sense_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nonsense"):
        prepared(overrides=("nonsense",))
    with pytest.raises(SetupError):
        prepared(recipe=str(tmp_path))
