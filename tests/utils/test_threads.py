import os
from types import SimpleNamespace
from typing import Any

import pytest

from agentic_video.utils.threads import VARIABLE, image_threads, take_image_threads


@pytest.mark.parametrize(
    ("engines", "cpus", "threads"), [(8, 128, 8), (8, 64, 4), (1, 16, 8), (1, 8, 4), (8, 8, 1), (0, 4, 2), (1, 1, 1)]
)
def test_half_of_an_engine_s_share(engines: int, cpus: int, threads: int) -> None:
    assert image_threads(engines, cpus) == threads


@pytest.mark.parametrize(
    ("gpus", "each", "before", "after"),
    [
        (8, 1, "1", "4"),  # 8 engines on 64 cores
        (8, 4, "1", "8"),  # 2 of them
        (8, 16, "1", "8"),  # one on two nodes
        (0, 1, "1", "1"),
        (8, 1, "3", "3"),
    ],
)
def test_a_node_s_share(monkeypatch: pytest.MonkeyPatch, gpus: int, each: int, before: str, after: str) -> None:
    nodes: list[dict[str, Any]] = [
        {"NodeID": "other", "Resources": {"GPU": 2.0}},
        {"NodeID": "here", "Resources": {"CPU": 64.0} | ({"GPU": float(gpus)} if gpus else {})},
    ]
    monkeypatch.setattr("ray.is_initialized", lambda: True)
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "here"))
    monkeypatch.setattr("agentic_video.utils.threads.cpu_limit", lambda: 64)
    monkeypatch.setenv(VARIABLE, before)
    take_image_threads(each)
    assert os.environ[VARIABLE] == after
