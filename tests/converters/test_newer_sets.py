"""Other forms and splits of the sets of 2025 and 2026, on rows written by hand."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agentic_video.converters import CONVERTERS
from agentic_video.converters.base import ConvertError
from agentic_video.converters.mmvu import DISCIPLINES
from agentic_video.converters.run import Report, convert
from agentic_video.datasets.rows import load_rows
from agentic_video.types.row import RowError, VideoQA
from tests.converters.published import SAMPLES, WRITERS, Sample


def rows_of(folder: Path, name: str, rows: Any = None, **options: Any) -> tuple[list[dict[str, Any]], Report]:
    sample = SAMPLES[name]
    sample.write(folder, rows)
    report = convert(CONVERTERS[name], folder / "source", folder / "videos", folder / "rows.jsonl", **options)
    out = folder / "rows.jsonl"
    return [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else [], report


def test_egoschema_s_full_set_has_no_answers(tmp_path: Path) -> None:
    (row,), report = rows_of(tmp_path, "egoschema", split="full")
    assert (row["answer"], row["extra_info"]["answer_hidden"]) == ("", True)
    assert "answer_text" not in row["extra_info"] and report.official_rows == 5_031
    qa = VideoQA.from_row(row)
    assert qa.hidden and VideoQA.from_row(qa.to_row()) == qa
    (loaded,), problems = load_rows([tmp_path / "rows.jsonl"], hidden=True)
    assert loaded.hidden and not problems
    # training has no use for it
    with pytest.raises(RowError, match="isn't published"):
        load_rows([tmp_path / "rows.jsonl"])


@pytest.mark.parametrize("change", [{"answer": "A"}, {"options": [], "answer_type": "interval", "windows": [[1, 2]]}])
def test_an_answer_is_hidden_or_there(change: dict[str, Any]) -> None:
    row = {"id": "a", "video": "v", "question": "q", "options": ["x", "y"], "extra_info": {"answer_hidden": True}}
    VideoQA.from_row(row)
    with pytest.raises(RowError, match="answer_hidden"):
        VideoQA.from_row(row | change)


def test_an_answer_that_is_just_missing_is_an_error() -> None:
    row = {"id": "a", "video": "v", "question": "q", "options": ["x", "y"], "extra_info": {"answer_hidden": False}}
    with pytest.raises(RowError, match="'answer'"):
        VideoQA.from_row(row)


def test_egoschema_of_the_hub(tmp_path: Path) -> None:
    row = {
        "question_idx": "0",
        "question": "What?",
        "video_idx": "u1",
        "answer": "4",
        "option": ["A. a", "B. b", "C. c", "D. d", "E. e"],
    }
    file = tmp_path / "source/Subset/test-00000-of-00001.parquet"
    file.parent.mkdir(parents=True)
    WRITERS[".parquet"](file, [row])
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos/u1.MP4").write_bytes(b"x")
    out = tmp_path / "rows.jsonl"
    convert(CONVERTERS["egoschema"], tmp_path / "source", tmp_path / "videos", out, split="subset_hub")
    (made,) = map(json.loads, out.read_text().splitlines())
    assert (made["options"], made["answer"]) == (["a", "b", "c", "d", "e"], "E")


def test_egoschema_s_answers_out_of_range(tmp_path: Path) -> None:
    sample: Sample = SAMPLES["egoschema"]
    sample.write(tmp_path)
    (tmp_path / "source/subset_answers.json").write_text('{"001934bb-81bd": 5}')
    report = convert(CONVERTERS["egoschema"], tmp_path / "source", tmp_path / "videos", tmp_path / "r.jsonl")
    assert report.counts == {"bad_row": 1} and "001934bb-81bd" in report.problems[0].message


@pytest.mark.parametrize(("split", "ids"), [("multiple_choice", ["0"]), ("open_ended", ["1"]), ("val", ["0", "1"])])
def test_mmvu_by_kind(split: str, ids: list[str], tmp_path: Path) -> None:
    rows, _ = rows_of(tmp_path, "mmvu", split=split)
    assert [row["id"] for row in rows] == [f"mmvu-validation_{one}" for one in ids]


def test_mmvu_s_subjects(tmp_path: Path) -> None:
    rows, _ = rows_of(tmp_path, "mmvu")
    assert [(row["extra_info"]["category"], row["extra_info"]["discipline"]) for row in rows] == [
        ("Art", "Humanities and Social Science"),
        ("Modern Physics", "Science"),  # by the folder: the metadata names none
    ]
    assert len(DISCIPLINES) == 27 and len(set(DISCIPLINES.values())) == 4


def test_videoeval_pro_as_multiple_choice(tmp_path: Path) -> None:
    (row,), _ = rows_of(tmp_path, "videoeval_pro", split="mcq")
    assert (row["options"], row["answer"]) == (["Ann", "Bea"], "B")


def test_video_r1_s_open_questions_about_videos(tmp_path: Path) -> None:
    (row,), report = rows_of(tmp_path, "video_r1", split="open_ended")
    assert (row["id"], row["question"], row["answer"]) == ("video_r1-13", "How many?", "4")
    assert (row["options"], row["answer_type"]) == ([], "open_ended")
    assert row["extra_info"]["kind"] == "numerical" and report.problems == []


def test_longtimescope_s_first_release(tmp_path: Path) -> None:
    row = {key: value for key, value in SAMPLES["longtimescope"].rows[0].items() if key != "id"} | {"index": 3}
    (made,), _ = rows_of(tmp_path, "longtimescope", [row])
    assert made["id"] == "longtimescope-OCR-3"


@pytest.mark.parametrize(
    "address", ["0A1b2C3d4E5", "https://youtu.be/0A1b2C3d4E5", "https://y.com/w?x=1&v=0A1b2C3d4E5"]
)
def test_minerva_s_videos(address: str, tmp_path: Path) -> None:
    row = {**SAMPLES["minerva"].rows[0], "video_id": address}
    row["question_type"] = row.pop("question type")
    (made,), _ = rows_of(tmp_path, "minerva", [row])
    assert made["video"] == "videos/0A1b2C3d4E5.webm"


@pytest.mark.parametrize(
    ("metadata", "windows", "bad"),
    [
        (None, None, 0),
        ("not json", None, 0),
        ('{"timestamps": ["00:01-00:02"]}', [[1.0, 2.0]], 0),
        ({"timestamps": ["00:08", 3]}, None, 1),
        ({"timestamps": ["00:09-00:08"]}, None, 1),
        ({"timestamps": {"a": 1}}, None, 0),
    ],
)
def test_herbench_s_evidence(metadata: Any, windows: Any, bad: int, tmp_path: Path) -> None:
    row = copy.deepcopy(SAMPLES["herbench"].rows[0]) | {"metadata": metadata}
    (made,), report = rows_of(tmp_path, "herbench", [row])
    assert made.get("windows") == windows and report.counts.get("bad_part", 0) == bad


def test_longvt_s_download_holds_training_validation_and_sft(tmp_path: Path) -> None:
    sample = SAMPLES["longvt"]
    sample.write(tmp_path)
    source = tmp_path / "source"
    (source / "rl.parquet").unlink()
    for name, asked in (("rl_selfqa_1.7k_cleaned", "What falls?"), ("rl_selfqa_test", "What breaks?")):
        extra = {**sample.rows[0]["extra_info"], "question": asked}  # both files number from 0
        WRITERS[".parquet"](source / f"{name}.parquet", [{**sample.rows[0], "extra_info": extra}])
    WRITERS[".parquet"](source / "longvt_sft_tvg_6k3.parquet", [{"messages": [{"role": "user", "content": "hi"}]}])
    found = {}
    for split in CONVERTERS["longvt"].splits:
        out = tmp_path / f"{split}.jsonl"
        report = convert(CONVERTERS["longvt"], source, tmp_path / "videos", out, split=split)
        assert report.problems == []
        found[split] = [(row["id"], row["question"]) for row in map(json.loads, out.read_text().splitlines())]
    assert found == {
        "train": [("longvt-rl_selfqa_1.7k_cleaned-7", "What falls?")],
        "test": [("longvt-rl_selfqa_test-7", "What breaks?")],
    }


def test_longvt_s_test_alone_is_no_training_set(tmp_path: Path) -> None:
    SAMPLES["longvt"].write(tmp_path)
    (tmp_path / "source" / "rl.parquet").rename(tmp_path / "source" / "rl_selfqa_test.parquet")
    with pytest.raises(ConvertError, match=r"no file rl_selfqa_\*_cleaned\.parquet or"):
        convert(CONVERTERS["longvt"], tmp_path / "source", tmp_path / "videos", tmp_path / "rows.jsonl")
