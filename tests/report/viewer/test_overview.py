"""A run at one view: curves, the map of looks, the table."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.report.viewer.episodes import Episodes, Run
from agentic_video.report.viewer.index import index_of
from agentic_video.report.viewer.overview import (
    MOST_COLUMNS,
    PLACES,
    charts_of,
    lengths_of,
    map_of,
    names_of,
    overview_of,
)
from agentic_video.report.viewer.safe_json import to_json
from agentic_video.report.viewer.sources import load_episodes
from agentic_video.types.record import Record
from agentic_video.types.trajectory import FrameRef
from tests.report.viewer.records import illegal, record, write

METRICS: dict[int, dict[str, float]] = {
    0: {"val-core/test/acc/mean@1": 0.25, "val-core/test/greedy/acc/mean@1": 0.5},
    1: {"episode/reward_sampled": 0.5, "episode/acc": 0.25, "episode/term_acc": 0.4, "episode/tool_calls": 1.5},
    2: {
        "episode/reward_sampled": 1.0,
        "episode/term_acc": 0.6,
        "actor/entropy": 0.1,
        "val-core/test/acc/mean@1": 0.75,
        "response_length/mean": 80.0,
        "episode/illegal_calls": math.nan,
    },
}


def write_run(folder: Path, *records: Record, metrics: dict[int, dict[str, float]] = METRICS) -> Path:
    """A run's folder."""
    if records:
        write(folder / "episodes" / "step_000001.jsonl", *records)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text("{}")
    lines = [json.dumps({"step": step, "data": values}) + "\n" for step, values in metrics.items()]
    (folder / "metrics-001.jsonl").write_text("".join(lines))
    return folder


def looking(times: list[float], extra: dict[str, Any] | None = None, **fields: Any) -> Record:
    """An episode whose call showed frames at some times."""
    made = record(**fields)
    shown = tuple(FrameRef(number, time, 56, 28) for number, time in enumerate(times))
    turns = (replace(made.trajectory.turns[0], observation=shown), made.trajectory.turns[1])
    return replace(
        made, qa=replace(made.qa, extra=extra or {}), trajectory=replace(made.trajectory, opening=(), turns=turns)
    )


def of(tmp_path: Path, *records: Record) -> Episodes:
    return load_episodes([write(tmp_path / "e.jsonl", *records)])[0]


def test_a_run_s_curves_are_those_of_its_metrics(tmp_path: Path) -> None:
    episodes, _ = load_episodes([write_run(tmp_path / "run-001", record(reward=9.0))])
    charts = {chart.key: chart for chart in charts_of(episodes)}
    assert list(charts) == ["reward", "term", "acc", "calls", "length", "entropy"]
    lines = {line.name: (list(line.steps), list(line.values), line.share) for line in charts["reward"].lines}
    assert lines == {
        "mean of a step's episodes": ([1, 2], [0.5, 1.0], False),
        "moving average over 5 steps": ([1, 2], [0.75, 0.75], False),
        "held-out accuracy, sampled": ([0, 2], [0.25, 0.75], True),
        "held-out accuracy, greedy": ([0], [0.5], True),
    }
    assert [(line.name, list(line.values)) for line in charts["term"].lines] == [("acc", [0.4, 0.6])]
    assert [list(line.steps) for line in charts["calls"].lines] == [[1]]


def test_without_metrics_the_curves_are_the_recorded_episodes(tmp_path: Path) -> None:
    write(tmp_path / "step_1.jsonl", record(reward=1.0), illegal("no", rollout=1, reward=0.0, acc=0.0))
    write(tmp_path / "step_3.jsonl", record(reward=2.0), record(reward=None, rollout=1))
    charts = {chart.key: chart for chart in charts_of(load_episodes([tmp_path])[0])}
    found = {key: [(list(line.steps), list(line.values)) for line in chart.lines] for key, chart in charts.items()}
    assert found["reward"] == [([1, 3], [0.5, 2.0]), ([1, 3], [1.25, 1.25])]
    # an episode of the first step has one call, the other one none but a refused one
    assert found["calls"] == [([1, 3], [0.5, 1.0])] and found["refused"] == [([1, 3], [0.5, 0.0])]
    # terms are reward + 0.2 and -0.2
    assert found["term"][0] == ([1, 3], pytest.approx([0.7, 2.2]))
    assert found["tokens"] == [([1, 3], [99.0, 99.0])]


def test_each_of_several_runs_has_a_line(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a" / "laptop" / "run-001", record())
    second = write_run(tmp_path / "b" / "laptop" / "run-001", record())
    episodes, grouping = load_episodes([first, second])
    assert [row.run for row in episodes.rows] == [0, 1]
    charts = {chart.key: chart for chart in charts_of(episodes)}
    assert [line.run for line in charts["entropy"].lines] == [0, 1]
    assert [(line.run, line.name) for line in charts["term/acc"].lines] == [(0, "acc"), (1, "acc")]
    index = index_of(episodes, grouping, "t")
    assert index["names"]["run"] == ["a", "b"] and index["overview"]["measured"] == [0, 1]


def test_runs_are_named_by_what_differs() -> None:
    def named(*paths: str) -> list[str]:
        return names_of([Run(Path(path)) for path in paths])

    assert named("/out/zoomer/run-001") == ["zoomer/run-001"]
    assert named("/out/z/run-001", "/out/z/run-002") == ["run-001", "run-002"]
    assert named("/out/a/z/run-001", "/out/b/z/run-001") == ["a", "b"]
    assert named("/out/a/run-001", "/out/b/c/run-002") == ["a/run-001", "b/c/run-002"]
    assert named("/out/a", "/out/a/b") == ["a", "b"]
    assert names_of([]) == []


def test_a_video_s_length_is_told_or_the_latest_time_shown(tmp_path: Path) -> None:
    episodes = of(
        tmp_path,
        looking([1.0], {"seconds": 40}, id="told"),
        looking([2.0], id="a", video="w.mp4"),
        looking([8.0], {"seconds": True}, id="b", video="w.mp4"),
        looking([], {"seconds": "40"}, id="c", video="x.mp4"),
        looking([3.0], {"seconds": -1.0}, id="d", video="y.mp4"),
    )
    assert lengths_of(episodes) == [40.0, 8.0, 8.0, 0.0, 3.0]


def test_the_map_by_hand(tmp_path: Path) -> None:
    episodes = of(
        tmp_path,
        # of 40 s in 20 parts of 2 s: parts 0, 0, 10 and, at the very end, 19
        looking([0.0, 1.9], {"seconds": 40.0}, provenance={"step": 1}),
        looking([20.0, 40.0], {"seconds": 40.0}, provenance={"step": 1}, rollout=1),
        looking([], {"seconds": 40.0}, provenance={"step": 3}),
        looking([math.nan, -1.0, 41.0], {"seconds": 40.0}, provenance={"step": 4}),
    )
    one, three, four = map_of(range(4), episodes, lengths_of(episodes))
    assert (one.name, one.steps, one.frames) == ("1", (1, 1), 4)
    assert [(place, share) for place, share in enumerate(one.shares) if share] == [(0, 0.5), (10, 0.25), (19, 0.25)]
    assert (three.frames, sum(three.shares)) == (0, 0.0)
    assert (four.frames, four.shares[PLACES - 1]) == (1, 1.0)


def test_many_steps_share_columns(tmp_path: Path) -> None:
    steps = [10, 11, 12, 10 + 3 * MOST_COLUMNS - 1, 10 + 2**40]
    episodes = of(tmp_path, *(looking([1.0], provenance={"step": step}) for step in steps))
    lengths = lengths_of(episodes)
    # 3 * 40 steps: three a column
    columns = map_of(range(4), episodes, lengths)
    assert [(column.name, column.steps, column.frames) for column in columns] == [
        ("10-12", (10, 12), 3),
        ("127-129", (127, 129), 1),
    ]
    assert len(map_of(range(5), episodes, lengths)) == 2


def test_episodes_without_a_step_are_a_table_and_a_map_by_data_source(tmp_path: Path) -> None:
    other = looking([1.0], {"seconds": 2.0}, id="o")
    other = replace(other, qa=replace(other.qa, data_source="other"))
    episodes = of(tmp_path, record(reward=None), illegal("no", id="q2", acc=0.0), other)
    overview = overview_of(episodes, lengths_of(episodes))
    assert overview["charts"] == []
    first, second = overview["table"]
    assert (first["data_source"], first["episodes"], first["ends"]) == ("test", 2, {"answer": 1, "illegal": 1})
    # the one without rewards wasn't graded either
    assert (first["acc"], first["reward"], first["calls"], first["refused"]) == (0.0, 1.0, 0.5, 0.5)
    assert (second["data_source"], second["acc"], second["frames"]) == ("other", 1.0, 1.0)
    (looks,) = overview["maps"]
    assert [(column[0], column[1], column[2]) for column in looks["columns"]] == [("other", None, 1), ("test", None, 2)]


def test_signs_of_collapse_are_told(tmp_path: Path) -> None:
    metrics = {step: {"episode/tool_calls": 2.0 if step <= 5 else 0.0} for step in range(1, 11)}
    episodes, _ = load_episodes([write_run(tmp_path / "run-001", record(), metrics=metrics)])
    ((run, text),) = overview_of(episodes, lengths_of(episodes))["signs"]
    assert run == 0 and text.startswith("tool calls die out")


def test_numbers_at_the_edge_are_left_out(tmp_path: Path) -> None:
    metrics = {step: {"episode/reward_sampled": 1e308, "actor/entropy": 1e200} for step in range(1, 12)}
    run = write_run(tmp_path / "run-001", record(reward=1e308), record(reward=1e308, rollout=1), metrics=metrics)
    with (run / "metrics-001.jsonl").open("a") as lines:
        lines.write(
            '[1]\n{"step": "x", "data": {}}\n{"step": 12}\n{"step": 13, "data": {"actor/entropy": 1' + "0" * 400
        )
        lines.write('}}\n{"step": 14, "da')
    episodes, grouping = load_episodes([run])
    to_json(index_of(episodes, grouping, "t"))
    late = [looking([1e308, 1e-320], provenance={"step": step}, rollout=step) for step in (-(2**50), 2**50)]
    to_json(overview_of(found := of(tmp_path, *late), lengths_of(found)))
