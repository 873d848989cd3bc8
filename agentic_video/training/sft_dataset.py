"""The data set of SFT (verl's ``data.custom_cls``): trajectory records as the sequences that rollouts train on."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.datasets.rows import MAX_REPORTED, video_problem
from agentic_video.rollout.replay import ReplayedSequence, ReplayError, replay
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.training.model_inputs import model_inputs
from agentic_video.training.spans import HIDDEN, hidden_spans, loss_in_tags, turns_with_loss
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Visual
from agentic_video.types.record import Record, load_records
from agentic_video.types.text import printable
from agentic_video.types.trajectory import ClipRef, FrameRef, recorded_frames
from agentic_video.video.crop import crop
from agentic_video.video.errors import VideoError
from agentic_video.video.store import FrameStore

logger = logging.getLogger(__name__)

MAX_PASSED_OVER = 16
"""This many samples in a row may have videos that can't be read; more is no accident."""

MAX_DRIFT = 0.1
"""Seconds by which a frame's time may differ from the recorded one (backends round times differently)."""


class TrajectoryDataset(Dataset):
    """One sample for each sequence of each recorded episode; loss on what the model said and on nothing else.

    Ids, mask, images and positions are made by the code that makes a rollout's. A record that can't be used is
    reported and left out; one whose video can't be read later is replaced by the next sample.

    Args:
        parquet_files: Files of records (json lines): a list, or one string with commas in between. verl's name.
        tokenizer: The model's.
        config: verl's ``data`` block, with ``agentic_video`` (the run's block of that name), ``max_prompt_length``,
            ``max_response_length`` and ``check_videos``.
        processor: The model's, with verl's ``get_rope_index``.
        max_samples: Use only this many records; -1 uses all.

    Raises:
        ValueError: No usable record is left.
    """

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        if processor is None:
            raise ValueError("the checkpoint has no image processor: model.path must be a vision-language model")
        files = str(parquet_files).split(",") if isinstance(parquet_files, str | Path) else list(parquet_files)
        settings = settings_of(config)
        self._system, self._store_config = settings.system, settings.frame_store
        self._sft = settings.sft
        self._format = ChatFormat.of(processor, tokenizer)
        self._limits = episode_limits(config, settings)
        self._processor = processor
        # Made in the process that reads samples: threads don't survive a fork.
        self._store: FrameStore | None = None
        self._unreadable: set[int] = set()

        records, self.problems = load_records(files)
        self._samples: list[tuple[Record, int]] = []
        videos: dict[str, str] = {}
        for record in records[:max_samples] if max_samples > 0 else records:
            video = record.qa.video
            if video not in videos:
                videos[video] = video_problem(video, config.get("check_videos", "exists"))
            try:
                if videos[video]:
                    raise ReplayError(videos[video])
                self._samples += [
                    (record, number) for number, one in enumerate(self._sequences(record)) if any(one.response_mask)
                ]
            except ReplayError as error:
                self.problems.append(printable(f"record of question {record.qa.id}: {error}"))
        for problem in self.problems[:MAX_REPORTED]:
            logger.warning("row left out: %s", problem)
        if self.problems:
            logger.warning("%d of %d rows left out", len(self.problems), len(self.problems) + len(self._used()))
        if not self._samples:
            first = f"; the first problem: {self.problems[0]}" if self.problems else ""
            raise ValueError(f"no usable record in {files}{first}")

    def _used(self) -> set[int]:
        return {id(record) for record, _ in self._samples}

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, item: int) -> dict[str, Any]:
        """A sample as verl's collator for unpadded batches wants it.

        Returns:
            ``input_ids``, ``loss_mask`` of shape (tokens,), ``position_ids`` of shape (4, tokens) and
            ``multi_modal_inputs``.

        Raises:
            VideoError: The videos of many samples in a row can't be read.
        """
        for step in range(MAX_PASSED_OVER):
            number = (item + step) % len(self)
            try:
                return self.sample(number)
            except VideoError as error:
                if number not in self._unreadable:
                    self._unreadable.add(number)
                    logger.warning("row left out: record of question %s: %s", self._samples[number][0].qa.id, error)
                last = error
        raise last

    def sample(self, item: int) -> dict[str, Any]:
        """As ``[item]``, but exactly this one.

        Raises:
            VideoError: Its video can't be read.
        """
        record, number = self._samples[item]
        sequence = self._sequences(record)[number]
        shown = self._shown(record.qa.video, sequence.visuals)
        ids = torch.tensor(sequence.ids, dtype=torch.int64)
        positions, inputs = model_inputs(self._processor, ids, shown)
        if self._sft.hidden:
            inputs = {**inputs, HIDDEN: torch.tensor(self._hidden(sequence), dtype=torch.int64).reshape(-1, 4)}
        return {
            "input_ids": ids,
            "loss_mask": torch.tensor(sequence.loss_mask, dtype=torch.int64),
            "position_ids": positions,
            "multi_modal_inputs": inputs,
        }

    def _sequences(self, record: Record) -> tuple[ReplayedSequence, ...]:
        trajectory = record.trajectory
        try:
            learnt = turns_with_loss(self._sft.loss_turns, len(trajectory.turns), record.qa.extra.get("loss_turns"))
        except ValueError as error:
            raise ReplayError(str(error)) from error
        turns = (
            turn if number in learnt else replace(turn, loss_mask=False) for number, turn in enumerate(trajectory.turns)
        )
        trajectory = replace(trajectory, turns=tuple(turns))
        sequences = asyncio.run(replay(trajectory, record.qa, self._system, self._format, self._limits))
        return tuple(map(self._with_loss_in_tags, sequences)) if self._sft.loss_tags else sequences

    def _with_loss_in_tags(self, sequence: ReplayedSequence) -> ReplayedSequence:
        mask, endings = list(sequence.loss_mask), frozenset(self._format.eos_ids)
        for start, end in sequence.replies:
            # What a reply was made to start with may open a tag; it isn't learnt itself.
            chosen = loss_in_tags(sequence.ids[start:end], self._sft.loss_tags, self._format.decode, endings)
            mask[start:end] = [one & other for one, other in zip(mask[start:end], chosen, strict=True)]
        return replace(sequence, response_mask=tuple(mask[len(sequence.prompt_ids) :]))

    def _hidden(self, sequence: ReplayedSequence) -> list[tuple[int, int, int, int]]:
        turns = [(start, end) for _, start, end in sequence.turns]
        placeholders = frozenset({self._processor.image_token_id, self._processor.video_token_id})
        return hidden_spans(
            sequence.ids, len(sequence.prompt_ids), turns, self._sft.hidden, self._format.decode, placeholders
        )

    def _shown(self, video: str, references: Sequence[FrameRef | ClipRef]) -> list[Visual]:
        """The images and clips of a sequence, with their pixels."""
        found = iter(self._frames(video, recorded_frames(references)))
        return [
            Clip(tuple(replace(next(found), time=ref.time) for ref in one.frames))  # a model is told the times
            if isinstance(one, ClipRef)
            else next(found)
            for one in references
        ]

    def _frames(self, video: str, references: Sequence[FrameRef]) -> list[Frame]:
        if self._store is None:
            self._store = FrameStore(self._store_config)
        frames: dict[FrameRef, Frame] = {}
        for size in dict.fromkeys(map(_decoded_size, references)):
            wanted = [one for one in references if _decoded_size(one) == size]
            found = self._store.frames(video, [one.index for one in wanted], size)
            for one, frame in zip(wanted, found, strict=True):
                if abs(one.time - frame.time) > MAX_DRIFT:
                    drift = f"frame {one.index} is shown at {frame.time:.2f} s, in the record at {one.time:.2f} s"
                    raise VideoError(video, "out_of_range", f"{drift}: this isn't the file that was watched")
            frames.update((one, _cut_again(one, frame)) for one, frame in zip(wanted, found, strict=True))
        return [frames[one] for one in references]


def _decoded_size(one: FrameRef) -> tuple[int, int]:
    """(width, height) in pixels at which a frame was decoded, be it to be cut afterwards."""
    return (one.crop.frame_width, one.crop.frame_height) if one.crop else (one.width, one.height)


def _cut_again(one: FrameRef, frame: Frame) -> Frame:
    return crop(frame, one.crop.box, (one.width, one.height)) if one.crop else frame
