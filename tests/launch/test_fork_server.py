"""Forked processes behave as started ones: arguments, environment, descriptors, signals, exit statuses."""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agentic_video.launch.laptop_fork import client
from agentic_video.launch.laptop_fork.client import open_descriptors
from agentic_video.launch.laptop_fork.server import (
    AUTOSCALER,
    PRELOADED,
    SETUP_WORKER,
    WORKERS_PRELOADED,
    Forks,
    ForkServer,
    fork_server,
)
from agentic_video.utils.environment import LAPTOP_ENV


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    # with an option that Python hands on to what it starts
    with fork_server({**os.environ, **LAPTOP_ENV, "PYTHONWARNINGS": "ignore::ImportWarning"}) as server:
        assert server
        yield server


def said(forks: Forks, *arguments: str, **options: object) -> str:
    done = subprocess.run([forks.python, *arguments], stdout=subprocess.PIPE, text=True, check=True, **options)  # type: ignore[call-overload]
    return str(done.stdout)


@pytest.mark.slow
def test_what_is_imported_is_there_and_ray_is_not(forks: Forks) -> None:
    loaded = set(json.loads(said(forks, "-c", "import json, sys; print(json.dumps(list(sys.modules)))")))
    assert set(PRELOADED) <= loaded
    assert not loaded & {"ray", "verl"}


@pytest.mark.slow
def test_arguments_environment_folder_and_descriptors(forks: Forks, tmp_path: object) -> None:
    text = "import os, sys; print(sys.argv, os.environ['A'], 'B' in os.environ, os.getcwd()); os.write({0}, b'x')"
    reader, writer = os.pipe()
    found = said(
        forks, "-u", "-c", text.format(writer), "one", "two", env={"A": "1"}, cwd=str(tmp_path), pass_fds=[writer]
    )
    assert found == f"['-c', 'one', 'two'] 1 False {tmp_path}\n"
    os.close(writer)
    assert os.read(reader, 9) == b"x" and os.read(reader, 9) == b""  # nobody else has it open any more
    os.close(reader)


@pytest.mark.slow
def test_no_socket_of_the_server_s_is_closed_once_more(forks: Forks) -> None:
    """Its number would be another one's by then."""
    text = "import gc, socket; gc.unfreeze(); all = gc.get_objects()"
    text += "; print([item.fileno() for item in all if isinstance(item, socket.socket)])"
    with subprocess.Popen([forks.python, "-c", "input()"], stdin=subprocess.PIPE):  # another client
        assert set(json.loads(said(forks, "-c", text))) == {-1}


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["-u"], ["-s", "-B"]])
def test_a_title_can_be_set(forks: Forks, options: list[str]) -> None:
    """vLLM's engine sets one; Python starts it with the options that its parent was started with."""
    text = (
        "import setproctitle; setproctitle.setproctitle('VLLM::EngineCore'); print(open('/proc/self/cmdline').read())"
    )
    assert said(forks, *options, "-c", text).startswith("VLLM::EngineCore")


@pytest.mark.slow
def test_a_script_a_module_and_another_fork(forks: Forks, tmp_path: object) -> None:
    script = f"{tmp_path}/script.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write("import subprocess, sys\nassert __name__ == '__main__'\n")
        file.write("print(sys.argv[1:], sys.path[0], flush=True)\n")
        file.write("subprocess.run([sys.executable, '-c', 'import sys; print(\"torch\" in sys.modules)'])\n")
    assert said(forks, script, "a") == f"['a'] {tmp_path}\nTrue\n"
    assert said(forks, "-m", "platform").strip() == subprocess.getoutput(f"{sys.executable} -m platform")


@pytest.mark.slow
def test_generators_of_random_numbers_differ(forks: Forks) -> None:
    text = "import random, numpy; print(random.random(), numpy.random.rand())"
    item, other = (said(forks, "-c", text).split() for _ in range(2))
    assert item[0] != other[0] and item[1] != other[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "status"), [("import sys; sys.exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_the_status_is_the_fork_s(forks: Forks, text: str, status: int) -> None:
    assert subprocess.run([forks.python, "-c", text]).returncode == status


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_who_ends_the_stand_in_ends_the_fork(forks: Forks, number: int) -> None:
    text = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen([forks.python, "-c", text], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        fork = psutil.Process(int(started.stdout.readline()))
        started.send_signal(number)
        assert started.wait(60) == -number
    psutil.wait_procs([fork], 60)
    assert not fork.is_running()


@pytest.mark.slow
def test_nothing_outlives_the_server_and_then_python_itself_is_started() -> None:
    with fork_server({**os.environ, **LAPTOP_ENV}) as forks:
        assert forks
        text = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
        started = subprocess.Popen([forks.python, "-c", text], stdout=subprocess.PIPE, text=True)
        assert started.stdout is not None
        fork = psutil.Process(int(started.stdout.readline()))
        forks.stop()
        assert started.wait(60) != 0
        started.stdout.close()
        psutil.wait_procs([fork], 60)
        assert not fork.is_running()
        assert said(forks, "-c", "import sys; print('torch' in sys.modules)") == "False\n"
    assert not os.path.exists(os.path.dirname(forks.python))


@pytest.mark.slow
def test_ray_s_autoscaler_waits_for_its_end(forks: Forks) -> None:
    """Its own script says what is wrong with its arguments."""
    script = os.path.join(sysconfig.get_paths()["purelib"], AUTOSCALER)
    assert os.path.isfile(script)
    with subprocess.Popen([forks.python, "-u", script, "--logs-dir=x"]) as started:
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(1)
        started.terminate()
        assert started.wait(60) == -signal.SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize("options", [["-I"], ["-X", "dev"], ["-uB"]])
def test_python_itself_is_started_for_what_a_fork_can_t_be(forks: Forks, options: list[str]) -> None:
    text = "import sys; print('torch' in sys.modules, sys.argv)"
    assert said(forks, *options, "-c", text, "a") == "False ['-c', 'a']\n"
    assert said(forks, "-", input=text) == "False ['-']\n"
    assert said(forks, "-mplatform") == said(forks, "-m", "platform")


@pytest.mark.slow
def test_what_multiprocessing_starts_is_forked_too(forks: Forks, tmp_path: Path) -> None:
    """It hands PYTHONWARNINGS on as an option."""
    script = tmp_path / "script.py"
    text = (
        "import multiprocessing, os, sys\ndef child():\n    print('torch' in sys.modules, os.getppid(), flush=True)\n"
    )
    text += "if __name__ == '__main__':\n    one = multiprocessing.get_context('spawn').Process(target=child)\n"
    text += "    one.start()\n    one.join()\n    sys.exit(one.exitcode)\n"
    script.write_text(text)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore::ImportWarning"}
    assert said(forks, str(script), env=environment) == f"True {forks.process.pid}\n"


def test_python_itself_is_started_where_no_fork_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> int:
        raise BlockingIOError("too many processes")

    address = str(tmp_path / "fork")
    words = [sys.executable, "-S", "-E", client.__file__, address, sys.executable, "-c", "print('here')"]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as started:
            before = open_descriptors()
            monkeypatch.setattr(os, "fork", full)
            assert ForkServer(listening)._answer() is None
            assert open_descriptors() == before
            assert started.communicate(timeout=60)[0] == "here\n"


def test_a_server_whose_starter_is_gone_ends() -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        number = listening.fileno()
        words = [sys.executable, "-m", "agentic_video.launch.laptop_fork.server", str(number), "python", "1"]
        assert subprocess.run(words, pass_fds=[number], timeout=60).returncode == 0


def test_there_is_none_where_nothing_may_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK)  # as of a folder that is mounted so
    with fork_server(os.environ) as forks:
        assert forks is None
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("prefix", [[], ["export C=3 &&"]])
def test_workers_of_ray_are_forked_into_their_job_s_environment(prefix: list[str], tmp_path: object) -> None:
    """Ray's own script hands a worker its environment, and would start Python anew."""
    script = f"{tmp_path}/worker.py"
    with open(script, "w", encoding="utf-8") as file:
        file.write("import json, os, sys\nloaded = list(sys.modules)\n")
        file.write("from ray._raylet import setproctitle\nsetproctitle('ray::Worker')\n")
        file.write("title = open('/proc/self/cmdline').read()\n")
        file.write("seen = {name: os.environ.get(name) for name in 'ABC'}\n")
        file.write("print(json.dumps([sys.argv[1:], seen, loaded, os.getppid(), title]))\n")
    context = json.dumps({"env_vars": {"A": "1", "B": "${A}2"}, "command_prefix": prefix})
    setup = os.path.join(sysconfig.get_paths()["purelib"], SETUP_WORKER)
    with fork_server({**os.environ, **LAPTOP_ENV}) as forks:
        assert forks
        for _ in range(2):  # the first one has Ray imported for all
            options = [f"--serialized-runtime-env-context={context}", "--language=PYTHON"]
            arguments, seen, loaded, parent, title = json.loads(said(forks, setup, script, "--one", "two 2", *options))
            assert arguments == ["--one", "two 2"]
            assert seen == {"A": "1", "B": "12", "C": "3" if prefix else None}
            assert set(WORKERS_PRELOADED) <= set(loaded)
            assert parent == forks.process.pid
            assert title.startswith("ray::Worker")
        assert said(forks, "-c", "import setproctitle as s; s.setproctitle('x'); print(s.getproctitle())") == "x\n"
