import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.training.metrics import GroupNames, group_metrics, rates_since


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


def test_training_and_validation_have_the_same_names() -> None:
    episodes = [episode("toy", "active", **COSTS)]
    train, val = (group_metrics(episodes, split, GroupNames()) for split in ("train", "val"))
    assert [key.removeprefix("train-") for key in train] == [key.removeprefix("val-") for key in val]
    assert len(train) == 2 * 11


@pytest.mark.parametrize("question_class", [None, "", 7, ["a"], {"a": 1}])
def test_only_a_name_is_a_class(question_class: Any) -> None:
    found = group_metrics([episode("toy", question_class)], "train", GroupNames())
    assert {key.count("/") for key in found} == {2}


def test_the_number_of_names_is_bounded_and_the_first_ones_stay() -> None:
    names = GroupNames(limit=2)
    assert [names(name) for name in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]
    assert [names(name, "a") for name in ("x", "a", "b", "x")] == ["x", "a", "other", "x"]


def test_no_episodes_no_figures() -> None:
    assert group_metrics([], "train", GroupNames()) == {}


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
