import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentic_video.launch import main as launch


def test_no_gpu_means_laptop() -> None:
    assert launch.choose_profile(None, 0, {}) == "laptop"


def test_gpus_without_model_or_data_say_what_to_set() -> None:
    with pytest.raises(launch.LaunchError, match="MODEL_PATH and TRAIN_FILES"):
        launch.choose_profile(None, 8, {})
    with pytest.raises(launch.LaunchError, match="TRAIN_FILES"):
        launch.choose_profile(None, 8, {"MODEL_PATH": "m"})
    assert launch.choose_profile(None, 8, {"MODEL_PATH": "m", "TRAIN_FILES": "t"}) == "cluster"
    assert launch.choose_profile("laptop", 8, {}) == "laptop"


DEAD = [2**22 + 1, 0.0]


def test_an_unfinished_run_is_resumed_by_the_same_command_only(tmp_path: Path) -> None:
    first, resumed = launch.run_folder(tmp_path, ["a=1"])
    assert (first.name, resumed) == ("run-001", False)
    launch.write_record(first, launcher=DEAD)
    assert launch.run_folder(tmp_path, ["a=1"]) == (first, True)
    launch.write_record(first, launcher=DEAD)
    other, resumed = launch.run_folder(tmp_path, ["a=2"])
    assert (other.name, resumed) == ("run-002", False)
    launch.write_record(first, finished=True)
    assert launch.run_folder(tmp_path, ["a=1"])[0].name == "run-003"


def test_a_run_in_progress_is_left_alone(tmp_path: Path) -> None:
    first, _ = launch.run_folder(tmp_path, [])
    second, resumed = launch.run_folder(tmp_path, [])  # this process, which is alive, holds the first
    assert (first.name, second.name, resumed) == ("run-001", "run-002", False)


def test_another_model_is_another_run() -> None:
    assert launch.run_identity(["a=1"], {"MODEL_PATH": "m", "HOME": "h"}) == ["a=1", "MODEL_PATH=m"]
    assert launch.run_identity(["a=1"], {}) == ["a=1"]


def test_an_existing_cluster_is_joined_as_it_is(tmp_path: Path) -> None:
    overrides = launch.ray_overrides({"RAY_ADDRESS": "auto"}, {"X": "1"}, tmp_path)
    assert "ray_kwargs.ray_init.num_cpus=null" in overrides
    assert "++ray_kwargs.ray_init.num_gpus=null" in overrides
    assert "+ray_kwargs.ray_init.runtime_env.env_vars.X='1'" in overrides
    assert launch.ray_overrides({}, {}, tmp_path) == [f"+ray_kwargs.ray_init._temp_dir={tmp_path}/ray"]


def test_a_damaged_record_is_not_resumed(tmp_path: Path) -> None:
    first, _ = launch.run_folder(tmp_path, [])
    (first / launch.RUN_FILE).write_text("{")
    assert launch.run_folder(tmp_path, [])[0].name == "run-002"


def test_only_segments_that_nobody_maps_are_removed() -> None:
    kept = shared_memory.SharedMemory(create=True, size=16)
    orphan = Path("/dev/shm/psm_agentic_video_test")
    orphan.write_bytes(b"x")
    try:
        launch.remove_segments({orphan, Path("/dev/shm") / kept.name})
        assert not orphan.exists()
        assert (Path("/dev/shm") / kept.name).exists()
    finally:
        kept.close()
        kept.unlink()
        orphan.unlink(missing_ok=True)


def test_machine_is_left_clean() -> None:
    with launch.clean_machine() as folder:
        (folder / "x").write_text("x")
        orphan = Path("/dev/shm/psm_agentic_video_test2")
        orphan.write_bytes(b"x")
    assert not folder.exists()
    assert not orphan.exists()


def test_what_a_killed_attempt_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    launch.clean_leftovers({"temporary": str(left), "started_at": time.time()})
    assert not left.exists()


def test_status_and_output_of_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "print('hello'); print('step:3 - episode/reward_sampled:0.5 - timing_s/step:2.0'); raise SystemExit(3)"
    status, _ = launch.run_verl([sys.executable, "-c", code], os.environ, tmp_path / "log.txt")
    assert status == 3
    assert "hello" in (tmp_path / "log.txt").read_text()
    assert capsys.readouterr().out.startswith("step 3: reward 0.50")


def test_the_job_ends_when_the_launcher_is_killed(tmp_path: Path) -> None:
    child = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"
    code = (
        "import os, sys; from pathlib import Path; from agentic_video import launch; "
        f"launch.run_verl([sys.executable, '-c', {child!r}], os.environ, Path({str(tmp_path / 'log.txt')!r}))"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code])
    children: list[psutil.Process] = []
    for _ in range(200):
        children = psutil.Process(launcher.pid).children()
        if children:
            break
        time.sleep(0.1)
    time.sleep(0.5)  # the child asks the kernel for its signal before it runs the job's command
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    assert children
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


@pytest.mark.parametrize("heeds", [True, False])
def test_a_job_in_the_background_is_stopped(tmp_path: Path, heeds: bool) -> None:
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    child = ("" if heeds else ignore) + "import time; print('up', flush=True); time.sleep(60)"
    log = tmp_path / "log.txt"
    # a shell that isn't interactive has what it starts in the background ignore ctrl-c
    code = ignore + (
        "import os, sys; from pathlib import Path; from agentic_video import launch; "
        f"status, _ = launch.run_verl([sys.executable, '-c', {child!r}], os.environ, Path({str(log)!r}), "
        f"grace={60 if heeds else 1}); print(status)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (log.is_file() and "up" in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    started = time.monotonic()
    launcher.send_signal(signal.SIGTERM)
    out, _ = launcher.communicate(timeout=50)
    assert time.monotonic() - started < 30
    assert int(out.split()[-1]) == (-signal.SIGINT if heeds else -signal.SIGKILL)


def test_words_that_are_no_override_are_refused() -> None:
    with pytest.raises(SystemExit):
        launch.main(["recipes/videozoomer", "--profile", "laptop", "oops"])


def test_metrics_line_is_shortened() -> None:
    line = (
        "(TaskRunner pid=1) step:7 - episode/reward_sampled:np.float64(1.25) - episode/acc:0.5 - episode/format:1.0 - "
        "episode/tool:0.9 - episode/turns:1.9 - episode/frames:9.8 - training/filter_groups/evicted_samples:2 - "
        "training/rollout_probs_diff_mean:1.2e-05 - timing_s/step:4.21\n"
    )
    assert launch.interesting(line) == (
        "step 7: reward 1.25, acc 0.50, format 1.00, tool 0.90, turns 1.90, frames 9.80, evicted groups 2, "
        "prob diff 1.2e-05, 4.2 s"
    )
    assert launch.interesting("loading weights\n") == ""


def test_a_validation_has_a_line_for_each_data_source() -> None:
    figures = (
        "val-core/a/acc/mean@1:0.5 - val-agentic/a/accuracy:0.5 - val-agentic/a/illegal_calls:np.float64(0.25) - "
        "val-agentic/a/episodes:9.0 - val-agentic/a/direct/accuracy:0.1 - val-agentic/b/accuracy:1.0"
    )
    lines = ["step 0, held out, a: accuracy 0.50, illegal calls 0.25", "step 0, held out, b: accuracy 1.00"]
    assert launch.interesting(f"step:0 - {figures}\n").splitlines() == lines
    both = launch.interesting(f"step:0 - {figures} - episode/reward_sampled:1.25 - timing_s/step:4.21\n").splitlines()
    assert both[0].startswith("step 0: reward 1.25") and both[1:] == lines


def test_record_keeps_its_fields(tmp_path: Path) -> None:
    launch.write_record(tmp_path, identity=["a=1"], finished=False)
    launch.write_record(tmp_path, finished=True)
    assert json.loads((tmp_path / launch.RUN_FILE).read_text()) == {"identity": ["a=1"], "finished": True}


def test_sft_metrics_lines_are_shortened() -> None:
    line = "Epoch 1/1: 0%| | 0/3 [00:00<?, ?it/s]step:3 - train/loss:1.23456 - train/grad_norm:2.5 - train/lr:0.1\n"
    assert launch.interesting(line) == "step 3: loss 1.2346, gradient norm 2.5000"
    assert launch.interesting("step:4 - val/loss:0.5\n") == "step 4: held-out loss 0.5000"


RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "framethinker"


def sft_command(*overrides: str, **environment: str) -> list[str]:
    return launch.stage_command("sft", "cluster", RECIPE, 8, environment, overrides)


def test_sft_runs_under_torchrun_on_every_gpu() -> None:
    command = " ".join(sft_command())
    assert " -m torch.distributed.run --nproc-per-node=8 --standalone -m agentic_video.training.sft " in command
    assert command.endswith("--config-name sft trainer.nnodes=1 trainer.n_gpus_per_node=8")
    assert "--nproc-per-node=2 " in " ".join(sft_command("trainer.n_gpus_per_node=2"))


def test_several_machines_must_know_where_they_meet() -> None:
    with pytest.raises(launch.LaunchError, match="MASTER_ADDR and NODE_RANK not set"):
        sft_command(NNODES="2")
    meeting = {"NNODES": "2", "MASTER_ADDR": "head", "NODE_RANK": "1"}
    with pytest.raises(launch.LaunchError, match=r"trainer\.default_local_dir=/shared"):
        sft_command(**meeting)
    command = " ".join(sft_command("trainer.default_local_dir=/shared/x", **meeting))
    assert "--nnodes=2 --node-rank=1 --master-addr=head --master-port=29500" in command
    assert "--standalone" not in command


def test_a_bad_override_of_sft_is_named() -> None:
    with pytest.raises(launch.LaunchError, match=r"data\.no_such_key"):
        sft_command("data.no_such_key=1")


def test_sft_asks_for_records_and_is_not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(launch.LaunchError, match="jsonl file of trajectory records"):
        launch.choose_profile("cluster", 8, {}, "sft")
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265")
    with pytest.raises(launch.LaunchError, match="torchrun"):
        launch.launch(RECIPE, "laptop", True, False, [], "sft")


def test_kto_starts_its_own_trainer() -> None:
    command = " ".join(launch.stage_command("kto", "laptop", RECIPE.parent / "eva", 0, {}, []))
    assert "--nproc-per-node=1 --standalone -m agentic_video.training.kto_trainer " in command
    assert command.endswith("--config-name kto_laptop")


def test_a_named_checkpoint_needs_no_cold_start(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    asked = []

    def build(recipe: Path, overrides: Sequence[str], stage: str, *, cold_start: bool) -> dict[str, str]:
        asked.append(cold_start)
        paths = {"train": "t.parquet", "heldout": "h.parquet", "base": "b"}
        return {**paths, "model": "cold"} if cold_start else paths

    monkeypatch.setattr(launch, "build_toyworld", build)
    launch.launch(RECIPE, "laptop", False, True, ["actor_rollout_ref.model.path=mine"])
    command = capsys.readouterr().out
    assert asked == [False] and command.count("model.path=") == 1 and "model.path=mine" in command
    launch.launch(RECIPE, "laptop", False, True, [])
    assert asked == [False, True] and "actor_rollout_ref.model.path=cold" in capsys.readouterr().out
