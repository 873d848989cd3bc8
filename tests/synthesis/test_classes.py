from dataclasses import replace

import pytest

from agentic_video.synthesis.classes import (
    DROPPED_WITH,
    DROPPED_WITHOUT,
    Quota,
    SetOptions,
    Side,
    class_of,
    demonstration,
    imitable,
    set_sizes,
    side_of,
)
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.types.record import Record
from tests.synthesis.made import asking, brain, look, lookup, record


def side(right: bool, used_tools: bool = False) -> Side:
    return Side(right, used_tools, 1, int(right))


@pytest.mark.parametrize(
    ("base", "teacher", "tools", "expected"),
    [
        (True, True, False, "direct"),
        (True, True, True, "direct"),
        (False, True, False, "adaptive"),
        (False, True, True, "active"),
        (False, False, False, "active"),
        (False, False, True, "active"),
        (True, False, True, DROPPED_WITH),
        (True, False, False, DROPPED_WITHOUT),
    ],
)
def test_the_classes_are_the_papers(base: bool, teacher: bool, tools: bool, expected: str) -> None:
    assert class_of(side(base), side(teacher, tools)) == expected
    with_slip = "direct" if expected == DROPPED_WITHOUT else expected
    assert class_of(side(base), side(teacher, tools), "direct") == with_slip


def sample(acc: float, calls: int = 0) -> Record:
    return record([look(0, 9)] * calls, rewards={"acc": acc})


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([sample(1.0)], Side(True, False, 1, 1)),
        ([sample(0.9, 1)], Side(False, True, 1, 0)),  # a fraction is a wrong answer
        ([sample(1.0), sample(0.0, 1)], Side(False, True, 2, 1)),  # a tie isn't right
        ([sample(1.0), sample(1.0), sample(0.0, 1)], Side(True, False, 3, 2)),
        ([sample(1.0, 1), sample(1.0), sample(0.0)], Side(True, True, 3, 2)),
    ],
)
def test_the_majority_of_samples_counts(samples: list[Record], expected: Side) -> None:
    assert side_of(samples, right_from=1.0) == expected
    assert side_of([*samples, replace(samples[0], rewards={})], right_from=1.0) is None
    assert side_of([], right_from=1.0) is None


def test_plenty_of_rows_gives_the_papers_sets() -> None:
    plenty = dict.fromkeys(("direct", "adaptive", "active"), 10_000)
    sft, rl = set_sizes(plenty, plenty, SetOptions().sft, SetOptions().rl)  # type: ignore[arg-type]
    assert sft == {"direct": 0, "adaptive": 677, "active": 923}
    assert rl == {"direct": 2874, "adaptive": 518, "active": 3008}


def test_scarce_rows_shrink_both_sets_and_shares_hold() -> None:
    sft, rl = Quota(100, {"adaptive": 0.4, "active": 0.6}), Quota(400, {"direct": 0.5, "adaptive": 0.1, "active": 0.4})
    rows = {"direct": 1000, "adaptive": 40, "active": 1000}
    # adaptive: 40 of the 40 + 40 that are wanted
    halves = ({"direct": 0, "adaptive": 20, "active": 30}, {"direct": 100, "adaptive": 20, "active": 80})
    assert set_sizes(rows, rows, sft, rl) == halves  # type: ignore[arg-type]
    # 10 of the 40 trajectories that are wanted
    quarters = ({"direct": 0, "adaptive": 10, "active": 15}, {"direct": 50, "adaptive": 10, "active": 40})
    usable = {"adaptive": 10, "active": 900}
    assert set_sizes(rows, usable, sft, rl) == quarters  # type: ignore[arg-type]
    filled = ({"direct": 0, "adaptive": 10, "active": 60}, {"direct": 200, "adaptive": 30, "active": 160})
    assert set_sizes(rows, usable, sft, rl, fill=True) == filled  # type: ignore[arg-type]
    assert set_sizes({"direct": 5}, {}, sft, rl)[1] == {"direct": 0, "adaptive": 0, "active": 0}


def test_the_demonstration_is_right_and_passes_the_gate() -> None:
    wrong, sloppy, good = brain("A", 0.0), brain("B", 1.0, think=""), brain("B", 1.0)
    repeats = brain("B", 1.0, calls=2)
    assert demonstration([wrong, sloppy, repeats, good], 1.0) == good
    assert demonstration([wrong, sloppy, repeats], 1.0) is None
    assert demonstration([sloppy, wrong], 1.0, wrong_too=True) == wrong
    other = record(rewards={"acc": 1.0})
    assert demonstration([other], 1.0) == other


def test_an_episode_of_another_system_is_judged_by_that_systems_published_rules() -> None:
    # a lookup whose number no look uses: inconsistent for FrameThinker, which has no such rule about its own answers
    consistent, ignored = record(), record([lookup("00:10"), look(0, 9)])
    assert imitable(consistent.trajectory)
    assert not imitable(ignored.trajectory)
    assert imitable(replace(ignored.trajectory, system="eva")), "EVA finds no fault with it"
    assert imitable(replace(ignored.trajectory, system="mine")), "a system without published rules"
    assert not imitable(record(answer=None, system="mine").trajectory)
    refused = record([look(0, 9)], system="mine").trajectory
    turns = (replace(refused.turns[0], legal_calls=0, illegal_calls=1), *refused.turns[1:])
    assert not imitable(replace(refused, turns=turns))


def test_the_system_that_was_played_counts_with_its_own_constants() -> None:
    answer = brain("B", 1.0, calls=0)
    trajectory = replace(answer.trajectory, turns=(asking(50), asking(53), *answer.trajectory.turns))
    assert imitable(trajectory) and imitable(trajectory, VideoBrain())
    assert not imitable(trajectory, VideoBrain(duplicate_margin=3)), "3 frames apart is the same range"
    episode = replace(answer, trajectory=trajectory)
    assert demonstration([episode], 1.0, played=VideoBrain()) == episode
    assert demonstration([episode], 1.0, played=VideoBrain(duplicate_margin=3)) is None
