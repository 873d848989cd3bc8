"""The transfer queue of a run that goes on, cleared of what its checkpoint had been trained on."""

from typing import Any

import pytest
import transfer_queue

from agentic_video.training.ppo.restored import Restored

PROMPT = {"is_prompt": True}


class Stock:
    """verl's trainer, as far as it loads a checkpoint."""

    def __init__(self, step: int) -> None:
        self.step = step

    def _load_checkpoint(self) -> None:
        self.global_steps = self.step


class Trainer(Restored, Stock):
    pass


@pytest.mark.parametrize("step", [0, 4])
def test_what_was_trained_on_does_not_come_back(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[str, dict[str, Any]] = {
        # a waits for its step, b is being played, c was trained on, and pad7 filled its batch up
        "train": {"a": PROMPT, "a_0_0": {}, "b": PROMPT, "b_0_0": {}, "c_0_0": {}, "c_1_1": {}, "pad7_0_0": {}},
        "val": {"d": PROMPT, "d_0_0": {}},
    }

    def clear(keys: list[str], partition_id: str) -> None:
        for key in keys:
            del held[partition_id][key]

    monkeypatch.setattr(transfer_queue, "kv_list", lambda: held)
    monkeypatch.setattr(transfer_queue, "kv_clear", clear)
    Trainer(step)._load_checkpoint()
    left = ["a", "a_0_0", "b", "b_0_0"] if step else list(held["train"])
    assert list(held["train"]) == left and list(held["val"]) == ["d", "d_0_0"]


def test_an_empty_queue_stays_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_queue, "kv_list", lambda: None)
    Trainer(4)._load_checkpoint()
