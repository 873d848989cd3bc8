import json

import pytest
from omegaconf import OmegaConf

from agentic_video.planning.report import plan_summary, text_of, values_of
from agentic_video.utils.units import GIB
from tests.config.configs import composed
from tests.planning.plans import plan


def test_text_has_every_part_and_the_verdict_last() -> None:
    found = plan("videozoomer", 16)
    lines = text_of(found).splitlines()
    assert lines[0] == ("Qwen/Qwen2.5-VL-7B-Instruct, 8.29 billion parameters, on 16 x 80 GiB in 2 nodes of 1024 GiB")
    assert lines[-1] == "verdict: fits"
    for phase in found.gpu:
        for name, size in phase.parts.items():
            assert size < 0.05 * GIB or any(line.startswith(f"  {name} ") for line in lines), name
    for name, part in (*found.seconds.rollouts.items(), *found.seconds.trainer.items()):
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert f"{part.seconds:.1f} s" in line and part.kind in line


def test_json_adds_up() -> None:
    values = json.loads(json.dumps(values_of(plan("eva", 16))))
    for phase in (*values["gpu"], *values["host"]):
        assert sum(phase["parts"].values()) == pytest.approx(phase["total"])
    assert values["nodes"] == 2 and values["verdict"] == "fits"
    seconds = values["seconds"]
    for part in (*seconds["rollouts"].values(), *seconds["trainer"].values()):
        assert part["seconds"] > 0 and part["source"] and part["kind"] in ("measured", "derived", "guessed")
    assert seconds["trainer_in_all"] == pytest.approx(sum(part["seconds"] for part in seconds["trainer"].values()))
    assert seconds["step_at_least"] == pytest.approx(seconds["rollouts_at_least"] + seconds["trainer_in_all"])


def test_what_stock_verl_would_move_stands_beside_it() -> None:
    found = plan("videozoomer", 16)
    lines = text_of(found).splitlines()
    stock = lines[lines.index("moved of pixels by stock verl, as patches in float32") :]
    assert [words.split()[-2:] for words in stock[2:4]] == [["434.1", "GB"], ["1302.2", "GB"]]
    assert values_of(found)["stock_moved_bytes"]["into TransferQueue"] == 2048 * 88 * 512 * 1176 * 4


def test_beside_a_dry_run() -> None:
    config = composed("videobrain", "cluster")
    assert "verdict: fits\nother machines" in plan_summary(config)
    OmegaConf.set_struct(config, False)
    del config.agentic_video["plan"]
    assert plan_summary(config).startswith("no plan: agentic_video.plan: ")
