"""The data set of KTO (verl's ``data.custom_cls``): labelled trajectory records, and the pairs for the reference point.

A batch holds each trajectory as it was, and once more each question with another trajectory's response (turns,
observations, images and clips): the mismatched pairs that the reference point is estimated from. Their fields have the
same names behind ``mismatched_``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator

from agentic_video.training.inputs.model_inputs import PIXELS, SHAPES, joined_sizes, rope_positions, seqlens, split_raw
from agentic_video.training.sft_kto.kto import mismatch
from agentic_video.training.sft_kto.sft_dataset import LabelError, TrajectoryDataset
from agentic_video.types.record import Record

MISMATCHED = "mismatched_"
"""What the fields of the mismatched pairs begin with."""

LABEL_FIELD = "provenance.label"

LABELS = {"desirable": True, "chosen": True, "undesirable": False, "rejected": False}


def label_of(record: Record, field: str = LABEL_FIELD) -> bool:
    """Whether a trajectory is desirable.

    Args:
        field: ``provenance.<name>``, which holds one of :data:`LABELS` or true or false, or
            ``reward_extra_info.<name>``, a number: desirable from 0.5 on.

    Raises:
        LabelError: The field is missing or holds something else.
        ValueError: There can be no such field.
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


class KtoDataset(TrajectoryDataset):
    """One sample for each labelled episode.

    Args:
        parquet_files: See :class:`TrajectoryDataset`.
        tokenizer: The same.
        config: The same, with ``label_field`` (see :func:`label_of`).
        processor: The same.
        max_samples: The same.

    Raises:
        ValueError: No usable record is left, or the system's episodes aren't one sequence each.
    """

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        self._label_field = config.get("label_field", LABEL_FIELD)
        super().__init__(parquet_files, tokenizer, config, processor, max_samples)
        if self._system.context != "all":
            raise ValueError(
                f"KTO weighs whole episodes, but system {self._system.name!r} has context={self._system.context!r}, "
                "which splits an episode into a sequence for each turn: set agentic_video.system.context=all"
            )
        self.labels = [bool(sample.label) for sample in self._samples]

    def _label(self, record: Record) -> bool:
        return label_of(record, self._label_field)

    def _inputs(self, record: Record, number: int) -> dict[str, Any]:
        """What a sample is made of; with ``desirable`` and the identity of the ``question``."""
        question, desirable = f"{record.qa.video}\n{record.qa.id}", self._label(record)
        return {**super()._inputs(record, number), "desirable": desirable, "question": question}


class KtoCollator:
    """Makes a batch of a rank's samples, with their mismatched pairs.

    Args:
        processor: The model's, with verl's ``get_rope_index``.
    """

    def __init__(self, processor: Any):
        self._processor = processor
        self._stack = SFTTensorCollator(DatasetPadMode.NO_PADDING)

    def __call__(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The batch, for verl's engine.

        Raises:
            ValueError: Fewer than two samples.
        """
        sequence_fields = ("input_ids", "loss_mask", "position_ids", "multi_modal_inputs")
        partners = mismatch([sample["question"] for sample in samples])
        pairs = [self.pair(sample, samples[other]) for sample, other in zip(samples, partners, strict=True)]
        batch = self._stack([{name: sample[name] for name in sequence_fields} for sample in samples])
        batch |= {MISMATCHED + name: value for name, value in self._stack(pairs).items()}
        batch["desirable"] = torch.tensor([sample["desirable"] for sample in samples])
        return batch

    def pair(self, asked: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, Any]:
        """One sample's opening with everything that follows another's, images and clips included."""
        opening, rest = self._split(asked)[0], self._split(answered)[1]
        ids = torch.cat([asked["input_ids"][opening.tokens], answered["input_ids"][rest.tokens]])
        mask = torch.cat([asked["loss_mask"][opening.tokens], answered["loss_mask"][rest.tokens]])
        inputs = _joined([opening.visuals, rest.visuals])
        return {
            "input_ids": ids,
            "loss_mask": mask,
            "position_ids": rope_positions(self._processor, ids, inputs),
            "multi_modal_inputs": inputs,
        }

    def _split(self, sample: Mapping[str, Any]) -> tuple["_Piece", "_Piece"]:
        """A sample before and from the first token that the model said."""
        first = int(sample["loss_mask"].argmax())
        inputs, opening = sample["multi_modal_inputs"], sample["input_ids"][:first]
        images = self._whole(inputs, "image_grid_thw", int((opening == self._processor.image_token_id).sum()))
        clips = self._whole(inputs, "video_grid_thw", int((opening == self._processor.video_token_id).sum()))
        before, after = split_raw(inputs, images + clips)
        for name, count in (("image_grid_thw", images), ("video_grid_thw", clips), ("second_per_grid_ts", clips)):
            if name in inputs:
                before[name], after[name] = inputs[name][:count], inputs[name][count:]
        return _Piece(slice(first), before), _Piece(slice(first, None), after)

    def _whole(self, inputs: Mapping[str, Any], grid: str, placeholders: int) -> int:
        """How many of a sample's images (or clips) so many placeholders stand for."""
        if grid not in inputs:
            return 0
        sizes = inputs[grid].prod(-1).cumsum(0)
        return int((sizes <= placeholders * self._processor.image_processor.merge_size**2).sum())


@dataclass(frozen=True)
class _Piece:
    """Some tokens of a sample with their images and clips.

    Attributes:
        tokens: Which tokens.
        visuals: Sizes and pixels, as in ``multi_modal_inputs``, without ``images_seqlens``.
    """

    tokens: slice
    visuals: Mapping[str, torch.Tensor]


def _joined(pieces: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The inputs of a sequence that is put together of pieces."""

    def found(*names: str) -> dict[str, torch.Tensor]:
        parts = {name: [one[name] for one in pieces if name in one and len(one[name])] for name in names}
        return {name: torch.cat(some) for name, some in parts.items() if some}

    images, clips = found("image_grid_thw"), found("video_grid_thw", "second_per_grid_ts")
    if images:
        images["images_seqlens"] = seqlens(images["image_grid_thw"])
    return found(PIXELS, SHAPES) | (joined_sizes(images, clips) if clips else images)
