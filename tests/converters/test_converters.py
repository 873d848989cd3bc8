"""Every converter on a good file in its published format, and on files that are damaged in every way."""

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from agentic_video.converters import CONVERTERS
from agentic_video.converters.run import Report, convert, report_path
from agentic_video.datasets.rows import load_rows
from tests.converters.published import SAMPLES, Sample

NAMES = sorted(SAMPLES)


def run(name: str, folder: Path, out: str = "rows.parquet", **options: Any) -> Report:
    sample = SAMPLES[name]
    options.setdefault("split", sample.split)
    return convert(CONVERTERS[name], folder / "source", folder / "videos", folder / out, **options)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(path).to_pylist()) if path.is_file() else []


def test_every_converter_has_a_sample() -> None:
    assert set(SAMPLES) == set(CONVERTERS)


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    sample.write(tmp_path)
    report = run(name, tmp_path)

    rows = rows_of(tmp_path / "rows.parquet")
    got = [(row["id"], row["video"], row["question"], row["options"], row["answer"]) for row in rows]
    assert got == [
        (f"{name}-{identity}", f"videos/{video}", question, options, answer)
        for identity, video, question, options, answer in sample.expected
    ]
    assert {key: rows[0]["extra_info"][key] for key in sample.extra} == dict(sample.extra)
    assert [row.get("windows") for row in rows] == list(sample.windows or [None] * len(rows))
    assert {row["data_source"] for row in rows} == {name}
    assert [problem for problem in report.problems if problem.kind != "unsupported"] == []
    assert report.rows == len(rows)
    # What training and evaluation read
    loaded, problems = load_rows([tmp_path / "rows.parquet"])
    assert (len(loaded), problems) == (len(rows), [])


def without(rows: Any, path: str, how: str) -> Any:
    """Rows whose first one has a bad field at a path like ``qa.0.uid``."""
    rows = copy.deepcopy(rows)
    at = next(iter(rows.values())) if isinstance(rows, dict) else rows[0]
    *parents, last = path.split(".")
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    if how == "missing":
        del at[last]
    else:
        at[last] = {"null": None, "object": {"un": "expected"}, "number": -7.5}[how]
    return rows


@pytest.mark.parametrize(
    ("name", "path", "how"),
    [
        (name, path, how)
        for name in NAMES
        for path in SAMPLES[name].fields
        for how in ("missing", "null", "object", "number")
        if how == "missing" or not SAMPLES[name].file.endswith((".parquet", ".csv"))  # a column has one type there
    ],
)
def test_bad_field_is_named_and_the_rest_is_converted(name: str, path: str, how: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    last = path.split(".")[-1]
    written = sample.write(tmp_path, without(sample.rows, path, how))
    report = run(name, tmp_path)

    bad = [problem for problem in report.problems if problem.kind in ("bad_row", "missing_video")]
    assert bad, f"{path} made {how} went unnoticed"
    place = "line 1" if written.suffix == ".jsonl" else "row 0"
    assert bad[0].where == f"{sample.file} {place}"
    if bad[0].kind == "bad_row":
        assert sample.file in bad[0].message
        assert f"{last}'" in bad[0].message or f"{last}[" in bad[0].message or path.split(".")[0] in bad[0].message
    assert report.rows < len(sample.expected)
    saved = json.loads(report_path(tmp_path / "rows.parquet").read_text(encoding="utf-8"))
    assert saved["counts"] == report.counts
    assert saved["problems"][0]["where"] == report.problems[0].where


@pytest.mark.parametrize("name", NAMES)
def test_truncated_file(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    path = sample.write(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    report = run(name, tmp_path)
    assert report.problems
    assert report.problems[-1].where.startswith(sample.file)
    assert report.problems[-1].kind in ("bad_file", "bad_row")
    assert report.rows < len(sample.expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [b"", b"  \n", b"\xff\xfe\x00garbage", b"[[1], 2, null]", b"[]"])
def test_empty_and_foreign_files(name: str, content: bytes, tmp_path: Path) -> None:
    path = SAMPLES[name].write(tmp_path)
    path.write_bytes(content)
    report = run(name, tmp_path)
    assert report.rows == 0
    assert not (tmp_path / "rows.parquet").exists()
    assert report.problems
    assert SAMPLES[name].file in report.problems[0].where


@pytest.mark.parametrize("name", NAMES)
def test_missing_video_and_duplicate(name: str, tmp_path: Path) -> None:
    sample: Sample = SAMPLES[name]
    sample.write(tmp_path)
    for video in sample.videos:
        (tmp_path / "videos" / video).unlink()
    report = run(name, tmp_path)
    assert report.counts["missing_video"] == len(sample.expected)
    assert sample.expected[0][1].split("/")[-1].split(".")[0] in report.problems[0].message


REPEATED = sorted(
    set(NAMES)
    - {"lsdbench", "mvbench", "mlvu", "videoespresso", "llava_video", "elv_halluc", "tempcompass", "perception_test"}
    - {"charades_sta", "activitynet_captions", "timesearch", "videoeval_pro", "videosiah_eval"}
)
"""Data sets with ids of their own (the others' are made of the row's place)."""


@pytest.mark.parametrize("name", REPEATED)
def test_duplicate_ids_are_left_out(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    sample.write(tmp_path, [*sample.rows, sample.rows[0]])
    report = run(name, tmp_path)
    assert report.counts["duplicate_id"] >= 1
    assert report.rows == len(sample.expected)
