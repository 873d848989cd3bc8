"""Say what this machine and environment have, and what to do about what is missing; and each node of a Ray cluster."""

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from agentic_video.commands.install import lists_folder
from agentic_video.launch.node_report import differences, report_nodes
from agentic_video.training.patches import VERL_VERSION
from agentic_video.utils.cuda import driver_problem, driver_version, nvcc, nvcc_problem
from agentic_video.utils.devices import count_gpus
from agentic_video.utils.environment import DISTRIBUTION, cache_folder, output_folder
from agentic_video.utils.errors import SetupError
from agentic_video.utils.host import can_write, free_space, mount_of, object_store
from agentic_video.utils.resources import cpu_limit, memory_free, memory_limit
from agentic_video.utils.units import GIB

TAKES_OVERRIDES = False

LAPTOP_MEMORY = 9
"""GiB of free memory that the laptop job needs (docs/quickstart.md)."""
DEMANDING = ((DISTRIBUTION, ""), ("verl", "vllm"))
"""Distributions whose requirements must hold, each with the extra that is used of it."""
LIBRARIES = (("av", "av", True), ("decord", "decord", False), ("open_clip", "open_clip_torch", False))
"""Modules, their distributions, and whether nothing goes without them."""
ANSWER_SECONDS = 10.0
"""How long a file system may take to say how much is free on it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: ``agentic-video doctor`` has no options."""


def run(arguments: argparse.Namespace) -> int:
    """Look, and print what was found; see :func:`report`."""
    return report()


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        name: What was looked at.
        value: What was found.
        remedy: What to do about it; empty when all is well.
        note: What is good to know, where nothing has to be done.
    """

    name: str
    value: str
    remedy: str = ""
    note: str = ""


def installed(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def demanded(name: str) -> str:
    """The versions of a distribution that this package and verl take, as pip writes them; empty for any."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found = []
    for owner, extra in DEMANDING:
        try:
            texts = importlib.metadata.requires(owner) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for text in texts:
            one = Requirement(text)
            if canonicalize_name(one.name) == canonicalize_name(name) and (
                one.marker is None or one.marker.evaluate({"extra": extra})
            ):
                found += [str(part) for part in one.specifier]
    exact = [part for part in found if part.startswith("==")]
    return ",".join(sorted(set(exact or found)))


def tested(name: str, extra: str) -> str:
    """The version of a distribution that this version of the package was tested with; empty where none is known.

    Args:
        name: Of the distribution.
        extra: ``cpu`` or ``gpu``.
    """
    from packaging.utils import canonicalize_name

    lists = lists_folder()
    try:
        pins = [
            pin
            for kind in (extra, "flash-attn")
            for pin in (lists / f"requirements-{kind}.txt").read_text(encoding="utf-8").splitlines()
        ]
    except OSError:
        return ""
    # vLLM's CPU build is a distribution of another name
    names = {canonicalize_name(name), canonicalize_name(f"{name}-{extra}")}
    versions = [pin.partition(" ;")[0].partition("==")[2] for pin in pins if pin.partition("==")[0] in names]
    return versions[0] if versions else ""


def package(name: str, extra: str, remedy: str) -> Finding:
    """An installed distribution: whether its version is one that is needed, and whether it is the tested one.

    Args:
        name: Of the distribution.
        extra: ``cpu`` or ``gpu``: what this machine computes with.
        remedy: What to do where it is missing, or another version is needed.
    """
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    found = installed(name)
    if found is None:
        return Finding(name, "missing", remedy)
    wanted, known = demanded(name), tested(name, extra)
    try:
        if not SpecifierSet(wanted).contains(found, prereleases=True):
            return Finding(name, found, f"{name} {wanted} is needed: {remedy}")
        other = bool(known) and Version(found).public != known
    except InvalidVersion:
        other = True
    return Finding(name, found, note=f"tested with {known}" if other else "")


def findings() -> Iterator[Finding]:
    """Look at Python, GPUs, packages, decoders, memory, disks and a cluster's nodes, one after the other."""
    supported = (3, 11) <= sys.version_info[:2] <= (3, 12)
    yield Finding("python", platform.python_version(), "" if supported else "use Python 3.11 or 3.12")
    gpus = count_gpus()
    extra = "gpu" if gpus else "cpu"
    folder = ".venv-gpu" if gpus else ".venv"
    install = f"agentic-video install {extra}; in a clone: rm -r {folder} and start a recipe's script"
    yield Finding("GPUs", str(gpus) if gpus else "none: jobs run in the laptop profile")
    if gpus:
        yield Finding("driver", driver_version() or "unknown", driver_problem())
        compiler, release = nvcc()
        # vLLM compiles kernels when it starts
        yield Finding("nvcc", f"{release} ({compiler})" if compiler else "missing", nvcc_problem())
    for name in ("torch", "transformers", "ray", "vllm", "tensordict", "TransferQueue"):
        yield package(name, extra, install)
    verl = installed("verl")
    yield Finding(
        "verl",
        verl or "missing",
        "" if verl == VERL_VERSION else f"this package extends verl {VERL_VERSION}: {install}",
    )
    yield _plugin()
    if gpus:
        yield package("flash-attn", extra, install)
    elif platform.machine() == "x86_64":
        flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
        fast = "avx512f" in flags
        yield Finding(
            "CPU",
            f"{cpu_limit()} cores, AVX-512 {'yes' if fast else 'no'}",
            note="" if fast else "vLLM's CPU build was mostly tried with AVX-512; it ran without, too",
        )
    for module, distribution, needed in LIBRARIES:
        yield _imports(module, distribution, needed, extra, install)
    yield from _memory(gpus)
    cluster, machines = _cluster(os.environ)
    yield from _disks(machines)
    yield from cluster


def _memory(gpus: int) -> Iterator[Finding]:
    """Memory, shared memory, and what Ray would take of both."""
    limit, machine = memory_limit(), psutil.virtual_memory()
    free = memory_free()
    of = f"{limit / GIB:.1f} GiB free" + (" (this container's limit)" if limit < machine.total else "")
    yield Finding(
        "memory",
        f"{free / GIB:.1f} of {of}",
        "" if free >= LAPTOP_MEMORY * GIB else f"the laptop job needs {LAPTOP_MEMORY} GiB",
    )
    shared = Path("/dev/shm")
    yield _room("shared memory", shared, 2, "mount a larger /dev/shm (docker: --shm-size=4g)", write=False)
    store = object_store(free, (free_space(shared, ANSWER_SECONDS) or 0) if shared.is_dir() else 0)
    where = "on a disk, since /dev/shm is too small" if store.on_disk else "in /dev/shm"
    larger = "give /dev/shm 30 % of the memory (docker: --shm-size; Kubernetes: an emptyDir with medium: Memory)"
    yield Finding(
        "object store",
        f"Ray would take {store.size / GIB:.1f} GiB, {where}",
        larger if store.on_disk or (store.limited and gpus) else "",
        note="" if gpus or store.on_disk or not store.limited else "as much as /dev/shm has",
    )


def _disks(machines: int) -> Iterator[Finding]:
    """Report free space of the run and cache folders, and whether other machines see the former."""
    outputs, cache = output_folder(os.environ), cache_folder(os.environ)
    yield _room("disk", outputs, 5, "set OUTPUT_DIR to a folder that can be written and has room for checkpoints")
    yield _room("cache", cache, 1, "set XDG_CACHE_HOME to a folder that can be written, for tiny models and worlds")
    mount = mount_of(outputs)
    if mount is None:
        return
    if mount.network:
        value = f"{outputs} on {mount.kind}, a network file system"
        yield Finding("outputs", value, note="at the same path on every node it serves a cluster")
    else:
        value = f"{outputs} on {mount.kind}, this machine's own"
        remedy = "all nodes write checkpoints: set OUTPUT_DIR to a folder that they share" if machines > 1 else ""
        yield Finding("outputs", value, remedy, "" if remedy else "a cluster's nodes need one that they share")


def _cluster(environment: Mapping[str, str]) -> tuple[list[Finding], int]:
    """Each node of the Ray cluster that is named, if one is, and on how many machines a job would run."""
    wanted = environment.get("NNODES") or "1"
    machines = int(wanted) if wanted.isdecimal() else 1
    address = environment.get("RAY_ADDRESS")
    if not address:
        return [], machines
    try:
        nodes = report_nodes(address, environment)
    except SetupError as error:
        return [Finding("cluster", "not looked at", str(error))], machines
    found = [
        Finding("node", node.line(), "its logs are in /tmp/ray/session_latest/logs there" if node.problem else "")
        for node in nodes
    ]
    same = "start Ray on all nodes from the same environment"
    found += [Finding("packages", difference, same) for difference in differences(nodes)]
    return found, max(machines, len({node.name for node in nodes if node.name}))


def _plugin() -> Finding:
    names = [entry.name for entry in importlib.metadata.entry_points(group="verl.plugins")]
    if "agentic_video" not in names:
        return Finding(
            "verl plugin", "not registered", "install the package itself: pip install --no-deps . in a clone"
        )
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
    if policy != "auto" and "agentic_video" not in policy.split(","):
        return Finding("verl plugin", "switched off", "VERL_USE_EXTERNAL_PLUGINS must be auto or list agentic_video")
    try:
        importlib.import_module("agentic_video.training.plugin")
    except (Exception, SystemExit) as error:
        return Finding("verl plugin", "fails to load", str(error))
    return Finding("verl plugin", "loads")


def _imports(module: str, distribution: str, needed: bool, extra: str, install: str) -> Finding:
    found = installed(distribution)
    if found is None:
        return Finding(distribution, "missing", install if needed else "")
    try:
        importlib.import_module(module)
    except Exception as error:
        return Finding(distribution, f"{found}, fails to import: {error}", install if needed else "")
    return package(distribution, extra, install)


def _room(name: str, folder: Path, needed: int, remedy: str, *, write: bool = True) -> Finding:
    """Whether a folder has room."""
    try:
        space = free_space(folder, ANSWER_SECONDS)
        if write and can_write(folder, ANSWER_SECONDS) is None:
            space = None
    except OSError as error:
        cant = " can't be written" if write else ""
        return Finding(name, f"{folder}{cant}: {(error.strerror or str(error)).lower()}", remedy)
    if space is None:
        return Finding(name, f"{folder} doesn't answer", "is its file system mounted and alive?")
    if not write and not folder.is_dir():
        return Finding(name, f"{folder} doesn't exist", remedy)
    free = space / GIB
    return Finding(name, f"{free:.1f} GiB free {'for' if write else 'in'} {folder}", "" if free >= needed else remedy)


def report() -> int:
    """Print the findings.

    Returns:
        Exit status: 1 when something is missing.
    """
    missing = 0
    for finding in findings():
        print(f"{'!!' if finding.remedy else 'ok'} {finding.name:15} {finding.value}")
        if finding.remedy:
            missing += 1
            print(f"   {'':15} -> {finding.remedy}")
        if finding.note:
            print(f"   {'':15} ({finding.note})")
    return int(missing > 0)
