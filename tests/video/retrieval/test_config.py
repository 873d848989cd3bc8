"""Settings of retrieval."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agentic_video.config.settings import Settings, settings_of
from agentic_video.video.retrieval.config import RetrievalConfig

DEFAULTS = Path(__file__).resolve().parents[3] / "agentic_video" / "config" / "agentic_video_blocks.yaml"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"model": "ViT-B-16-SigLIP2"}, "pretrained"),
        ({"model": "local-dir:/models/clip", "pretrained": "webli"}, "pretrained must be empty"),
        ({"device": "gpu"}, "device"),
        ({"num_gpus": float("nan")}, "num_gpus"),
        ({"num_gpus": 0.5, "device": "cpu"}, "num_gpus"),
        ({"batch_size": 0}, "batch_size"),
        ({"wait_ms": -1.0}, "wait_ms"),
        ({"start_seconds": 0.0}, "start_seconds"),
    ],
)
def test_impossible_settings_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RetrievalConfig(**setting)


def settings(**retrieval: Any) -> Settings:
    system = {"_target_": "agentic_video.systems.videozoomer.system.VideoZoomer"}
    return settings_of(OmegaConf.create({"agentic_video": {"system": system, "retrieval": retrieval}}))


def test_the_yaml_lists_the_classes_own_defaults() -> None:
    block = OmegaConf.to_container(OmegaConf.load(DEFAULTS).agentic_video.retrieval)
    assert block == asdict(RetrievalConfig())


def test_settings_hold_the_block() -> None:
    assert settings(model="local-dir:/m", batch_size=4).retrieval == RetrievalConfig("local-dir:/m", batch_size=4)
    with pytest.raises(ValueError, match=r"agentic_video\.retrieval.*modle"):
        settings(modle="x")
    with pytest.raises(ValueError, match=r"agentic_video\.retrieval.*pretrained"):
        settings(model="ViT-B-32")
