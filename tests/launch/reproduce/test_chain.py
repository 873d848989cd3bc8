"""Reading a recipe's ``reproduce.yaml``."""

from pathlib import Path
from typing import Any

import pytest

from agentic_video.launch.reproduce.chain import filled, places, read_chain
from agentic_video.utils.errors import SetupError
from tests.launch.reproduce.chains import STAGES, chain_of, write_recipe


def test_a_command_s_parts(tmp_path: Path) -> None:
    taught = chain_of(tmp_path).stage("taught")
    assert taught.words == ("copy", "{rows.train}", "{folder}/model.bin")
    assert taught.variables == {"TRAIN_FILES": "{rows.train}"}
    assert taught.places == (("rows", "train"), ("folder", ""))
    assert taught.follows == ("rows",)
    assert chain_of(tmp_path).stage("rows").downloads == ("raw",)


def test_a_training_keeps_its_run_in_its_folder(tmp_path: Path) -> None:
    stage = {"name": "sft", "about": "a", "run": "MODEL_PATH={base} agentic-video run {recipe} sft trainer.x=1"}
    (made,) = chain_of(tmp_path, stage).stages
    assert made.trained == "sft" and made.variables == {"MODEL_PATH": "{base}", "OUTPUT_DIR": "{folder}"}
    assert made.makes == {"folder": ".", "run": "*/run-*", "model": "*/run-*/model"}
    (grpo,) = chain_of(tmp_path, {**stage, "run": "agentic-video run {recipe}"}).stages
    assert grpo.trained == "grpo"


def test_modes(tmp_path: Path) -> None:
    both = {"name": "a", "about": "a", "run": "agentic-video big", "laptop": {"run": "agentic-video small"}}
    paper = {"name": "b", "about": "b", "run": "agentic-video big", "laptop": {"left_out": "why not"}}
    laptop = {"name": "c", "about": "c", "paper": {"left_out": "not in it"}, "laptop": {"run": "agentic-video small"}}
    small, big = (chain_of(tmp_path, both, paper, laptop, mode=mode).stages for mode in ("laptop", "paper"))
    assert [(item.words, item.left_out) for item in small] == [(("small",), ""), ((), "why not"), (("small",), "")]
    assert [(item.words, item.left_out) for item in big] == [(("big",), ""), (("big",), ""), ((), "not in it")]


def test_benchmarks_become_stages(tmp_path: Path) -> None:
    benchmarks = {
        "sets": {"mlvu_dev": "mlvu --split dev", "lvbench": "lvbench"},
        "agent": {"model": "VideoZoomer", "run": "agentic-video eval --data {rows} --benchmark {benchmark}"},
    }
    recipe = write_recipe(tmp_path, benchmarks=benchmarks)
    made = read_chain(recipe, "paper")
    names = [item.name for item in made.stages[3:]]
    assert names == ["rows-mlvu_dev", "agent-mlvu_dev", "rows-lvbench", "agent-lvbench"]
    rows, agent = made.stages[3:5]
    assert rows.words[:6] == ("convert", "mlvu", "--split", "dev", "--source", "{data}/mlvu")
    assert agent.words == ("eval", "--data", "{rows-mlvu_dev.rows}", "--benchmark", "mlvu_dev")
    assert agent.row is not None and (agent.row.benchmark, agent.row.model) == ("mlvu_dev", "VideoZoomer")
    assert [item.name for item in read_chain(recipe, "paper", ["lvbench"]).stages[3:]] == names[2:]
    with pytest.raises(SetupError, match="--benchmarks x: there are mlvu_dev, lvbench"):
        read_chain(recipe, "paper", ["x"])
    with pytest.raises(SetupError, match="--benchmarks: the synthetic world has none"):
        read_chain(recipe, "laptop", ["lvbench"])
    assert [item.name for item in read_chain(recipe, "laptop").stages] == ["rows", "taught", "judged"]


def test_a_model_may_play_some_benchmarks_only_beside_figures_of_as_many_frames(tmp_path: Path) -> None:
    run = "agentic-video eval --data {rows} --benchmark {benchmark}"
    benchmarks = {
        "sets": {"mvbench": "mvbench", "videomme": "videomme"},
        "agent": {"model": "FrameMind", "run": run, "frames": 32},
        "agent-48": {"model": "FrameMind", "run": run, "frames": 48, "sets": ["videomme"]},
    }
    made = read_chain(write_recipe(tmp_path / "a", benchmarks=benchmarks), "paper").stages[3:]
    names = ["rows-mvbench", "agent-mvbench", "rows-videomme", "agent-videomme", "agent-48-videomme"]
    assert [item.name for item in made] == names
    assert [item.row.frames for item in made if item.row] == [32, 32, 48]
    wrong = {**benchmarks, "agent-48": {**benchmarks["agent-48"], "sets": ["videomm"]}}
    with pytest.raises(SetupError, match=r"benchmarks\.agent-48\.sets: videomm"):
        read_chain(write_recipe(tmp_path / "b", benchmarks=wrong), "paper")


def test_names_and_patterns(tmp_path: Path) -> None:
    chain = chain_of(tmp_path)
    assert [item.name for item in chain.matching("*t*")] == ["taught"]
    assert chain.descendants({"taught"}) == {"taught", "judged"}
    assert chain.descendants({"rows"}) == {"rows", "taught", "judged"}
    with pytest.raises(
        SetupError, match="tought: no such stage; did you mean taught\\? there are rows, taught, judged"
    ):
        chain.matching("tought")


def test_places() -> None:
    assert list(places("{a}/x", "{b-c.d},{a}")) == [("a", ""), ("b-c", "d"), ("a", "")]
    assert filled("{a}/{b.c}", {("a", ""): "1"}) == "1/{b.c}"
    assert list(places("{image: 4}", "{}", "{A}")) == []  # Hydra's braces


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"run": "rm -rf /"}, "rows: expected a command of agentic-video, or why it is left out"),
        ({"run": ""}, "rows: expected a command"),
        ({"laptop": {"run": "agentic-video x", "left_out": "y"}}, "rows: expected a command"),
        ({"run": "agentic-video x {nothing}"}, r"rows: \{nothing\} is neither of"),
        ({"run": "agentic-video x {taught.model}"}, r"rows: no earlier stage makes \{taught.model\}"),
        ({"name": "Rows"}, "Rows: a stage's name"),
        ({"name": "taught"}, "taught: a stage's name"),
        ({"name": "logs"}, "logs: a stage's name"),
        ({"rum": "x"}, r"stages\[0\].rum: unknown key; did you mean run"),
        ({"rows": "many"}, r"stages\[0\].rows: "),
        ({"row": {"benchmark": 3}}, r"stages\[0\].row.benchmark: "),
        ({"run": "agentic-video 'x"}, "No closing quotation"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message) as raised:
        chain_of(tmp_path, {**STAGES[0], **change}, STAGES[1])
    assert "reproduce.yaml: " in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "text", [b"[", b"- a", b"paper: x", b"null", b"paper: x\nbase: y\nstages: 3", b"\xff\xfe", None]
)
def test_a_file_that_is_something_else(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "reproduce.yaml").write_bytes(text)
    with pytest.raises(SetupError, match=r"reproduce\.yaml"):
        read_chain(tmp_path, "paper")
