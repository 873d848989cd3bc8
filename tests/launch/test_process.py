import os
import signal
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import psutil
import pytest

from agentic_video.launch.process import PeakMemory, clean_machine, remove_segments, run_verl, shared_segments

HANGS = 600
"""Seconds after which a test that waits in vain gives up; far more than any machine needs."""
IGNORE = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "


def start_launcher(child: str, log: Path, grace: float = HANGS, before: str = "") -> subprocess.Popen[str]:
    """A launcher in a process of its own, whose job runs Python code; returns when that has written ``up``."""
    code = (
        f"{before}import os, sys; from pathlib import Path; from agentic_video.launch.process import run_verl; "
        f"status, _ = run_verl([sys.executable, '-c', {child!r}], os.environ, Path({str(log)!r}), grace={grace}); "
        "print(status)"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    while not (log.is_file() and "up" in log.read_text()):
        assert launcher.poll() is None
        time.sleep(0.02)
    return launcher


@pytest.mark.parametrize("full", [False, True])
def test_status_and_output_of_the_job(full: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log without room costs its lines only."""
    code = "print('hello'); print('step:3 - episode/reward_sampled:0.5 - timing_s/step:2.0'); raise SystemExit(3)"
    log = Path("/dev/full") if full else tmp_path / "log.txt"
    status, _ = run_verl([sys.executable, "-c", code], os.environ, log)
    said = capsys.readouterr()
    assert status == 3 and said.out.startswith("step 3: reward 0.50")
    assert (
        said.err.startswith("error: /dev/full: ") and said.err.count("\n") == 1 if full else "hello" in log.read_text()
    )


def test_the_job_ends_when_the_launcher_is_killed(tmp_path: Path) -> None:
    child = f"import time; print('up', flush=True); time.sleep({HANGS})"
    launcher = start_launcher(child, tmp_path / "log.txt")
    children = psutil.Process(launcher.pid).children()
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    assert children
    _, alive = psutil.wait_procs(children, timeout=HANGS / 10)
    for process in alive:
        process.kill()
    assert not alive


@pytest.mark.parametrize("heeds", [True, False])
def test_a_job_in_the_background_is_stopped(tmp_path: Path, heeds: bool) -> None:
    child = ("" if heeds else IGNORE) + f"import time; print('up', flush=True); time.sleep({HANGS})"
    # a shell that isn't interactive has what it starts in the background ignore ctrl-c
    launcher = start_launcher(child, tmp_path / "log.txt", grace=HANGS if heeds else 0.2, before=IGNORE)
    launcher.send_signal(signal.SIGTERM)
    out, _ = launcher.communicate(timeout=HANGS / 10)
    assert int(out.split()[-1]) == (-signal.SIGINT if heeds else -signal.SIGKILL)


def test_what_the_job_leaves_running_is_killed(tmp_path: Path) -> None:
    left = f"import time; time.sleep({HANGS})"
    code = (
        "import subprocess, sys; "
        "quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}; "
        f"print(subprocess.Popen([sys.executable, '-c', {left!r}], **quiet).pid)"
    )
    status, _ = run_verl([sys.executable, "-c", code], os.environ, tmp_path / "log.txt")
    assert status == 0
    number = int((tmp_path / "log.txt").read_text())
    while psutil.pid_exists(number) and psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.02)


def test_the_job_ends_when_nothing_can_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*words: object, **options: object) -> None:
        raise BrokenPipeError

    child = f"import os, time; print('error:', os.getpid(), flush=True); time.sleep({HANGS})"
    monkeypatch.setattr("builtins.print", shown)
    with pytest.raises(BrokenPipeError):
        run_verl([sys.executable, "-c", child], os.environ, tmp_path / "log.txt")
    assert not psutil.pid_exists(int((tmp_path / "log.txt").read_text().split()[1]))


def test_only_segments_that_no_one_maps_are_removed() -> None:
    kept = shared_memory.SharedMemory(create=True, size=16)
    orphan = Path("/dev/shm/psm_agentic_video_test")
    orphan.write_bytes(b"x")
    try:
        assert {orphan, Path("/dev/shm") / kept.name} <= shared_segments()
        remove_segments({orphan, Path("/dev/shm") / kept.name})
        assert not orphan.exists()
        assert (Path("/dev/shm") / kept.name).exists()
    finally:
        kept.close()
        kept.unlink()
        orphan.unlink(missing_ok=True)


@pytest.mark.parametrize("name", ["psm_agentic_video_test2", "verl_weights_agentic_video_test"])
def test_machine_is_left_clean(name: str) -> None:
    with clean_machine() as folder:
        (folder / "x").write_text("x")
        orphan = Path("/dev/shm") / name
        orphan.write_bytes(b"x")
    assert not folder.exists()
    assert not orphan.exists()


def test_the_memory_of_descendants_is_counted() -> None:
    size = 64 << 20
    code = f"held = b'x' * {size}; print('up', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        # only now: a child that isn't its own program yet has all of this process's memory
        memory = PeakMemory(os.getpid(), interval=0.01)
        while memory.peak < size:
            time.sleep(0.01)
        child.communicate(b"\n")
    assert size < memory.stop() < 4 * size
