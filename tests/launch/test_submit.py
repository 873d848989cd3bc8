import os
import shlex
import socket
from pathlib import Path
from typing import Any

import pytest
import requests
from omegaconf import OmegaConf
from ray.exceptions import RpcError
from ray.job_submission import JobStatus

from agentic_video.config.compose import PACKAGED
from agentic_video.launch import submit as submitting
from agentic_video.launch.options import LaunchOptions
from agentic_video.launch.submit import check_copied, copied, entrypoint, submit_job
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES
from tests.faulty_server import answering

RECIPE = RECIPES / "videozoomer"
NOTHING = OmegaConf.create({})


def test_the_job_runs_the_recipe_in_its_own_copy() -> None:
    overrides = ["trainer.total_epochs=2", "a='x y'"]
    command = shlex.split(entrypoint(RECIPE, "cluster", overrides, "/env/bin/python"))
    started = "/env/bin/python -m agentic_video.cli run recipes/videozoomer --profile cluster"
    assert command == [*started.split(), *overrides]


def test_a_wheel_s_recipe_goes_by_its_name() -> None:
    command = shlex.split(entrypoint(PACKAGED / "videozoomer", "cluster", [], "python"))
    assert command == ["python", "-m", "agentic_video.cli", "run", "videozoomer", "--profile", "cluster"]
    # the package's folder on Python's path would hide modules of the standard library
    assert copied(PACKAGED / "videozoomer") == {}
    assert copied(RECIPE)["working_dir"] == str(RECIPE.parents[1])


def test_address_is_needed_and_must_answer() -> None:
    options = LaunchOptions(RECIPE, submit=True)
    with pytest.raises(SetupError, match="RAY_ADDRESS"):
        submit_job(options, "laptop", NOTHING, {})
    with pytest.raises(SetupError, match="no Ray cluster answers"):
        submit_job(options, "laptop", NOTHING, {"RAY_ADDRESS": "http://127.0.0.1:1"})


def test_no_ray_costs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitting, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SetupError, match=rf"^no Ray cluster answers at {address}: .*timed out"):
            submit_job(LaunchOptions(RECIPE, submit=True), "cluster", NOTHING, {"RAY_ADDRESS": address})


@pytest.mark.parametrize(("status", "body"), [(200, b'{"name": "another"}'), (200, b"<html></html>"), (501, b"no")])
def test_another_service_costs_one_line(status: int, body: bytes) -> None:
    with answering(status, body) as url:
        address = url.replace("//", "//me:pw@")
        with pytest.raises(SetupError, match=rf"^no Ray cluster answers at {address}: ") as caught:
            submit_job(LaunchOptions(RECIPE, submit=True), "cluster", NOTHING, {"RAY_ADDRESS": address})
        assert "\n" not in str(caught.value)


def test_a_dry_run_prints_the_job_s_command(capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"RAY_ADDRESS": "http://127.0.0.1:1", "CLUSTER_PYTHON": "/env/bin/python"}
    assert submit_job(LaunchOptions(RECIPE, submit=True, dry_run=True), "cluster", NOTHING, environment) == 0
    assert capsys.readouterr().out == f"{entrypoint(RECIPE, 'cluster', [], '/env/bin/python')}\n"


def test_videos_in_the_clone_are_noticed_before_they_are_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "recipes" / "videozoomer"
    for folder in (recipe, tmp_path / "data" / "videos", tmp_path / "outputs", tmp_path / ".git"):
        folder.mkdir(parents=True)
    (recipe / "config.yaml").write_bytes(b"x" * 100)
    for left_out in ("outputs/model", ".git/pack"):
        (tmp_path / left_out).write_bytes(b"x" * 3000)
    monkeypatch.setattr(submitting, "MAX_COPIED", 2**20)
    check_copied(recipe)
    with (tmp_path / "data/videos/long.mp4").open("wb") as video:
        video.truncate(2**21)  # without a byte on disk
    with pytest.raises(SetupError, match=r"/data: 2 MiB would be copied with the job, and Ray takes 1 MiB"):
        check_copied(recipe)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "data")
    (tmp_path / "data/videos/long.mp4").unlink()
    check_copied(recipe)


@pytest.mark.parametrize("error", [ConnectionError("no"), RpcError("no\nanswer")])
def test_whatever_keeps_a_cluster_from_answering_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(address: str) -> None:
        raise error

    monkeypatch.setattr("ray.job_submission.JobSubmissionClient", refuse)
    with pytest.raises(SetupError, match=r"^no Ray cluster answers at head:6379: no( answer)?$"):
        submit_job(LaunchOptions(RECIPE, submit=True), "cluster", NOTHING, {"RAY_ADDRESS": "head:6379"})


def test_only_grpo_is_a_ray_job() -> None:
    with pytest.raises(SetupError, match="sft runs under torchrun"):
        submit_job(LaunchOptions(RECIPE, "sft", submit=True), "laptop", NOTHING, {"RAY_ADDRESS": "http://head:8265"})


class Client:
    """A cluster's job server that takes one job, which succeeds at once."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []

    def submit_job(self, **job: Any) -> str:
        self.jobs.append(job)
        return "job-1"


def test_the_job_gets_this_command_s_variables_but_no_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client()
    monkeypatch.setattr(submitting, "_connect", lambda address: client)
    monkeypatch.setattr(submitting, "_follow", lambda client, job, address: 0)
    environment = {
        "RAY_ADDRESS": "http://head:8265",
        "MODEL_PATH": "/shared/model",
        "NNODES": "2",
        "HF_HOME": "/hf",
        "XDG_CACHE_HOME": "/shared/cache",
        "WANDB_API_KEY": "hidden",
        "HOME": "/root",
    }
    options = LaunchOptions(RECIPE, submit=True)
    assert submit_job(options, "cluster", NOTHING, {**environment, "OUTPUT_DIR": "/out"}) == 0
    names = {name: environment[name] for name in ("MODEL_PATH", "NNODES", "HF_HOME", "XDG_CACHE_HOME")}
    assert client.jobs[0]["runtime_env"]["env_vars"] == {**names, "OUTPUT_DIR": "/out", "RAY_ADDRESS": "auto"}
    said = capsys.readouterr().out
    assert said.startswith("WANDB_API_KEY: not passed on") and "hidden" not in said
    named = {**environment, "AGENTIC_VIDEO_SECRETS_FILE": "/shared/keys"}
    assert submit_job(options, "cluster", NOTHING, named) == 0
    assert client.jobs[1]["runtime_env"]["env_vars"]["AGENTIC_VIDEO_SECRETS_FILE"] == "/shared/keys"
    assert "not passed on" not in capsys.readouterr().out
    # the job's driver has another working directory
    assert client.jobs[1]["runtime_env"]["env_vars"]["OUTPUT_DIR"] == os.path.abspath("outputs")
    assert submit_job(options, "cluster", NOTHING, {**environment, "OUTPUT_DIR": "runs/a"}) == 0
    assert client.jobs[2]["runtime_env"]["env_vars"]["OUTPUT_DIR"] == os.path.abspath("runs/a")


class Polled:
    """A cluster's job server that is asked about a job; what it answers, or fails with, in turn, the last for ever."""

    def __init__(self, *answers: JobStatus | Exception) -> None:
        self.answers = list(answers)

    def get_job_status(self, job: str) -> JobStatus:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def get_job_logs(self, job: str) -> str:
        return "step 1\n"


FAILED = RuntimeError("Request failed with status code 500: Internal Server Error.")


@pytest.mark.parametrize("failure", [FAILED, ConnectionError("refused"), requests.exceptions.ReadTimeout("late")])
def test_a_poll_that_fails_is_no_end(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submitting, "POLL_SECONDS", 0.0)
    answers = (JobStatus.RUNNING, failure, failure, JobStatus.SUCCEEDED)
    client: Any = Polled(*answers)
    assert submitting._follow(client, "job-1", "http://head:8265") == 0
    assert capsys.readouterr().out.splitlines() == ["step 1", "job job-1: SUCCEEDED"]
    client = Polled(JobStatus.FAILED)
    assert submitting._follow(client, "job-1", "http://head:8265") == 1


def test_a_cluster_that_is_silent_for_long_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submitting, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(submitting, "PATIENCE_SECONDS", 0.05)
    client: Any = Polled(JobStatus.RUNNING, FAILED)
    assert submitting._follow(client, "job-1", "http://head:8265") == submitting.LOST_STATUS == 75
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith("may run on, follow it with: ray job logs --address http://head:8265 --follow job-1")
