"""The parts on a GPU, small. ``python benchmarks/gpu/run.py`` measures them at the papers' sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.toyworld import toyworld_run
from tests.gpu import checks

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

ASK = """
import json
from verl.plugin.platform import get_platform
from verl.utils.device import get_device_name
from verl.workers.engine import EngineRegistry
from agentic_video.training.seams import patches
print(json.dumps([get_device_name(), get_platform().vendor_name, patches.on_cpu()]))
"""


def test_verl_chooses_cuda_beside_the_plugin() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    said = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(said.stdout.splitlines()[-1]) == ["cuda", "nvidia", False]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", ["tiny", "tiny-qwen3_vl"])
def test_rollout_and_actor_agree(cuda: str, tmp_path: Path, model: str, dtype: str) -> None:
    checks.check_agreement(cuda, tmp_path, model=model, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fused_kernels_change_nothing(cuda: str, tmp_path: Path, dtype: str) -> None:
    checks.check_actor_update(cuda, tmp_path, dtype)


def test_vllm_knows_the_turns_before(cuda: str, tmp_path: Path) -> None:
    checks.check_vllm_turns(cuda, tmp_path, "bfloat16")


@pytest.mark.parametrize("model", ["tiny", "tiny-qwen3_vl"])
def test_frames_become_the_processor_s_patches(cuda: str, tmp_path: Path, model: str) -> None:
    checks.check_patchify(cuda, tmp_path, model)


def test_the_encoder_embeds_as_on_a_cpu(cuda: str, tmp_path: Path) -> None:
    checks.check_encoder(cuda, tmp_path)


def test_the_frame_store_is_unaffected(cuda: str, tmp_path: Path) -> None:
    checks.check_frame_store(tmp_path, cuda)


@pytest.mark.timeout(900)
def test_the_toy_world_trains(cuda: str, tmp_path: Path) -> None:
    result = toyworld_run(tmp_path, cuda, steps=2)
    assert result["steps"] == 2 and result["profile"] == "cluster"
    assert result["difference"] < 2e-2 and result["pearson"] > 0.99
