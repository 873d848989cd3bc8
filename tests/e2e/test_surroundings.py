"""Commands in environments as users have them: each works, or costs one line before anything is built."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from agentic_video.report.metrics import read_metrics, series

REPOSITORY = Path(__file__).resolve().parents[2]
SIGNS = "a b, [1] {x}=y, it's $5 (ü) 录像"
"""A folder's name that shells, Hydra and OmegaConf would each take apart."""
ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
DEAD_PROXY = "http://127.0.0.1:9"
NOWHERE = "/proc/no home"
"""A folder that not even root can make."""
CLEARED = (
    *("CUDA_VISIBLE_DEVICES", "HF_HUB_OFFLINE", "MODEL_PATH", "OMP_NUM_THREADS", "RAY_ADDRESS", "TMPDIR"),
    *("TRAIN_FILES", "VAL_FILES", "VERL_PLATFORM", "http_proxy", "https_proxy", "no_proxy", "NO_PROXY"),
)


def run(
    checkout: Path,
    output: Path,
    words: list[str],
    environment: Mapping[str, str],
    prepare: Callable[[], None] | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a recipe's script, with words, of a checkout in a folder for outputs, with changed variables."""
    inherited = {name: value for name, value in os.environ.items() if name not in CLEARED}
    output.mkdir(parents=True, exist_ok=True)
    recipe, *more = words
    return subprocess.run(
        ["bash", str(checkout / "recipes" / recipe / "run_grpo.sh"), "--profile", "laptop", *more],
        env={
            **inherited,
            "PYTHON": sys.executable,
            "PYTHONPATH": str(checkout),
            "OUTPUT_DIR": str(output / "outputs"),
            **environment,
        },
        cwd=output,
        capture_output=True,
        preexec_fn=prepare,
    )


WORKS: Mapping[str, Mapping[str, str]] = {
    "no GPU wanted": {"CUDA_VISIBLE_DEVICES": ""},
    "no GPU wanted, as a number": {"CUDA_VISIBLE_DEVICES": "-1", "NVIDIA_VISIBLE_DEVICES": "void"},
    "AMD's lists": {"HIP_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "0"},
    "a proxy without exceptions": {"http_proxy": DEAD_PROXY, "HTTPS_PROXY": DEAD_PROXY, "all_proxy": "socks5://x:1"},
    "an ASCII terminal": ASCII,
    "no home": {"HOME": NOWHERE},
    "a hub that is wanted online": {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "0", "HF_HOME": f"{NOWHERE}/hf"},
    "what a Ray cluster left": {"RAY_ADDRESS": "local", "RAY_TMPDIR": NOWHERE, "RAY_OVERRIDE_RESOURCES": '{"GPU":0}'},
    "an import path of before": {"PYTHONPATH": f"{REPOSITORY}:/missing::relative"},
    "threads": {"OMP_NUM_THREADS": "4,2"},
    "an old variable of vLLM": {"VLLM_USE_V1": "0", "VLLM_ATTENTION_BACKEND": "XFORMERS"},
    "another time": {"TZ": "Asia/Kathmandu"},
}
COSTS_A_LINE: Mapping[str, tuple[Mapping[str, str], str]] = {
    "a cluster that has gone": ({"RAY_ADDRESS": "127.0.0.1:9"}, "RAY_ADDRESS"),
    "no number of threads": ({"OMP_NUM_THREADS": "many"}, "OMP_NUM_THREADS"),
    "a port of Kubernetes": ({"VLLM_PORT": "tcp://10.0.0.1:80"}, "VLLM_PORT"),
    "a level that vLLM doesn't know": ({"VLLM_LOGGING_LEVEL": "banana"}, "VLLM_LOGGING_LEVEL"),
    "vLLM without plugins": ({"VLLM_PLUGINS": ""}, "VLLM_PLUGINS"),
    "verl without plugins": ({"VERL_USE_EXTERNAL_PLUGINS": "none"}, "VERL_USE_EXTERNAL_PLUGINS"),
    "a temporary folder that is too long": ({"TMPDIR": "/tmp/" + "x" * 90}, "TMPDIR"),
    "a temporary folder with spaces": ({"TMPDIR": "/tmp/a b"}, "TMPDIR"),
    "a cache that can't be written to": ({"HOME": NOWHERE, "XDG_CACHE_HOME": ""}, "XDG_CACHE_HOME"),
    "outputs that can't be written to": ({"OUTPUT_DIR": f"{NOWHERE}/out"}, "OUTPUT_DIR"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_a_dry_run_works(name: str, tmp_path: Path) -> None:
    done = run(REPOSITORY, tmp_path, ["eva", "--dry-run"], {"XDG_CACHE_HOME": str(tmp_path), **WORKS[name]})
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert b"verl.trainer.main_ppo" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["outputs", "cache", "temporary"])  # a dry run starts no Ray
def test_folders_may_have_any_name(folder: str, tmp_path: Path) -> None:
    odd = tmp_path / SIGNS
    odd.mkdir()
    names = {"outputs": "OUTPUT_DIR", "cache": "XDG_CACHE_HOME", "temporary": "TMPDIR"}
    environment = {"XDG_CACHE_HOME": str(tmp_path), names[folder]: str(odd), **ASCII}
    done = run(REPOSITORY, tmp_path, ["eva", "--dry-run"], environment)
    assert done.returncode == 0, done.stderr.decode(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("name", COSTS_A_LINE)
def test_faults_that_cost_a_line_before_anything_is_built(name: str, tmp_path: Path) -> None:
    environment, variable = COSTS_A_LINE[name]
    if (temporary := environment.get("TMPDIR")) is not None:
        os.makedirs(temporary, exist_ok=True)
    done = run(REPOSITORY, tmp_path, ["eva"], {"XDG_CACHE_HOME": str(tmp_path / "cache"), **environment})
    said = done.stderr.decode(errors="replace").splitlines()
    assert done.returncode == 2 and len(said) == 1 and said[0].startswith("error: ") and variable in said[0], said
    assert not list((tmp_path / "cache").rglob("world-*"))


@pytest.mark.slow
def test_too_few_open_files_cost_a_line(tmp_path: Path) -> None:
    few = partial(resource.setrlimit, resource.RLIMIT_NOFILE, (512, 512))
    done = run(REPOSITORY, tmp_path, ["eva"], {"XDG_CACHE_HOME": str(tmp_path / "cache")}, prepare=few)
    said = done.stderr.decode().splitlines()
    assert done.returncode == 2 and len(said) == 1 and "ulimit -n" in said[0]


@pytest.mark.e2e
@pytest.mark.timeout(3600)
def test_a_job_runs_where_all_of_it_comes_together(tmp_path: Path) -> None:
    """A checkout, outputs and a cache with such names, no home, a proxy that answers nobody, an
    ASCII terminal, no GPU wanted, few open files, files for the user alone. EVA asks a verifier on this machine."""
    checkout = tmp_path / f"checkout {SIGNS}"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in filter(None, names.stdout.split("\0")):
        if name.startswith(("agentic_video/", "recipes/")):
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, checkout / name)
    # short and plain, since Ray's sockets and the script that forks are below it
    temporary = Path("/tmp/w,e=1")
    temporary.mkdir(exist_ok=True)
    environment: dict[str, str] = {}
    for name, variables in WORKS.items():
        if name not in ("no GPU wanted, as a number", "an import path of before", "threads"):
            environment |= variables
    environment |= {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(tmp_path / f"cache {SIGNS}")}

    def prepare() -> None:
        os.umask(0o077)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))

    output = tmp_path / f"outputs {SIGNS}"
    done = run(checkout, output, ["eva", "trainer.total_training_steps=1"], environment, prepare)
    (folder,) = (output / "outputs").glob("eva-laptop/run-*")
    said = done.stderr.decode(errors="replace")[-2000:]
    assert done.returncode == 0, said + (folder / "log.txt").read_text(encoding="utf-8", errors="replace")[-4000:]
    _, difference = series(read_metrics(folder), "training/rollout_probs_diff_mean")
    assert difference and max(difference) < 1e-4
    assert (folder / "summary.md").is_file()
    shutil.rmtree(temporary, ignore_errors=True)
