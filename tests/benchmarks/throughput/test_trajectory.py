"""The benchmark of a trajectory, small: what it says of bytes and of the worker's event loop must hold."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.tables import size
from benchmarks.throughput.rollouts import Heartbeat, Load, configured

REPOSITORY = Path(__file__).resolve().parents[3]


def test_bytes_for_people() -> None:
    assert [size(one) for one in (12, 1_200, 434e9)] == ["12 B", "1.2 kB", "434.0 GB"]


def test_a_model_s_folder_may_have_any_name() -> None:
    model = "/models, (1)=[x]/qwen"
    assert configured(Path(model), Load(), "stock").actor_rollout_ref.model.path == model


def test_the_longest_stall_of_each_second() -> None:
    heart = Heartbeat()
    heart.stalls = [500.0, 700.0, 10.0, 20.0]  # more than a second with the second; the others are in the next
    assert (heart.per_second(0.0), heart.per_second(1.0)) == (20.0, 700.0)


@pytest.mark.ray
@pytest.mark.slow
def test_references_beside_stock_verl(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.throughput.trajectory", "--quick", "--out", str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "VERL_PLATFORM": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = json.loads((tmp_path / "trajectory.json").read_text())["results"]
    for stock, ours in zip(results[::2], results[1::2], strict=True):
        assert (stock["side"], ours["side"], stock["frames"]) == ("stock", "references", ours["frames"])
        # 512 patches of 1,176 float32 a frame of 448 x 224
        assert stock["put_bytes"] > stock["frames"] * 512 * 1176 * 4
        assert stock["put_bytes"] > 100 * ours["put_bytes"] and stock["got_bytes"] > 100 * ours["got_bytes"]
        assert ours["fetched_bytes"] == ours["frames"] * 448 * 224 * 3
        assert stock["server_bytes"] > 100 * ours["server_bytes"]
        assert stock["processed"] == stock["frames"] * stock["episodes"] and ours["processed"] == 0
        assert stock["loop_ms"] > 2 * ours["loop_ms"]
