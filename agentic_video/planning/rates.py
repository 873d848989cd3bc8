"""Rates that programs reached on a GPU, from cells of benchmarks/gpu: those in ``rates.yaml``, or in a results.json."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from agentic_video.planning.memory import BF16, FP32, Head, Precision, kv_bytes
from agentic_video.planning.shapes import ModelShape, published_shapes, shape_of
from agentic_video.planning.work import Work, attention, blocks, layers, optimizer, training
from agentic_video.types.schema import Natural, Positive, first_problem
from agentic_video.utils.errors import SetupError, one_line

Kind = Literal["measured", "derived", "guessed"]
Codec = Literal["h264", "hevc", "av1"]
Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SHIPPED = Path(__file__).with_name("rates.yaml")
FRAME = (448, 224)
"""Pixels of a frame in the cells."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of a cell."""

    model: str = ""
    fused: bool = False
    lora_rank: Natural = 0
    episodes: Positive = 1


@dataclass(frozen=True)
class Depth:
    """An optimizer step on one sequence, by a model of so many decoder layers."""

    layers: Positive
    tokens: Positive
    images: Positive
    seconds: Above0


@dataclass(frozen=True)
class MeasuredTurn:
    """A turn of parallel episodes; ``old_tokens`` are those before it."""

    new_images: Natural
    prompt_tokens: Positive
    old_tokens: Natural
    cached_share: Annotated[float, Field(ge=0, lt=1)]
    slowest: Above0


@dataclass(frozen=True)
class Batch:
    """Frames of a retrieval encoder."""

    frames_per_second: Above0


RESULTS: Mapping[str, tuple[str, Any]] = {
    "actor": ("depths", Annotated[list[Depth], Field(min_length=1)]),
    "vllm": ("turns", Annotated[list[MeasuredTurn], Field(min_length=2)]),
    "encoder": ("batches", Annotated[list[Batch], Field(min_length=1)]),
    "toyworld": ("step_seconds", Annotated[list[Above0], Field(min_length=2)]),
}
"""By group of cells: the key of a result, and its type."""


@dataclass(frozen=True)
class Rate:
    """Operations or bytes a second, how they are known, and from what."""

    value: float
    kind: Kind
    source: str


@dataclass(frozen=True)
class Rates:
    """Rates of a GPU: of :class:`Work`'s parts in an update, of prompts in an engine, of a retrieval encoder, of copies
    to main memory, of weights to engines, and of steps of a tiny model."""

    decoder: Rate
    tower: Rate
    memory: Rate
    engine: Rate
    encoder: Rate
    host: Rate
    weights: Rate
    steps: Rate

    def seconds(self, work: Work) -> float:
        """Seconds of an update's work on one GPU."""
        return work.decoder / self.decoder.value + work.tower / self.tower.value + work.bytes / self.memory.value


@cache
def shipped() -> Mapping[str, Any]:
    """What ``rates.yaml`` holds."""
    read: Mapping[str, Any] = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    return read


@cache
def shipped_rates() -> Rates:
    """Rates of the first run in ``rates.yaml``, with the memory of its first GPU."""
    facts = shipped()
    (name, size), guessed = next(iter(facts["memory"].items())), facts["guessed"]
    unknown = Rate(1.0, "guessed", "")
    rates = Rates(
        decoder=unknown,
        tower=unknown,
        memory=Rate(size, "guessed", f"{name}'s data sheet"),
        engine=unknown,
        encoder=Rate(guessed["encoder"], "guessed", "as fast as the vision tower"),
        host=Rate(guessed["host"], "guessed", "a third of PCIe 5"),
        weights=Rate(guessed["weights"], "guessed", "assumed"),
        steps=unknown,
    )
    first, second = (calibrated(run, str(SHIPPED), rates) for run in facts["runs"])
    return replace(first, memory=rates.memory, steps=second.steps)


def rates_in(path: Path) -> Rates:
    """Rates of a results.json; those whose cells it lacks are the shipped ones.

    Raises:
        SetupError: It can't be read, a cell is malformed, or it has none of use; names file and key.
    """
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SetupError(f"{path}: can't be read as JSON: {one_line(error)}") from error
    return calibrated(read, str(path), shipped_rates())


def calibrated(results: Any, place: str, rates: Rates) -> Rates:
    """Rates with those of a run's cells: of each kind the longest (the last) that passed, of a published model.

    Two depths of ``actor`` give the decoder's rate, what they leave the tower's. The first turn of ``vllm`` gives the
    engine's; replies are taken off at the memory's rate. The last step of ``toyworld`` is one without work.
    """
    for key in ("facts", "cells"):
        if not isinstance(results, dict) or not isinstance(results.get(key), dict):
            raise SetupError(f"{place}: {key}: must be as benchmarks/gpu/run.py writes them")
    name = str(results["facts"].get("name", "a GPU"))
    for known, size in shipped()["memory"].items():
        if known in name:
            rates = replace(rates, memory=Rate(size, "guessed", f"{known}'s data sheet"))
    found: dict[str, Rate] = {}
    for cell, group, parameters, rows in _cells(results["cells"], place):
        key, source = f"{place}: cells.{cell}.result", f"{cell}, {name}"
        if group == "actor" and not parameters.lora_rank and len(rows) > 1:
            one, two = (actor_work(parameters, depth) for depth in (rows[0], rows[-1]))
            taken = rows[-1].seconds - rows[0].seconds - (two.bytes - one.bytes) / rates.memory.value
            more, problem = two.decoder - one.decoder, f"{key}.depths: seconds don't grow with layers"
            found["decoder"] = _measured(more, taken, source, problem)
            rest = one.decoder / found["decoder"].value + one.bytes / rates.memory.value
            problem = f"{key}.depths[0].seconds: the decoder alone takes {rest:.2g}"
            found["tower"] = _measured(one.tower, rows[0].seconds - rest, source, problem)
        elif group == "vllm":
            operations, read = turn_work(parameters, rows, 0)
            problem = f"{key}.turns[0].slowest: shorter than its replies can take"
            found["engine"] = _measured(operations, rows[0].slowest - read / rates.memory.value, source, problem)
        elif group == "encoder" and parameters.model in shipped()["encoders"]:
            best = max(batch.frames_per_second for batch in rows)
            found["encoder"] = Rate(best * encoder_operations(parameters.model), "measured", source)
        elif group == "toyworld":
            found["steps"] = Rate(1 / rows[-1], "measured", source)
    if not found:
        groups = "actor (two depths, all weights) or vllm of a published model, encoder, toyworld"
        raise SetupError(f"{place}: cells: none passed of {groups}")
    return replace(rates, **found)


def _measured(amount: float, seconds: float, source: str, problem: str) -> Rate:
    if amount <= 0 or seconds <= 0:
        raise SetupError(problem)
    return Rate(amount / seconds, "measured", source)


def _cells(cells: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, Parameters, Any]]:
    """(name, group, parameters, rows of the result) of the cells that rates come from."""
    for name, entry in cells.items():
        group = name.partition("-")[0]
        if group not in RESULTS or not isinstance(entry, dict) or entry.get("state") != "passed":
            continue
        parameters = _checked(Parameters, entry.get("parameters"), f"{place}: cells.{name}.parameters")
        if group in ("encoder", "toyworld") or _published(parameters.model):
            key, kind = RESULTS[group]
            rows = entry["result"].get(key) if isinstance(entry.get("result"), dict) else None
            yield name, group, parameters, _checked(kind, rows, f"{place}: cells.{name}.result.{key}")


def _checked(kind: Any, values: Any, where: str) -> Any:
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        key, problem = first_problem(error)
        raise SetupError(f"{where}{'' if key.startswith('[') or not key else '.'}{key}: {problem}") from None


def _published(model: str) -> bool:
    return bool(model) and any(name.rpartition("/")[2].lower().startswith(model) for name in published_shapes())


def encoder_operations(model: str) -> float:
    """Operations of an image in a retrieval encoder, of an unknown one as many as of the largest known."""
    known: Mapping[str, float] = shipped()["encoders"]
    return 1e9 * known.get(model, max(known.values()))


def actor_work(parameters: Parameters, depth: Depth) -> Work:
    """An optimizer step of a cell ``actor``."""
    whole, rank = shape_of(parameters.model), parameters.lora_rank
    shape = replace(whole, text=replace(whole.text, layers=depth.layers))
    precision = Precision(BF16 if rank else FP32, rank)
    head = Head(parameters.fused, entropy=True)
    passed = training(shape, depth.tokens, _patches(shape, depth.images), precision, head, checkpointed=True)
    return passed + optimizer(shape, precision)


def turn_work(parameters: Parameters, turns: list[MeasuredTurn], number: int) -> tuple[float, float]:
    """(operations of prompts, least bytes that replies read) of an engine in a turn of a cell ``vllm``.

    A turn's first prompt tokens come from the prefix cache; replies are as long as that of the first turn.
    """
    shape, count, turn = shape_of(parameters.model), parameters.episodes, turns[number]
    old, said = turn.cached_share * turn.prompt_tokens, turns[1].old_tokens - turns[0].prompt_tokens
    new = turn.prompt_tokens - old
    prompts = layers(shape, new) + attention(shape.text, new, old) + blocks(shape, _patches(shape, turn.new_images))
    return count * prompts, said * (read_weights(shape) + count * turn.prompt_tokens * kv_bytes(shape.text))


def read_weights(shape: ModelShape) -> int:
    """Bytes of the language model that a forward pass reads, of an embedding its own rows alone."""
    return BF16 * (shape.language - (0 if shape.text.tied else shape.embedding))


def _patches(shape: ModelShape, images: int) -> float:
    return images * FRAME[0] * FRAME[1] / shape.vision.patch**2
