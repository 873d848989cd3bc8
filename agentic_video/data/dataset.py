"""The data set class that verl loads (``data.custom_cls``): rows of the schema, checked."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from torch.utils.data import Dataset

from agentic_video.data.schema import RowError, VideoQA
from agentic_video.video.reader import VideoError, open_video

logger = logging.getLogger(__name__)

MAX_REPORTED = 10
"""This many bad rows are named; the others are only counted."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All rows of a parquet or jsonl file.

    Raises:
        RowError: The file is missing, of another kind, or can't be read.
    """
    if not path.is_file():
        raise RowError(f"{path}: no such file; set data.train_files and data.val_files to parquet or jsonl files")
    try:
        if path.suffix == ".parquet":
            return list(pq.read_table(path).to_pylist())
        if path.suffix in (".jsonl", ".json"):
            with path.open(encoding="utf-8") as lines:
                return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise RowError(f"{path}: can't be read: {error}") from error
    raise RowError(f"{path}: expected .parquet or .jsonl")


def load_rows(paths: Sequence[str | Path], check_videos: str = "exists") -> tuple[list[VideoQA], list[str]]:
    """Read and check the rows of several files.

    Args:
        paths: Parquet or jsonl files.
        check_videos: ``exists`` looks whether each video file is there and not empty, ``probe`` opens each one.

    Returns:
        The good rows, their videos as absolute paths, and one message for each bad row.

    Raises:
        RowError: A file can't be read at all, or no row is left.
    """
    rows: list[VideoQA] = []
    problems: list[str] = []
    probed: dict[str, str] = {}
    for path in map(Path, paths):
        for number, raw in enumerate(read_rows(path)):
            where = f"{path.name} row {number}"
            try:
                if not isinstance(raw, Mapping):
                    raise RowError(f"{where}: expected an object, got {type(raw).__name__}")
                qa = VideoQA.from_row(raw, where)
                video = str((path.parent / qa.video).resolve())
                if video not in probed:
                    probed[video] = video_problem(video, check_videos)
                if probed[video]:
                    raise RowError(f"{where}: field 'video': {probed[video]}")
            except RowError as error:
                problems.append(str(error))
                continue
            rows.append(VideoQA(**{**qa.__dict__, "video": video}))
    if not rows:
        first = f"; the first problem: {problems[0]}" if problems else ""
        raise RowError(f"no usable row in {[str(path) for path in paths]}{first}")
    return rows, problems


def video_problem(video: str, check: str) -> str:
    """What is wrong with a video's file, if anything (see :func:`load_rows`)."""
    path = Path(video)
    if not path.is_file():
        return f"{video}: no such file"
    if path.stat().st_size == 0:
        return f"{video}: the file is empty"
    if check == "probe":
        try:
            with open_video(video):
                pass
        except VideoError as error:
            return str(error)
    return ""


class VideoQADataset(Dataset):
    """Questions about videos for verl's trainer. A row that can't be used is reported and left out.

    Args:
        data_files: Parquet or jsonl files of the schema in ``agentic_video.data.schema``: a list, or one string
            with commas in between.
        tokenizer: Not needed; verl passes it.
        processor: Not needed; verl passes it.
        config: verl's ``data`` block; ``check_videos`` is ours (``exists`` or ``probe``).
        max_samples: Use only this many rows; -1 uses all.

    Raises:
        RowError: No usable row is left.
    """

    def __init__(
        self, data_files: Any, tokenizer: Any = None, processor: Any = None, config: Any = None, max_samples: int = -1
    ):
        files = str(data_files).split(",") if isinstance(data_files, str | Path) else list(data_files)
        check = (config or {}).get("check_videos", "exists")
        self.rows, self.problems = load_rows(files, check)
        for problem in self.problems[:MAX_REPORTED]:
            logger.warning("row left out: %s", problem)
        if self.problems:
            logger.warning("%d of %d rows left out", len(self.problems), len(self.problems) + len(self.rows))
        if max_samples > 0:
            self.rows = self.rows[:max_samples]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> dict[str, Any]:
        qa = self.rows[item]
        return {
            "raw_prompt": [{"role": "user", "content": qa.question}],
            "video_qa": qa.to_row(),
            "data_source": qa.data_source,
            "reward_model": {"style": "rule", "ground_truth": qa.answer},
            "extra_info": {"index": item},
            "index": item,
            "dummy_tensor": torch.tensor([0], dtype=torch.uint8),
        }
