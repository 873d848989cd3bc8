"""Finished episodes as verl's transfer queue holds them."""

from types import SimpleNamespace
from typing import Any

from agentic_video.types.row import VideoQA
from tests.types.test_trajectory import FULL

QA = VideoQA(id="q", video="/v.mp4", question="What?", answer="it", answer_type="open_ended", data_source="toy")

Queue = dict[str, dict[str, Any]]
"""``extra_fields`` by key."""


def episode(acc: float, final: bool = True) -> dict[str, Any]:
    return {
        "video_qa": QA.to_row(),
        "trajectory": FULL.to_dict(),
        "reward_extra_info": {"reward": acc, "reward_key": round(1e4 * acc), "acc": acc},
        "final_output": final,
    }


def batch_of(keys: list[str], **tags: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(keys=keys, tags=[tags.get(key, {}) for key in keys], partition_id="val")
