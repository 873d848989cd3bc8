"""Stages as processes: run, stopped, gone on with."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentic_video.launch.reproduce.run import default_mode, run_command, run_steps, stage_environment
from agentic_video.utils.errors import SetupError
from tests.launch.reproduce.chains import STAGES, actions, reproduction

pytestmark = pytest.mark.usefixtures("program")


def test_a_chain_is_run_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_steps(reproduction(tmp_path), {}) == 0
    said = capsys.readouterr().out
    assert "[1/4] rows: rows of the data\n" in said and "copied 1\n" in said and "[3/4] judged: done in" in said
    out = tmp_path / "out"
    assert (out / "judged" / "report.json").read_text() == "[1][1]"
    log = (out / "logs" / "taught.log").read_text()
    assert log.startswith("$ TRAIN_FILES=") and log.endswith("copied 1\n")
    times = (out / "taught" / "model.bin").stat().st_mtime_ns
    assert run_steps(reproduction(tmp_path), {}) == 0
    assert "[2/4] taught: complete (" in capsys.readouterr().out
    assert (out / "taught" / "model.bin").stat().st_mtime_ns == times


def stage(what: str, **more: Any) -> dict[str, Any]:
    return {"name": "two", "about": "two", "run": f"agentic-video {what}", **more}


def test_a_failure_names_the_log_and_what_follows_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = {"name": "three", "about": "three", "run": "agentic-video copy {two.folder} {folder}/x"}
    assert run_steps(reproduction(tmp_path, STAGES[0], stage("fail"), after), {}) == 1
    log = tmp_path / "out" / "logs" / "two.log"
    assert capsys.readouterr().err == (
        f"error: two ended with status 3 (the disk is full); read {log}; the same command resumes it\n"
    )
    assert not (tmp_path / "out" / "three").exists()
    assert actions(reproduction(tmp_path, STAGES[0], stage("fail"), after)) == {
        "rows": "complete",
        "two": "resume",
        "three": "run",
    }


def test_the_same_command_resumes_in_the_same_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = (stage("fail-once {folder}/mark", makes={"done": "done"}),)
    assert run_steps(reproduction(tmp_path, *chain), {}) == 1
    assert "--keep" not in capsys.readouterr().err
    assert run_steps(reproduction(tmp_path, *chain), {}) == 0
    record = reproduction(tmp_path, *chain).state.records["two"]
    assert record.attempts == 2 and record.finished and record.seconds > 0


def test_what_is_incomplete_may_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = (stage("fail-once {folder}/mark", makes={"mark": "mark"}),)
    assert run_steps(reproduction(tmp_path, *chain), {}) == 1
    assert "or --keep two continues with what it has made" in capsys.readouterr().err
    kept = reproduction(tmp_path, *chain, keep=("two",))
    assert run_steps(kept, {}) == 0 and actions(reproduction(tmp_path, *chain)) == {"two": "complete"}


def test_a_command_that_makes_nothing_has_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = (stage("nothing", makes={"report": "report.json"}),)
    assert run_steps(reproduction(tmp_path, *chain), {}) == 1
    assert "error: two ended well, but made no report; read " in capsys.readouterr().err


def test_again_sets_aside(tmp_path: Path) -> None:
    assert run_steps(reproduction(tmp_path), {}) == 0
    assert run_steps(reproduction(tmp_path, redo=("taught",)), {}) == 0
    out = tmp_path / "out"
    assert sorted(item.name for item in (out / "set-aside").iterdir()) == ["judged-1", "taught-1"]
    assert (out / "set-aside" / "taught-1" / "model.bin").read_text() == "[1]"
    assert reproduction(tmp_path).state.records["taught"].attempts == 1
    assert set(actions(reproduction(tmp_path)).values()) == {"complete"}


def test_variables(tmp_path: Path) -> None:
    made = reproduction(tmp_path)
    shell = {"MODEL_PATH": "m", "TRAIN_FILES": "t", "RAY_ADDRESS": "auto", "PATH": "p", "HF_HOME": "h"}
    assert stage_environment(made, made.stages[1], shell) == {
        "PATH": "p",
        "HF_HOME": "h",
        "TRAIN_FILES": "{rows.train}",
        "PYTHONUNBUFFERED": "1",
    }
    made = reproduction(tmp_path, mode="paper")
    assert stage_environment(made, made.stages[1], shell)["RAY_ADDRESS"] == "auto"


def test_sft_runs_on_this_machine(tmp_path: Path) -> None:
    made = reproduction(tmp_path, stage("run x sft"), {**stage("run x"), "name": "three"}, mode="paper")
    sft, grpo = (stage_environment(made, item, {"NNODES": "2"}) for item in made.stages)
    assert "NNODES" not in sft and grpo["NNODES"] == "2"
    assert sft["OUTPUT_DIR"] == str(tmp_path / "out" / "two")


def test_one_command_at_a_time(tmp_path: Path) -> None:
    waiting = (stage("wait {folder}/mark"),)
    script = (
        "import sys; from pathlib import Path; from agentic_video.launch.reproduce import run; "
        "from tests.launch.reproduce.chains import reproduction; folder = Path(sys.argv[1]); "
        "run.PROGRAM = (sys.executable, str(folder / 'program.py')); "
        f"sys.exit(run.run_steps(reproduction(folder, *{waiting!r}), {{}}))"
    )
    first = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.PIPE, text=True)
    try:
        mark = tmp_path / "out" / "two" / "mark"
        while not mark.exists():
            assert first.poll() is None
            time.sleep(0.05)
        with pytest.raises(SetupError, match="another command runs there"):
            run_steps(reproduction(tmp_path, *waiting), {})
        first.send_signal(signal.SIGTERM)
        assert first.wait(20) == 130
        assert first.stderr is not None and "stopped in two; the same command resumes from here" in first.stderr.read()
    finally:
        first.kill()
        first.wait()
    assert actions(reproduction(tmp_path, *waiting)) == {"two": "resume"}


def test_a_process_that_stays_behind_is_not_waited_for(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
    log = tmp_path / "log"
    assert run_command([sys.executable, "-c", code], {**os.environ}, log, "x") == (0, False)
    title, left = log.read_text().split("\n", 1)
    assert title == "$ x"
    os.kill(int(left), signal.SIGKILL)  # it is still there


@pytest.mark.parametrize(
    ("asked", "data", "gpus", "environment", "mode"),
    [
        (None, False, 0, {}, "laptop"),
        (None, True, 0, {}, "paper"),
        (None, False, 8, {}, "paper"),
        (None, False, 0, {"RAY_ADDRESS": "auto"}, "paper"),
        ("laptop", True, 8, {}, "laptop"),
        ("paper", False, 0, {}, "paper"),
    ],
)
def test_which_chain_is_meant(asked: Any, data: bool, gpus: int, environment: dict[str, str], mode: str) -> None:
    assert default_mode(asked, data, gpus, environment) == mode
