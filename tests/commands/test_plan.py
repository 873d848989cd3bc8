"""``agentic-video plan``."""

import json
from pathlib import Path

import pytest

from agentic_video import cli
from tests.planning.models import TINY, config_of

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the variables that a cluster's yaml reads."""
    for name in ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES", "JUDGE_BASE_URL", "JUDGE_MODEL", "NNODES", "GPUS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)


def test_fits(capsys: pytest.CaptureFixture[str]) -> None:
    words = "plan --recipe videozoomer --gpus 16 --gpu-memory 80 --host-memory 1024"
    assert cli.main(words.split()) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-1] == "verdict: fits" and not said.err


def test_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "--recipe", "videozoomer", "actor_rollout_ref.model.use_fused_kernels=False"]) == 1
    out = capsys.readouterr().out
    assert "   -> actor_rollout_ref.model.use_fused_kernels=True" in out and "verdict: does not fit" in out


def test_json_of_a_small_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(
            ["plan", "--recipe", "eva", "--profile", "single", "--gpu-memory", "48", "--host-memory", "128", "--json"]
        )
        == 0
    )
    values = json.loads(capsys.readouterr().out)
    assert (values["model"], values["gpus"], values["nodes"]) == ("Qwen/Qwen2.5-VL-3B-Instruct", 1, 1)


def test_a_checkpoint_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its option, or as MODEL_PATH; a MODEL_PATH that is on other machines leaves the published model."""
    config_of(TINY["qwen3_vl"]).save_pretrained(tmp_path)
    command = ["plan", "--recipe", "videobrain", "--json"]
    assert cli.main([*command, "--model", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == TINY["qwen3_vl"].parameters
    monkeypatch.setenv("MODEL_PATH", str(tmp_path))
    assert cli.main(command) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == TINY["qwen3_vl"].parameters
    monkeypatch.setenv("MODEL_PATH", "/not/here")
    assert cli.main(command) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "Qwen/Qwen3-VL-8B-Instruct"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--recipe videozomer", "did you mean videozoomer?"),
        ("--recipe eva --gpus 0", "--gpus 0"),
        ("--recipe eva --model LLaVA", "LLaVA: no folder with config.json, and no model of known shape"),
        ("--recipe eva word", "word: neither an option nor a Hydra override"),
        ("--recipe eva data.train_batchsize=3", "did you mean data.train_batch_size?"),
        ("--recipe eva --gpu-memory 0", "--gpu-memory 0"),
        (f"--recipe eva {ROLLOUT}.max_num_seqs=0", f"{ROLLOUT}.max_num_seqs: "),
        (f"--recipe eva {ROLLOUT}.max_num_seqs=null", f"{ROLLOUT}.max_num_seqs: "),
        (f"--recipe eva {ROLLOUT}.gpu_memory_utilization=0", "gpu_memory_utilization: "),
        (f"--recipe eva {ACTOR}.fsdp_config.fsdp_size=0", "fsdp_size: "),
        # what the launcher refuses, on the GPUs that are asked for
        ("--recipe paravt --gpus 16", "can't be shared by 16 ranks: set actor_rollout_ref.actor.ppo_mini_batch_size=8"),
        (f"--recipe eva --gpus 8 {ROLLOUT}.tensor_model_parallel_size=3", "8 GPUs can't be shared by engines of 3"),
        ("--recipe eva actor_rollout_ref.hybrid_engine=False", "actor_rollout_ref.hybrid_engine: on False verl's "),
        ("--recipe eva trainer.v1.trainer_mode=sync", "trainer.v1.trainer_mode: sync is verl's own trainer"),
    ],
)
def test_mistakes_cost_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", *words.split()]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert message in said.err and said.err.count("\n") == 1


def test_calibrated_by_a_gpu_s_own_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan", "--recipe", "framethinker", "--json"]
    assert cli.main(command) == 0
    shipped = json.loads(capsys.readouterr().out)["seconds"]
    depths = [{"layers": n, "tokens": 16_384, "images": 64, "seconds": 4.0 + n} for n in (2, 4)]
    cells = {
        "actor-7b-16k-fused": {
            "state": "passed",
            "parameters": {"model": "qwen2.5-vl-7b", "fused": True},
            "result": {"depths": depths},
        }
    }
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"facts": {"name": "NVIDIA L40S"}, "cells": cells}))
    assert cli.main([*command, "--calibrate", str(file)]) == 0
    own = json.loads(capsys.readouterr().out)["seconds"]
    update = own["trainer"]["updates"]
    assert update["seconds"] > 2 * shipped["trainer"]["updates"]["seconds"] and "L40S" in update["source"]
    assert own["rollouts"] == shipped["rollouts"]
    del depths[0]["seconds"]
    file.write_text(json.dumps({"facts": {}, "cells": cells}))
    assert cli.main([*command, "--calibrate", str(file)]) == 2
    error = capsys.readouterr().err
    assert f"{file}: cells.actor-7b-16k-fused.result.depths[0].seconds" in error and error.count("\n") == 1
