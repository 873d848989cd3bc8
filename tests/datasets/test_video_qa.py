import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentic_video.datasets.rows import load_rows
from agentic_video.datasets.video_qa import VideoQADataset
from agentic_video.types.row import RowError


def row(video: str, **change: object) -> dict:
    return {
        "id": video,
        "data_source": "d",
        "video": video,
        "question": "What?",
        "options": ["x", "y"],
        "answer": "A",
        "answer_type": "multiple_choice",
        **change,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "good.mp4").write_bytes(b"not a video, but not empty")
    (tmp_path / "empty.mp4").touch()
    return tmp_path


def test_bad_rows_are_left_out_and_counted(folder: Path) -> None:
    rows = [row("good.mp4"), row("missing.mp4"), row("empty.mp4"), row("good.mp4", answer="Z"), row("good.mp4")]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")
    dataset = VideoQADataset(str(folder / "train.parquet"), config={})
    assert len(dataset) == 2
    assert [problem.split(":")[0] for problem in dataset.problems] == [f"train.parquet row {i}" for i in (1, 2, 3)]
    assert "no such file" in dataset.problems[0]
    assert "empty" in dataset.problems[1]


def test_relative_videos_start_at_the_file(folder: Path) -> None:
    (folder / "train.jsonl").write_text(json.dumps(row("good.mp4")) + "\n", encoding="utf-8")
    item = VideoQADataset([folder / "train.jsonl"], config={})[0]
    assert item["video_qa"]["video"] == str((folder / "good.mp4").resolve())
    assert item["reward_model"]["ground_truth"] == "A"
    assert item["raw_prompt"][0]["content"] == "What?"


def test_probe_opens_each_video(folder: Path) -> None:
    (folder / "train.jsonl").write_text(json.dumps(row("good.mp4")), encoding="utf-8")
    assert len(load_rows([folder / "train.jsonl"], "exists")[0]) == 1
    with pytest.raises(RowError, match=r"no usable row.*good\.mp4"):
        load_rows([folder / "train.jsonl"], "probe")


def test_files_that_cannot_be_read_say_so(folder: Path) -> None:
    (folder / "bad.parquet").write_text("no parquet")
    (folder / "rows.txt").write_text("x")
    for name, reason in (("none.parquet", "no such file"), ("bad.parquet", "can't be read"), ("rows.txt", "expected")):
        with pytest.raises(RowError, match=reason):
            load_rows([folder / name])
