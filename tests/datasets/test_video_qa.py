import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from agentic_video.datasets.video_qa import VideoQADataset
from tests.datasets.conftest import row


def test_bad_rows_are_left_out_and_counted(folder: Path) -> None:
    rows = [row("good.mp4"), row("missing.mp4"), row("empty.mp4"), row("good.mp4", answer="Z"), row("good.mp4")]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")
    dataset = VideoQADataset(str(folder / "train.parquet"), config={})
    assert len(dataset) == 2
    assert [problem.where for problem in dataset.problems] == [f"{folder / 'train.parquet'} row {i}" for i in (1, 2, 3)]
    assert "no such file" in dataset.problems[0].message
    assert "empty" in dataset.problems[1].message


def test_relative_videos_start_at_the_file(folder: Path) -> None:
    (folder / "train.jsonl").write_text(json.dumps(row("good.mp4")) + "\n", encoding="utf-8")
    item = VideoQADataset([folder / "train.jsonl"], config={})[0]
    assert item["video_qa"]["video"] == str((folder / "good.mp4").resolve())
    assert item["reward_model"]["ground_truth"] == "A"
    assert item["raw_prompt"][0]["content"] == "What?"
