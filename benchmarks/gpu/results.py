"""Finished cells in one json, and as tables of a page."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentic_video.utils.workdir import write_whole
from benchmarks.tables import table

Entry = Mapping[str, Any]
STATES = ("passed", "failed", "skipped", "timeout")
BEGIN, END = "<!-- {} results -->", "<!-- end of {} results -->"
"""Markers of a page: a kind of device, and within it one device by its name."""
NOT_RUN = {
    "cuda": "Not run on a GPU yet.",
    "cpu": "Not run yet.",
}


def read(file: Path) -> dict[str, Any]:
    """The json of a folder, empty where there is none."""
    if not file.is_file():
        return {"facts": {}, "cells": {}}
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def note(file: Path, name: str, entry: Entry, facts: Mapping[str, Any]) -> None:
    """Put a cell's entry into the json, which is there as a whole at any moment."""
    known = read(file)
    known["facts"] = dict(facts)
    known["cells"][name] = dict(entry)
    write_whole(file, [json.dumps(known, indent=1), "\n"])


def others(known: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Description of another machine or other versions that a folder's cells were measured with; empty for none."""
    before = known["facts"]
    if not known["cells"] or all(before.get(key) == facts[key] for key in ("device", "name", "packages")):
        return ""
    return described(before)


def is_done(known: Mapping[str, Any], name: str, parameters: Mapping[str, Any]) -> bool:
    """Return True if a cell passed with these parameters."""
    entry = known["cells"].get(name)
    wanted = json.loads(json.dumps(parameters))
    return bool(entry) and entry["state"] == "passed" and entry["parameters"] == wanted


def gib(size: float | None) -> str:
    """Bytes as GiB."""
    return "" if size is None else f"{size / 2**30:.1f}"


def seconds(value: float) -> str:
    """Seconds, or milliseconds where they are few."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def rows_actor(result: Entry) -> list[list[str]]:
    """Rows of :func:`benchmarks.gpu.measure.actor_update`: one for each depth."""
    rows = []
    for depth in result["depths"]:
        memory = [gib(depth.get("resident")), gib(depth.get("peak_allocated"))]
        rate = [f"{depth['seconds']:.2f}", f"{depth['tokens_per_second']:.0f}"]
        rows.append([str(depth["layers"]), str(depth["tokens"]), *memory, *rate, depth["attention"]])
    return rows


def rows_vllm(result: Entry) -> list[list[str]]:
    """Rows of :func:`benchmarks.gpu.measure.vllm_turns`: one a turn."""
    rows = []
    for number, turn in enumerate(result["turns"], start=1):
        took = [f"{turn['seconds']:.2f}", f"{turn['slowest']:.2f}", f"{turn['cached_share']:.0%}"]
        capacity = str(result["kv_tokens"]) if number == 1 else ""
        rows.append([str(number), str(turn["new_images"]), str(turn["prompt_tokens"]), *took, capacity])
    return rows


def rows_patchify(result: Entry) -> list[list[str]]:
    """Rows of :func:`benchmarks.gpu.measure.patchify_frames`."""
    return [
        [
            str(row["images"]),
            seconds(row["processor_seconds"]),
            seconds(row["device_seconds"]),
            f"{row['max_difference']:.1e}",
            f"{row['megabytes_uint8']:.1f} / {row['megabytes_patches']:.1f}",
        ]
        for row in result["counts"]
    ]


def rows_sleep(result: Entry) -> list[list[str]]:
    """A row of :func:`benchmarks.gpu.measure.sleep_and_wake`."""
    kept = f"{len(result['kept'])}, {sum(result['kept']) / 2**20:.1f} MiB" if result["slept"] else "it didn't sleep"
    return [[f"{result['difference']:.1e}", f"{result['adapter']:.1e}" if result["lora_rank"] else "", kept]]


TABLES: Mapping[str, tuple[str, str, Callable[[Entry], list[list[str]]]]] = {
    "agreement": (
        "Rollout against actor",
        "tokens, images, mean difference, largest, mean of logs, Pearson of logs, attention",
        lambda result: [
            [
                *(str(result[key]) for key in ("tokens", "images")),
                *(f"{result[key]:.1e}" for key in ("mean", "max", "mean_log")),
                f"{result['pearson_log']:.6f}",
                result["attention"],
            ]
        ],
    ),
    "actor": (
        "Actor update",
        "layers, tokens, resident GiB, peak GiB, seconds, tokens/s, attention",
        rows_actor,
    ),
    "pixels": (
        "Waits for pixels",
        "pass, seconds, waited, share of both",
        lambda result: [
            [row["pass"], f"{row['seconds']:.2f}", f"{row['waited']:.2f}", f"{result['share']:.1%}"]
            for row in result["passes"]
        ],
    ),
    "vllm": (
        "vLLM over turns",
        "turn, new images, prompt tokens, seconds, slowest, cached, KV cache in tokens",
        rows_vllm,
    ),
    "sleep": (
        "Before and after sleep",
        "largest difference of logs, an adapter's mean effect, tensors kept",
        rows_sleep,
    ),
    "patchify": (
        "Frames to patches",
        "frames, image processor, on the device, largest difference, MB uint8 / float32 patches",
        rows_patchify,
    ),
    "encoder": (
        "Encoder",
        "batch, frames/s, network alone frames/s",
        lambda result: [
            [str(row["batch"]), f"{row['frames_per_second']:.0f}", f"{row['network_per_second']:.0f}"]
            for row in result["batches"]
        ],
    ),
    "toyworld": (
        "The toy world, end to end",
        "profile, steps, mean difference, Pearson, seconds of the last step, seconds in all",
        lambda result: [
            [
                *(str(result[key]) for key in ("profile", "steps")),
                f"{result['difference']:.1e}",
                f"{result['pearson']:.6f}",
                f"{result['step_seconds'][-1]:.1f}",
                f"{result['seconds']:.0f}",
            ]
        ],
    ),
}
"""By group of cells: title, head and rows."""


def tables(known: Mapping[str, Any]) -> str:
    """All results, and the cells that didn't pass with the reason."""
    entries: Mapping[str, Entry] = known["cells"]
    facts = known["facts"]
    parts = [described(facts)]
    for group, (title, head, rows_of) in TABLES.items():
        rows = [
            row
            for name, entry in entries.items()
            if name.partition("-")[0] == group and entry.get("result")
            for row in [[name, *cells] for cells in rows_of(entry["result"])]
        ]
        if rows:
            parts.append(f"### {title}\n\n{table(['cell', *head.split(', ')], rows)}")
    rest = [[name, entry["state"], entry["reason"]] for name, entry in entries.items() if entry["state"] != "passed"]
    if rest:
        parts.append(f"### What did not pass\n\n{table(('cell', 'state', 'reason'), rest)}")
    return "\n\n".join(parts)


def described(facts: Mapping[str, Any]) -> str:
    """The machine and versions, in a line."""
    packages = ", ".join(f"{name} {found or 'not installed'}" for name, found in facts["packages"].items())
    driver = f"driver {facts['driver']}, CUDA {facts['cuda']}, " if facts["device"] == "cuda" else ""
    return f"{facts['name']}, {facts['memory_gib']} GiB; {driver}Python {facts['python']}, {packages}."


def verdict(known: Mapping[str, Any], names: Sequence[str]) -> str:
    """The last line of a run: how many of the named cells passed."""
    entries = known["cells"]
    states = {name: entries[name]["state"] if name in entries else "not run" for name in names}
    passed = [name for name, state in states.items() if state == "passed"]
    said = [f"verdict: {len(passed)} of {len(names)} cells passed"]
    for state in (*STATES[1:], "not run"):
        if found := [name for name, found_state in states.items() if found_state == state]:
            said.append(f"{len(found)} {state} ({', '.join(found)})")
    return "; ".join(said)


def publish(page: Path, known: Mapping[str, Any]) -> None:
    """Put the tables between the page's markers of their kind of device; those of other GPUs stay."""
    kind = known["facts"].get("device", "cuda")
    text = page.read_text(encoding="utf-8")
    head, inside, tail = between(text, kind)
    if inside is None:
        raise ValueError(f"{page}: the lines {BEGIN.format(kind)} and {END.format(kind)} must be there once")
    if not known["cells"]:
        inside = NOT_RUN[kind]
    else:
        device = known["facts"]["name"]
        block = f"{BEGIN.format(device)}\n{tables(known)}\n{END.format(device)}"
        before, own, after = between(inside, device)
        if own is None:
            before = f"{inside}\n\n" if BEGIN.partition("{}")[0] in inside else ""
        inside = f"{before}{block}{after}"
    write_whole(page, [f"{head}{BEGIN.format(kind)}\n{inside}\n{END.format(kind)}{tail}"])


def between(text: str, name: str) -> tuple[str, str | None, str]:
    """Text before, between and after the markers of a name; None between unless both are there once."""
    begin, end = BEGIN.format(name), END.format(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        return text, None, ""
    head, _, rest = text.partition(begin)
    inside, _, tail = rest.partition(end)
    return head, inside.strip("\n"), tail
