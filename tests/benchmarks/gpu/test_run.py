"""benchmarks/gpu/run.py: cells in processes of their own, what is kept of them, tables and verdict."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.utils.errors import SetupError
from benchmarks.gpu import cells as known_cells
from benchmarks.gpu import results, run
from benchmarks.gpu.toyworld import cluster_overrides
from tests.config.configs import RECIPES, SYSTEMS, set_environment
from tests.share import a_few_systems

FACTS = {
    "device": "cuda",
    "name": "a GPU",
    "memory_gib": 80.0,
    "driver": "580.1",
    "cuda": "13.0",
    "python": "3.11.7",
    "packages": {"torch": "2.11.0", "flash-attn": ""},
}


def program(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(run.REPOSITORY / "benchmarks" / "gpu" / "run.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


@pytest.mark.slow
def test_a_cell_passes_once_and_is_kept(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--cells", "patchify-qwen3", "--out", str(tmp_path)]
    first = program(*words)
    assert first.returncode == 0 and "verdict: 1 of 1 cells passed" in first.stdout, first.stdout + first.stderr
    entry = json.loads((tmp_path / "results.json").read_text())["cells"]["patchify-qwen3"]
    assert entry["state"] == "passed" and [row["images"] for row in entry["result"]["counts"]] == [64, 128]
    assert Path(entry["log"]).is_file()
    second = program(*words)
    assert second.returncode == 0 and "patchify-qwen3: passed before" in second.stdout
    page = tmp_path / "gpu.md"
    page.write_text("a\n<!-- cpu results -->\nold\n<!-- end of cpu results -->\nb\n")
    assert program("--device", "cpu", "--out", str(tmp_path), "--table", str(page)).returncode == 0
    text = page.read_text()
    assert "| patchify-qwen3 | 64 |" in text and "old" not in text and text.startswith("a\n") and text.endswith("\nb\n")


@pytest.mark.slow
def test_a_cell_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    entry = run.measure("patchify-qwen3", "cpu", tmp_path, [2, 4], 1.0)
    assert entry["state"] == "timeout" and "longer than 1 s" in entry["reason"]


def test_what_is_left_of_a_cell_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = (
        f"import subprocess; print(subprocess.Popen(['sleep', '600']).pid, file=open({str(note)!r}, 'w'), flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    process.wait()
    child = Path("/proc") / note.read_text().strip()
    assert child.exists()
    run.end_group(process)
    deadline = time.monotonic() + 30
    while child.exists() and "zombie" not in (child / "status").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not child.exists() or "zombie" in (child / "status").read_text()


def test_a_failing_cell_names_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(scratch: Path, device: str) -> dict[str, Any]:
        raise RuntimeError("no\nluck")

    def leave(status: int) -> None:
        raise SystemExit(status)

    broken = replace(known_cells.cpu_cells()[0], name="broken", make=fail, parameters={})
    wrong = replace(broken, name="wrong", make=lambda scratch, device: {"x": 1}, check=lambda result: "x is 1")
    monkeypatch.setattr(known_cells, "cells_for", lambda device, layers: [broken, wrong])
    monkeypatch.setattr(os, "_exit", leave)
    for name, state, reason in (("broken", "failed", "RuntimeError: no luck"), ("wrong", "failed", "x is 1")):
        with pytest.raises(SystemExit):
            run.run_cell(name, "cpu", tmp_path, [2, 4])
        entry = json.loads((tmp_path / "cells" / f"{name}.json").read_text())
        assert (entry["state"], entry["reason"]) == (state, reason)


def test_cells_are_asked_for_by_the_beginning_of_their_names() -> None:
    names = ["actor-a", "actor-b", "vllm-a"]
    assert run.chosen(names, []) == names and run.chosen(names, ["actor"]) == names[:2]
    with pytest.raises(SetupError, match=r"--cells actr: no such cell; there are actor-a"):
        run.chosen(names, ["vllm", "actr"])


def test_every_group_of_cells_has_a_table_and_names_are_unique() -> None:
    for device in ("cuda", "cpu"):
        cells = known_cells.cells_for(device)
        assert len({one.name for one in cells}) == len(cells)
        assert {one.group for one in cells} == set(results.TABLES)
        json.dumps([dict(one.parameters) for one in cells])
    # all but the actor's long ones and the job end within five minutes, or are named long
    assert {one.name for one in known_cells.cuda_cells() if one.seconds > 300 and not one.long} == {
        "toyworld-videozoomer",
        "actor-qwen3-8b-24k-lora-fused",
        "vllm-7b-64",
    }


def test_a_result_of_other_parameters_is_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results.note(file, "a", {"state": "passed", "reason": "", "parameters": {"layers": (2, 4)}}, FACTS)
    known = results.read(file)
    assert results.is_done(known, "a", {"layers": (2, 4)}) and not results.is_done(known, "a", {"layers": (2, 8)})
    results.note(file, "b", {"state": "skipped", "reason": "no memory", "parameters": {}}, FACTS)
    known = results.read(file)
    assert set(known["cells"]) == {"a", "b"} and not results.is_done(known, "b", {})
    assert results.verdict(known, ["a", "b", "c"]) == "verdict: 1 of 3 cells passed; 1 skipped (b); 1 not run (c)"


def test_a_folder_s_cells_are_of_one_gpu_and_one_set_of_versions(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    assert not results.others(results.read(file), FACTS)
    results.note(file, "a", {"state": "passed", "reason": "", "parameters": {}}, FACTS)
    known = results.read(file)
    assert not results.others(known, {**FACTS, "driver": "999.9"})
    for change in ({"name": "another card"}, {"packages": {**FACTS["packages"], "torch": "9.9"}}, {"device": "cpu"}):
        assert results.others(known, {**FACTS, **change}) == results.described(FACTS)


def test_tables_by_hand() -> None:
    depth = {"layers": 2, "tokens": 16384, "images": 64, "seconds": 4.0, "tokens_per_second": 4096.0}
    depth |= {"resident": 3 * 2**30, "peak_allocated": 5 * 2**30, "attention": "sdpa"}
    known = {
        "facts": FACTS,
        "cells": {
            "actor-x": {"state": "passed", "reason": "", "result": {"depths": [depth]}},
            "vllm-x": {"state": "skipped", "reason": "needs about 40 GiB", "result": None},
        },
    }
    text = results.tables(known)
    assert "driver 580.1, CUDA 13.0" in text and "flash-attn not installed" in text
    assert "| actor-x | 2 | 16384 | 3.0 | 5.0 | 4.00 | 4096 | sdpa |" in text
    assert "| vllm-x | skipped | needs about 40 GiB |" in text and "### vLLM" not in text


def test_checks_refuse_what_is_wrong() -> None:
    depth = {"layers": 2, "loss": [-1.0, -1.1], "grad_norm": [1.0, 0.5], "log_prob": [-5.0, -4.9]}
    assert known_cells.learns({"depths": [depth]}) == ""
    assert "isn't finite" in known_cells.learns({"depths": [depth, {**depth, "loss": [-1.0, float("nan")]}]})
    assert "less likely" in known_cells.learns({"depths": [{**depth, "log_prob": [-5.0, -5.1]}]})
    turns = [{"old_tokens": 0, "prompt_tokens": 100, "cached_share": 0.0}]
    # of 200 tokens 161 are old, the last of which was never computed: ten blocks of 16, and one of 128
    turns += [{"old_tokens": 161, "prompt_tokens": 200, "cached_share": 160 / 200}]
    assert known_cells.reuses_prefix({"turns": turns, "block": 16}) == ""
    turns[1]["cached_share"] = 128 / 200
    assert known_cells.reuses_prefix({"turns": turns, "block": 128}) == ""
    said = known_cells.reuses_prefix({"turns": turns, "block": 16})
    assert said == "turn 2: 128 tokens came from the cache, 160 could have"
    assert known_cells.equal_patches({"counts": [{"max_difference": 0.0}, {"max_difference": 0.1}]})
    job = {"profile": "cluster", "difference": 0.01, "pearson": 0.995}
    assert known_cells.job_agrees(job) == "" and known_cells.job_agrees({**job, "profile": "laptop"})


@pytest.mark.parametrize("recipe", a_few_systems(SYSTEMS))
def test_the_toy_world_fits_the_cluster_s_config(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model's job is ``cluster.yaml`` with the episodes of the laptop's."""
    set_environment(monkeypatch)
    config = compose_recipe(RECIPES / recipe, "cluster", cluster_overrides(recipe, 3, flash_attention=False))
    laptop = compose_recipe(RECIPES / recipe, "laptop")
    assert settings_of(config).system == settings_of(laptop).system
    assert limits_of(config) == limits_of(laptop)
    assert config.actor_rollout_ref.rollout.max_model_len == laptop.actor_rollout_ref.rollout.max_model_len
    assert config.trainer.n_gpus_per_node == 1 and not config.actor_rollout_ref.model.use_remove_padding
    assert config.actor_rollout_ref.rollout.dtype == "bfloat16" and config.trainer.total_training_steps == 3


def test_a_gpu_s_process_gets_nothing_of_the_cpu_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    assert run.environment_of("cpu")["VERL_PLATFORM"] == "cpu"
    on_gpu = run.environment_of("cuda")
    assert "VERL_PLATFORM" not in on_gpu and "TORCHDYNAMO_DISABLE" not in on_gpu and on_gpu["HF_HUB_OFFLINE"] == "1"
    assert on_gpu["NCCL_SOCKET_IFNAME"] == "lo"
    assert on_gpu["PYTHONPATH"].split(os.pathsep)[0] == str(run.REPOSITORY)


def test_the_figures_of_two_gpus_stand_beside_each_other(tmp_path: Path) -> None:
    def figures(name: str, tokens: int) -> dict[str, Any]:
        row = {"mean": 0.0, "max": 0.0, "mean_log": 0.0, "pearson_log": 1.0, "images": 1, "attention": "sdpa"}
        entry = {"state": "passed", "reason": "", "result": {**row, "tokens": tokens}, "parameters": {}}
        return {"facts": {**FACTS, "device": "cuda", "name": name, "cuda": "13.0"}, "cells": {"agreement-a": entry}}

    page = tmp_path / "gpu.md"
    page.write_text("before\n<!-- cuda results -->\nNot run on a GPU yet.\n<!-- end of cuda results -->\nafter\n")
    results.publish(page, figures("GPU A", 111))
    results.publish(page, figures("GPU B", 222))
    results.publish(page, figures("GPU A", 333))
    text = page.read_text()
    assert text.startswith("before\n<!-- cuda results -->\n<!-- GPU A results -->\n")
    assert text.endswith("<!-- end of GPU B results -->\n<!-- end of cuda results -->\nafter\n")
    assert "| 333 |" in text and "| 222 |" in text and "| 111 |" not in text and "Not run" not in text
    page.write_text("no markers\n")
    with pytest.raises(ValueError, match="must be there once"):
        results.publish(page, figures("GPU A", 1))
