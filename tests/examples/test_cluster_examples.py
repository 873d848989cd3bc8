"""The cluster examples agree with the package: versions, sizes, variables. None of them can be run here."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentic_video.launch.submit import FORWARDED

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples"


@pytest.fixture(scope="module")
def ray_job() -> dict[str, Any]:
    return dict(yaml.safe_load((EXAMPLES / "kuberay" / "rayjob.yaml").read_text(encoding="utf-8"))["spec"])


def test_kuberay_has_the_locked_ray(ray_job: dict[str, Any]) -> None:
    lock = tomllib.loads((REPOSITORY / "uv.lock").read_text(encoding="utf-8"))
    (version,) = {entry["version"] for entry in lock["package"] if entry["name"] == "ray"}
    assert ray_job["rayClusterSpec"]["rayVersion"] == version


def test_kuberay_asks_for_the_gpus_that_verl_will_use(ray_job: dict[str, Any]) -> None:
    variables = yaml.safe_load(ray_job["runtimeEnvYAML"])["env_vars"]
    assert {"MODEL_PATH", "TRAIN_FILES", "OUTPUT_DIR"} <= set(variables) <= set(FORWARDED)
    cluster = ray_job["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert sum(group.get("replicas", 1) for group in groups) == int(variables["NNODES"])
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == variables["GPUS_PER_NODE"]
        assert ":" in container["image"] and not container["image"].endswith("latest")
        assert {"name": "shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]


def test_kuberay_starts_a_recipe_that_the_image_has(ray_job: dict[str, Any]) -> None:
    python, *rest = ray_job["entrypoint"].split()
    dockerfile = (REPOSITORY / "docker" / "Dockerfile.gpu").read_text(encoding="utf-8")
    assert f"PYTHON={python}" in dockerfile
    assert rest[:3] == ["-m", "agentic_video.cli", "run"]
    workdir = re.search(r"^WORKDIR (\S+)$", dockerfile, re.MULTILINE)
    assert workdir
    assert (REPOSITORY / Path(rest[3]).relative_to(workdir[1]) / "config" / f"{rest[-1]}.yaml").is_file()


def test_slurm_script_is_bash() -> None:
    subprocess.run(["bash", "-n", str(EXAMPLES / "slurm" / "videozoomer.sbatch")], check=True)


def test_ray_job_page_names_every_variable_that_is_handed_on() -> None:
    page = (EXAMPLES / "ray_job" / "README.md").read_text(encoding="utf-8")
    (paragraph,) = re.findall(r"^3\. passes on (.*?)^4\.", page, re.DOTALL | re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", paragraph)) == set(FORWARDED)
