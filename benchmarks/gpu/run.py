"""A verdict on a GPU, from one command: ``python benchmarks/gpu/run.py``.

Each cell is measured in a process of its own, with a time limit; one that fails stops no other. Passed cells are
kept, and the same command continues with the rest. Nothing is downloaded. Without a GPU the same measurements run small
on the CPU, which tries this program and says nothing about a GPU.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV  # noqa: E402
from agentic_video.utils.errors import SetupError, one_line  # noqa: E402
from agentic_video.utils.workdir import write_whole  # noqa: E402
from benchmarks.gpu import results  # noqa: E402
from benchmarks.gpu.machine import Skip, find_device, run_script  # noqa: E402

PLUGIN = "agentic_video.training.plugin"
ALONE_ENV = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": "127.0.0.1"}
SHOWN = 300
"""Longest reason in characters."""


def environment_of(device: str) -> dict[str, str]:
    """Environment variables of a cell's process."""
    environment = {**os.environ, **COMMON_ENV, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    path = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(path)
    if device == "cpu":
        environment |= LAPTOP_ENV
    else:
        # One GPU, and perhaps no network at all: whatever wants an address gets this machine's own.
        for name, value in ALONE_ENV.items():
            environment.setdefault(name, value)
        for name in LAPTOP_ENV:
            if name not in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS"):
                environment.pop(name, None)
    if not any(plugin.value == PLUGIN for plugin in entry_points(group="verl.plugins")):
        # run from a checkout that isn't installed
        environment["VERL_USE_EXTERNAL_MODULES"] = PLUGIN
    return environment


def run_cell(name: str, device: str, out: Path, layers: Sequence[int]) -> int:
    """Measure a cell in this process, and write ``state``, ``reason`` and ``result`` to its file."""
    from benchmarks.gpu.cells import cells_for

    cell = next(cell for cell in cells_for(device, layers) if cell.name == name)
    entry: dict[str, Any] = {"state": "failed", "reason": "", "result": None}
    try:
        entry["result"] = cell.make(out / "scratch", device, **cell.parameters)
        entry["reason"] = cell.check(entry["result"])
        entry["state"] = "failed" if entry["reason"] else "passed"
    except Skip as reason:
        entry |= {"state": "skipped", "reason": one_line(reason)[:SHOWN]}
    except Exception as error:
        traceback.print_exc()
        entry["reason"] = one_line(f"{type(error).__name__}: {error}")[:SHOWN]
    write_whole(out / "cells" / f"{name}.json", [json.dumps(entry)])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads and processes of vLLM's or torch's that wouldn't end keep no other cell waiting.
    os._exit(0)


def measure(name: str, device: str, out: Path, layers: Sequence[int], limit: float) -> dict[str, Any]:
    """A cell in a process of its own: its entry, without parameters."""
    file, log = out / "cells" / f"{name}.json", out / "logs" / f"{name}.log"
    file.unlink(missing_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", name, "--device", device, "--out", str(out)]
    command += ["--layers", *map(str, layers)]
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as written:
        process = subprocess.Popen(
            command,
            env=environment_of(device),
            cwd=REPOSITORY,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timed_out = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            end_group(process)
    taken = {"seconds": round(time.monotonic() - started, 1), "log": str(log)}
    if file.is_file():
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return {**found, **taken}
    if timed_out:
        return {"state": "timeout", "reason": f"took longer than {limit:.0f} s", "result": None, **taken}
    return {"state": "failed", "reason": f"status {process.returncode}: {last_line(log)}", "result": None, **taken}


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """End a cell's process group, which vLLM's and Ray's processes belong to."""
    for kind, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 30.0)):
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.1)
    process.wait()


def last_line(log: Path) -> str:
    """The last line of a log that isn't empty."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:SHOWN] if lines else "it said nothing"


def chosen(names: Sequence[str], asked: Sequence[str]) -> list[str]:
    """The cells whose names begin with one of the given prefixes; all without prefixes."""
    for prefix in asked:
        if not any(name.startswith(prefix) for name in names):
            raise SetupError(f"--cells {prefix}: no such cell; there are {', '.join(names)}")
    return [name for name in names if not asked or name.startswith(tuple(asked))]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="%(default)s")
    made.add_argument("--out", type=Path, help="folder of results (outputs/gpu on a GPU, outputs/gpu-cpu without)")
    made.add_argument("--cells", nargs="+", default=[], metavar="NAME", help="only those whose names begin so")
    made.add_argument("--first", action="store_true", help="the few that decide most, in order (--list says what)")
    made.add_argument("--full", action="store_true", help="the long cells too")
    made.add_argument("--quick", action="store_true", help="without the long cells, as by default")
    made.add_argument("--again", action="store_true", help="measure what passed once more")
    made.add_argument("--layers", type=int, nargs="+", default=[2, 4], help="depths of the actor's model (%(default)s)")
    made.add_argument("--limit", type=float, default=0.0, help="seconds of a cell; 0: its own limit")
    made.add_argument("--budget", type=float, default=0.0, help="begin no cell that could end after so many seconds")
    made.add_argument("--list", action="store_true", help="name the cells, and what is known of them")
    made.add_argument("--table", type=Path, metavar="PAGE", help="measure nothing; put the tables into docs/gpu.md")
    made.add_argument("--measure", metavar="CELL", help=argparse.SUPPRESS)
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Command line; 1 if a requested cell neither passed nor was skipped."""
    arguments = parser().parse_args(words)
    if arguments.measure:
        return run_cell(arguments.measure, arguments.device, arguments.out, arguments.layers)
    try:
        about = find_device(arguments.device)
    except Skip as skipped:
        raise SetupError(f"--device {arguments.device}: {skipped}") from None
    device = about["device"]
    out = (arguments.out or Path("outputs/gpu" if device == "cuda" else "outputs/gpu-cpu")).resolve()
    file = out / "results.json"
    if arguments.table:
        known = results.read(file)
        if not known["cells"]:
            raise SetupError(f"{file}: nothing is measured yet")
        results.publish(arguments.table, known)
        print(f"{arguments.table}: {len(known['cells'])} cells")
        return 0
    # Imports torch and more, which --help doesn't wait for.
    from benchmarks.gpu.cells import FIRST, cells_for

    cells = [cell for cell in cells_for(device, arguments.layers) if arguments.full or not cell.long or arguments.cells]
    if arguments.first:
        order = list(FIRST)
        cells = sorted((cell for cell in cells if cell.name in FIRST), key=lambda one: order.index(one.name))
    names = chosen([cell.name for cell in cells], arguments.cells)
    cells = [cell for cell in cells if cell.name in names]
    print(f"{device}: {results.described(about)}", flush=True)
    if elsewhere := results.others(results.read(file), about):
        raise SetupError(f"{file} has cells of {elsewhere} Give this one's another folder with --out")
    deadline = time.monotonic() + arguments.budget if arguments.budget else float("inf")
    for cell in cells:
        known = results.read(file)
        if results.is_done(known, cell.name, cell.parameters) and not arguments.again:
            print(f"{cell.name}: passed before", flush=True)
            continue
        if arguments.list:
            decides = f" ({FIRST[cell.name]})" if arguments.first else ""
            print(f"{cell.name}: {known['cells'].get(cell.name, {}).get('state', 'not run')}{decides}")
            continue
        limit = arguments.limit or cell.seconds
        if time.monotonic() + limit > deadline:
            print(f"{cell.name}: not begun, the budget of {arguments.budget:.0f} s is nearly spent", flush=True)
            continue
        entry = measure(cell.name, device, out, arguments.layers, limit)
        results.note(file, cell.name, {**entry, "parameters": dict(cell.parameters)}, about)
        reason = f": {entry['reason']}" if entry["reason"] else ""
        print(f"{cell.name}: {entry['state']} in {entry['seconds']:.0f} s{reason}", flush=True)
    known = results.read(file)
    if arguments.list:
        return 0
    if known["cells"]:
        write_whole(out / "results.md", [results.tables(known), "\n"])
        print(f"\n{results.tables(known)}\n\nfigures: {file}\ntables: {out / 'results.md'}")
    print(results.verdict(known, names))
    return int(any(known["cells"].get(name, {}).get("state") not in ("passed", "skipped") for name in names))


if __name__ == "__main__":
    run_script(main)
