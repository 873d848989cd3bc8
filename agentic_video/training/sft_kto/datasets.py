"""Data sets of SFT and KTO (verl's ``data.custom_cls``): trajectory records as the sequences that rollouts train on.

A batch of KTO also holds each question with another trajectory's response (turns, observations, images and clips), in
fields named ``mismatched_...``: the pairs that the reference point is estimated from.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator

from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.datasets.rows import reported, video_problem
from agentic_video.families.registry import family_of
from agentic_video.rollout.chat_template import kwargs_of
from agentic_video.rollout.replay import ReplayedSequence, ReplayError, replay
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.training.inputs.model_inputs import (
    raw_visuals,
    split_raw,
)
from agentic_video.training.inputs.spans import HIDDEN, hidden_spans, loss_in_tags, turns_with_loss
from agentic_video.training.sft_kto.kto import mismatch
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

MAX_SKIPPED = 16
"""Samples in a row that may have unreadable videos; more is no accident."""
MAX_DRIFT = 0.1
"""Seconds by which a frame's time may differ from the recorded one (backends round times differently)."""
MISMATCHED = "mismatched_"
"""Prefix of the fields of mismatched pairs."""
LABEL_FIELD = "provenance.label"
LABELS = {"desirable": True, "chosen": True, "undesirable": False, "rejected": False}


class LabelError(ValueError):
    """A record whose label can't be read; the message names the field."""


def label_of(record: Record, field: str = LABEL_FIELD) -> bool:
    """Return True if a trajectory is desirable.

    ``field`` is ``provenance.<name>``, which holds one of :data:`LABELS` or true or false, or
    ``reward_extra_info.<name>``, a number: desirable from 0.5 on.
    """
    source, _, name = field.partition(".")
    if source not in ("provenance", "reward_extra_info") or not name:
        raise ValueError(f"data.label_field={field!r}: expected provenance.<name> or reward_extra_info.<name>")
    values: Mapping[str, Any] = record.provenance if source == "provenance" else record.rewards
    if name not in values:
        raise LabelError(f"field '{field}' is missing (data.label_field says where the label is)")
    value = values[name]
    if isinstance(value, bool):
        return value
    if source == "reward_extra_info":
        return bool(value >= 0.5)
    if isinstance(value, str) and value in LABELS:
        return LABELS[value]
    raise LabelError(f"field '{field}' must be one of {sorted(LABELS)}, true or false, got {value!r}")


@dataclass(frozen=True, slots=True)
class Sample:
    """A sequence, by its number, of a recorded episode, whose line is unread: each rank holds the whole set."""

    line: RecordLine
    number: int
    label: bool | None = None


def by_ranks(items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Results of some work on all items, in order, on every rank of a distributed job; each does its share.

    Tokenising 250 thousand episodes is an hour for one process.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [work(item) for item in items]
    ranks = dist.get_world_size()
    shares: list[list[R]] = [[] for _ in range(ranks)]
    dist.all_gather_object(shares, [work(item) for item in items[dist.get_rank() :: ranks]])
    return [shares[number % ranks][number // ranks] for number in range(len(items))]


class TrajectoryDataset(Dataset):
    """One sample for each sequence of each recorded episode; loss on the model's own tokens only.

    Ids, mask, pixels and positions are made by the code that makes a rollout's. An unusable record is reported and left
    out; one whose video can't be read later is replaced by the next sample. ``parquet_files``, verl's name, are json
    lines: a list, or one string with commas in between; ``config`` is verl's ``data`` block with ``agentic_video``.
    """

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        if processor is None:
            raise ValueError("model.path: the checkpoint has no image processor; set a vision-language model")
        files = str(parquet_files).split(",") if isinstance(parquet_files, str | Path) else list(parquet_files)
        settings = settings_of(config)
        self._system, self._store_config, self._sft = settings.system, settings.frame_store, settings.sft
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
        self.problems = [printable(problem) for problem in found if isinstance(problem, str)]
        self._samples = [
            Sample(line, number, label)
            for line, samples in zip(lines, found, strict=True)
            if not isinstance(samples, str)
            for number, label in samples
        ]
        if not (dist.is_initialized() and dist.get_rank()):
            for text in reported(self.problems, "record", len(found)):
                logger.warning("%s", text)
        if not self._samples:
            first = f"; the first problem: {self.problems[0]}" if self.problems else ""
            raise ValueError(f"no usable record in {files}{first}")

    def _look_at(self, line: RecordLine) -> list[tuple[int, bool | None]] | str:
        """Number and label of each sample of a record, or why it has none."""
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
        return [(number, label) for number, sequence in enumerate(sequences) if any(sequence.response_mask)]

    def _label(self, record: Record) -> bool | None:
        """Whether an episode is desirable; SFT has no labels."""
        return None

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, item: int) -> dict[str, Any]:
        """A sample for verl's collator of unpadded batches, or the next one that can be read.

        It has ``input_ids`` and ``loss_mask`` (tokens,), ``position_ids`` (4, tokens) and ``multi_modal_inputs``:
        sizes, and pixels of which the engine makes patches.
        """
        for step in range(MAX_SKIPPED):
            number = (item + step) % len(self)
            try:
                sample = self._samples[number]
                record = sample.line.read()
                return self._inputs(record, self._sequences(record)[sample.number])
            except VideoError as error:
                if number not in self._unreadable:
                    self._unreadable.add(number)
                    line = self._samples[number].line
                    logger.warning("record left out: %s line %d: %s", line.path, line.number, error)
                last = error
        raise last

    def _inputs(self, record: Record, sequence: ReplayedSequence) -> dict[str, Any]:
        shown = self._shown(record.qa.video, sequence.visuals)
        ids = torch.tensor(sequence.ids, dtype=torch.int64)
        family = family_of(self._processor)
        sizes = family.sizes(self._processor, shown)
        inputs = {**raw_visuals(shown), **sizes}
        if self._sft.hidden:
            inputs = {**inputs, HIDDEN: torch.tensor(self._hidden(sequence), dtype=torch.int64).reshape(-1, 4)}
        return {
            "input_ids": ids,
            "loss_mask": torch.tensor(sequence.loss_mask, dtype=torch.int64),
            "position_ids": family.positions(self._processor, ids, sizes),
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
        mask, endings = list(sequence.loss_mask), self._format.end_markup
        for start, end in sequence.replies:
            # A reply's prefilled start may open a tag; it isn't learnt itself.
            chosen = loss_in_tags(sequence.ids[start:end], self._sft.loss_tags, self._format.decode, endings)
            mask[start:end] = [learnt & inside for learnt, inside in zip(mask[start:end], chosen, strict=True)]
        return replace(sequence, response_mask=tuple(mask[len(sequence.prompt_ids) :]))

    def _hidden(self, sequence: ReplayedSequence) -> list[tuple[int, int, int, int]]:
        turns = [(start, end) for _, start, end in sequence.turns]
        placeholders = self._format.visual_token_ids
        return hidden_spans(
            sequence.ids, len(sequence.prompt_ids), turns, self._sft.hidden, self._format.decode, placeholders
        )

    def _shown(self, video: str, references: Sequence[FrameRef | ClipRef]) -> list[Visual]:
        """The images and clips of a sequence, with their pixels."""
        found = iter(self._frames(video, recorded_frames(references)))
        return [
            Clip(tuple(replace(next(found), time=ref.time) for ref in visual.frames))  # the prompt holds their times
            if isinstance(visual, ClipRef)
            else next(found)
            for visual in references
        ]

    def _frames(self, video: str, references: Sequence[FrameRef]) -> list[Frame]:
        if self._store is None:
            self._store = FrameStore(self._store_config)
        frames: dict[FrameRef, Frame] = {ref: _made(video, ref) for ref in references if ref.made}
        stored = [ref for ref in references if not ref.made]
        for size in dict.fromkeys(map(_decoded_size, stored)):
            refs = [ref for ref in stored if _decoded_size(ref) == size]
            found = self._store.frames(video, [ref.index for ref in refs], size)
            for ref, frame in zip(refs, found, strict=True):
                if frame.index != ref.index:
                    raise VideoError(video, "corrupt", f"frame {ref.index}, which was shown, can't be decoded any more")
                if abs(ref.time - frame.time) > MAX_DRIFT:
                    drift = f"frame {ref.index} is shown at {frame.time:.2f} s, in the record at {ref.time:.2f} s"
                    raise VideoError(video, "out_of_range", f"{drift}: this isn't the file that was watched")
                frames[ref] = crop(frame, ref.crop.box, (ref.width, ref.height)) if ref.crop else frame
        return [frames[ref] for ref in references]


def _made(video: str, ref: FrameRef) -> Frame:
    """A picture that a tool made, from the record."""
    try:
        return Frame(ref.index, ref.time, ref.recorded())
    except ValueError as error:
        raise VideoError(video, "corrupt", f"frame {ref.index}, as a tool showed it: {error}") from error


def _decoded_size(ref: FrameRef) -> tuple[int, int]:
    """(width, height) in pixels at which a frame was decoded, before any crop."""
    return (ref.crop.frame_width, ref.crop.frame_height) if ref.crop else (ref.width, ref.height)


class KtoDataset(TrajectoryDataset):
    """One sample for each labelled episode; ``config`` has a ``label_field`` (see :func:`label_of`)."""

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        self._label_field = config.get("label_field", LABEL_FIELD)
        super().__init__(parquet_files, tokenizer, config, processor, max_samples)
        if self._system.context != "all":
            raise ValueError(
                f"agentic_video.system.context={self._system.context}: KTO weighs whole episodes, and system "
                f"{self._system.name} splits one into a sequence for each turn; set agentic_video.system.context=all"
            )
        self.labels = [bool(sample.label) for sample in self._samples]

    def _label(self, record: Record) -> bool:
        return label_of(record, self._label_field)

    def _inputs(self, record: Record, sequence: ReplayedSequence) -> dict[str, Any]:
        """A sample with its label, its question, and what is shown before and after the model's first token."""
        opening = sequence.ids[: sequence.loss_mask.index(1)]
        left, count = sum(opening.count(token) for token in self._format.visual_token_ids), 0
        for visual in sequence.visuals:
            left -= self._format.visual_tokens(visual)
            count += left >= 0
        return {
            **super()._inputs(record, sequence),
            "desirable": self._label(record),
            "question": f"{record.qa.video}\n{record.qa.id}",
            "shown": (sequence.visuals[:count], sequence.visuals[count:]),
        }


class KtoCollator:
    """Makes a batch of a rank's samples (at least two), with their mismatched pairs."""

    def __init__(self, processor: Any):
        self._processor = processor
        self._stack = SFTTensorCollator(DatasetPadMode.NO_PADDING)

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch, for verl's engine."""
        sequence_fields = ("input_ids", "loss_mask", "position_ids", "multi_modal_inputs")
        partners = mismatch([sample["question"] for sample in samples])
        pairs = [self.pair(sample, samples[other]) for sample, other in zip(samples, partners, strict=True)]
        batch = self._stack([{name: sample[name] for name in sequence_fields} for sample in samples])
        batch |= {MISMATCHED + name: value for name, value in self._stack(pairs).items()}
        batch["desirable"] = torch.tensor([sample["desirable"] for sample in samples])
        return batch

    def pair(self, asked: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, Any]:
        """A sample's opening with everything that follows another's, images and clips included."""
        (opening, before), (rest, after) = self._split(asked)[0], self._split(answered)[1]
        ids = torch.cat([asked["input_ids"][opening], answered["input_ids"][rest]])
        shown = [*asked["shown"][0], *answered["shown"][1]]
        family = family_of(self._processor)
        sizes = family.sizes(self._processor, shown)
        raw = {name: torch.cat([some[name] for some in (before, after) if some]) for name in before or after}
        return {
            "input_ids": ids,
            "loss_mask": torch.cat([asked["loss_mask"][opening], answered["loss_mask"][rest]]),
            "position_ids": family.positions(self._processor, ids, sizes),
            "multi_modal_inputs": {**raw, **sizes} if shown else {},
        }

    def _split(self, sample: Mapping[str, Any]) -> list[tuple[slice, dict[str, torch.Tensor]]]:
        """Tokens and raw pixels of a sample before and from the model's first token."""
        first = int(sample["loss_mask"].argmax())
        before, after = split_raw(sample["multi_modal_inputs"], len(sample["shown"][0]))
        return [(slice(first), before), (slice(first, None), after)]
