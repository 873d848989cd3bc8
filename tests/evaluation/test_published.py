"""The papers' numbers."""

import pytest

from agentic_video.evaluation.published import published, published_by_calls, published_for


def test_published_numbers_are_percent_of_known_papers() -> None:
    rows = published()
    assert {row.paper for row in rows} == {
        "VideoZoomer",
        "FrameThinker",
        "FrameMind",
        "VideoBrain",
        "EVA",
        "LongVT",
        "ParaVT",
        "TimeSearch-R",
        "Video-o3",
    }
    assert all(10 < row.accuracy < 100 and row.table for row in rows)
    keys = [(row.paper, row.benchmark, row.model, row.table, row.frames, row.calls) for row in rows]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("name", "accuracy"),
    [
        ("longvideobench", 57.7),
        ("LongVideoBench-val", 57.7),
        ("lvbench_test", 41.5),
        ("mlvu_test", 55.8),
        ("mlvu", None),
    ],
)
def test_a_benchmark_by_its_common_names(name: str, accuracy: float | None) -> None:
    found = [row.accuracy for row in published_for(name) if row.model == "VideoZoomer" and row.calls is None]
    assert found == ([] if accuracy is None else [accuracy])


def test_numbers_by_most_calls_are_in_order() -> None:
    benchmarks = {row.benchmark for row in published() if row.calls is not None}
    assert benchmarks
    for benchmark in benchmarks:
        calls = [row.calls for row in published_by_calls(benchmark)]
        assert len(calls) > 1 and calls == sorted(calls, key=lambda count: count or 0) and None not in calls
    assert published_by_calls("some other benchmark") == []
