"""Options that commands hand to their libraries."""

from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.commands import classify, enhance, filter, mine, preferences, reflect, templates
from agentic_video.commands.engine import TOY, choose_engine
from agentic_video.commands.parsing import words_of
from agentic_video.commands.run import launch_options
from agentic_video.commands.teachers import TeacherArguments, run_job
from agentic_video.launch.options import LaunchOptions
from agentic_video.synthesis.classes import RL_SHARES, SFT_SHARES
from agentic_video.synthesis.filter import FilterOptions
from agentic_video.synthesis.jobs import JobReport, Prices
from agentic_video.synthesis.mine import MineOptions
from agentic_video.synthesis.templates import TemplateOptions
from agentic_video.utils.errors import SetupError
from tests.commands.conftest import TEACHER, Ask, read
from tests.config.configs import RECIPES

SERVER = "http://127.0.0.1:1/v1"


def refuses(*words: str) -> str:
    """The line that a command line is refused with."""
    assert main(words) == 2
    return words[0]


@pytest.mark.parametrize(
    ("words", "option", "taken", "refused"),
    [
        ("mine r --out o", "limit", ("1", "64"), ("0", "-3", "two", "1.5", "")),
        ("mine r --out o", "from_step", ("0", "7"), ("-1", "1.5", "x")),
        ("mine r --out o", "below", ("0", "0.25", "1"), ("-0.1", "1.5", "nan", "half")),
        ("eval", "seed", ("-1", "0", "7"), ("-2", "x")),
        ("eval", "temperature", ("0", "2.5"), ("-0.1", "inf", "nan", "x")),
        ("eval", "top_p", ("0.01", "1"), ("0", "1.01", "-1", "nan")),
        ("view x", "port", ("0", "65535"), ("-1", "65536", "http")),
        ("view x", "side", ("16", "1024"), ("15", "1025")),
        ("preferences --judge j --out o", "share", ("0.01", "0.99"), ("0", "1", "nan")),
        ("preferences --judge j --out o", "timeout", ("0.1", "600"), ("0", "-1", "inf", "x")),
        ("plan --recipe eva", "gpu_memory", ("0.5", "80"), ("0", "-1")),
        ("distill --out o", "bank_round", ("1",), ("0", "x")),
        ("distill --out o", "min_acc", ("0", "1"), ("1.5",)),
        ("convert videomme --source x --out o", "limit", ("1",), ("0", "-1", "many")),
    ],
)
def test_numbers_are_taken_in_their_range(
    words: str, option: str, taken: tuple[str, ...], refused: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    written = f"--{option.replace('_', '-')}"
    for text in taken:
        assert getattr(read(*words.split(), written, text), option) == float(text)
    for text in refused:
        refuses(*words.split(), f"{written}={text}")
        said = capsys.readouterr().err
        assert written in said and said.count("\n") == 1


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    read_options = read("eval", "--data=~/x", "--data", "a/~b", "--out=~/a/b", "--model=~/m")
    assert read_options.data == (tmp_path / "x", Path("a/~b")) and read_options.out == tmp_path / "a" / "b"
    assert read_options.model == f"{tmp_path}/m"
    for model in ("owner/name", "http://h/v1", ""):
        assert read("eval", f"--model={model}").model == model


@pytest.mark.parametrize("words", [("view", ""), ("summary", ""), ("view", "x", "--out", ""), ("mine", "", "--out=o")])
def test_an_empty_path_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    refuses(*words)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        "eval --system eva --out {file}",
        "distill --out {file}/out",
        "compare a b --out={file}",
        "reproduce eva --laptop --out {file}",
        "filter run --out {file}/x.jsonl",
        "templates run --out {home}",
    ],
)
def test_an_output_that_something_blocks_is_refused_at_once(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "afile").touch()
    refuses(*words.format(file=tmp_path / "afile", home=tmp_path).split())
    said = capsys.readouterr().err
    assert f"--out {tmp_path}" in said and said.count("\n") == 1


def test_an_existing_output_is_taken(tmp_path: Path) -> None:
    (tmp_path / "there.jsonl").touch()
    assert read("mine", "r", "--out", str(tmp_path / "there.jsonl")).out == tmp_path / "there.jsonl"
    assert read("compare", "a", "b", "--out", str(tmp_path)).out == tmp_path


def test_words_of_options_are_read_back() -> None:
    words = ["--checkpoint=all", "--data", "a", "--data", "b", "--limit=3", "--seed=-1", "--no-tools", "x.y=9"]
    options = read("eval", *words)
    assert sorted(words_of(options)) == sorted(words) and read("eval", *words_of(options)) == options
    assert options.data == (Path("a"), Path("b")) and options.no_tools


def test_filter_mine_and_templates(ask: Ask) -> None:
    records = (Path("a"), Path("b"))
    assert ask(filter, "filter_episodes", "a", "b", "--out", "o.jsonl") == FilterOptions(records, Path("o.jsonl"))
    words = ("--min-acc", "0.5", "--min-iou", "0", "--from-step", "7", "--per-question", "2")
    assert ask(filter, "filter_episodes", "a", "--out", "o", *words) == FilterOptions(
        (Path("a"),), Path("o"), 0.5, 0.0, 7, 2
    )
    options = ask(mine, "mine", "a", "b", "--out", "o", "--below", "0.25", "--limit", "2")
    assert options == MineOptions(records, Path("o"), below=0.25, limit=2)
    assert ask(templates, "count_templates", "a", "b", "--out", "t") == TemplateOptions(records, Path("t"))


def test_enhance(ask: Ask) -> None:
    words = ("--failures", "mined.jsonl", "--videos", "new", *TEACHER, "--out", "o")
    options = ask(enhance, "enhance", *words)
    assert (options.failures, options.videos, options.existing) == ((Path("mined.jsonl"),), (Path("new"),), ())
    assert (options.teacher.url, options.teacher.temperature, options.teacher.max_tokens) == ("http://h/v1", 0.7, 2048)
    assert options.data_source == "eva-enhanced"
    options = ask(enhance, "enhance", *words, "--existing", "a", "--existing", "b", "--near", "0.5", "--draw", "3")
    assert (options.existing, options.rules.near, options.draw) == ((Path("a"), Path("b")), 0.5, 3)


def test_reflect(ask: Ask) -> None:
    words = ("--system", "videozoomer", "--rollouts", "run", *TEACHER, "--out", "o")
    options = ask(reflect, "reflect", *words, "--rollouts", "other", "--min-acc", "0.5")
    assert options.rollouts == (Path("run"), Path("other")) and options.min_acc == 0.5
    assert (options.keep, options.loss, options.job.out) == ("flaw", "correction", Path("o"))
    options = ask(reflect, "reflect", *words, "--keep", "whole", "--loss", "all")
    assert (options.keep, options.loss, options.teacher.recipe.name) == ("whole", "all", "videozoomer")


def test_preferences(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--judge", "http://j/v1", "--judge-name", "j", "--out", "o")
    play = ("--data", "rows.parquet", *TEACHER, "--samples", "4")
    options = ask(preferences, "label", *words, "--records", "run", "--rejected", "wrong-and-guess", "--size", "11000")
    assert options.records == (Path("run"),) and options.player is None and options.data == ()
    assert (options.rejected, options.size, options.right_from) == ("wrong-and-guess", 11000, 0.5)
    assert (options.judge.url, options.judge.name, options.judge.max_tokens) == ("http://j/v1", "j", 16)
    options = ask(preferences, "label", *words, *play)
    assert (options.player.recipe.name, options.samples, options.data) == ("eva", 4, (Path("rows.parquet"),))
    assert ask(preferences, "label", *words, *play, "--system", "videozoomer").player.recipe.name == "videozoomer"
    assert main(["preferences", *words, "--records", "run", "a.b=1"]) == 2
    assert "a.b=1" in capsys.readouterr().err


def test_classify(ask: Ask) -> None:
    options = ask(classify, "classify", "--base-results", "a", "b", "--teacher-results", "t", "--out", "o")
    assert options.base_results == (Path("a"), Path("b")) and options.base is options.teacher is None
    assert (options.sets.sft.shares, options.sets.rl.shares) == (SFT_SHARES, RL_SHARES)
    options = ask(classify, "classify", "--out", "o", "--sft-shares", "adaptive=0.25, active=0.75", "--base", SERVER)
    assert options.sets.sft.shares == {"adaptive": 0.25, "active": 0.75} and options.base.recipe.name == "videobrain"


@pytest.mark.parametrize("shares", ["adaptive=0.5", "easy=1", "active=0.5,active=0.5", "active=2", "active"])
def test_shares_add_up_and_name_classes(shares: str, capsys: pytest.CaptureFixture[str]) -> None:
    refuses("classify", "--out", "o", "--rl-shares", shares)
    assert "--rl-shares" in capsys.readouterr().err


def teacher_arguments(*words: str) -> TeacherArguments:
    options: TeacherArguments = read("distill", "--out", "out", *words)
    return options


def test_a_server_plays_the_cluster_profile_with_the_options_of_the_command() -> None:
    recipe = ("--recipe", str(RECIPES / "videozoomer"))
    words = ("--seed", "3", "--temperature", "0.5", "--timeout", "9", "--max-tokens", "8", "a.b=1")
    options = teacher_arguments(*recipe, *words).player(SERVER, "m")
    assert (options.recipe, options.profile, options.overrides) == (RECIPES / "videozoomer", "cluster", ("a.b=1",))
    assert (options.timeout, options.max_tokens, options.seeded) == (9.0, 8, True)
    assert (options.model.engine, options.model.seed, options.model.temperature) == ("chat", 3, 0.5)
    assert not teacher_arguments(*recipe).player(SERVER, "m").seeded
    assert teacher_arguments(*recipe, "--profile", "laptop").player(SERVER, "m").profile == "laptop"


def test_the_tiny_models_engine_plays_the_laptop_profile(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x")
    arguments = teacher_arguments("--system", "eva", "--engine", "toy")
    options = arguments.player(str(tmp_path), "m")
    assert (options.model.engine, options.profile) == (TOY, "laptop")
    with pytest.raises(SetupError, match="--base"):
        arguments.player(SERVER, "m", "--base")


def test_the_system_of_the_method_is_played_unless_another_is_named() -> None:
    assert teacher_arguments().player(SERVER, "m", system="eva").recipe.name == "eva"
    assert teacher_arguments("--system", "videobrain").player(SERVER, "m", system="eva").recipe.name == "videobrain"
    for words in (("--system", "nothing"), (), ("--system", "eva", "--recipe", str(RECIPES / "eva"))):
        with pytest.raises(SetupError, match="--system"):
            teacher_arguments(*words).player(SERVER, "m")


def test_a_job_and_its_servers() -> None:
    words = ("--limit", "2", "--concurrency", "3", "--price-in", "1", "--price-out", "4", "--timeout", "5")
    arguments = teacher_arguments(*words)
    job = arguments.job
    assert (job.out, job.limit, job.concurrency, job.prices) == (Path("out"), 2, 3, Prices(1.0, 4.0))
    server = arguments.server(SERVER, "j", max_tokens=16)
    assert (server.url, server.name, server.timeout, server.concurrency) == (SERVER, "j", 5.0, 3)
    assert (server.temperature, server.max_tokens) == (0.0, 16)


def test_the_end_of_a_job_sets_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_job(lambda: JobReport("all", True)) == 0
    assert run_job(lambda: JobReport("some", False, "one is missing")) == 1
    said = capsys.readouterr()
    assert said.out == "all\nsome\n" and said.err == "one is missing\n"

    def fail() -> JobReport:
        raise SetupError("nothing there")

    assert run_job(fail) == 2


def test_choosing_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert choose_engine("http://host:8000/v1", "auto", 0) == "chat"
    assert choose_engine("owner/name", "auto", 0) == "vllm"
    (tmp_path / "model.safetensors").write_bytes(b"small")
    for requested, gpus, engine in (("auto", 0, TOY), ("auto", 1, "vllm"), ("vllm", 0, "vllm"), ("toy", 1, TOY)):
        assert choose_engine(str(tmp_path), requested, gpus) == engine
    assert choose_engine(str(tmp_path), "my.own.Engine", 0) == "my.own.Engine"
    (tmp_path / "shards").mkdir()
    for model, requested in ((str(tmp_path / "shards"), "auto"), ("http://host/v1", "vllm"), ("http://host/v1", "toy")):
        with pytest.raises(SetupError, match="--teacher"):
            choose_engine(model, requested, 0, "--teacher")
    for name in ("auto", "chat", "vllm", "toy", "my.own.Engine"):
        assert read("eval", "--engine", name).engine == name
    refuses("eval", "--engine", "nonsense")
    assert "choose from auto, chat, vllm, vllm-server, toy" in capsys.readouterr().err


def launched(*words: str) -> LaunchOptions:
    return launch_options(read("run", *words))


def test_a_recipe_a_stage_and_overrides_in_any_order() -> None:
    assert launched("eva") == LaunchOptions(RECIPES / "eva")
    assert launched(str(RECIPES / "eva"), "a=1", "kto", "--profile", "laptop", "b=2", "--dry-run", "--submit") == (
        LaunchOptions(RECIPES / "eva", "kto", "laptop", submit=True, dry_run=True, overrides=("a=1", "b=2"))
    )


@pytest.mark.parametrize("words", [("evva",), ("./evva",), ("eva", "ppo"), ("eva", "profile=laptop")])
def test_a_mistake_in_a_run_is_named(words: tuple[str, ...]) -> None:
    with pytest.raises(SetupError, match=f"^{words[-1]}: "):
        launched(*words)


def test_a_misspelt_key_of_a_run_costs_one_line(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL_PATH", "TRAIN_FILES", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    assert main(["run", "eva", "--profile", "laptop", "trainer.total_epoch=3"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "did you mean trainer.total_epochs?" in line


def test_the_scripts_are_the_command() -> None:
    for script in RECIPES.glob("*/run_*.sh"):
        stage = script.stem.removeprefix("run_")
        called = {"grpo": 'run "$recipe" "$@"', "eval": 'eval --recipe "$recipe" "$@"'}
        expected = called.get(stage, f'run "$recipe" {stage} "$@"')
        assert script.read_text().rstrip().endswith(f'exec "$PYTHON" -m agentic_video.cli {expected}'), script
    assert len(list(Path(RECIPES).glob("*/run_*.sh"))) == 29
