"""The data set class that verl loads (``data.custom_cls``): rows of the schema, checked."""

import logging
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from agentic_video.datasets.rows import load_rows, reported
from agentic_video.video.damage import DAMAGED_SHARE

logger = logging.getLogger(__name__)


class VideoQADataset(Dataset):
    """Questions about videos for verl's trainer. A row that can't be used is reported and excluded.

    Args:
        data_files: Parquet or jsonl files of rows (``agentic_video.types.row``): a list, or a string with commas.
        config: verl's ``data`` block; ``check_videos`` (``exists``, ``probe`` or ``decode``) and ``damaged_share`` are
            ours.
        max_samples: Most rows; -1 uses all.
    """

    def __init__(
        self, data_files: Any, tokenizer: Any = None, processor: Any = None, config: Any = None, max_samples: int = -1
    ):
        files = str(data_files).split(",") if isinstance(data_files, str | Path) else list(data_files)
        check = (config or {}).get("check_videos", "exists")
        share = (config or {}).get("damaged_share", DAMAGED_SHARE)
        self.rows, self.problems = load_rows(files, check, damaged_share=share)
        if check == "probe":
            logger.info("videos were opened, not decoded: damaged frames inside them are found by check_videos=decode")
        for line in reported(self.problems, "row", len(self.problems) + len(self.rows)):
            logger.warning("%s", line)
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
