import pytest

from agentic_video.launch.progress import Progress
from agentic_video.report.collapse import WARNING


def interesting(line: str) -> str:
    return Progress().shown(line)


def test_steps_are_counted_once_their_number_is_known() -> None:
    progress = Progress()
    assert progress.shown("(TaskRunnerV1 pid=5782) INFO:2026-11-22:Total training steps: 20\n") == ""
    assert progress.shown("step:3 - train/loss:1.5\n") == "step 3 of 20: loss 1.5000"
    assert progress.shown("step:4 - episode/reward_sampled:1.25\n").startswith("step 4 of 20: reward 1.25, ")
    assert progress.shown("step:4 - val-agentic/a/accuracy:0.5\n") == "step 4, held out, a: accuracy 0.50"


def test_metrics_line_is_shortened() -> None:
    line = (
        "(TaskRunner pid=1) step:7 - episode/reward_sampled:np.float64(1.25) - episode/acc:0.5 - episode/format:1.0 - "
        "episode/tool:0.9 - episode/turns:1.9 - episode/frames:9.8 - training/filter_groups/evicted_samples:2 - "
        "training/rollout_probs_diff_mean:1.2e-05 - timing_s/step:4.21\n"
    )
    assert interesting(line) == (
        "step 7: reward 1.25, acc 0.50, format 1.00, tool 0.90, turns 1.90, frames 9.80, evicted groups 2, "
        "prob diff 1.2e-05, 4.2 s"
    )
    assert interesting("loading weights\n") == ""


def test_a_validation_has_a_line_for_each_data_source() -> None:
    figures = (
        "val-core/a/acc/mean@1:0.5 - val-agentic/a/accuracy:0.5 - val-agentic/a/illegal_calls:np.float64(0.25) - "
        "val-agentic/a/episodes:9.0 - val-agentic/a/direct/accuracy:0.1 - val-agentic/b/accuracy:1.0"
    )
    figures += " - val-agentic/b/greedy/accuracy:0.75"
    lines = ["step 0, held out, a: accuracy 0.50, illegal calls 0.25", "step 0, held out, b: accuracy 1.00"]
    lines.append("step 0, held out, b, greedy: accuracy 0.75")
    assert interesting(f"step:0 - {figures}\n").splitlines() == lines
    both = interesting(f"step:0 - {figures} - episode/reward_sampled:1.25 - timing_s/step:4.21\n").splitlines()
    assert both[0].startswith("step 0: reward 1.25") and both[1:] == lines


def test_sft_metrics_lines_are_shortened() -> None:
    line = "Epoch 1/1: 0%| | 0/3 [00:00<?, ?it/s]step:3 - train/loss:1.23456 - train/grad_norm:2.5 - train/lr:0.1\n"
    assert interesting(line) == "step 3: loss 1.2346, gradient norm 2.5000"
    assert interesting("step:4 - val/loss:0.5\n") == "step 4: held-out loss 0.5000"


def test_errors_and_warnings_of_ours_are_shown() -> None:
    for what in ("row", "record"):
        assert interesting(f"3 {what}s left out\n") == f"3 {what}s left out"
        assert interesting(f"WARNING: {what} left out: a line 3\n") == f"WARNING: {what} left out: a line 3"
    assert interesting("ValueError: " + "x" * 400 + "\n") == "ValueError: " + "x" * 288
    assert interesting("UserWarning: an Error is near\n") == ""


@pytest.mark.parametrize(
    "line",
    [
        "(TaskRunnerV1 pid=1) RuntimeError: DataLoader worker (pid 3390) is killed by signal: Killed.\n",
        "(VideoServer pid=1) ERROR 11-26 16:32:35 [async_llm.py:704] vllm.v1.engine.exceptions.EngineDeadError: "
        "EngineCore encountered an issue. See stack trace (above) for the root cause.\n",
    ],
)
def test_what_is_reported_of_ended_processes_after_the_last_step_is_no_error(line: str) -> None:
    progress = Progress(2)
    progress.shown("step:1 - episode/reward_sampled:1.0\n")
    assert progress.shown(line) == line.rstrip()
    progress.shown("step:2 - episode/reward_sampled:1.0\n")
    assert progress.shown(line) == ""
    assert progress.shown("(pid=1) RuntimeError: another\n")


def test_a_warning_of_the_run_is_shown() -> None:
    line = f"(TaskRunner pid=7) {WARNING} step 34: tool calls die out: 0.90 an episode at first, 0.10 now"
    assert Progress().shown(line + "\n") == line


def test_errors_that_differ_in_numbers_only_are_shown_three_times() -> None:
    progress = Progress()
    lines = [
        f"(Worker pid={number}) EngineError: row toy-{number}: uid=da5ca96{number}-bdba-4cb0-bb14-9d75289ad952"
        for number in range(5)
    ]
    more = "(more like this are in the log only)"
    assert [progress.shown(f"{line}\n") for line in lines] == [*lines[:2], f"{lines[2]}\n{more}", "", ""]
    assert progress.shown("KeyError: 'a'\n") == "KeyError: 'a'"


def test_the_reason_of_an_end_is_kept() -> None:
    progress = Progress()
    line = "(TaskRunner pid=7) agentic_video could not continue: node 10.0.0.2 is gone; bring it back"
    assert progress.shown(f"{line}\n") == line
    progress.shown("Error: and so on\n")
    assert progress.reason == "agentic_video could not continue: node 10.0.0.2 is gone; bring it back"


def test_how_long_the_rest_takes() -> None:
    progress = Progress(total=20)

    def left(step: int, seconds: float) -> str:
        line = f"step:{step} - episode/reward_sampled:1.0 - timing_s/step:np.float64({seconds})"
        return progress.shown(line + "\n").rsplit(", ", 1)[1]

    assert left(1, 4.0) == "76 s left"  # 19 steps of 4 s
    assert left(2, 20.0) == "4 min left"  # 18 of 12 s: 216 s
    assert left(3, 3600.0) == "5 h 42 min left"  # 17 of 1,208 s
    assert left(19, float("nan")) == "nan s"
    assert left(20, 4.0) == "4.0 s"
    unknown = Progress().shown("step:1 - episode/reward_sampled:1.0 - timing_s/step:4.0\n")
    assert unknown.endswith(", 4.0 s")
