"""The command in this process, against a real server and with the tiny model's engine."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.commands.eval import resolved, with_toyworld
from agentic_video.config.overrides import quoted
from agentic_video.evaluation.engine import TOY
from agentic_video.evaluation.model import TAUGHT, ModelOptions
from agentic_video.evaluation.options import EvalOptions, Sweep, Variant
from agentic_video.launch import toyworld
from agentic_video.toyworld.model import load_checkpoint, save_checkpoint
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.serve import serving
from agentic_video.types.record import load_records
from agentic_video.utils.errors import SetupError
from tests.commands.conftest import read
from tests.evaluation.conftest import RECIPES
from tests.evaluation.scripted import named


@pytest.fixture(scope="module")
def served(checkpoint: Path) -> Iterator[str]:
    """The tiny model behind a real server, in a thread of its own."""
    ready, found, loop = threading.Event(), [], asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(checkpoint) as url:
            found.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(120)
    yield found[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)


def evaluate(model: str, world: World, out: Path | None, *more: str) -> int:
    words = ["eval", "--recipe", str(RECIPES / "videozoomer"), "--model", model, "--data", str(world.heldout)]
    words += ["--out", str(out)] if out else []
    return main([*words, "--profile", "laptop", "--limit", "6", *more])


def test_a_server_and_the_baseline(served: str, small_world: World, tmp_path: Path) -> None:
    assert evaluate(served, small_world, tmp_path / "agent") == 0
    records, problems = load_records([tmp_path / "agent" / "episodes-000.jsonl"])
    assert len(records) == 6 and not problems
    assert all(record.rewards["prompt_tokens"] > 0 and record.rewards["completion_tokens"] > 0 for record in records)
    assert all(record.provenance["engine"] == "chat" and record.provenance["model"] == "toyworld" for record in records)
    assert evaluate(served, small_world, tmp_path / "baseline", "--baseline", "4") == 0
    result = json.loads((tmp_path / "baseline" / "report.json").read_text())
    assert result["per_episode"]["frames"]["mean"] == 4
    assert result["distribution"]["turns"] == {"1": 6}


@pytest.mark.slow
@pytest.mark.parametrize("where", ["in process", "server"])
def test_a_sampled_evaluation_gives_the_same_episodes_in_any_order(
    where: str, served: str, checkpoint: Path, small_world: World, tmp_path: Path
) -> None:
    model = served if where == "server" else str(checkpoint)
    said = []
    for name, more in (("all", ("--concurrency", "6")), ("each", ("--concurrency", "1")), ("other", ("--seed", "1"))):
        assert evaluate(model, small_world, tmp_path / name, "--temperature", "1", *more) == 0
        records, _ = load_records([tmp_path / name / "episodes-000.jsonl"])
        said.append({record.qa.id: [turn.text for turn in record.trajectory.turns] for record in records})
    assert said[0] == said[1] != said[2]


@pytest.fixture(scope="module")
def taught_checkpoint(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that says what it was taught, loaded and saved again as a training does."""
    model, tokenizer = load_checkpoint(checkpoint)
    setattr(model.config, TAUGHT, "videozoomer")
    first, again = (tmp_path_factory.mktemp(name) for name in ("taught", "trained"))
    save_checkpoint(model, tokenizer, first)
    model, tokenizer = load_checkpoint(first)
    save_checkpoint(model, tokenizer, again)
    return again


@pytest.mark.parametrize("system", ["framethinker", "videobrain", "longvt"])
@pytest.mark.parametrize("command", ["eval", "eval its rows", "distill", "run"])
def test_a_tiny_model_of_another_system_is_refused(
    command: str,
    system: str,
    taught_checkpoint: Path,
    small_world: World,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe, model, rows = str(RECIPES / system), str(taught_checkpoint), str(small_world.heldout)
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    words = {
        "eval": ["eval", "--recipe", recipe, "--model", model, "--data", rows, "--profile", "laptop"],
        "eval its rows": ["eval", "--recipe", recipe, "--model", model, "--profile", "laptop"],
        "distill": ["distill", "--recipe", recipe, "--teacher", model, "--data", rows, "--profile", "laptop"],
        "run": ["run", recipe, "--profile", "laptop", "--dry-run"],
    }[command]
    if command == "run":
        monkeypatch.setenv("MODEL_PATH", model)
        monkeypatch.setenv("TRAIN_FILES", rows)
    assert main([*words, *(["--out", str(tmp_path / "out")] if command == "distill" else [])]) == 2
    assert "was taught videozoomer" in capsys.readouterr().err.splitlines()[-1]


def test_its_own_system_a_subclass_and_the_baseline_play_it(
    taught_checkpoint: Path, small_world: World, tmp_path: Path
) -> None:
    assert evaluate(str(taught_checkpoint), small_world, tmp_path / "own") in (0, 1)
    sharp = "agentic_video.system._target_=brightness_tool.SharpZoomer"
    assert evaluate(str(taught_checkpoint), small_world, tmp_path / "sharp", sharp) in (0, 1)
    out = ["--out", str(tmp_path / "baseline"), "--data", str(small_world.heldout), "--limit", "2"]
    words = ["eval", "--recipe", str(RECIPES / "framethinker"), "--model", str(taught_checkpoint), "--baseline", "2"]
    assert main([*words, *out, "--profile", "laptop"]) in (0, 1)


def test_what_a_recipe_takes_from_the_environment_is_named(
    small_world: World, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUDGE_BASE_URL", "JUDGE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    words = ["eval", "--recipe", str(RECIPES / "videobrain"), "--model", "http://127.0.0.1:9/v1", "--model-name", "m"]
    words += ["--data", str(small_world.heldout), "--out", str(tmp_path)]
    assert main([*words, "agentic_video.judge.base_url=${oc.env:JUDGE_BASE_URL}"]) == 2
    said = capsys.readouterr().err
    assert "JUDGE_BASE_URL" in said and "agentic_video.judge.base_url=..." in said
    encoder = "agentic_video.retrieval.model=no-such-encoder"
    words += ["agentic_video.system.answer_match=robust"]
    assert main([*words, encoder]) == 2
    assert "no server answers there" in capsys.readouterr().err
    words = [*words, "--engine", named("OracleBackend"), encoder]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {encoder}: ") and said.count("\n") == 1 and not list(tmp_path.iterdir())
    # the baseline needs no encoder: it gets as far as playing, which the scripted agent can't do without the system
    assert main([*words, "--baseline", "2", "--limit", "1", "--out", str(tmp_path / "baseline")]) == 1
    assert "1 question could not be played" in capsys.readouterr().out


def test_a_finished_evaluation_is_reported_again_without_its_server(
    served: str, small_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("--model-name", "toyworld")
    assert evaluate(served, small_world, tmp_path, *more) == 0
    (tmp_path / "report.md").unlink()

    def gone(*arguments: Any, **options: Any) -> None:
        raise SetupError("no server answers there")

    monkeypatch.setattr("agentic_video.evaluation.model.list_models", gone)
    assert evaluate(served, small_world, tmp_path, *more) == 0
    assert (tmp_path / "report.md").is_file()


def requested(*words: str) -> EvalOptions:
    """The library's options on a machine without GPUs."""
    return resolved(read("eval", "--recipe", str(RECIPES / "eva"), *words))


def test_every_word_has_its_option() -> None:
    words = (
        "--model http://h/v1 --model-name m --data a.jsonl --data b.jsonl --benchmark b --out o --baseline 4 "
        "--sweep frames 2,1 --temperature 0.5 --top-p 0.25 --seed 3 --limit 7 --concurrency 5 --shards 2 "
        "--api-key-env KEY a=1 ~b"
    )
    options = requested(*words.split())
    assert options.recipe_folder() == (RECIPES / "eva").resolve() and options.profile == "cluster"
    assert options.spec == ModelOptions("http://h/v1", "chat", "m", 0.5, 0.25, 3, 5, "KEY")
    assert (options.variant, options.swept) == (Variant("baseline", 4), Sweep("frames", (1, 2)))
    assert (options.data, options.overrides) == ((Path("a.jsonl"), Path("b.jsonl")), ("a=1", "~b"))


def test_without_a_model_the_tiny_one_plays(tmp_path: Path) -> None:
    assert (requested().profile, requested().model, requested().variant) == ("laptop", "", Variant())
    assert requested("--no-tools").variant == Variant("no-tools")
    assert requested("--no-tools", "--baseline", "2").variant == Variant("baseline", 2)
    thinking = requested("--baseline", "2", "--baseline-prompt", "baseline_cot").variant
    assert thinking == Variant("baseline", 2, "baseline_cot")
    with pytest.raises(SetupError, match="--baseline-prompt is for --baseline"):
        requested("--baseline-prompt", "baseline_cot")
    (tmp_path / "model.safetensors").touch()
    assert requested("--engine", "toy", "--model", str(tmp_path)).profile == "laptop"
    with pytest.raises(SetupError, match="--engine toy needs the folder"):
        requested("--engine", "toy", "--model", "owner/name")
    assert (
        requested("--profile", "cluster").profile == "cluster"
        and requested("--model", "owner/name").profile == "cluster"
    )


@pytest.mark.parametrize(
    ("words", "made", "model", "data"),
    [
        ((), (True, "cold-start"), "model", "heldout"),
        (("--baseline", "2"), (True, "base"), "base", "heldout"),
        (("--data", "mine.jsonl"), (False, "cold-start"), "model", "mine.jsonl"),
    ],
)
def test_the_synthetic_world_fills_in_what_is_not_named(
    words: Sequence[str], made: tuple[bool, str], model: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    asked_data = data

    def build(recipe: Path, overrides: Sequence[str], *, data: bool, model: str, config: object) -> dict[str, str]:
        assert config is not None  # what was built before is then found at once
        built.append((recipe, tuple(overrides), (data, model)))
        return {
            **({"train": "train", "heldout": "heldout"} if data else {}),
            "base": str(tmp_path / "base"),
            "model": str(tmp_path / "model"),
        }

    for name in ("base", "model"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"small")
    monkeypatch.setattr(toyworld, "build_toyworld", build)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").touch()
    options = with_toyworld(requested(*words, "trainer.save_freq=1"))
    assert built == [((RECIPES / "eva").resolve(), ("trainer.save_freq=1",), made)]
    assert (options.model, options.spec.engine) == (str(tmp_path / model), TOY)
    assert options.data == (Path(asked_data),)
    assert options.overrides[-1] == "trainer.save_freq=1"
    assert f"actor_rollout_ref.model.path={quoted(str(tmp_path / model))}" in options.overrides


@pytest.mark.parametrize("word", ["trainer.total_epoch=1", "agentic_video.system.max_calls=0", "--data=nope.jsonl"])
def test_a_mistake_is_found_before_anything_is_built(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*args: object, **kwargs: object) -> dict[str, str]:
        raise AssertionError("built")

    monkeypatch.setattr(toyworld, "build_toyworld", build)
    with pytest.raises((SetupError, ValueError), match=r"total_epochs|max_calls|nope\.jsonl"):
        with_toyworld(requested(word))
