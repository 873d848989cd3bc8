"""Rates from cells, by hand, and files that can't be used."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentic_video.planning.rates import (
    Depth,
    MeasuredTurn,
    Parameters,
    Rates,
    actor_work,
    encoder_operations,
    rates_in,
    shipped,
    shipped_rates,
    turn_work,
)
from agentic_video.utils.errors import SetupError
from tests.docs.tables import REPOSITORY, rows_of

SEVEN = {"model": "qwen2.5-vl-7b", "fused": True, "episodes": 2}


def cell(parameters: Any, result: Any, state: str = "passed") -> dict[str, Any]:
    return {"state": state, "reason": "", "parameters": parameters, "result": result}


def actor(two: float, four: float, **parameters: Any) -> dict[str, Any]:
    depths = [
        {"layers": layers, "tokens": 16_384, "images": 64, "seconds": taken, "attention": "sdpa"}
        for layers, taken in ((2, two), (4, four))
    ]
    return cell({**SEVEN, **parameters}, {"depths": depths, "problem": ""})


def turn(prompt: int, old: int, cached: float, slowest: float) -> dict[str, Any]:
    return {
        "new_images": 4, "prompt_tokens": prompt, "old_tokens": old, "cached_share": cached, "slowest": slowest,
    }  # fmt: skip


def rates(tmp_path: Path, cells: Any, name: str = "NVIDIA H100 80GB HBM3") -> Rates:
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"facts": {"name": name}, "cells": cells}))
    return rates_in(file)


def test_two_depths_give_both_rates_of_an_update(tmp_path: Path) -> None:
    found = rates(tmp_path, {"actor-x": actor(2.0, 2.5)})
    one, two = (
        actor_work(Parameters("qwen2.5-vl-7b", fused=True), Depth(layers, 16_384, 64, 1.0)) for layers in (2, 4)
    )
    # two more layers: eight operations a token and parameter, and four and a half passes of attention
    more = 8 * 2 * 233_057_792 * 16_384 + 4.5 * 2 * 2 * 16_384**2 * 3584
    assert two.decoder - one.decoder == more and two.bytes - one.bytes == 96 * 2 * 233_057_792
    assert found.decoder.value == pytest.approx(more / (0.5 - 96 * 2 * 233_057_792 / 3.35e12))
    assert (found.decoder.kind, found.decoder.source) == ("measured", "actor-x, NVIDIA H100 80GB HBM3")
    assert (found.seconds(one), found.seconds(two)) == (pytest.approx(2.0), pytest.approx(2.5))
    assert found.engine == shipped_rates().engine and found.memory.value == 3.35e12


def test_the_first_turn_gives_an_engine_s_rate(tmp_path: Path) -> None:
    turns = [turn(1000, 0, 0.0, 2.0), turn(1700, 1100, 0.6, 3.0)]
    found = rates(tmp_path, {"vllm-x": cell(SEVEN, {"turns": turns})}, "NVIDIA H200")
    # two episodes: 1,000 tokens and 4 x 512 patches; then 100 passes read the language model and two caches
    operations = 2 * 28 * 233_057_792 * 1000 + 2 * 1000**2 * 3584 * 28 + 2 * 4 * 512 * 32 * 19_702_200
    read = 100 * (2 * (28 * 233_057_792 + 152_064 * 3584 + 3584) + 2 * 1000 * 57_344)
    assert found.engine.value == pytest.approx(2 * operations / (2.0 - read / 4.8e12))
    assert found.decoder == shipped_rates().decoder


def test_an_encoder_s_best_batch(tmp_path: Path) -> None:
    batches = [
        {"batch": size, "frames_per_second": rate, "network_per_second": 9.0} for size, rate in ((8, 50.0), (32, 70.0))
    ]
    found = rates(tmp_path, {"encoder-siglip2": cell({"model": "ViT-B-16-SigLIP2"}, {"batches": batches})})
    assert found.encoder.value == pytest.approx(70 * 35.42e9) and found.encoder.kind == "measured"
    assert encoder_operations("ViT-SO400M-14-SigLIP-384") == encoder_operations("unknown") == 670.35e9


def test_the_toy_world_s_last_step_has_no_work(tmp_path: Path) -> None:
    found = rates(tmp_path, {"toyworld-videozoomer": cell({"steps": 3}, {"step_seconds": [40.0, 6.0, 5.0]})})
    assert found.steps.value == 1 / 5.0 and found.decoder == shipped_rates().decoder
    assert shipped_rates().steps.value == 1 / 6.7


def test_what_can_t_be_used_is_named_in_one_line(tmp_path: Path) -> None:
    def refused(cells: Any, *parts: str) -> None:
        with pytest.raises(SetupError) as caught:
            rates(tmp_path, cells)
        message = str(caught.value)
        assert "results.json" in message and "\n" not in message
        assert all(part in message for part in parts), message

    refused({}, "cells", "actor", "vllm")
    refused({"actor-x": actor(2.0, 2.5, lora_rank=8), "vllm-x": cell(SEVEN, None, "failed")}, "cells")
    refused({"actor-tiny": actor(2.0, 2.5, model="tiny")}, "cells")
    refused({"actor-x": actor(2.5, 2.0)}, "cells.actor-x.result.depths", "layers")
    refused({"actor-x": actor(2.0, 60.0)}, "cells.actor-x.result.depths[0].seconds", "decoder")
    broken = actor(2.0, 2.5)
    del broken["result"]["depths"][1]["seconds"]
    refused({"actor-x": broken}, "cells.actor-x.result.depths[1].seconds", "missing")
    refused({"vllm-x": cell(None, {})}, "cells.vllm-x.parameters")
    short = [turn(1000, 0, 0.0, 0.01), turn(1700, 1100, 0.6, 3.0)]
    refused({"vllm-x": cell(SEVEN, {"turns": short})}, "cells.vllm-x.result.turns[0].slowest")
    for text in ("{", "[]", "{}"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(SetupError, match=r"bad\.json"):
            rates_in(tmp_path / "bad.json")
    with pytest.raises(SetupError, match=r"none\.json"):
        rates_in(tmp_path / "none.json")


def test_shipped_figures_are_the_pages() -> None:
    page = rows_of((REPOSITORY / "docs" / "gpu.md").read_text(encoding="utf-8"))
    for run in shipped()["runs"]:
        for name, entry in run["cells"].items():
            rows = [row for row in page if row[0] == name]
            for depth in entry["result"].get("depths", ()):
                (row,) = [row for row in rows if row[1] == str(depth["layers"])]
                assert row[2] == str(depth["tokens"]) and float(row[6]) == pytest.approx(
                    depth["tokens"] / depth["seconds"], abs=1
                )
            for turn_, seconds in zip(entry["result"].get("turns", ()), ("6.80", "4.49", "4.70"), strict=False):
                (row,) = [row for row in page if len(row) > 5 and row[3] == str(turn_["prompt_tokens"])]
                assert row[5] == seconds == f"{turn_['slowest']:.2f}"
            if steps := entry["result"].get("step_seconds"):
                (row,) = [row for row in page if row[0] == name and len(row) == 7]
                assert row[5] == f"{steps[-1]:.1f}"
    speed = rows_of((REPOSITORY / "docs" / "performance.md").read_text(encoding="utf-8"))
    for codec, heights in shipped()["decoding"].items():
        for height, pair in heights.items():
            video = f"{codec}-{height}p-120min"
            store = {row[1]: int(row[3].replace(",", "")) for row in speed if row[0] == video}
            assert [store["overview"], store["zoom"]] == pair


def test_turns_after_the_first_compute_what_is_new() -> None:
    checked = [MeasuredTurn(**one) for one in (turn(1000, 0, 0.0, 2.0), turn(1700, 1100, 0.5, 3.0))]
    (first, _), (second, _) = (turn_work(Parameters("qwen2.5-vl-7b"), checked, number) for number in (0, 1))
    tower = 2 * 4 * 512 * 32 * 19_702_200
    each = 2 * 28 * 233_057_792
    assert first == each * 1000 + 2 * 1000**2 * 3584 * 28 + tower
    assert second == each * 850 + 4 * 850 * (850 + 425) * 3584 * 28 + tower
