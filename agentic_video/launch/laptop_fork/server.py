"""One process that has imported most modules, and forks the processes of a job that runs on this machine alone.

verl, Ray, vLLM and torch take more than ten seconds to import, and a job has ten processes that start one after the
other. Here all of that is imported once: most of it while the job's inputs are built (:data:`PRELOADED`), the rest when
Ray starts the first of its workers (:data:`WORKERS_PRELOADED`). Each process is then a fork that shares the modules.
``sys.executable`` of the job's processes is a script that asks for a fork (:mod:`.client`), so that whatever starts a
Python (Ray, multiprocessing's "spawn") gets one.
"""

import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path

from agentic_video.families.registry import FAMILIES
from agentic_video.launch.laptop_fork import client
from agentic_video.utils.process import end_now, signal_at_parent_end
from agentic_video.utils.ray_cluster import shell_problem
from agentic_video.utils.surroundings import allow_open_files

MODULE = "agentic_video.launch.laptop_fork.server"
SWITCH = "AGENTIC_VIDEO_FORK"
"""Environment variable: ``0`` starts each process by itself."""
PRELOADED = (
    "torch",
    "torch.distributed.fsdp",
    "torch.utils.tensorboard",
    "torchvision",
    "transformers",
    "peft",
    "datasets",
    "tensordict",
    "torchdata.stateful_dataloader",
    "hydra",
    "fastapi",
    "uvicorn",
    "openai",
    "av",
    "vllm.engine.arg_utils",
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.engine.input_processor",
    "vllm.v1.engine.output_processor",
    "agentic_video.rollout.episode",
    "agentic_video.rollout.tokens",
    "agentic_video.video.store",
    *(module for family in FAMILIES for module in family.preloaded),
)
"""Slow imports of a GRPO job's processes, without Ray and what imports it: see :data:`WORKERS_PRELOADED`."""
WORKERS_PRELOADED = (
    "ray",
    "verl.trainer.main_ppo",
    "verl.workers.engine_workers",
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
    "verl.trainer.ppo.v1.agent_loop_tq",
)
"""Further slow imports of Ray's workers. Ray reads its settings from the environment while it is imported, and sets
some itself when it starts: it is imported in the environment of the first worker, which has them."""
SETUP_WORKER = os.path.join("ray", "_private", "workers", "setup_worker.py")
"""The script, below site-packages, by which Ray starts a worker in its job's environment."""
AUTOSCALER = os.path.join("ray", "autoscaler", "_private", "monitor.py")
"""The script, below site-packages, of Ray's autoscaler, which a cluster of one machine doesn't need; it would take a
second to start, and another to end."""
CONTEXT = "--serialized-runtime-env-context="
"""The script's option that holds this environment, as JSON."""
SOCKET, SCRIPT = "fork", "python"
"""In the server's folder: the socket that it listens on, and the script that replaces Python."""
OPTIONS = frozenset({"-u", "-B", "-s"})
"""Python's own options that a forked process may be asked for with: nothing of what they change matters to it."""


@dataclass(frozen=True)
class ForkRequest:
    """A requested process: arguments of ``python``, all variables, working directory, open files by their number."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    descriptors: Mapping[int, int]


class ForkServer:
    """Answers requests on a socket until its starter ends."""

    def __init__(self, listening: socket.socket):
        self._socket = listening
        self._clients: dict[int, socket.socket] = {}  # by process
        self._workers_preloaded = False

    def serve(self) -> ForkRequest:
        """Fork the requested processes; returns the request in a forked process, never in the server itself."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        while True:
            clients = {client.fileno(): process for process, client in self._clients.items()}
            ready, _, _ = select.select([self._socket.fileno(), reader, *clients], [], [])
            for number in ready:
                if number == reader:
                    with contextlib.suppress(BlockingIOError):
                        os.read(reader, 4096)
                elif number in clients:  # a client says nothing more: it is gone, and its process goes too
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(clients[number], signal.SIGKILL)
                    self._clients.pop(clients[number], socket.socket()).close()
                elif request := self._answer():
                    return request
            self._reap()

    def _answer(self) -> ForkRequest | None:
        """Fork for the next client; returns its request in the forked process, None in the server."""
        client, _ = self._socket.accept()
        try:
            request = _read(client)
        except (OSError, ValueError):
            client.close()
            return None
        if not _can_be_forked(request):
            _refuse(client, request)
            return None
        if not self._workers_preloaded and _asks_for(request, SETUP_WORKER):
            self._workers_preloaded = True
            _preload_for_workers(request)
        server = os.getpid()
        try:
            process = os.fork()
        except OSError:  # no memory, or too many processes: that concerns this one alone
            _refuse(client, request)
            return None
        if not process:
            signal.set_wakeup_fd(-1)
            # Their descriptors are closed below. What would close them once more, when the process ends, would close
            # whatever has their numbers by then: a connection of Ray's, which aborts.
            for connection in (self._socket, client, *self._clients.values()):
                connection.detach()
            _become(request, server)
            return request
        for descriptor in request.descriptors.values():
            os.close(descriptor)
        self._clients[process] = client
        _say(client, process)
        return None

    def _reap(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not process:
                return
            if client := self._clients.pop(process, None):
                _say(client, os.waitstatus_to_exitcode(status))
                client.close()


def _refuse(client: socket.socket, request: ForkRequest) -> None:
    """Fork nothing: the client becomes Python itself."""
    for descriptor in request.descriptors.values():
        os.close(descriptor)
    client.close()


def _say(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):
        client.sendall(f"{number}\n".encode())


def _read(client: socket.socket) -> ForkRequest:
    start, received, _, _ = socket.recv_fds(client, 4, 253)
    try:
        size, text = int.from_bytes(start, "little"), b""
        while len(text) < size:
            if not (more := client.recv(size - len(text))):
                raise ValueError("cut short")
            text += more
        asked = json.loads(text)
        descriptors = dict(zip(asked["numbers"], received, strict=True))
        return ForkRequest(asked["arguments"], asked["environment"], asked["folder"], descriptors)
    except BaseException:
        for descriptor in received:
            os.close(descriptor)
        raise


def _become(request: ForkRequest, server: int) -> None:
    """In a forked process: take over the requested descriptors, environment and folder."""
    signal_at_parent_end(signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    for default in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(default, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # First out of the way of each other, then to their numbers; nothing else of the server's stays open.
    high = 1 + max([*request.descriptors, *request.descriptors.values(), 2])
    moved = {}
    for place, (number, descriptor) in enumerate(request.descriptors.items()):
        moved[number] = high + place
        os.dup2(descriptor, moved[number], inheritable=False)
    os.closerange(0, high)
    for number, descriptor in moved.items():
        os.dup2(descriptor, number)
    os.closerange(high, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request.folder)
    if _without_options(request.arguments)[:1] == ["-c"]:  # not one of Ray's, which set their titles themselves
        with contextlib.suppress(ImportError):
            importlib.import_module("setproctitle").getproctitle()  # finds a title's place by the first environment
    _take_environment(request.environment)
    tempfile.tempdir = None  # found out from the environment
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # Python's own generator reseeds itself


def _take_environment(variables: Mapping[str, str]) -> None:
    """Have these variables and no other. Equal ones stay where they are: by the first of them, a process finds the
    place of its title."""
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update({name: value for name, value in variables.items() if os.environ.get(name) != value})


def _without_options(arguments: Sequence[str]) -> list[str]:
    """Python's arguments from the script, ``-c`` or ``-m`` on."""
    words = list(arguments)
    # What multiprocessing hands on to each process, as `-Wignore` for PYTHONWARNINGS: the server has it, too.
    own = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    if words[: len(own)] == own:
        del words[: len(own)]
    return list(dropwhile(OPTIONS.__contains__, words))


def _can_be_forked(request: ForkRequest) -> bool:
    """Return True if :func:`run` does what Python would do with these arguments."""
    first, *more = [*_without_options(request.arguments), "-"]
    return not first.startswith("-") or (first in ("-c", "-m") and len(more) > 1)


def run(request: ForkRequest) -> None:
    """Do what ``python <arguments>`` does."""
    arguments = _without_options(request.arguments)
    sys.path[:] = [path for path in sys.path if path]
    for path in reversed(request.environment.get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(0, path)
    if arguments[:1] == ["-c"]:
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
    elif arguments[:1] == ["-m"]:
        sys.argv = [arguments[1], *arguments[2:]]
        sys.path.insert(0, request.folder)
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif _asks_for(request, AUTOSCALER):
        while True:
            signal.pause()  # until it is ended
    else:
        if _asks_for(request, SETUP_WORKER):
            _here_instead_of_exec()
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
        runpy.run_path(arguments[0], run_name="__main__")


def _asks_for(request: ForkRequest, script: str) -> bool:
    """Return True if the script of this path below site-packages is requested."""
    arguments = _without_options(request.arguments)
    return bool(arguments) and arguments[0].endswith(os.sep + script)


def _here_instead_of_exec() -> None:
    """Have Ray's script continue in this process, where it would exec Python and import Ray once more."""
    execute = os.execvp

    def continue_here(file: str, args: list[str]) -> None:
        words = shlex.split(args[-1])
        again = ForkRequest(words[2:], dict(os.environ), os.getcwd(), {})
        python = list(args[:-1]) == ["bash", "-c"] and words[:2] == ["exec", sys.executable]
        if not python or not _can_be_forked(again):
            execute(file, args)
        os.execvp = execute
        run(again)
        raise SystemExit

    os.execvp = continue_here  # type: ignore[assignment]


def preload(modules: Sequence[str] = PRELOADED) -> None:
    """Import the modules that the job's processes will need."""
    for module in modules:
        with contextlib.suppress(Exception):  # a process that needs it will say why it can't be imported
            importlib.import_module(module)
    gc.collect()
    gc.freeze()


def _preload_for_workers(first: ForkRequest) -> None:
    """Import the modules of Ray's workers, in the environment of the first of them."""
    handed = [text.removeprefix(CONTEXT) for text in first.arguments if text.startswith(CONTEXT)]
    variables = json.loads(handed[0]).get("env_vars") or {} if handed else {}
    _take_environment({**first.environment, **variables})
    preload(WORKERS_PRELOADED)


@dataclass(frozen=True)
class Forks:
    """A running fork server: path of the script that replaces Python, and the server's process, a group leader."""

    python: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End the server and all that it forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def fork_server(environment: Mapping[str, str]) -> Iterator[Forks | None]:
    """Run a server that imports in the background for as long as the context lasts; all that it forked ends with it.

    Yields the server, which may still be importing: requests wait for it. None where no script may be executed in the
    folder for temporary files, or not by Ray.
    """
    folder = Path(tempfile.mkdtemp(prefix="av-"))
    script, address = folder / SCRIPT, folder / SOCKET
    words = [sys.executable, "-S", "-E", client.__file__, str(address), sys.executable]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    script.chmod(0o700)
    if not os.access(script, os.X_OK) or shell_problem(str(script)):  # mounted so, or of a name that Ray can't start
        shutil.rmtree(folder, ignore_errors=True)
        yield None
        return
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen(64)  # requests wait from now on
        descriptor = listening.fileno()
        nothing = subprocess.DEVNULL
        server = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(descriptor), str(script), str(os.getpid())],
            env=dict(environment),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
            pass_fds=[descriptor],
        )
    forks = Forks(str(script), server)
    try:
        yield forks
    finally:
        forks.stop()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Command line: descriptor of a listening socket, the script that replaces Python, process of the starter."""
    descriptor, script, starter = sys.argv[1:]
    signal_at_parent_end(signal.SIGKILL)
    if os.getppid() != int(starter):  # it ended before that
        return
    allow_open_files()  # Ray does it in its first process, for all that this one starts: here the server starts them
    server = ForkServer(socket.socket(fileno=int(descriptor)))
    preload()
    sys.executable = script
    multiprocessing.set_executable(script)
    run(server.serve())
    end_now()


if __name__ == "__main__":
    main()
