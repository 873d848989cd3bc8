"""The whole job as a user runs it: killed half way, started again, and then everything that a run promises."""

import json
import re
from pathlib import Path

import pytest

from agentic_video.launch.process import shared_segments
from agentic_video.report.held_out import held_out_accuracies, held_out_rewards, read_scores
from agentic_video.report.metrics import read_metrics, series
from tests.e2e.jobs import REPOSITORY, finished, killed, start

COMMAND = ["bash", str(REPOSITORY / "recipes" / "videozoomer" / "run_grpo.sh"), "--profile", "laptop"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run's folder, and the output of the attempt that finished after one that was killed."""
    output = tmp_path_factory.mktemp("outputs")
    before = shared_segments()
    killed(start(COMMAND, output), r"step 1[1-9] of 20:")  # a checkpoint was written after step 10
    printed = finished(start(COMMAND, output))
    (folder,) = output.glob("videozoomer-laptop/run-*")
    assert shared_segments() <= before
    return folder, printed


def test_resumes_at_the_step_after_the_checkpoint(run: tuple[Path, str]) -> None:
    folder, printed = run
    steps = [int(number) for number in re.findall(r"^step (\d+) of 20:", printed, re.MULTILINE)]
    assert steps == list(range(11, 21))
    assert (folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == "20"


def test_all_steps_and_it_learns(run: tuple[Path, str]) -> None:
    metrics = read_metrics(run[0])
    assert series(metrics, "episode/reward_sampled")[0] == list(range(1, 21))
    scores = read_scores(run[0] / "episodes")
    for held_out in (held_out_accuracies(metrics, scores), held_out_rewards(metrics, scores)):
        assert [(item.how, item.steps[0], item.steps[-1], item.episodes) for item in held_out] == [
            ("sampled", 0, 20, 192),
            ("greedy", 0, 20, 192),
        ]
        for item in held_out:
            print(item)
            # by question, which the attempt that was killed had asked before, too
            assert item.paired is not None and item.rise > 3 * item.error


def test_rollout_and_actor_agree_at_every_step(run: tuple[Path, str]) -> None:
    metrics = read_metrics(run[0])
    steps, _ = series(metrics, "episode/reward")
    at, difference = series(metrics, "training/rollout_probs_diff_mean")
    assert at == steps and max(difference) < 1e-4
    at, pearson = series(metrics, "training/rollout_actor_probs_pearson_corr")
    assert at == steps and min(pearson) > 0.999


def test_tools_are_used_and_groups_are_replaced(run: tuple[Path, str]) -> None:
    metrics = read_metrics(run[0])
    _, calls = series(metrics, "episode/tool_calls")
    assert sum(calls) / len(calls) > 0.5
    assert sum(series(metrics, "training/filter_groups/evicted_samples")[1]) >= 1


@pytest.mark.parametrize("key", ["reward", "acc", "format", "tool", "turns", "frames"])
def test_every_step_logs_what_episodes_did(run: tuple[Path, str], key: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    metrics = read_metrics(run[0])
    assert series(metrics, f"episode/{key}")[0] == series(metrics, "episode/reward")[0]
    tags: set[str] = set()
    for file in (run[0] / "tensorboard").glob("events*"):
        events = EventAccumulator(str(file))
        events.Reload()
        tags |= set(events.Tags()["scalars"])
    assert f"episode/{key}" in tags


def test_each_distinct_frame_is_decoded_once(run: tuple[Path, str]) -> None:
    last = list(read_metrics(run[0]).values())[-1]
    # 8 rollouts of a question ask for the same overview, and often for the same zoom
    assert last["frame_store/decoded"] < last["frame_store/requested"] / 2
    # what was decoded ahead of its step wasn't asked for then
    asked_for = last["frame_store/decoded"] - last["frame_store/prefetched"]
    assert asked_for + last["frame_store/hits"] == last["frame_store/requested"]
    assert 0 < last["frame_store/prefetched_used"] <= last["frame_store/prefetched"]
    # pixels go to the engine once between two updates of its weights
    assert last["engine_images/again"] == 0
    assert last["engine_images/processed"] < last["engine_images/asked"] / 2
    assert last["frame_store/evicted"] == last["frame_store/errors"] == last["frame_store/timeouts"] == 0


def test_summary_curve_and_three_episodes(run: tuple[Path, str]) -> None:
    text = (run[0] / "summary.md").read_text()
    assert (run[0] / "reward.png").stat().st_size > 5_000
    assert text.count("[end]") == 3
    assert "Held-out accuracy" in text


def test_memory_and_leftovers(run: tuple[Path, str]) -> None:
    record = json.loads((run[0] / "run.json").read_text())
    assert record["peak_bytes"] < 12 * 2**30
    assert not Path(record["temporary"]).exists()
