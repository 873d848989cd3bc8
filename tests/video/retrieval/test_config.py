"""Settings of retrieval."""

from typing import Any

import pytest

from agentic_video.config.typed import dataclass_from
from agentic_video.video.retrieval.config import RetrievalConfig


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
        dataclass_from(RetrievalConfig, setting, "agentic_video.retrieval")
