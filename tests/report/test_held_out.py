import json
import random
import statistics
from pathlib import Path

import pytest

from agentic_video.report.held_out import HeldOutScore, held_out_accuracies, held_out_rewards, read_scores, write_scores

ACCURACY, REWARD, ERROR = "val-core/toy/acc/mean@1", "val-agentic/toy/reward", "val-agentic/toy/reward_error"


def test_held_out_accuracies_sampled_and_greedy() -> None:
    metrics = {
        0: {
            "val-core/toy/acc/mean@1": 0.5,
            "val-core/toy/greedy/acc/mean@1": 0.2,
            "val-core/other/acc/mean@4": 1.0,
            "val-aux/toy/reward/mean@1": 9.0,
            "val-agentic/toy/episodes": 100.0,
            "val-agentic/toy/greedy/episodes": 64.0,
        },
        20: {"val-core/toy/acc/mean@1": 0.9, "val-core/toy/greedy/acc/mean@1": 1.0},
    }
    sampled, greedy, other = held_out_accuracies(metrics)
    # sqrt((0.5 * 0.5 + 0.9 * 0.1) / 100) = sqrt(0.0034)
    assert str(sampled) == (
        "toy, sampled (100 episodes): 0.500 after step 0, 0.900 after step 20; +0.400, standard error 0.058"
    )
    assert greedy.name == "toy, greedy" and greedy.rise == pytest.approx(0.8)
    assert greedy.error == pytest.approx((0.2 * 0.8 / 64) ** 0.5)
    assert str(other) == "other, sampled: 1.000 after step 0" and other.error == float("inf")


def test_held_out_rewards_have_the_errors_that_the_run_logged() -> None:
    figures = {"reward": 0.5, "reward_error": 0.03, "active/reward": 9.0, "active/reward_error": 9.0}
    metrics = {
        0: {
            "val-core/toy/acc/mean@1": 0.5,
            **{f"val-agentic/toy/{name}": value for name, value in figures.items()},
            "val-agentic/toy/episodes": 100.0,
            "val-core/other/acc/mean@1": 0.5,
            "val-agentic/other/reward": 0.5,
        },
        9: {"val-core/toy/acc/mean@1": 0.9, "val-agentic/toy/reward": 1.25, "val-agentic/toy/reward_error": 0.04},
    }
    (one,) = held_out_rewards(metrics)  # classes have none of their own, nor what no error is known of
    assert str(one) == (
        "toy, sampled (100 episodes): 0.500 after step 0, 1.250 after step 9; +0.750, standard error 0.050"
    )


def scores(*values: float, greedy: bool = False) -> list[HeldOutScore]:
    """One episode on each question, each about a video of its own, whose reward is twice its accuracy."""
    return [
        HeldOutScore("toy", greedy, f"q{number}", f"{number}.mp4", value, 2 * value)
        for number, value in enumerate(values)
    ]


def test_error_of_a_rise_is_that_of_the_differences_by_question() -> None:
    metrics = {0: {ACCURACY: 0.5, REWARD: 1.0, ERROR: 0.58}, 9: {ACCURACY: 0.75, REWARD: 1.5, ERROR: 0.5}}
    found = {0: scores(0, 0, 1, 1), 5: scores(0, 0, 0, 0), 9: scores(0, 1, 1, 1)}
    (accuracy,) = held_out_accuracies(metrics, found)
    # differences 0, 1, 0, 0: standard deviation 0.5, over sqrt(4)
    assert accuracy.rise == 0.25 and accuracy.error == pytest.approx(0.25)
    assert str(accuracy) == (
        "toy, sampled: 0.500 after step 0, 0.750 after step 9; +0.250, standard error 0.250 by question"
    )
    (reward,) = held_out_rewards(metrics, found)
    assert reward.rise == 0.5 and reward.error == pytest.approx(0.5)
    # as if the questions weren't the same
    assert held_out_rewards(metrics)[0].error == pytest.approx((0.58**2 + 0.5**2) ** 0.5)


def test_several_episodes_of_a_question_are_one_and_those_of_a_video_a_cluster() -> None:
    metrics = {0: {ACCURACY: 0.0}, 9: {ACCURACY: 0.5}}
    before, after = scores(0, 0, 0, 0), scores(1, 1, 0, 0)
    twice = [HeldOutScore("toy", False, "q0", "0.mp4", 1.0, 2.0), HeldOutScore("toy", False, "q0", "0.mp4", 0.0, 0.0)]
    # q0 has 0.5 then: differences 0.5, 1, 0, 0, mean 0.375, standard deviation sqrt((1/64 + 25/64 + 18/64) / 3)
    (one,) = held_out_accuracies(metrics, {0: before, 9: [*twice, *after[1:]]})
    assert one.error == pytest.approx((44 / 64 / 3) ** 0.5 / 2)
    # Questions 0 and 1 share a video, as 2 and 3 do: sums of what is above the mean 1/2 are 1 and -1
    films = [
        [HeldOutScore("toy", False, f"q{n}", f"{n // 2}", one.accuracy, 0) for n, one in enumerate(each)]
        for each in (before, after)
    ]
    (one,) = held_out_accuracies(metrics, {0: films[0], 9: films[1]})
    assert one.error == pytest.approx((2 * 2) ** 0.5 / 4)


def test_sampled_come_before_greedy_however_they_were_logged() -> None:
    names = ("b/greedy", "a", "b", "a/greedy")
    metrics = {0: {f"val-core/{name}/acc/mean@1": 0.5 for name in names}}
    assert [one.name for one in held_out_accuracies(metrics)] == ["b, sampled", "b, greedy", "a, sampled", "a, greedy"]


def test_greedy_episodes_and_other_sources_are_pairs_of_their_own() -> None:
    metrics = {step: {ACCURACY: 0.5, "val-core/toy/greedy/acc/mean@1": 0.5} for step in (0, 9)}
    found = {0: scores(0, 1) + scores(0, 0, greedy=True), 9: scores(0, 1) + scores(0, 1, greedy=True)}
    found[9].append(HeldOutScore("other", False, "q0", "0.mp4", 1.0, 1.0))
    sampled, greedy = held_out_accuracies(metrics, found)
    assert sampled.error == 0.0 and greedy.error == pytest.approx(0.5)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param({}, id="none"),
        pytest.param({9: scores(1, 1)}, id="only the last"),
        pytest.param({0: scores(0, 0), 5: scores(1, 1)}, id="of another step"),
        pytest.param({0: scores(*[0] * 10), 9: scores(*[1] * 8)}, id="mostly other questions"),
        pytest.param({0: scores(0), 9: scores(1)}, id="one video"),
    ],
)
def test_without_pairs_the_errors_are_those_of_different_questions(found: dict[int, list[HeldOutScore]]) -> None:
    metrics = {step: {ACCURACY: 0.5, "val-agentic/toy/episodes": 100.0} for step in (0, 9)}
    (one,) = held_out_accuracies(metrics, found)
    assert one.paired is None and one.error == pytest.approx((2 * 0.25 / 100) ** 0.5)


def test_pairs_tell_more_where_questions_differ_in_difficulty() -> None:
    chance = random.Random(0)
    metrics = {step: {ACCURACY: 0.0, "val-agentic/toy/episodes": 400.0} for step in (0, 9)}
    rises, paired = [], []
    for _ in range(200):
        hard = [chance.random() < 0.5 for _ in range(400)]  # 0.2 and 0.3 where hard, else 0.8 and 0.9
        found = {
            step: scores(*[float(chance.random() < (0.2 if each else 0.8) + more) for each in hard])
            for step, more in ((0, 0.0), (9, 0.1))
        }
        (one,) = held_out_accuracies(metrics, found)
        assert one.paired is not None
        paired.append(one.paired)
        means = [statistics.fmean(score.accuracy for score in found[step]) for step in (0, 9)]
        rises.append(means[1] - means[0])
    # the error is the spread that the rises really have, well below that of different questions, 0.5 * sqrt(2 / 400)
    assert statistics.fmean(paired) == pytest.approx(statistics.stdev(rises), rel=0.15)
    assert statistics.fmean(paired) < 0.85 * 0.5 * (2 / 400) ** 0.5


def test_scores_are_read_as_they_were_written_and_what_else_lies_there_is_passed_over(tmp_path: Path) -> None:
    write_scores(tmp_path / "episodes", 0, scores(0, 1))
    write_scores(tmp_path / "episodes", 120, scores(1, greedy=True))
    for name, text in (
        ("held_out_000007.jsonl", "{"),
        ("held_out_000008.jsonl", json.dumps({"data_source": "toy"})),
        ("held_out_000009.jsonl", "[]"),
        ("held_out_last.jsonl", ""),
        ("step_000001.jsonl", ""),
    ):
        (tmp_path / "episodes" / name).write_text(text)
    assert read_scores(tmp_path / "episodes") == {0: scores(0, 1), 120: scores(1, greedy=True)}
    assert read_scores(tmp_path / "none") == {}


@pytest.mark.parametrize("key", ["accuracy", "reward", "question", "video"])
def test_scores_of_another_kind_are_passed_over(key: str, tmp_path: Path) -> None:
    write_scores(tmp_path, 1, scores(1))
    good = json.loads((tmp_path / "held_out_000001.jsonl").read_text())
    (tmp_path / "held_out_000002.jsonl").write_text(json.dumps({**good, key: None}))
    assert list(read_scores(tmp_path)) == [1]
