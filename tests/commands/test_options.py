"""Options that commands hand to their libraries."""

from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.commands import classify, enhance, filter, mine
from agentic_video.commands.guard import run_job
from agentic_video.commands.parsing import words_of
from agentic_video.commands.run import launch_options
from agentic_video.evaluation.engine import TOY, choose_engine
from agentic_video.evaluation.model import ModelOptions
from agentic_video.launch.options import LaunchOptions
from agentic_video.synthesis.distill import DistillOptions
from agentic_video.synthesis.filter import FilterOptions
from agentic_video.synthesis.inputs import CountOptions
from agentic_video.synthesis.jobs import JobReport
from agentic_video.synthesis.mine import MineOptions
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
    assert read("templates", "a", "b", "--out", "t") == CountOptions(records, Path("t"))


def test_methods_of_a_paper(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--failures", "mined.jsonl", "--videos", "new", *TEACHER, "--out", "o")
    options = ask(enhance, "enhance", *words, "--existing", "a", "--existing", "b")
    assert (options.failures, options.videos, options.existing) == (
        (Path("mined.jsonl"),),
        (Path("new"),),
        (Path("a"), Path("b")),
    )
    assert options.data_source == "eva-enhanced"
    options = ask(classify, "classify", "--base-results", "a", "b", "--teacher-results", "t", "--out", "o")
    assert options.base_results == (Path("a"), Path("b"))
    # VideoBrain, section 4.1
    assert options.sft.shares == {"adaptive": 0.423, "active": 0.577} and options.sft.size == 1_600
    assert options.rl.shares == {"direct": 0.449, "adaptive": 0.081, "active": 0.47} and options.rl.size == 6_400
    options = ask(classify, "classify", "--out", "o", "--sft-shares", "adaptive=0.25, active=0.75")
    assert options.sft.shares == {"adaptive": 0.25, "active": 0.75}
    assert main(["preferences", "--judge", "j", "--out", "o", "--records", "run", "a.b=1"]) == 2
    assert "a.b=1" in capsys.readouterr().err


@pytest.mark.parametrize("shares", ["adaptive=0.5", "easy=1", "active=0.5,active=0.5", "active=2", "active"])
def test_shares_add_up_and_name_classes(shares: str, capsys: pytest.CaptureFixture[str]) -> None:
    refuses("classify", "--out", "o", "--rl-shares", shares)
    assert "--rl-shares" in capsys.readouterr().err


def test_a_player_has_the_options_of_the_command(tmp_path: Path) -> None:
    words = ("--seed", "3", "--temperature", "0.5", "--concurrency", "5", "--api-key-env", "KEY", "--processor", "p")
    options: DistillOptions = read("distill", "--out", "out", *words)
    chosen = options.model_options(SERVER, "m", seed=3, concurrency=5)
    assert chosen == ModelOptions(SERVER, "chat", "m", 0.5, None, 3, 5, "KEY", "p")
    assert options.profile_of("chat") == "cluster" and options.profile_of(TOY) == "laptop"
    assert read("distill", "--out", "out", "--profile", "laptop").profile_of("chat") == "laptop"
    (tmp_path / "model.safetensors").write_bytes(b"x")
    toy = read("distill", "--out", "out", "--engine", "toy")
    assert toy.model_options(str(tmp_path), seed=0, concurrency=1).engine == TOY
    with pytest.raises(SetupError) as caught:
        toy.model_options(SERVER, seed=0, concurrency=1, option="--base")
    assert caught.value.key == "--base"


def test_the_system_of_the_method_is_played_unless_another_is_named() -> None:
    assert read("distill", "--out", "out").recipe_folder("eva").name == "eva"
    assert read("distill", "--out", "out", "--system", "videobrain").recipe_folder("eva").name == "videobrain"
    for words in (("--system", "nothing"), (), ("--system", "eva", "--recipe", str(RECIPES / "eva"))):
        with pytest.raises(SetupError, match="--system"):
            read("distill", "--out", "out", *words).recipe_folder()


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
