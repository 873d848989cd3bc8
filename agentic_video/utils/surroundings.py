"""Environment variables that a command finds: repaired, or refused in one line, before anything starts."""

import contextlib
import os
import pwd
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from urllib.parse import urlsplit

from agentic_video.utils.errors import SetupError
from agentic_video.utils.host import VISIBLE, visible_entries
from agentic_video.utils.imports import check_import_path
from agentic_video.utils.proxies import ask_directly

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Numbers of threads, which libraries read when they are loaded."""
OTHER_GPUS = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""AMD's lists. verl takes them for NVIDIA's, or refuses to start where there are both."""
OWN_CLUSTER = (
    "RAY_TMPDIR",
    "RAY_NAMESPACE",
    "RAY_OVERRIDE_RESOURCES",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_CLIENT_MODE",
)
"""Variables of another Ray cluster, which a job's own cluster may not have."""
PLUGINS = {"VLLM_PLUGINS": {"agentic_video"}, "VERL_USE_EXTERNAL_PLUGINS": {"agentic_video", "auto"}}
"""Lists of plugins, each with the entries that load this package's."""
OPEN_FILES, LEAST_OPEN_FILES = 65536, 1024
"""Open files that Ray allows its processes, and that a job needs at least."""


_PROBLEM = "problem: "
_READ_VLLM = f"""
import os, sys
try:
    import vllm.envs
    for name in sys.argv[1:]:
        vllm.envs.environment_variables.get(name, str)()
except Exception as error:
    name = locals().get("name") or ", ".join(f"{{one}}={{os.environ[one]}}" for one in sys.argv[1:])
    while error.__cause__ is not None:
        error = error.__cause__
    reason = " ".join(str(error).split())[:300]
    shown = f"{{name}}={{os.environ[name]}}" if name in os.environ else name
    print(f"{_PROBLEM}{{shown}}: vLLM can't read it ({{reason}}); set it to another value, or not at all", flush=True)
"""
_QUIET = {"VLLM_NO_USAGE_STATS": "1"}


def use_utf8() -> None:
    """Have this process and its children read and write UTF-8, in any locale; an ASCII terminal gets escapes.

    Where Python has read names of files in another encoding already, this process starts again.
    """
    if not sys.flags.utf8_mode and sys.getfilesystemencoding().lower().replace("-", "") != "utf8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):  # it was replaced, or closed
            if stream.encoding.lower().replace("-", "") != "utf8":
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    os.environ["PYTHONUTF8"] = "1"
    os.environ.pop("PYTHONIOENCODING", None)


def prepare(environment: MutableMapping[str, str]) -> None:
    """Repair this process's environment; a SetupError names a variable that can't be used."""
    _name_user(environment)
    _count_threads(environment)
    _hide_gpus(environment)
    _leave_old_cluster(environment)
    _check_plugins(environment)
    ask_directly(environment, _cluster_hosts(environment))
    if path := environment.get("PYTHONPATH"):
        # processes of a job have working folders of their own
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(entry) for entry in path.split(os.pathsep))
        check_import_path(environment["PYTHONPATH"])
    allow_open_files()


def allow_open_files() -> None:
    """Let this process, and its children, have as many files open as the system allows, or raise a SetupError."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if most != unlimited and most < LEAST_OPEN_FILES:
        raise SetupError(
            f"ulimit -n: {most} open files are allowed, and a job needs {LEAST_OPEN_FILES}: raise the hard limit "
            "(ulimit -Hn, limits.conf, docker --ulimit nofile=65536)"
        )
    wanted = OPEN_FILES if most == unlimited else min(OPEN_FILES, most)
    if now != unlimited and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def check_vllm_variables(environment: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Have vLLM read its own variables, which its engine would do after all else is built; raise a SetupError.

    Args:
        own: Variables that the job sets itself.
    """
    named = {name: value for name, value in environment.items() if name.startswith("VLLM_") and value}
    if not {name for name in named if name not in own}:
        return
    # a process of its own: vLLM imports torch, and fails at its import for some values
    command = [sys.executable, "-c", _READ_VLLM, *sorted(named)]
    done = subprocess.run(
        command, env={**environment, **own, **_QUIET}, capture_output=True, text=True, errors="replace", check=False
    )
    problem = next((line for line in done.stdout.splitlines() if line.startswith(_PROBLEM)), "")
    if problem:
        raise SetupError(problem.removeprefix(_PROBLEM))
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        raise SetupError(f"vLLM can't be imported with {', '.join(sorted(named))} as they are set: {said}")


def _name_user(environment: MutableMapping[str, str]) -> None:
    """Require a home, and set a user name, where the system knows none, as in containers."""
    with contextlib.suppress(KeyError):
        pwd.getpwuid(os.getuid())
        return
    environment.setdefault("USER", f"user-{os.getuid()}")
    if not environment.get("HOME"):
        raise SetupError("HOME: it isn't set, and the system knows no home of this user: set it to a folder of yours")


def _count_threads(environment: MutableMapping[str, str]) -> None:
    for name in THREADS:
        value = environment.get(name, "").strip()
        if not value:
            environment.pop(name, None)
        elif not re.fullmatch(r"[1-9]\d{0,5}(,[1-9]\d{0,5})*", value):
            raise SetupError(f"{name}={value}: must be a number of threads, e.g. {name}=4, or not be set")


def _hide_gpus(environment: MutableMapping[str, str]) -> None:
    """Write "no GPU" as Ray reads it: with an empty list it starts no cluster of one logical GPU."""
    for name in OTHER_GPUS:
        environment.pop(name, None)
    if visible_entries(environment) == []:
        environment[VISIBLE] = "-1"


def _leave_old_cluster(environment: MutableMapping[str, str]) -> None:
    if environment.get("RAY_ADDRESS", "").strip() in ("", "local"):
        for name in ("RAY_ADDRESS", *OWN_CLUSTER):
            environment.pop(name, None)


def _check_plugins(environment: MutableMapping[str, str]) -> None:
    """Refuse lists without this package's plugins, which would disable it silently."""
    for name, enough in PLUGINS.items():
        value = environment.get(name)
        if value is not None and not enough & {part.strip() for part in value.split(",")}:
            raise SetupError(f"{name}={value}: must list agentic_video, or not be set")


def _cluster_hosts(environment: MutableMapping[str, str]) -> Iterator[str]:
    """Yield the host of the named Ray cluster."""
    address = environment.get("RAY_ADDRESS", "")
    with contextlib.suppress(ValueError):
        host = urlsplit(address if "://" in address else f"ray://{address}").hostname
        if host and host != "auto":
            yield host
