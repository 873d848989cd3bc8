"""The cluster examples agree with the package: versions, sizes, variables. tests/e2e/test_slurm.py runs Slurm's."""

import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentic_video.launch.submit import NAMED

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"


@pytest.fixture(scope="module")
def ray_job() -> dict[str, Any]:
    return dict(yaml.safe_load((EXAMPLES / "kuberay" / "rayjob.yaml").read_text(encoding="utf-8"))["spec"])


def test_kuberay_has_the_locked_ray(ray_job: dict[str, Any]) -> None:
    lock = tomllib.loads((REPOSITORY / "uv.lock").read_text(encoding="utf-8"))
    (version,) = {entry["version"] for entry in lock["package"] if entry["name"] == "ray"}
    assert ray_job["rayClusterSpec"]["rayVersion"] == version


def groups(ray_job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = ray_job["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def test_kuberay_asks_for_the_gpus_that_verl_will_use(ray_job: dict[str, Any]) -> None:
    variables = yaml.safe_load(ray_job["runtimeEnvYAML"])["env_vars"]
    assert {"MODEL_PATH", "TRAIN_FILES", "OUTPUT_DIR"} <= set(variables) <= set(NAMED)
    assert sum(group.get("replicas", 1) for group in groups(ray_job)) == int(variables["NNODES"])
    for group in groups(ray_job):
        assert group.get("minReplicas", 1) == group.get("maxReplicas", 1) == group.get("replicas", 1)
        (container,) = group["template"]["spec"]["containers"]
        resources = container["resources"]
        assert resources["limits"] == resources["requests"]
        assert resources["limits"]["nvidia.com/gpu"] == variables["GPUS_PER_NODE"]
        assert ":" in container["image"] and not container["image"].endswith("latest")


def bytes_of(quantity: str) -> int:
    assert quantity.endswith("Gi")
    return int(quantity.removesuffix("Gi")) << 30


def test_kuberay_object_store_fits_into_its_shared_memory_and_that_into_the_limit(ray_job: dict[str, Any]) -> None:
    for group in groups(ray_job):
        spec = group["template"]["spec"]
        (container,) = spec["containers"]
        (shared,) = [volume["emptyDir"] for volume in spec["volumes"] if volume["name"] == "shared-memory"]
        assert {"name": "shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
        assert shared["medium"] == "Memory"
        store = int(group["rayStartParams"]["object-store-memory"])
        limit = bytes_of(container["resources"]["limits"]["memory"])
        # verl and vLLM exchange weights through the shared memory, too; half of the limit is left to the processes
        assert store * 1.1 < bytes_of(shared["sizeLimit"]) < limit / 2


def test_kuberay_keys_come_from_a_secret_on_every_node(ray_job: dict[str, Any]) -> None:
    for group in groups(ray_job):
        (container,) = group["template"]["spec"]["containers"]
        ((secret,),) = [source.values() for source in container["envFrom"]]
        assert secret["name"] and secret["optional"]
        assert "env" not in container
    assert not re.search(r"(KEY|TOKEN|SECRET)", ray_job["runtimeEnvYAML"])


def test_kuberay_image_has_what_the_operator_calls() -> None:
    dockerfile = (REPOSITORY / "docker" / "Dockerfile.gpu").read_text(encoding="utf-8")
    assert re.search(r"apt-get install .*\bwget\b", dockerfile.replace("\\\n", " "))
    # also from a login shell, whose PATH is not the image's
    assert "ln -s /opt/venv/bin/ray /usr/local/bin/ray" in dockerfile


def test_kuberay_starts_a_recipe_that_the_image_has(ray_job: dict[str, Any]) -> None:
    python, *rest = ray_job["entrypoint"].split()
    dockerfile = (REPOSITORY / "docker" / "Dockerfile.gpu").read_text(encoding="utf-8")
    assert f"PYTHON={python}" in dockerfile
    assert rest[:3] == ["-m", "agentic_video.cli", "run"]
    workdir = re.search(r"^WORKDIR (\S+)$", dockerfile, re.MULTILINE)
    assert workdir
    assert (REPOSITORY / Path(rest[3]).relative_to(workdir[1]) / "config" / f"{rest[-1]}.yaml").is_file()


SLURM = EXAMPLES / "slurm" / "videozoomer.sbatch"


def test_slurm_script_is_bash() -> None:
    subprocess.run(["bash", "-n", str(SLURM)], check=True)


def test_slurm_script_names_cpus_of_its_step() -> None:
    """Slurm 22.05 and later don't hand --cpus-per-task of a job on to its steps."""
    (step,) = re.findall(r"^srun (?:.*\\\n)*.*", SLURM.read_text(encoding="utf-8"), re.MULTILINE)
    assert "--cpus-per-task=" in step and "$NNODES" in step


def ray_node(script: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the function of Slurm's script that is a node of Ray, with a ``ray`` that is a shell script."""
    text = SLURM.read_text(encoding="utf-8")
    (function,) = re.findall(r"^ray_node\(\) \{.*?^\}", text, re.DOTALL | re.MULTILINE)
    given = {
        "PATH": os.environ["PATH"],
        "RAY_ADDRESS": "elsewhere:1",
        "SLURM_JOB_ID": "test-examples",
        "SLURM_PROCID": "1",
        "SLURM_CPUS_ON_NODE": "4",
        "GPUS_PER_NODE": "8",
        "HEAD": "10.0.0.1:6379",
    }
    with tempfile.TemporaryDirectory() as folder:
        ray = Path(folder) / "ray"
        ray.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        ray.chmod(0o755)
        return subprocess.run(
            ["bash", "-c", f"{function}; ray_node"],
            env={**given, "PYTHON": f"{folder}/python", **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def test_ray_processes_of_slurm_get_settings_and_no_keys_or_paths() -> None:
    given = {
        "HOME": "/home/me",
        "NCCL_SOCKET_IFNAME": "ib0",
        "MODEL_PATH": "/m",
        "OPENAI_API_KEY": "sk-1",
        "WANDB_API_KEY": "w",
        "AGENTIC_VIDEO_SECRETS_FILE": "/s",
        "RAY_AUTH_TOKEN": "t",
        "MY_FABRIC": "x",
        "RAY_SETTINGS": "MY_.*",
    }
    done = ray_node('echo "$@"; env', given)
    assert done.returncode == 0
    command, *variables = done.stdout.splitlines()
    assert command.startswith("start --block") and command.endswith("--num-gpus=8 --num-cpus=4 --address=10.0.0.1:6379")
    names = {line.partition("=")[0] for line in variables}
    assert {"PATH", "HOME", "NCCL_SOCKET_IFNAME", "RAY_AUTH_TOKEN", "MY_FABRIC"} <= names
    assert not names & {"MODEL_PATH", "OPENAI_API_KEY", "WANDB_API_KEY", "AGENTIC_VIDEO_SECRETS_FILE", "RAY_ADDRESS"}
    assert not Path("/tmp/ray-test-examples").exists()


def test_a_ray_of_slurm_that_ends_by_itself_is_a_failed_step() -> None:
    assert ray_node("exit 7", {}).returncode == 7


def test_a_ray_of_slurm_that_is_told_to_stop_is_none() -> None:
    done = ray_node("kill $PPID; exec sleep 60", {})
    assert done.returncode == 0


def test_ray_job_page_names_every_variable_that_is_handed_on() -> None:
    page = (EXAMPLES / "ray_job" / "README.md").read_text(encoding="utf-8")
    (paragraph,) = re.findall(r"^3\. passes on (.*?)^4\.", page, re.DOTALL | re.MULTILINE)
    assert set(NAMED) <= set(re.findall(r"`(\w+)`", paragraph))
