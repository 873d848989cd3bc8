"""Report what this machine, its environment and the nodes of a Ray cluster have, and remedies for what is missing."""

import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from agentic_video.commands.health import HealthCheck
from agentic_video.commands.install import lists_folder
from agentic_video.launch.cluster import differences, report_nodes
from agentic_video.training.seams.patches import VERL_VERSION
from agentic_video.utils.cuda import driver_problem, driver_version, nvcc, nvcc_problem
from agentic_video.utils.environment import DISTRIBUTION, cache_folder, output_folder
from agentic_video.utils.errors import SetupError
from agentic_video.utils.host import (
    can_write,
    count_gpus,
    cpu_limit,
    free_space,
    memory_free,
    memory_limit,
    mount_of,
    object_store,
)
from agentic_video.utils.units import GIB

LAPTOP_MEMORY = 9
"""GiB of free memory that the laptop job needs (docs/quickstart.md)."""
DEMANDING = ((DISTRIBUTION, ""), ("verl", "vllm"))
"""Distributions whose requirements must hold, each with the extra that is used of it."""
LIBRARIES = (("av", "av", True), ("decord", "decord", False), ("open_clip", "open_clip_torch", False))
"""Modules, their distributions, and whether they are required."""
ANSWER_SECONDS = 10.0
"""Time limit of a file system's answer."""


@dataclass(frozen=True, kw_only=True)
class DoctorArguments:
    """Report what this machine and its environment have, or what a checkpoint is."""

    model: Path | None = None
    """folder of a checkpoint: its family, what its processor and chat template do with each system's frames, and what
    would be refused"""


def run(options: DoctorArguments) -> int:
    """Print the report; returns the exit status: 1 when something is missing."""
    missing = 0
    if options.model is not None:
        from agentic_video.commands.checkpoint import checkpoint_checks  # loads transformers

        checks = checkpoint_checks(options.model.expanduser())
    else:
        checks = health_checks()
    for check in checks:
        print(f"{'!!' if check.remedy else 'ok'} {check.name:15} {check.value}")
        if check.remedy:
            missing += 1
            print(f"   {'':15} -> {check.remedy}")
        if check.note:
            print(f"   {'':15} ({check.note})")
    return int(missing > 0)


def installed(distribution: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def required_versions(name: str) -> str:
    """The versions of a distribution that this package and verl take, as pip writes them; empty for any."""
    found = []
    for owner, extra in DEMANDING:
        try:
            requirements = [Requirement(text) for text in importlib.metadata.requires(owner) or []]
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            applies = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if canonicalize_name(requirement.name) == canonicalize_name(name) and applies:
                found += [str(part) for part in requirement.specifier]
    exact = [part for part in found if part.startswith("==")]
    return ",".join(sorted(set(exact or found)))


def tested_version(name: str, extra: str) -> str:
    """The version of a distribution in the requirement lists; empty for one that isn't listed."""
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


def package(name: str, extra: str, remedy: str) -> HealthCheck:
    """Check the version of a distribution; ``extra`` is what this machine computes with, ``cpu`` or ``gpu``."""
    found = installed(name)
    if found is None:
        return HealthCheck(name, "missing", remedy)
    required, known = required_versions(name), tested_version(name, extra)
    try:
        if not SpecifierSet(required).contains(found, prereleases=True):
            return HealthCheck(name, found, f"{name} {required} is needed: {remedy}")
        other = bool(known) and Version(found).public != known
    except InvalidVersion:
        other = True
    return HealthCheck(name, found, note=f"tested with {known}" if other else "")


def health_checks() -> Iterator[HealthCheck]:
    """Check Python, GPUs, packages, decoders, memory, disks and a cluster's nodes."""
    supported = (3, 11) <= sys.version_info[:2] <= (3, 12)
    yield HealthCheck("python", platform.python_version(), "" if supported else "use Python 3.11 or 3.12")
    gpus = count_gpus()
    extra, folder = ("gpu", ".venv-gpu") if gpus else ("cpu", ".venv")
    install = f"agentic-video install {extra}; in a clone: rm -r {folder} and start a recipe's script"
    yield HealthCheck("GPUs", str(gpus) if gpus else "none: jobs run in the laptop profile")
    if gpus:
        yield HealthCheck("driver", driver_version() or "unknown", driver_problem())
        compiler, release = nvcc()
        # vLLM compiles kernels when it starts
        yield HealthCheck("nvcc", f"{release} ({compiler})" if compiler else "missing", nvcc_problem())
    for name in ("torch", "transformers", "ray", "vllm", "tensordict", "TransferQueue"):
        yield package(name, extra, install)
    verl = installed("verl")
    remedy = "" if verl == VERL_VERSION else f"this package extends verl {VERL_VERSION}: {install}"
    yield HealthCheck("verl", verl or "missing", remedy)
    yield _plugin()
    if gpus:
        yield package("flash-attn", extra, install)
    elif platform.machine() == "x86_64":
        cpuinfo = Path("/proc/cpuinfo")
        fast = "avx512f" in (cpuinfo.read_text().split() if cpuinfo.exists() else [])
        value = f"{cpu_limit()} cores, AVX-512 {'yes' if fast else 'no'}"
        yield HealthCheck("CPU", value, note="" if fast else "vLLM's CPU build was mostly tried with AVX-512")
    for module, distribution, needed in LIBRARIES:
        yield _library(module, distribution, needed, extra, install)
    yield from _memory(gpus)
    cluster, machines = _cluster(os.environ)
    yield from _disks(machines)
    yield from cluster


def _memory(gpus: int) -> Iterator[HealthCheck]:
    """Memory, shared memory, and what Ray would take of both."""
    limit, machine, free = memory_limit(), psutil.virtual_memory(), memory_free()
    total = f"{limit / GIB:.1f} GiB free" + (" (this container's limit)" if limit < machine.total else "")
    enough = free >= LAPTOP_MEMORY * GIB
    remedy = "" if enough else f"the laptop job needs {LAPTOP_MEMORY} GiB"
    yield HealthCheck("memory", f"{free / GIB:.1f} of {total}", remedy)
    shared = Path("/dev/shm")
    yield _room("shared memory", shared, 2, "mount a larger /dev/shm (docker: --shm-size=4g)", write=False)
    store = object_store(free, (free_space(shared, ANSWER_SECONDS) or 0) if shared.is_dir() else 0)
    where = "on a disk, since /dev/shm is too small" if store.on_disk else "in /dev/shm"
    larger = "give /dev/shm 30 % of the memory (docker: --shm-size; Kubernetes: an emptyDir with medium: Memory)"
    yield HealthCheck(
        "object store",
        f"Ray would take {store.size / GIB:.1f} GiB, {where}",
        larger if store.on_disk or (store.limited and gpus) else "",
        note="" if gpus or store.on_disk or not store.limited else "as much as /dev/shm has",
    )


def _disks(machines: int) -> Iterator[HealthCheck]:
    """Report free space of the run and cache folders, and whether other machines see the former."""
    outputs, cache = output_folder(os.environ), cache_folder(os.environ)
    yield _room("disk", outputs, 5, "set OUTPUT_DIR to a folder that can be written and has room for checkpoints")
    yield _room("cache", cache, 1, "set XDG_CACHE_HOME to a folder that can be written, for tiny models and worlds")
    mount = mount_of(outputs)
    if mount is None:
        return
    if mount.network:
        value = f"{outputs} on {mount.kind}, a network file system"
        yield HealthCheck("outputs", value, note="at the same path on every node it serves a cluster")
    else:
        value = f"{outputs} on {mount.kind}, this machine's own"
        remedy = "all nodes write checkpoints: set OUTPUT_DIR to a folder that they share" if machines > 1 else ""
        yield HealthCheck("outputs", value, remedy, "" if remedy else "a cluster's nodes need one that they share")


def _cluster(environment: Mapping[str, str]) -> tuple[list[HealthCheck], int]:
    """Each node of the Ray cluster at ``RAY_ADDRESS``, and on how many machines a job would run."""
    count = environment.get("NNODES") or "1"
    machines = int(count) if count.isdecimal() else 1
    address = environment.get("RAY_ADDRESS")
    if not address:
        return [], machines
    try:
        nodes = report_nodes(address, environment)
    except SetupError as error:
        return [HealthCheck("cluster", "not looked at", str(error))], machines
    logs = "its logs are in /tmp/ray/session_latest/logs there"
    found = [HealthCheck("node", node.line(), logs if node.problems else "") for node in nodes]
    same = "start Ray on all nodes from the same environment"
    found += [HealthCheck("packages", difference, same) for difference in differences(nodes)]
    return found, max(machines, len({node.name for node in nodes if node.name}))


def _plugin() -> HealthCheck:
    names = [entry.name for entry in importlib.metadata.entry_points(group="verl.plugins")]
    if "agentic_video" not in names:
        remedy = "install the package itself: pip install --no-deps . in a clone"
        return HealthCheck("verl plugin", "not registered", remedy)
    policy = os.environ.get("VERL_USE_EXTERNAL_PLUGINS", "auto")
    if policy != "auto" and "agentic_video" not in policy.split(","):
        remedy = "VERL_USE_EXTERNAL_PLUGINS must be auto or list agentic_video"
        return HealthCheck("verl plugin", "switched off", remedy)
    try:
        importlib.import_module("agentic_video.training.plugin")
    except (Exception, SystemExit) as error:
        return HealthCheck("verl plugin", "fails to load", str(error))
    return HealthCheck("verl plugin", "loads")


def _library(module: str, distribution: str, needed: bool, extra: str, install: str) -> HealthCheck:
    found = installed(distribution)
    if found is None:
        return HealthCheck(distribution, "missing", install if needed else "")
    try:
        importlib.import_module(module)
    except Exception as error:
        return HealthCheck(distribution, f"{found}, fails to import: {error}", install if needed else "")
    return package(distribution, extra, install)


def _room(name: str, folder: Path, needed: int, remedy: str, *, write: bool = True) -> HealthCheck:
    """Check the free space of a folder, in GiB, and whether it can be written."""
    try:
        space = free_space(folder, ANSWER_SECONDS)
        if write and can_write(folder, ANSWER_SECONDS) is None:
            space = None
    except OSError as error:
        cant = " can't be written" if write else ""
        return HealthCheck(name, f"{folder}{cant}: {(error.strerror or str(error)).lower()}", remedy)
    if space is None:
        return HealthCheck(name, f"{folder} doesn't answer", "is its file system mounted and alive?")
    if not write and not folder.is_dir():
        return HealthCheck(name, f"{folder} doesn't exist", remedy)
    free = space / GIB
    value = f"{free:.1f} GiB free {'for' if write else 'in'} {folder}"
    return HealthCheck(name, value, "" if free >= needed else remedy)
