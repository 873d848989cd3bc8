import math
import string
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.report.collapse import GAP_OF_TURN
from agentic_video.training.logs.metrics import MAX_TURNS, GroupNames, gap_by_turn, group_metrics, rates_since


def episode(source: str, question_class: Any = None, acc: float = 1.0, **costs: float) -> dict[str, Any]:
    rewards = {"reward": 2 * acc, "acc": acc, "tool_calls": 1.0, "illegal_calls": 0.0, "frames": 6.0}
    rewards.update(end_answer=acc, end_illegal=1 - acc, format=1.0)
    extra = None if question_class is None else {"class": question_class}
    return {"video_qa": {"data_source": source, "extra_info": extra}, "reward_extra_info": rewards, "costs": costs}


COSTS = {"visual_tokens": 40.0, "decode_seconds": 0.5, "frames_requested": 10.0, "frames_decoded": 4.0}


def test_figures_of_a_data_source_and_of_its_classes() -> None:
    episodes = [
        episode("toy", "active", 1.0, **COSTS),
        episode("toy", "direct", 0.0, **{**COSTS, "visual_tokens": 20.0, "frames_requested": 30.0}),
        episode("other/set", acc=0.0),
    ]
    found = group_metrics(episodes, "val", GroupNames())
    groups = {key.rsplit("/", 1)[0] for key in found}
    prefix = "val-agentic"
    assert groups == {f"{prefix}/toy", f"{prefix}/toy/active", f"{prefix}/toy/direct", f"{prefix}/other_set"}
    toy = {key.rsplit("/", 1)[1]: value for key, value in found.items() if key.startswith("val-agentic/toy/e")}
    assert toy == {"episodes": 2.0, "end_answer": 0.5, "end_illegal": 0.5}
    assert found["val-agentic/toy/accuracy"] == 0.5
    assert found["val-agentic/toy/active/accuracy"] == 1.0
    assert found["val-agentic/toy/reward"] == 1.0
    assert found["val-agentic/toy/visual_tokens"] == 30.0
    # of 10 and 30 frames asked for, 4 and 4 were decoded: the share of all of them, not the mean of the shares
    assert found["val-agentic/toy/cache_hits"] == 1 - 8 / 40
    assert "val-agentic/other_set/cache_hits" not in found
    assert found["val-agentic/other_set/calls"] == 1.0


def test_figures_of_those_that_have_them() -> None:
    windows = ("windows_found", "windows_shown", "looks_in_windows")
    episodes = [
        episode("toy", **dict(zip(windows, (1.0, 1.0, 0.5), strict=True)), asides=4.0, aside_tokens=90.0, **COSTS),
        episode("toy", windows_found=0.0, windows_shown=1.0, **COSTS),  # no call
        episode("toy", **COSTS),
        episode("other", **COSTS),
    ]
    found = group_metrics(episodes, "train", GroupNames())
    assert [found[f"train-agentic/toy/{name}"] for name in windows] == [0.5, 1.0, 0.5]
    # an episode that asked nothing asked nothing
    assert (found["train-agentic/toy/asides"], found["train-agentic/toy/aside_tokens"]) == (4 / 3, 30.0)
    assert not any(name in key for key in found if "/other/" in key for name in ("windows", "aside"))


def test_training_and_validation_have_the_same_names() -> None:
    episodes = [episode("toy", "active", **COSTS)]
    train, val = (group_metrics(episodes, split, GroupNames()) for split in ("train", "val"))
    assert [key.removeprefix("train-") for key in train] == [key.removeprefix("val-") for key in val]
    assert len(train) == 2 * 11 and group_metrics([], "train", GroupNames()) == {}


def test_error_of_a_validation_s_reward_counts_a_video_s_episodes_as_one() -> None:
    episodes = [episode("toy", acc=acc) for acc in (1.0, 1.0, 0.0, 0.5)]  # rewards 2, 2, 0, 1
    for item, video in zip(episodes, ("a.mp4", "a.mp4", "b.mp4", "c.mp4"), strict=True):
        item["video_qa"]["video"] = video
    del episodes[3]["reward_extra_info"]["reward"]
    # mean 4/3; the videos' sums of what is above it: 4/3, -4/3: sqrt(2/1 * 32/9) / 3
    assert group_metrics(episodes, "val", GroupNames())["val-agentic/toy/reward_error"] == pytest.approx(8 / 9)
    assert "train-agentic/toy/reward_error" not in group_metrics(episodes, "train", GroupNames())
    assert "val-agentic/toy/reward_error" not in group_metrics(episodes[:2], "val", GroupNames())


@pytest.mark.parametrize("question_class", [None, "", 7, ["a"], {"a": 1}])
def test_only_a_name_is_a_class(question_class: Any) -> None:
    found = group_metrics([episode("toy", question_class)], "train", GroupNames())
    assert {key.count("/") for key in found} == {2}


def test_the_number_of_names_is_bounded_and_the_first_ones_stay() -> None:
    names = GroupNames(limit=2)
    assert [names(name) for name in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]
    assert [names(name, "a") for name in ("x", "a", "b", "x")] == ["x", "a", "other", "x"]


@given(st.text())
def test_names_are_fit_for_every_backend(name: str) -> None:
    part = GroupNames()(name)
    assert 0 < len(part) <= 40
    assert set(part) <= set(string.ascii_letters + string.digits + "_.-")


def test_rates_of_the_stores_are_those_since_the_last_step() -> None:
    def counters(requested: float, hits: float, decoded: float, seconds: float) -> dict[str, float]:
        names = ("requested", "hits", "decoded", "decode_seconds")
        values = (requested, hits, decoded, seconds)
        return {f"frame_store/{name}": value for name, value in zip(names, values, strict=True)}

    first, second = counters(100, 50, 50, 5.0), counters(300, 200, 100, 6.0)
    assert rates_since(first, {}) == {"frame_store/hit_rate": 0.5, "frame_store/seconds_per_frame": 0.1}
    # 150 of 200, 1 second for 50 frames
    assert rates_since(second, first) == {"frame_store/hit_rate": 0.75, "frame_store/seconds_per_frame": 0.02}
    assert rates_since(second, second) == {}
    # a store that was made again counts from 0
    assert rates_since(counters(10, 5, 5, 1.0), second)["frame_store/hit_rate"] == 0.5


def test_gaps_of_turns_by_hand() -> None:
    half, quarter = math.log(0.5), math.log(0.25)
    mask = torch.tensor([[1, 1, 0, 0, 1, 0], [0, 1, 0, 1, 1, 1]])
    actor = torch.full((2, 6), half)
    rollout = actor.clone()
    rollout[0, 1] = quarter  # turn 1: three tokens, one of which is 0.25 apart
    rollout[0, 4] = rollout[1, 3] = quarter  # turn 2: two of four
    rollout[0, 2] = rollout[1, 0] = 0.0  # what the environment wrote doesn't count
    found = gap_by_turn(actor, rollout, mask)
    assert found == {f"{GAP_OF_TURN}/1": pytest.approx(0.25 / 3), f"{GAP_OF_TURN}/2": pytest.approx(0.125)}
    assert gap_by_turn(actor, rollout, torch.zeros_like(mask)) == {}


def test_late_turns_share_a_gap() -> None:
    mask = torch.tensor([[1, 0] * (MAX_TURNS + 3)])
    found = gap_by_turn(torch.zeros(mask.shape), torch.full(mask.shape, -1e9), mask)
    assert found == {f"{GAP_OF_TURN}/{turn}": 1.0 for turn in range(1, MAX_TURNS + 1)}


@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=1, max_size=4), st.integers(0, 99))
def test_gaps_of_turns_together_are_the_gap(rows: list[list[bool]], seed: int) -> None:
    mask = torch.tensor(rows)
    made = torch.Generator().manual_seed(seed)
    actor, rollout = (torch.rand(mask.shape, generator=made).log() for _ in range(2))
    counts = {turn: sum(_nth_turn(row).count(turn) for row in rows) for turn in range(1, 7)}
    found = gap_by_turn(actor, rollout, mask)
    assert found.keys() == {f"{GAP_OF_TURN}/{turn}" for turn, count in counts.items() if count}
    whole = float((actor.exp() - rollout.exp()).abs()[mask].sum())
    assert sum(found[f"{GAP_OF_TURN}/{turn}"] * count for turn, count in counts.items() if count) == pytest.approx(
        whole
    )


def _nth_turn(row: list[bool]) -> list[int]:
    turn, numbers = 0, []
    for place, generated in enumerate(row):
        turn += generated and not (place and row[place - 1])
        numbers.append(turn if generated else 0)
    return numbers
