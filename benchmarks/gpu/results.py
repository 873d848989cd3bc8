"""What is finished, in one json, and as tables of a page."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentic_video.utils.workdir import write_whole

Entry = Mapping[str, Any]
STATES = ("passed", "failed", "skipped", "timeout")
BEGIN, END = "<!-- {} results -->", "<!-- end of {} results -->"
"""Lines of a page: what is between them is of a kind of device, and within it of one device by its name."""
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
    """On what else a folder's cells were measured: another GPU or other versions; empty for the same or for none."""
    before = known["facts"]
    if not known["cells"] or all(before.get(key) == facts[key] for key in ("device", "name", "packages")):
        return ""
    return described(before)


def is_done(known: Mapping[str, Any], name: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a cell passed with these parameters."""
    entry = known["cells"].get(name)
    wanted = json.loads(json.dumps(parameters))
    return bool(entry) and entry["state"] == "passed" and entry["parameters"] == wanted


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [" | ".join(head), " | ".join("---" for _ in head), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def gib(size: float | None) -> str:
    """Bytes as GiB."""
    return "" if size is None else f"{size / 2**30:.1f}"


def seconds(value: float) -> str:
    """Seconds, or milliseconds where they are few."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def rows_agreement(name: str, result: Entry) -> list[list[str]]:
    """A row of :func:`benchmarks.gpu.measure.agreement`."""
    figures = [f"{result[key]:.1e}" for key in ("mean", "max", "mean_log")] + [f"{result['pearson_log']:.6f}"]
    return [[name, str(result["tokens"]), str(result["images"]), *figures, result["attention"]]]


def rows_actor(name: str, result: Entry) -> list[list[str]]:
    """Rows of :func:`benchmarks.gpu.measure.actor_update`: one for each depth, and the whole model as reckoned."""
    rows = []
    for one in result["depths"]:
        memory = [gib(one.get("resident")), gib(one.get("peak_allocated"))]
        rate = [f"{one['seconds']:.2f}", f"{one['tokens_per_second']:.0f}"]
        rows.append([name, str(one["layers"]), str(one["tokens"]), *memory, *rate, one["attention"]])
    if whole := result.get("whole"):
        memory = [gib(whole["resident"]), gib(whole["peak"])]
        label = f"{whole['layers']}, reckoned for {whole['gpus']} GPUs"
        rate = [f"{whole['seconds']:.2f}", f"{whole['tokens_per_second']:.0f}"]
        rows.append([name, label, rows[0][2], *memory, *rate, ""])
    return rows


def rows_vllm(name: str, result: Entry) -> list[list[str]]:
    """Rows of :func:`benchmarks.gpu.measure.vllm_turns`: one a turn."""
    return [
        [
            name if number == 1 else "",
            str(number),
            str(turn["new_images"]),
            str(turn["prompt_tokens"]),
            f"{turn['seconds']:.2f}",
            f"{turn['slowest']:.2f}",
            f"{turn['cached_share']:.0%}",
            str(result["kv_tokens"]) if number == 1 else "",
        ]
        for number, turn in enumerate(result["turns"], start=1)
    ]


def rows_patchify(name: str, result: Entry) -> list[list[str]]:
    """Rows of :func:`benchmarks.gpu.measure.patchify_frames`."""
    return [
        [
            name,
            str(row["images"]),
            seconds(row["processor_seconds"]),
            seconds(row["device_seconds"]),
            f"{row['max_difference']:.1e}",
            f"{row['megabytes_uint8']:.1f} / {row['megabytes_patches']:.1f}",
        ]
        for row in result["counts"]
    ]


def rows_encoder(name: str, result: Entry) -> list[list[str]]:
    """Rows of :func:`benchmarks.gpu.measure.encoder_batches`."""
    return [
        [name, str(row["batch"]), f"{row['frames_per_second']:.0f}", f"{row['network_per_second']:.0f}"]
        for row in result["batches"]
    ]


def rows_toyworld(name: str, result: Entry) -> list[list[str]]:
    """A row of :func:`benchmarks.gpu.toyworld.toyworld_run`."""
    last = result["step_seconds"][-1] if result["step_seconds"] else float("nan")
    figures = [f"{result['difference']:.1e}", f"{result['pearson']:.6f}", f"{last:.1f}", f"{result['seconds']:.0f}"]
    return [[name, result["profile"], str(result["steps"]), *figures]]


def rows_sleep(name: str, result: Entry) -> list[list[str]]:
    """A row of :func:`benchmarks.gpu.measure.sleep_and_wake`."""
    kept = f"{len(result['kept'])}, {sum(result['kept']) / 2**20:.1f} MiB" if result["slept"] else "it didn't sleep"
    adapter = f"{result['adapter']:.1e}" if result["lora_rank"] else ""
    return [[name, f"{result['difference']:.1e}", adapter, kept]]


TABLES: Mapping[str, tuple[str, Sequence[str], Callable[[str, Entry], list[list[str]]]]] = {
    "agreement": (
        "Rollout against actor",
        ("cell", "tokens", "images", "mean difference", "largest", "mean of logs", "Pearson of logs", "attention"),
        rows_agreement,
    ),
    "actor": (
        "Actor update",
        ("cell", "layers", "tokens", "resident GiB", "peak GiB", "seconds", "tokens/s", "attention"),
        rows_actor,
    ),
    "vllm": (
        "vLLM over turns",
        ("cell", "turn", "new images", "prompt tokens", "seconds", "slowest", "cached", "KV cache, tokens"),
        rows_vllm,
    ),
    "sleep": (
        "Before and after sleep",
        ("cell", "largest difference of logs", "an adapter's mean effect", "tensors kept"),
        rows_sleep,
    ),
    "patchify": (
        "Frames to patches",
        ("cell", "frames", "image processor", "on the device", "largest difference", "MB uint8 / float32 patches"),
        rows_patchify,
    ),
    "encoder": ("Encoder", ("cell", "batch", "frames/s", "network alone, frames/s"), rows_encoder),
    "toyworld": (
        "The toy world, end to end",
        ("cell", "profile", "steps", "mean difference", "Pearson", "seconds of the last step", "seconds in all"),
        rows_toyworld,
    ),
}
"""By group of cells: title, head and rows."""


def tables(known: Mapping[str, Any]) -> str:
    """Everything that was measured, and what was not and why."""
    entries: Mapping[str, Entry] = known["cells"]
    facts = known["facts"]
    parts = [described(facts)]
    for group, (title, head, rows_of) in TABLES.items():
        rows = [
            row
            for name, entry in entries.items()
            if name.partition("-")[0] == group and entry.get("result")
            for row in rows_of(name, entry["result"])
        ]
        if rows:
            parts.append(f"### {title}\n\n{table(head, rows)}")
    rest = [[name, entry["state"], entry["reason"]] for name, entry in entries.items() if entry["state"] != "passed"]
    if rest:
        parts.append(f"### What did not pass\n\n{table(('cell', 'state', 'reason'), rest)}")
    return "\n\n".join(parts)


def described(facts: Mapping[str, Any]) -> str:
    """On what was measured, in a line."""
    packages = ", ".join(f"{name} {found or 'not installed'}" for name, found in facts["packages"].items())
    driver = f"driver {facts['driver']}, CUDA {facts['cuda']}, " if facts["device"] == "cuda" else ""
    return f"{facts['name']}, {facts['memory_gib']} GiB; {driver}Python {facts['python']}, {packages}."


def verdict(known: Mapping[str, Any], names: Sequence[str]) -> str:
    """The last line of a run: whether what was asked for passed."""
    entries = known["cells"]
    states = {name: entries[name]["state"] if name in entries else "not run" for name in names}
    passed = [name for name, state in states.items() if state == "passed"]
    said = [f"verdict: {len(passed)} of {len(names)} cells passed"]
    for state in (*STATES[1:], "not run"):
        if found := [name for name, one in states.items() if one == state]:
            said.append(f"{len(found)} {state} ({', '.join(found)})")
    return "; ".join(said)


def publish(page: Path, known: Mapping[str, Any]) -> None:
    """Put the tables between the page's markers of their kind of device; those of other GPUs there stay.

    Raises:
        ValueError: The page has no such markers.
    """
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
    """What is before, between and after the markers of a name; None between where they aren't there once."""
    begin, end = BEGIN.format(name), END.format(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        return text, None, ""
    head, _, rest = text.partition(begin)
    inside, _, tail = rest.partition(end)
    return head, inside.strip("\n"), tail
