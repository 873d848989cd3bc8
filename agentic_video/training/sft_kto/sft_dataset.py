"""The data set of SFT (verl's ``data.custom_cls``): trajectory records as the sequences that rollouts train on."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.utils.data import Dataset

from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.datasets.rows import reported, video_problem
from agentic_video.rollout.chat_template import kwargs_of
from agentic_video.rollout.replay import ReplayedSequence, ReplayError, replay
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.training.inputs.model_inputs import raw_visuals, rope_positions, visual_sizes
from agentic_video.training.inputs.spans import HIDDEN, hidden_spans, loss_in_tags, turns_with_loss
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Visual
from agentic_video.types.record import Record, RecordError, RecordLine, record_lines
from agentic_video.types.text import printable
from agentic_video.types.trajectory import ClipRef, FrameRef, recorded_frames
from agentic_video.video.errors import VideoError
from agentic_video.video.sizes import crop
from agentic_video.video.store import FrameStore

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

MAX_PASSED_OVER = 16
"""This many samples in a row may have videos that can't be read; more is no accident."""

MAX_DRIFT = 0.1
"""Seconds by which a frame's time may differ from the recorded one (backends round times differently)."""


class LabelError(ValueError):
    """A record whose label can't be read; the message names the field."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sequence of a recorded episode.

    Attributes:
        line: The record, unread: each rank holds the whole set.
        number: Which of the episode's sequences, from 0.
        label: See :class:`agentic_video.training.sft_kto.kto_dataset.KtoDataset`; None where there are no labels.
    """

    line: RecordLine
    number: int
    label: bool | None = None


def by_ranks(items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """The results of some work, each rank of a distributed job doing its share; all of them, in order, on every rank.

    Tokenising 250 thousand episodes is an hour for one process.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [work(item) for item in items]
    ranks = dist.get_world_size()
    shares: list[list[R]] = [[] for _ in range(ranks)]
    dist.all_gather_object(shares, [work(item) for item in items[dist.get_rank() :: ranks]])
    return [shares[number % ranks][number // ranks] for number in range(len(items))]


class TrajectoryDataset(Dataset):
    """One sample for each sequence of each recorded episode; loss on what the model said and on nothing else.

    Ids, mask, pixels and positions are made by the code that makes a rollout's. A record that can't be used is
    reported and left out; one whose video can't be read later is replaced by the next sample.

    Args:
        parquet_files: Files of records (json lines): a list, or one string with commas in between. verl's name.
        tokenizer: The model's.
        config: verl's ``data`` block, with ``agentic_video`` (the run's block of that name), ``max_prompt_length``,
            ``max_response_length``, ``check_videos`` and ``apply_chat_template_kwargs``.
        processor: The model's, with verl's ``get_rope_index``.
        max_samples: Use only the first so many records; -1 uses all.

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
        self._format = ChatFormat.of(processor, tokenizer, kwargs_of(config))
        self._limits = episode_limits(config, settings)
        self._processor = processor
        # Made in the process that reads samples: threads don't survive a fork.
        self._store: FrameStore | None = None
        self._unreadable: set[int] = set()

        self._check_videos = config.get("check_videos", "exists")
        self._videos: dict[str, str] = {}
        lines = record_lines(files)
        lines = lines[:max_samples] if max_samples > 0 else lines
        found = by_ranks(lines, self._look_at)
        self.problems = [printable(one) for one in found if isinstance(one, str)]
        self._samples = [
            Sample(line, number, label)
            for line, one in zip(lines, found, strict=True)
            if not isinstance(one, str)
            for number, label in one
        ]
        if not (dist.is_initialized() and dist.get_rank()):
            for text in reported(self.problems, "record", len(found)):
                logger.warning("%s", text)
        if not self._samples:
            first = f"; the first problem: {self.problems[0]}" if self.problems else ""
            raise ValueError(f"no usable record in {files}{first}")

    def _look_at(self, line: RecordLine) -> list[tuple[int, bool | None]] | str:
        """The number and label of each sample of a record, or why it has none."""
        try:
            record = line.read()
        except RecordError as error:
            return str(error)
        video = record.qa.video
        if video not in self._videos:
            self._videos[video] = video_problem(video, self._check_videos, self._store_config.damaged_share)
        try:
            if self._videos[video]:
                raise ReplayError(self._videos[video])
            label = self._label(record)
            sequences = self._sequences(record)
        except (ReplayError, LabelError) as error:
            return f"record of question {record.qa.id}: {error}"
        return [(number, label) for number, one in enumerate(sequences) if any(one.response_mask)]

    def _label(self, record: Record) -> bool | None:
        """Whether an episode is desirable, where samples have labels. SFT's have none."""
        return None

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, item: int) -> dict[str, Any]:
        """A sample as verl's collator for unpadded batches wants it.

        Returns:
            ``input_ids``, ``loss_mask`` of shape (tokens,), ``position_ids`` of shape (4, tokens) and
            ``multi_modal_inputs``: sizes, and pixels of which the engine makes patches.

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
                    line = self._samples[number].line
                    logger.warning("record left out: %s line %d: %s", line.path, line.number, error)
                last = error
        raise last

    def sample(self, item: int) -> dict[str, Any]:
        """As ``[item]``, but exactly this one.

        Raises:
            VideoError: Its video can't be read.
        """
        sample = self._samples[item]
        return self._inputs(sample.line.read(), sample.number)

    def _inputs(self, record: Record, number: int) -> dict[str, Any]:
        sequence = self._sequences(record)[number]
        shown = self._shown(record.qa.video, sequence.visuals)
        ids = torch.tensor(sequence.ids, dtype=torch.int64)
        sizes = visual_sizes(self._processor, shown)
        inputs = {**raw_visuals(shown), **sizes}
        if self._sft.hidden:
            inputs = {**inputs, HIDDEN: torch.tensor(self._hidden(sequence), dtype=torch.int64).reshape(-1, 4)}
        return {
            "input_ids": ids,
            "loss_mask": torch.tensor(sequence.loss_mask, dtype=torch.int64),
            "position_ids": rope_positions(self._processor, ids, sizes),
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
        frames: dict[FrameRef, Frame] = {one: _made(video, one) for one in references if one.made}
        stored = [one for one in references if not one.made]
        for size in dict.fromkeys(map(_decoded_size, stored)):
            wanted = [one for one in stored if _decoded_size(one) == size]
            found = self._store.frames(video, [one.index for one in wanted], size)
            for one, frame in zip(wanted, found, strict=True):
                if frame.index != one.index:
                    raise VideoError(video, "corrupt", f"frame {one.index}, which was shown, can't be decoded any more")
                if abs(one.time - frame.time) > MAX_DRIFT:
                    drift = f"frame {one.index} is shown at {frame.time:.2f} s, in the record at {one.time:.2f} s"
                    raise VideoError(video, "out_of_range", f"{drift}: this isn't the file that was watched")
            frames.update((one, _cut_again(one, frame)) for one, frame in zip(wanted, found, strict=True))
        return [frames[one] for one in references]


def _made(video: str, one: FrameRef) -> Frame:
    """A picture that a tool made, as the record holds it."""
    try:
        return Frame(one.index, one.time, one.recorded())
    except ValueError as error:
        raise VideoError(video, "corrupt", f"frame {one.index}, as a tool showed it: {error}") from error


def _decoded_size(one: FrameRef) -> tuple[int, int]:
    """(width, height) in pixels at which a frame was decoded, be it to be cut afterwards."""
    return (one.crop.frame_width, one.crop.frame_height) if one.crop else (one.width, one.height)


def _cut_again(one: FrameRef, frame: Frame) -> Frame:
    return crop(frame, one.crop.box, (one.width, one.height)) if one.crop else frame
