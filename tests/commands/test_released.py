"""Released checkpoints by name: one, several, and what they cost."""

import json
from pathlib import Path

import pytest
import yaml

from agentic_video.cli import main
from agentic_video.commands.eval import resolved
from agentic_video.commands.released import chosen
from agentic_video.evaluation import released
from agentic_video.evaluation.engine import TOY
from agentic_video.toyworld.questions import World
from tests.commands.conftest import read
from tests.evaluation.conftest import RECIPES


def test_one_checkpoint_s_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODEL_PATH", "/another/model")
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    arguments = read(
        "eval", "--checkpoint", "videozoomer-7b", "--data", "rows.jsonl", "agentic_video.system.max_turns=2"
    )
    (item,) = chosen(arguments)
    options = resolved(arguments, item)
    assert (options.model, options.spec.engine) == ("zsgvivo/videozoomer", "vllm"), "not MODEL_PATH"
    assert options.recipe == RECIPES / "videozoomer" and options.temperature == 0.0
    assert options.folder == tmp_path / "checkpoints-eval/rows/videozoomer-7b/agent"
    # what the user says comes after what the table says
    assert options.overrides[-1] == "agentic_video.system.max_turns=2"
    assert "agentic_video.system.max_turns=5" in options.overrides
    local = read("eval", "--checkpoint", "eva-7b", "--model", "http://h/v1", "--temperature", "0.5")
    options = resolved(local, *chosen(local))
    assert (options.model, options.temperature) == ("http://h/v1", 0.5)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "name what plays: --system NAME, --recipe FOLDER, or --checkpoint NAME"),
        (["--checkpoint", "nothing"], "there are videozoomer-7b"),
        (["--checkpoint", "eva-7b", "--system", "eva"], "leave --system and --recipe out"),
        (["--checkpoint", "eva-7b,videozoomer-7b", "--model", "m"], "several have a model each"),
        (["--checkpoint", "all"], "name rows with --data"),
        (["--checkpoint", "all", "--data", "x.jsonl", "--sweep", "calls", "1"], "--sweep goes with one checkpoint"),
        (["--checkpoint", "all", "--data", "no-such.jsonl"], "no such file"),
        (["--plan", "--system", "eva"], "go with --checkpoint NAME"),
        (["--checkpoints", "x.yaml", "--system", "eva"], "go with --checkpoint NAME"),
    ],
)
def test_mistakes_cost_one_line(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", *words]) == 2
    said = capsys.readouterr().err.strip()
    assert why in said and len(said.splitlines()) == 1


def test_the_plan_of_all(
    small_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hub isn't asked here. Nothing is made on disk."""
    monkeypatch.setattr(released, "require_model", lambda options, option: None)
    words = [
        "--data",
        str(small_world.heldout),
        "--out",
        str(tmp_path / "o"),
        *["--limit", "10", "--benchmark", "mlvu_dev"],
    ]
    assert main(["eval", "--checkpoint", "eva-7b,videozoomer-7b", "--plan", "--engine", "vllm", *words]) == 0
    said = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.splitlines() if line.startswith("|")]
    # 10 episodes of 20,480 + 32,768 tokens, of which 5 turns of 4,096 are generated
    zoomer = ["videozoomer-7b", "zsgvivo/videozoomer", "16.6 GB", "10", "<= 5", "<= 532,480", "<= 204,800", "68.8"]
    assert zoomer in rows
    # 10 of 4,096 + 49,152, and 6 turns of 2,048
    assert ["eva-7b", "WRHC/EfficientVideoAgent", "16.6 GB", "10", "<= 6", "<= 532,480", "<= 122,880", "68.3"] in rows
    assert "2 of 2 checkpoints on 10 questions of mlvu_dev" in said
    assert "At most 1,064,960 tokens in all, frames included; weights of 33.2 GB" in said
    assert not (tmp_path / "o").exists()


def test_the_plan_of_one_is_about_the_model_that_is_named(
    small_world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody asks the hub about the checkpoint's own."""
    words = ["--checkpoint", "videozoomer-7b", "--plan", "--engine", "vllm", "--data", str(small_world.heldout)]
    copy = tmp_path / "copy"
    copy.mkdir()
    assert main(["eval", *words, "--model", str(copy)]) == 0
    assert f"- videozoomer-7b: --model {copy}: no weights in Hugging Face's format there" in capsys.readouterr().out
    (copy / "model.safetensors").touch()
    assert main(["eval", *words, "--model", str(copy)]) == 0
    assert f"| videozoomer-7b | {copy} | 16.6 GB |" in capsys.readouterr().out


def test_what_is_wrong_with_one_is_in_the_plan(
    small_world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "mine.yaml"
    entries = [
        {"name": "no-recipe", "model": "me/mine", "recipe": "nothing"},
        {"name": "no-key", "model": "m/m", "recipe": "videozoomer", "settings": {"agentic_video.system.nothing": 1}},
        {"name": "no-folder", "model": "/no/such/folder", "recipe": "videozoomer"},
    ]
    table.write_text(yaml.safe_dump(entries))
    words = ["--checkpoint", "no-recipe,no-key,no-folder", "--checkpoints", str(table)]
    words += ["--data", str(small_world.heldout)]
    assert main(["eval", *words, "--out", str(tmp_path / "o"), "--engine", "vllm"]) == 2
    said = capsys.readouterr().err
    assert "0 of 3 checkpoints" in said and "no checkpoint can be evaluated" in said.splitlines()[-1]
    lines = {line.split(":")[0]: line for line in said.splitlines() if line.startswith("- ")}
    assert "no such recipe" in lines["- no-recipe"] and "agentic_video.system.nothing" in lines["- no-key"]
    assert "no such folder" in lines["- no-folder"]


@pytest.mark.slow
def test_a_bad_checkpoint_does_not_stop_the_others(
    checkpoint: Path, small_world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two that play, one whose weights are broken, one that isn't there; stopped and gone on with."""
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in checkpoint.iterdir():
        if file.is_file():
            (broken / file.name).write_bytes(file.read_bytes())
    for file in broken.glob("*.safetensors"):
        file.write_bytes(b"no weights")
    table = tmp_path / "mine.yaml"
    entries = [
        {"name": "broken", "model": str(broken), "recipe": "videozoomer"},
        {"name": "missing", "model": str(tmp_path / "nowhere"), "recipe": "videozoomer"},
        {"name": "good", "model": str(checkpoint), "recipe": "videozoomer"},
        {
            "name": "short", "model": str(checkpoint), "recipe": "videozoomer",
            "settings": {"agentic_video.system.max_turns": 1}, "sampling": {"temperature": 0.0},
        },
    ]  # fmt: skip
    table.write_text(yaml.safe_dump(entries))
    out = tmp_path / "out"
    words = ["eval", "--checkpoint", "broken,missing,good,short", "--checkpoints", str(table), "--profile", "laptop"]
    words += ["--engine", TOY, "--data", str(small_world.heldout), "--limit", "5", "--out", str(out)]
    assert main(words) == 1
    result = {run["name"]: run for run in json.loads((out / "comparison.json").read_text())["runs"]}
    assert list(result) == ["broken", "missing", "good", "short"]
    assert "exit status 2" in result["broken"]["problem"] and "can't be loaded" in result["broken"]["problem"]
    assert "no such folder" in result["missing"]["problem"]
    assert result["good"]["episodes"] == result["short"]["episodes"] == 5
    assert result["short"]["difference"]["questions"] == 5
    journal = (out / "good/agent/episodes-000.jsonl").read_bytes()
    capfd.readouterr()
    # again, with more questions: what was played stays
    assert main([*words, "--limit", "6"]) == 1
    assert "good: " not in capfd.readouterr().out
    assert (out / "good/agent/episodes-000.jsonl").read_bytes().startswith(journal)
    assert len((out / "good/agent/episodes-000.jsonl").read_text().splitlines()) == 6


def test_an_encoder_that_cannot_be_had_is_in_the_plan(
    small_world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").touch()
    words = ["eval", "--checkpoint", "timesearch-r-7b", "--plan", "--engine", "vllm", "--data"]
    words += [str(small_world.heldout), "--model", str(model), "agentic_video.retrieval.model=no-such-encoder"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "- timesearch-r-7b: agentic_video.retrieval.model=no-such-encoder: open_clip has none of that name" in said
    assert main([*words, "--baseline", "4"]) == 0
    assert "1 of 1 checkpoints" in capsys.readouterr().out
