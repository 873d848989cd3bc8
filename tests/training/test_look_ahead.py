from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.tensordict_utils import assign_non_tensor_data

from agentic_video.training.ppo.trainer import VideoAgentTrainer
from tests.config.configs import composed
from tests.training.workers import make_manager

ROWS = [{"raw_prompt": [{"role": "user"}], "video_qa": {"id": str(number)}, "number": number} for number in range(10)]


def loader() -> StatefulDataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    sampler = RandomSampler(ROWS, generator=generator)
    return StatefulDataLoader(ROWS, batch_size=1, sampler=sampler, collate_fn=collate_fn, drop_last=True)


def trainer(*overrides: str) -> VideoAgentTrainer:
    keys = ("data.train_files=none", "actor_rollout_ref.model.path=/models/m")
    sizes = ("data.train_batch_size=4", "+data.gen_batch_size=1", "agentic_video.oversample=1.0")
    made = VideoAgentTrainer(composed("videozoomer", "laptop", *keys, *sizes, *overrides))
    made.global_steps, made.total_training_steps = 1, 9
    made.train_dataloader, made.train_dataloader_it = loader(), None
    return made


def numbers(*batches: Any) -> list[int]:
    return [int(item) for batch in batches for item in batch["number"]]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    states: list[Any] = []
    monkeypatch.setattr(PPOTrainerSync, "on_sample_end", lambda self: None)
    monkeypatch.setattr(
        PPOTrainerSync, "_save_checkpoint", lambda self: states.append(self.train_dataloader.state_dict())
    )
    return states


def test_the_order_stays_and_a_checkpoint_counts_what_was_played(saved: list[Any]) -> None:
    """Three steps of four rows of ten: the third begins the second epoch."""
    ahead, drawn, found = trainer(), [], []
    ahead.agent_loop_manager = SimpleNamespace(prefetch=lambda *batches: drawn.append(numbers(*batches)))
    for _ in range(4):
        found.append(numbers(ahead._next_train_batch(4)))
        ahead.on_sample_end()
        ahead._save_checkpoint()
    assert found == batches(order(16)) and drawn == batches(order(20))[1:]
    # what goes on from the second checkpoint plays what came after the second batch
    resumed = trainer()
    resumed.train_dataloader.load_state_dict(saved[1])
    assert numbers(resumed._next_train_batch(2)) == order(10)[8:]


def order(count: int) -> list[int]:
    given = loader()
    rows: list[int] = []
    while len(rows) < count:
        rows += [int(batch["number"][0]) for batch in given]
    return rows[:count]


def batches(rows: list[int]) -> list[list[int]]:
    return [rows[start : start + 4] for start in range(0, len(rows), 4)]


def test_refills_come_after_what_was_drawn_ahead(saved: list[Any]) -> None:
    ahead = trainer()
    ahead.agent_loop_manager = SimpleNamespace(prefetch=lambda *batches: None)
    ahead.on_sample_end()
    assert [numbers(ahead._next_train_batch(count)) for count in (4, 1)] == [order(4), order(5)[4:]]


def test_where_nothing_is_drawn_ahead(saved: list[Any]) -> None:
    off, last = trainer("agentic_video.frame_store.ahead=False"), trainer()
    last.global_steps = 9
    for made in (off, last):
        made.on_sample_end()
        assert not made._ahead and saved == []


@pytest.mark.parametrize("validated", [False, True])
def test_the_workers_that_will_play_a_batch_get_it_ahead(validated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch and the questions beyond it, whatever is validated in the meantime."""
    got: list[tuple[str, int, list[str]]] = []

    def handle(name: str, number: int, rows: Any) -> None:
        got.append((name, number, [row["id"] for row in (rows if name == "prefetch" else rows["video_qa"])]))

    manager = make_manager(monkeypatch, 2, handle)
    manager._next_worker = 1
    made = trainer()
    batch, more, validation = made._next_train_batch(3), made._next_train_batch(2), made._next_train_batch(1)
    manager.prefetch(batch, more)
    if validated:
        assign_non_tensor_data(validation, "validate", True)
        manager.generate_sequences(validation)
        manager.generate_sequences(validation)
        # one worker after the other
        assert [got.pop(-2)[:2], got.pop()[:2]] == [("generate_sequences", 0), ("generate_sequences", 1)]
    manager.generate_sequences(batch)
    manager.generate_sequences(more)
    ids, others = ([str(number) for number in numbers(item)] for item in (batch, more))
    dealt = [(1, ids[:2]), (0, ids[2:]), (0, others[:1]), (1, others[1:])]
    assert got == [(name, who, rows) for name in ("prefetch", "generate_sequences") for who, rows in dealt]


def test_more_questions_than_the_batch_are_played_from_the_start(
    saved: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[list[int]] = []
    monkeypatch.setattr(PPOTrainerSync, "_submit_batch_to_rollout", lambda self, batch: played.append(numbers(batch)))
    drawn: list[list[list[int]]] = []
    more = "agentic_video.oversample=1.5"
    for overrides, sizes in (((), [4]), ((more,), [4, 2]), ((more, "algorithm.filter_groups.enable=False"), [4])):
        made = trainer(*overrides)
        made.agent_loop_manager = SimpleNamespace(prefetch=lambda *batches: drawn.append(list(map(numbers, batches))))
        made.prepare_step()
        assert [len(batch) for batch in played] == sizes
        made.on_sample_end()
        made.prepare_step()
        # what was looked ahead for is what is played next, and handed out in the same pieces
        assert played[len(sizes) :] == drawn[-1]
        played.clear()
