"""The plan as text."""

from pathlib import Path
from typing import Any

from agentic_video.config.compose import compose_recipe
from agentic_video.launch.reproduce.chain import read_chain
from agentic_video.launch.reproduce.plan import cost_of, plan_text
from agentic_video.launch.reproduce.reproduction import ReproduceOptions, Reproduction
from agentic_video.launch.reproduce.state import State
from agentic_video.planning.report import plan_of
from tests.config.configs import RECIPES
from tests.launch.reproduce.chains import reproduction


def test_what_grpo_costs(tmp_path: Path) -> None:
    """What the planner computes, with the number of steps where the number of rows is published."""
    for name, least in (("framemind", "118 steps, so at least "), ("videozoomer", "; the paper: 16 H100")):
        chain = read_chain(RECIPES / name, "paper")
        made = Reproduction(chain, ReproduceOptions(tmp_path, tmp_path), State(tmp_path))
        said = cost_of(made, chain.stage("grpo"))
        assert said.startswith("computed, not measured: ") and " GPUs of 80 GiB, of which " in said and least in said
        assert cost_of(made, chain.stages[0]) == ""


def cost(folder: Path, name: str, words: tuple[str, ...] = (), gpus: int = 0, **options: Any) -> str:
    """What GRPO of a recipe's paper costs."""
    environment = options.pop("environment", {})
    asked = ReproduceOptions(folder, folder, words=tuple(("grpo", word) for word in words), **options)
    made = Reproduction(read_chain(RECIPES / name, "paper"), asked, State(folder))
    (stage,) = (item for item in made.stages if item.name == "grpo")
    return cost_of(made, stage, gpus, environment)


def test_grpo_is_planned_with_the_model_that_it_starts_from(tmp_path: Path) -> None:
    base = "Qwen/Qwen2.5-VL-32B-Instruct"
    said = cost(tmp_path, "videozoomer", base=base)
    planned = plan_of(compose_recipe(RECIPES / "videozoomer", "cluster"), model=base)
    assert planned.verdict == "does not fit" and "(does not fit)" in said
    assert "(does not fit)" not in cost(tmp_path, "videozoomer")
    assert "no plan: some/model: no folder with config.json" in cost(tmp_path, "videozoomer", base="some/model")
    given = tmp_path / "given"
    given.mkdir()
    (given / "config.json").write_text('{"model_type": "other"}')
    assert "no plan: " in (said := cost(tmp_path, "videozoomer", given={("sft", "model"): given})) and "other" in said


def test_grpo_is_planned_for_the_machines_that_there_are(tmp_path: Path) -> None:
    assert " 32 GPUs of 80 GiB" in cost(tmp_path, "eva")
    assert " 8 GPUs of 80 GiB" in cost(tmp_path, "eva", gpus=8)
    assert " 4 GPUs of 80 GiB" in cost(tmp_path, "eva", ("trainer.n_gpus_per_node=4",), gpus=8)
    assert " 32 GPUs of 80 GiB" in cost(tmp_path, "eva", gpus=8, environment={"RAY_ADDRESS": "auto"})
    assert " 1 GPUs of 80 GiB" in cost(tmp_path, "eva", ("--profile=single",), gpus=8)
    assert "no plan: NNODES=2, but" in cost(tmp_path, "eva", gpus=8, environment={"NNODES": "2"})


def test_steps_are_counted_as_the_launcher_counts_them(tmp_path: Path) -> None:
    def steps(name: str, *words: str) -> str:
        return cost(tmp_path, name, words).partition(" s a step")[2].partition(" steps,")[0]

    assert steps("eva") == "; 167"  # 10,700 rows, 64 a step
    assert steps("eva", "trainer.total_training_steps=20") == "; 20"
    assert steps("eva", "trainer.total_epochs=2") == "; 334"
    assert steps("eva", "data.train_max_samples=640") == "; 10"
    assert steps("videozoomer", "trainer.total_training_steps=20") == "; 20"


def test_a_rehearsal_s_cost_is_what_was_measured(tmp_path: Path) -> None:
    assert "\ncost: time and memory are not measured\n" in plan_text(reproduction(tmp_path), [])
    assert "\ncost: a minute\n" in plan_text(reproduction(tmp_path, toyworld={"took": "a minute"}), [])
    chain = read_chain(RECIPES / "videozoomer", "laptop")
    small = Reproduction(chain, ReproduceOptions(tmp_path, tmp_path), State(tmp_path))
    assert "16 H100" not in plan_text(small, [])
