import argparse
from pathlib import Path

import pytest

from agentic_video.commands.engine import TOY
from agentic_video.commands.teachers import add_teacher, job_options, run_job, server_options, teacher_options
from agentic_video.synthesis.jobs import Finished, Prices
from agentic_video.synthesis.teachers import TeacherOptions
from agentic_video.utils.errors import SetupError

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "videozoomer"
SERVER = "http://127.0.0.1:1/v1"


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_teacher(parser, required=False)
    known, overrides = parser.parse_known_args(["--out", "out", *words])
    known.overrides = overrides
    return known


def teacher(*words: str, model: str = SERVER) -> TeacherOptions:
    return teacher_options(parsed("--recipe", str(RECIPE), *words), model, "m")


def test_a_server_plays_the_cluster_profile_with_the_options_of_the_command() -> None:
    options = teacher("--seed", "3", "--temperature", "0.5", "--timeout", "9", "--max-tokens", "8", "a.b=1")
    assert (options.recipe, options.profile, options.overrides) == (RECIPE, "cluster", ("a.b=1",))
    assert (options.timeout, options.max_tokens, options.seeded) == (9.0, 8, True)
    assert (options.model.engine, options.model.seed, options.model.temperature) == ("chat", 3, 0.5)
    assert not teacher().seeded and teacher().model.seed == 0
    assert teacher("--profile", "laptop").profile == "laptop"


def test_the_tiny_models_engine_plays_the_laptop_profile(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x")
    options = teacher("--engine", "toy", model=str(tmp_path))
    assert (options.model.engine, options.profile) == (TOY, "laptop")
    with pytest.raises(SetupError, match="--base"):
        teacher_options(parsed("--recipe", str(RECIPE), "--engine", "toy"), SERVER, "m", "--base")


def test_the_system_of_the_method_is_played_unless_another_is_named() -> None:
    assert teacher_options(parsed(), SERVER, "m", system="eva").recipe.name == "eva"
    assert teacher_options(parsed("--system", "videobrain"), SERVER, "m", system="eva").recipe.name == "videobrain"
    with pytest.raises(SetupError, match="--system nothing"):
        teacher_options(parsed("--system", "nothing"), SERVER, "m")


def test_a_job_and_the_servers_beside_it() -> None:
    arguments = parsed("--limit", "2", "--concurrency", "3", "--price-in", "1", "--price-out", "4", "--timeout", "5")
    job = job_options(arguments)
    assert (job.out, job.limit, job.concurrency, job.prices) == (Path("out"), 2, 3, Prices(1.0, 4.0))
    server = server_options(arguments, SERVER, "j", max_tokens=16)
    assert (server.url, server.name, server.timeout, server.concurrency) == (SERVER, "j", 5.0, 3)
    assert (server.temperature, server.max_tokens) == (0.0, 16)


def test_how_a_job_ended_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_job(lambda arguments: Finished("all", True), parsed()) == 0
    assert run_job(lambda arguments: Finished("some", False, "one is missing"), parsed()) == 1
    said = capsys.readouterr()
    assert said.out == "all\nsome\n" and said.err == "one is missing\n"

    def fail(arguments: argparse.Namespace) -> Finished:
        raise SetupError("nothing there")

    assert run_job(fail, parsed()) == 2
    assert capsys.readouterr().err == "error: nothing there\n"
