"""A rehearsal submitted as a Ray job, from outside, to two hosts whose Ray has an environment of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentic_video.report.metrics import read_metrics, series
from tests.e2e.hosts import HOSTS, REPOSITORY, needs, two_hosts

HEAD = "10.85.0.1"
DASHBOARD = f"http://{HEAD}:8265"
SECONDS = 180
KEY = "a-token-for-a-hub"
UNVALIDATED = ["trainer.test_freq=-1", "trainer.val_before_train=False"]

pytestmark = [pytest.mark.timeout(3600), needs()]


def wheel_environment(folder: Path) -> Path:
    """The Python of an environment with this package's wheel, beside the packages that the tests have."""
    uv = shutil.which("uv") or str(REPOSITORY / ".venv-tools" / "bin" / "uv")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", str(folder)], cwd=REPOSITORY, check=True)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", f"--python={python}", str(wheel)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    # what is listed here comes after the wheel's own packages
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of two hosts on which Ray runs."""
    folder = tmp_path_factory.mktemp("hosts")
    python = wheel_environment(folder)
    clean = ["env", "-i", "HOME=/root", f"PATH={os.environ['PATH']}", "RAY_AUTH_MODE=disabled"]
    ray = [*clean, str(python), "-c", "from ray.scripts.scripts import main; main()", "start", "--disable-usage-stats"]
    ray += ["--num-gpus=1", "--num-cpus=16", f"--object-store-memory={512 << 20}"]
    head = ["--head", "--port=6379", "--dashboard-host=0.0.0.0", f"--node-ip-address={HEAD}"]
    with two_hosts(folder, "10.85.0"):
        subprocess.run([*HOSTS, "on", str(folder), "n1", *ray, *head], check=True)
        subprocess.run([*HOSTS, "on", str(folder), "n2", *ray, f"--address={HEAD}:6379"], check=True)
        yield python


def submitted(command: list[str], folder: Path, **variables: str) -> str:
    """What a command that submits a job prints until the job has ended well."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "RAY_ADDRESS": DASHBOARD,
        "RAY_AUTH_MODE": "disabled",
        "OUTPUT_DIR": str(folder / "outputs"),
        "HF_TOKEN": KEY,
        **variables,
    }
    # A cluster takes jobs some seconds after its nodes have started.
    deadline = time.monotonic() + SECONDS
    while True:
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if "doesn't take the job" not in done.stderr or time.monotonic() > deadline:
            break
        time.sleep(2)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def check(said: str, folder: Path, steps: int) -> None:
    assert "HF_TOKEN: not passed on" in said and KEY not in said
    assert f"Ray cluster at {HEAD}:6379: {HEAD} (16 CPUs, 1 GPUs), 10.85.0.2 (16 CPUs, 1 GPUs)" in said
    (run,) = folder.glob("outputs/videozoomer-rehearsal/run-*")
    trained, differences = series(read_metrics(run), "training/rollout_probs_diff_mean")
    assert trained == list(range(1, steps + 1)) and max(differences) < 1e-4


@pytest.mark.e2e
def test_nodes_that_have_only_the_wheel(python: Path) -> None:
    command = [str(python.with_name("agentic-video")), "run", "videozoomer", "--profile", "rehearsal", "--submit"]
    said = submitted([*command, "trainer.total_training_steps=3", *UNVALIDATED], python.parents[2])
    check(said, python.parents[2], 3)


@pytest.mark.recipes
def test_a_copy_of_the_repository(python: Path) -> None:
    outputs = python.parents[2] / "copied"
    outputs.mkdir()
    command = [
        "bash",
        str(REPOSITORY / "recipes" / "videozoomer" / "run_grpo.sh"),
        "--profile",
        "rehearsal",
        "--submit",
    ]
    said = submitted([*command, "trainer.total_training_steps=1", *UNVALIDATED], outputs, CLUSTER_PYTHON=str(python))
    check(said, outputs, 1)
