"""What ``recipes/<system>/run_<stage>.sh`` runs: choose the profile, make what it needs, start verl, sum up.

The training itself is ``python -m verl.trainer.main_ppo`` (GRPO), or one of verl's torchrun trainers (the other
stages), with the recipe's yaml; this file only finds out where it runs, hands it paths and environment variables, and
cleans up behind it.
"""

import argparse
import contextlib
import ctypes
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

LAPTOP_ENV = {
    "VERL_PLATFORM": "cpu",
    "TORCHDYNAMO_DISABLE": "1",
    # many processes on few cores: a second thread each would only wait for the others
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "AGENTIC_VIDEO_POLL_SECONDS": "0.1",
    "HF_HUB_OFFLINE": "1",
}
COMMON_ENV = {
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "HYDRA_FULL_ERROR": "1",
}
TORCHRUN = {"sft": "agentic_video.training.sft", "kto": "agentic_video.training.kto_trainer"}
"""The stages that torchrun starts, one process a device, and their programs. GRPO's processes are Ray's."""
TOYWORLD = {
    "grpo": "agentic_video.toyworld.build",
    "sft": "agentic_video.toyworld.demonstrate",
    "kto": "agentic_video.toyworld.preferences",
}
"""What makes each stage's synthetic data and the model that it starts from."""
MODEL_KEYS = {"grpo": "actor_rollout_ref.model.path", "sft": "model.path", "kto": "model.path"}
HELD_OUT = ("accuracy", "reward", "calls", "illegal_calls", "frames")
"""What is shown of a validation, for each data source."""
STOP_SECONDS = 20.0
"""What Slurm and Kubernetes give a job between their first signal and the last is 30 seconds."""
RUN_FILE = "run.json"
"""Written into a run's folder, so that the same command finds it again and resumes it."""


class LaunchError(Exception):
    """The job can't start; the message says what to set."""


def output_folder(environment: Mapping[str, str]) -> Path:
    """Where all runs and evaluations are kept: ``OUTPUT_DIR``, or ``outputs`` in the current folder."""
    return Path(environment.get("OUTPUT_DIR") or "outputs").resolve()


def count_gpus() -> int:
    """Number of NVIDIA GPUs that the driver reports."""
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listing.stdout.splitlines())


def choose_profile(asked: str | None, gpus: int, environment: Mapping[str, str], stage: str = "grpo") -> str:
    """``laptop`` without GPUs, ``cluster`` with them (or on a Ray cluster), unless one is asked for.

    Raises:
        LaunchError: The cluster profile lacks a model or data.
    """
    profile = asked or ("cluster" if gpus or environment.get("MODEL_PATH") else "laptop")
    if profile == "cluster":
        missing = [name for name in ("MODEL_PATH", "TRAIN_FILES") if not environment.get(name)]
        if missing:
            data = (
                "a parquet or jsonl file of rows (the columns are in agentic_video/data/schema.py)"
                if stage == "grpo"
                else "a jsonl file of trajectory records (the fields are in agentic_video/data/records.py)"
            )
            raise LaunchError(
                f"{gpus} GPUs found, but {' and '.join(missing)} not set. MODEL_PATH is the checkpoint to train (the "
                f"recipe's README says which), TRAIN_FILES {data}. To run the small job on the synthetic world "
                "instead: --profile laptop"
            )
    return profile


def run_identity(overrides: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """What makes two commands the same run: the overrides, the model and the data."""
    named = ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES")
    return [*overrides, *(f"{name}={environment[name]}" for name in named if environment.get(name))]


def run_folder(root: Path, identity: Sequence[str]) -> tuple[Path, bool]:
    """The folder of this run below ``root``: an unfinished one of the same command, else a new one.

    A run whose launcher is still alive is left alone.

    Returns:
        The folder, and whether it is an unfinished run that will be resumed.
    """
    existing = sorted(root.glob("run-*")) if root.is_dir() else []
    for folder in reversed(existing):
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
            if record["identity"] == list(identity) and not record["finished"] and not _alive(record["launcher"]):
                clean_leftovers(record)
                write_record(folder, launcher=_process(os.getpid()))
                return folder, True
    number = max((int(folder.name.removeprefix("run-")) for folder in existing if folder.name[4:].isdigit()), default=0)
    folder = root / f"run-{number + 1:03d}"
    folder.mkdir(parents=True)
    write_record(folder, identity=list(identity), finished=False, launcher=_process(os.getpid()))
    return folder, False


def _process(pid: int) -> list[float]:
    """A process's number and start time, which together name it for good."""
    return [pid, psutil.Process(pid).create_time()]


def _alive(process: Sequence[float]) -> bool:
    with contextlib.suppress(psutil.Error):
        return _process(int(process[0])) == list(process)
    return False


def write_record(folder: Path, **fields: Any) -> None:
    """Note facts about a run: what it is, whether it has finished, what it took."""
    file = folder / RUN_FILE
    record = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    file.write_text(json.dumps({**record, **fields}), encoding="utf-8")


def clean_leftovers(record: Mapping[str, Any]) -> None:
    """Remove what a killed attempt left: its temporary folder, and shared memory that it made and nobody maps."""
    if record.get("temporary"):
        shutil.rmtree(record["temporary"], ignore_errors=True)
    since = record.get("started_at", time.time())
    remove_segments({segment for segment in shared_segments() if _modified(segment) >= since})


def _modified(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def shared_segments() -> set[Path]:
    """Shared-memory segments of Python programs."""
    return set(Path("/dev/shm").glob("psm_*")) if Path("/dev/shm").is_dir() else set()


def remove_segments(candidates: set[Path]) -> int:
    """Remove those of our own shared-memory segments that no process maps any more (vLLM's engine is killed before it
    can unlink them).

    Returns:
        Number of removed segments.
    """
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped |= {line.split()[-1] for line in maps.read_text().splitlines() if "/dev/shm/" in line}
    removed = 0
    for segment in candidates:
        with contextlib.suppress(OSError):
            if str(segment) not in mapped and segment.stat().st_uid == os.getuid():
                segment.unlink()
                removed += 1
    return removed


@contextlib.contextmanager
def clean_machine() -> Iterator[Path]:
    """A short temporary folder for everything that the job writes on the side; gone afterwards, as are the job's
    shared-memory segments."""
    before = shared_segments()
    folder = Path(tempfile.mkdtemp(prefix="av-"))
    try:
        yield folder
    finally:
        remove_segments(shared_segments() - before)
        shutil.rmtree(folder, ignore_errors=True)


class PeakMemory:
    """Watches the memory of a process and its descendants (proportional set size, so shared pages count once)."""

    def __init__(self, root: int, interval: float = 3.0):
        self.peak = 0
        self._root, self._interval = root, interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(self._interval):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        total = 0
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._root).children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError, ValueError, IndexError):
                    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                    total += int(text.split("\nPss:")[1].split()[0]) * 1024
        return total

    def stop(self) -> int:
        """Stop watching; the peak in bytes."""
        self._done.set()
        self._thread.join()
        return self.peak


def _stop_with_launcher() -> None:
    """In the job, before it starts: let it end with the launcher, whether that is killed or passes a signal on."""
    # When the launcher is killed, the kernel tells the job, so that the machine isn't left busy.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    # What a shell starts in the background inherits that it ignores this signal, by which the launcher stops the job.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_verl(
    command: Sequence[str], environment: Mapping[str, str], log: Path, grace: float = STOP_SECONDS
) -> tuple[int, int]:
    """Run the training, show its output and keep it. A signal to stop is passed on as ctrl-c.

    Args:
        grace: Seconds that the training has for stopping, before it is killed.

    Returns:
        Exit status and peak memory in bytes.
    """
    with log.open("a", buffering=1, encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_stop_with_launcher,
        )
        memory = PeakMemory(os.getpid())

        def end() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        ending = threading.Timer(grace, end)
        ending.daemon = True

        def forward(number: int, frame: object) -> None:
            process.send_signal(signal.SIGINT)
            if ending.ident is None:
                ending.start()

        previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            if shown := interesting(line):
                print(shown, flush=True)
        status = process.wait()
        for number, handler in previous.items():
            signal.signal(number, handler)
        ending.cancel()
        end()
    return status, memory.stop()


def interesting(line: str) -> str:
    """The part of a log line that a user wants to see: each step's key figures, warnings of ours, errors."""
    if "step:" in line and ("episode/reward_sampled:" in line or "val-agentic/" in line):
        values = dict(pair.rsplit(":", 1) for pair in line.split("step:", 1)[1].strip().split(" - ") if ":" in pair)
        step = line.split("step:", 1)[1].split(" - ")[0].strip()
        held_out = _held_out(step, values)
        if "episode/reward_sampled" not in values:
            return "\n".join(held_out)
        shown = [f"reward {_number(values.get('episode/reward_sampled', ''))}"]
        shown += [
            f"{key} {_number(values.get(f'episode/{key}', ''))}" for key in ("acc", "format", "tool", "turns", "frames")
        ]
        shown.append(f"evicted groups {_number(values.get('training/filter_groups/evicted_samples', '0'), 0)}")
        shown.append(f"prob diff {_number(values.get('training/rollout_probs_diff_mean', ''), 1, 'e')}")
        shown.append(f"{_number(values.get('timing_s/step', ''), 1)} s")
        return "\n".join([f"step {step}: " + ", ".join(shown), *held_out])
    if "step:" in line and ("train/loss:" in line or "val/loss:" in line):
        step, *pairs = line.split("step:", 1)[1].strip().split(" - ")
        values = dict(pair.rsplit(":", 1) for pair in pairs if ":" in pair)
        names = {"train/loss": "loss", "val/loss": "held-out loss", "train/grad_norm": "gradient norm"}
        shown = [f"{name} {_number(values[key], 4)}" for key, name in names.items() if key in values]
        return f"step {step.strip()}: " + ", ".join(shown)
    if any(mark in line for mark in ("row left out", "rows left out", "Resuming from", "agentic_video could not")):
        return line.rstrip()
    if "Warning" in line:
        return ""
    if "Error" in line or "error:" in line.lower():
        return line.rstrip()[:300]
    return ""


def _held_out(step: str, values: Mapping[str, str]) -> list[str]:
    """A line for each data source of a validation, from the figures that verl logged."""
    sources: dict[str, list[str]] = {}
    for key, value in values.items():
        # not the classes of a data source, whose keys have a part more
        start, *rest = key.split("/")
        if start == "val-agentic" and len(rest) == 2 and rest[1] in HELD_OUT:
            sources.setdefault(rest[0], []).append(f"{rest[1].replace('_', ' ')} {_number(value)}")
    return [f"step {step}, held out, {source}: " + ", ".join(shown) for source, shown in sources.items()]


def _number(text: str, digits: int = 2, kind: str = "f") -> str:
    try:
        return f"{float(text.split('(')[-1].rstrip(')')):.{digits}{kind}}"
    except ValueError:
        return "?"


def build_toyworld(
    recipe: Path, overrides: Sequence[str], stage: str = "grpo", *, cold_start: bool = True
) -> dict[str, str]:
    """Make a recipe's synthetic world and tiny models (once; a process of its own, whose memory is then free again).

    Args:
        cold_start: For GRPO: False where another checkpoint is used.

    Returns:
        Paths by name: ``train``, ``heldout``, ``base``, ``model`` and, where GRPO needs them, ``clip`` and ``witness``.

    Raises:
        LaunchError: The build failed; its own message came before.
    """
    command = [sys.executable, "-m", TOYWORLD[stage], str(recipe), *overrides]
    if stage != "grpo":
        command += ["--profile", config_name(stage, "laptop")]
    elif not cold_start:
        command.append("--no-cold-start")
    paths = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as build:
        assert build.stdout is not None
        for line in build.stdout:
            name, _, value = line.strip().partition(": ")
            if name in ("train", "heldout", "base", "model", "clip", "witness"):
                paths[name] = value
            elif line.startswith("["):
                print(line, end="", flush=True)
    if build.returncode:
        raise LaunchError("the synthetic world and its tiny model could not be built")
    return paths


def config_name(stage: str, profile: str) -> str:
    """Name of a recipe's yaml file: GRPO's is the profile's, the other stages' are ``sft`` and ``sft_laptop``."""
    if stage == "grpo":
        return profile
    return f"{stage}_laptop" if profile == "laptop" else stage


def stage_command(
    stage: str, profile: str, recipe: Path, gpus: int, environment: Mapping[str, str], overrides: Sequence[str]
) -> list[str]:
    """The command that trains, without what depends on the run's folder.

    Args:
        overrides: The user's, which may set the number of machines and of devices.

    Raises:
        LaunchError: The config doesn't compose, or a torchrun over several machines isn't told where they meet.
    """
    name = config_name(stage, profile)
    config = ["--config-dir", str(recipe / "config"), "--config-name", name]
    if stage not in TORCHRUN:
        return [sys.executable, "-m", "verl.trainer.main_ppo", *config]

    from hydra.errors import HydraException

    from agentic_video.recipe import compose_recipe

    sizes = []
    if profile == "cluster":
        sizes = [f"trainer.nnodes={environment.get('NNODES') or 1}",
                 f"trainer.n_gpus_per_node={environment.get('GPUS_PER_NODE') or gpus}"]  # fmt: skip
    try:
        trainer = compose_recipe(recipe, name, [*sizes, *overrides]).trainer
    except HydraException as error:
        raise LaunchError(str(error)) from error
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={trainer.n_gpus_per_node}"]
    if trainer.nnodes == 1:
        command.append("--standalone")
    else:
        if missing := [name for name in ("MASTER_ADDR", "NODE_RANK") if not environment.get(name)]:
            raise LaunchError(
                f"{trainer.nnodes} machines, but {' and '.join(missing)} not set: run the same command on each, with "
                "MASTER_ADDR (the first one's address) and NODE_RANK (0, 1, ...)"
            )
        if not any(text.startswith("trainer.default_local_dir=") for text in overrides):
            raise LaunchError("several machines need one folder for checkpoints: trainer.default_local_dir=/shared/...")
        command += [f"--nnodes={trainer.nnodes}", f"--node-rank={environment['NODE_RANK']}"]
        command += [f"--master-addr={environment['MASTER_ADDR']}"]
        command += [f"--master-port={environment.get('MASTER_PORT') or 29500}"]
    return [*command, "-m", TORCHRUN[stage], *config, *sizes]


def laptop_overrides(paths: Mapping[str, str], stage: str = "grpo") -> list[str]:
    """Name the files of :func:`build_toyworld` to verl."""
    overrides = [f"data.train_files={paths['train']}", f"data.val_files={paths['heldout']}"]
    if "model" in paths:
        overrides.append(f"{MODEL_KEYS[stage]}={paths['model']}")
    if "clip" in paths:
        overrides.append(f"agentic_video.retrieval.model='local-dir:{paths['clip']}'")
    return overrides


@contextlib.contextmanager
def witness_server(model: str | None) -> Iterator[list[str]]:
    """Serve the tiny base model for as long as the context lasts, where a recipe wants a witness.

    Yields:
        Overrides that name it to verl.

    Raises:
        LaunchError: The server didn't start.
    """
    if model is None:
        yield []
        return
    command = [sys.executable, "-m", "agentic_video.toyworld.serve", model]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, preexec_fn=_stop_with_launcher, **options) as server:
        assert server.stdout is not None
        name, _, url = server.stdout.readline().strip().partition(": ")
        if name != "serving":
            raise LaunchError("the tiny model that serves as the witness did not start")
        try:
            yield [f"agentic_video.witness.base_url='{url}'", "agentic_video.witness.model=toyworld"]
        finally:
            server.terminate()


def ray_overrides(environment: Mapping[str, str], variables: Mapping[str, str], temporary: Path) -> list[str]:
    """How verl reaches Ray: a cluster that RAY_ADDRESS names, or one of its own in the temporary folder."""
    if environment.get("RAY_ADDRESS"):
        pairs = [f"+ray_kwargs.ray_init.runtime_env.env_vars.{key}='{value}'" for key, value in variables.items()]
        sizes = ["ray_kwargs.ray_init.num_cpus=null", "++ray_kwargs.ray_init.num_gpus=null"]
        return [*sizes, "+ray_kwargs.ray_init.ignore_reinit_error=True", *pairs]
    return [f"+ray_kwargs.ray_init._temp_dir={temporary / 'ray'}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a stage of a recipe.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser(
        prog="run_grpo.sh, run_sft.sh, run_kto.sh",
        description="Trains one system. Everything else on the command line is a Hydra override for verl.",
    )
    parser.add_argument("recipe", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stage", choices=("grpo", *TORCHRUN), default="grpo", help=argparse.SUPPRESS)
    parser.add_argument("--profile", choices=("laptop", "cluster"), help="default: laptop without GPUs")
    parser.add_argument("--submit", action="store_true", help="submit as a Ray job to the cluster at RAY_ADDRESS")
    parser.add_argument("--dry-run", action="store_true", help="print the command and stop")
    known, overrides = parser.parse_known_args(arguments)
    bad = [text for text in overrides if "=" not in text and not text.startswith("~")]
    if bad:
        parser.error(f"not an option and not a Hydra override (key=value): {bad[0]}")
    try:
        return launch(known.recipe.resolve(), known.profile, known.submit, known.dry_run, overrides, known.stage)
    except LaunchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def launch(
    recipe: Path, asked: str | None, submit: bool, dry_run: bool, overrides: Sequence[str], stage: str = "grpo"
) -> int:
    """See :func:`main`."""
    environment = {**os.environ}
    gpus = count_gpus()
    profile = choose_profile(asked, gpus, environment, stage)
    if submit:
        if stage != "grpo":
            raise LaunchError(f"--submit is for GRPO's Ray job; {stage} runs under torchrun on the machine itself")
        from agentic_video.submit import submit_job

        return submit_job(recipe, profile, overrides, environment, dry_run)

    title = recipe.name if stage == "grpo" else f"{recipe.name}-{stage}"
    print(f"{title}: profile {profile}" + ("" if gpus else " (no GPU found)"), flush=True)
    started = time.monotonic()
    root = output_folder(environment) / f"{title}-{profile}"
    variables = {**COMMON_ENV, **(LAPTOP_ENV if profile == "laptop" else {})}
    command = stage_command(stage, profile, recipe, gpus, environment, overrides)
    other_model = any(text.startswith(f"{MODEL_KEYS[stage]}=") for text in overrides)
    paths = build_toyworld(recipe, overrides, stage, cold_start=not other_model) if profile == "laptop" else {}
    if paths:
        command += laptop_overrides(paths, stage)
    if dry_run:
        print(shlex.join([*command, *overrides]))
        return 0

    if profile == "cluster" and not environment.get("RAY_ADDRESS"):  # this machine alone
        environment.setdefault("NNODES", "1")
        environment.setdefault("GPUS_PER_NODE", str(gpus))
    folder, resumed = run_folder(root, run_identity(overrides, environment))
    print(f"{'resuming' if resumed else 'run'} in {folder}", flush=True)
    attempt = len(list(folder.glob("metrics-*.jsonl"))) + 1
    variables_here = {
        **variables,
        "VERL_FILE_LOGGER_PATH": str(folder / f"metrics-{attempt:03d}.jsonl"),
        "TENSORBOARD_DIR": str(folder / "tensorboard"),
        "PYTHONUNBUFFERED": "1",
    }
    with clean_machine() as temporary, witness_server(paths.get("witness")) as witness:
        command += [
            *witness,
            f"hydra.run.dir={folder / 'hydra'}",
            f"trainer.default_local_dir={folder / 'checkpoints'}",
        ]
        if stage == "grpo":
            command.append(f"agentic_video.episodes_dir={folder / 'episodes'}")
            command += ray_overrides(environment, variables_here, temporary)
        command += overrides
        write_record(folder, temporary=str(temporary), started_at=time.time())
        (folder / "command.sh").write_text(shlex.join(command) + "\n", encoding="utf-8")
        print("starting verl: the first step comes after a minute or two of imports", flush=True)
        environment.update(variables_here)
        if stage != "grpo" or not environment.get("RAY_ADDRESS"):
            environment["TMPDIR"] = str(temporary)
        status, peak = run_verl(command, environment, folder / "log.txt")
    if status:
        print(f"verl stopped with status {status}; the whole log is {folder / 'log.txt'}", file=sys.stderr)
        print("the same command goes on from the last checkpoint", file=sys.stderr)
        return status
    seconds = time.monotonic() - started
    write_record(folder, finished=True, recipe=recipe.name, profile=profile, seconds=seconds, peak_bytes=peak)
    if stage == "grpo":
        from agentic_video.report.summary import write_summary

        print(write_summary(folder))
    else:
        from agentic_video.report.losses import write_losses

        print(write_losses(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
