"""Labels, and the mismatched pairs against what a rollout would have built of the same question and response."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from verl.utils import hf_processor, hf_tokenizer

from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.rollout.replay import ReplayedSequence, replay
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.build.preferences import write_preferences
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.oracles import turns_of
from agentic_video.toyworld.questions import World, build_world
from agentic_video.toyworld.world import WorldRecipe
from agentic_video.training.inputs.model_inputs import model_inputs, with_patches_of_raw
from agentic_video.training.sft_kto.datasets import MISMATCHED, KtoCollator, KtoDataset, LabelError, label_of
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Visual
from agentic_video.types.record import Record, load_records
from agentic_video.types.trajectory import ClipRef, FrameRef
from agentic_video.video.store import FrameStore
from tests.config.configs import composed
from tests.training.records import ROOMY, Write, equal_inputs

WORLD = WorldRecipe(mixture=(("colour", 0.5), ("overview", 0.5)))
FILES = ("data.train_files=none", "model.path=none", "+data.label_field=provenance.label")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return build_world(tmp_path_factory.mktemp("world"), train=12, heldout=4, seed=5, recipe=WORLD)


@pytest.fixture
def checkpoint(checkpoints: dict[str, Path]) -> Path:
    return checkpoints["qwen2_5_vl"]


Records = Callable[..., tuple[DictConfig, Path]]


@pytest.fixture
def records(tmp_path: Path, world: World, checkpoint: Path) -> Records:
    """Config and training records of a recipe: EVA starts without images, others with some."""

    def make(name: str, *overrides: str) -> tuple[DictConfig, Path]:
        config = composed(name, "sft_laptop", *FILES, *ROOMY, *overrides)
        settings = settings_of(config)
        system = settings.system
        setting = Setting(system, episode_limits(config.data, settings), turns_of(system))
        write_preferences(tmp_path, world, checkpoint, setting, WORLD)
        return config, tmp_path / "train.jsonl"

    return make


def dataset_of(config: DictConfig, path: Path, checkpoint: Path, label_field: str = "provenance.label") -> KtoDataset:
    config.data.label_field = label_field
    return KtoDataset(str(path), hf_tokenizer(str(checkpoint)), config.data, hf_processor(str(checkpoint)))


def images_of(record: Record) -> int:
    return sum(not isinstance(part, str) for message in record.trajectory.opening for part in message.parts)


@pytest.mark.parametrize("frames_as", ["images", "video"])
@pytest.mark.parametrize("name", ["eva", "videozoomer"])
def test_a_mismatched_pair_is_one_opening_with_another_response(
    name: str, frames_as: str, records: Records, checkpoint: Path
) -> None:
    config, path = records(name, f"agentic_video.system.frames_as={frames_as}")
    dataset, found = dataset_of(config, path, checkpoint), load_records([path])[0]
    processor, collator, images = (
        hf_processor(str(checkpoint)),
        KtoCollator(hf_processor(str(checkpoint))),
        {True: 0, False: 0},
    )
    settings, chat_format = settings_of(config), ChatFormat.of(processor)
    limits, store = episode_limits(config.data, settings), FrameStore()

    def sequence(record: Record) -> ReplayedSequence:
        (only,) = asyncio.run(replay(record.trajectory, record.qa, settings.system, chat_format, limits))
        return only

    def pixels(record: Record, references: Sequence[FrameRef | ClipRef]) -> list[Visual]:
        def frame(ref: FrameRef) -> Frame:
            return store.frames(record.qa.video, [ref.index], (ref.width, ref.height))[0]

        return [
            Clip(tuple(frame(ref) for ref in reference.frames)) if isinstance(reference, ClipRef) else frame(reference)
            for reference in references
        ]

    for item, other in ((0, 1), (1, 2), (2, 0), (5, 3)):
        asked, answered = found[item], found[other]
        first, second = sequence(asked), sequence(answered)
        pair = collator.pair(dataset[item], dataset[other])
        assert pair["input_ids"].tolist() == [*first.prompt_ids, *second.response_ids]
        assert pair["loss_mask"].tolist() == [0] * len(first.prompt_ids) + list(second.response_mask)
        shown, before = images_of(asked), images_of(answered)
        later = second.visuals[before:]
        frames = [*pixels(asked, first.visuals[:shown]), *pixels(answered, later)]
        positions, inputs = model_inputs(processor, pair["input_ids"], frames)
        assert torch.equal(pair["position_ids"], positions)
        assert equal_inputs(with_patches_of_raw(processor, pair["multi_modal_inputs"]), inputs)
        assert not later or ("video_grid_thw" in inputs) == (frames_as == "video")
        images[True] += shown
        images[False] += len(later)
    assert images[False] > 0 and (images[True] > 0) == (name == "videozoomer")


def test_a_batch_holds_the_trajectories_and_the_pairs(records: Records, checkpoint: Path) -> None:
    dataset = dataset_of(*records("eva"), checkpoint)
    samples = [dataset[number] for number in range(4)]
    batch = KtoCollator(hf_processor(str(checkpoint)))(samples)
    assert batch["desirable"].tolist() == dataset.labels[:4]
    lengths = [len(sample["input_ids"]) for sample in samples]
    assert batch["input_ids"].offsets().diff().tolist() == lengths
    prompts = [int(sample["loss_mask"].argmax()) for sample in samples]
    rest = [length - prompt for length, prompt in zip(lengths, prompts, strict=True)]
    mismatched = [prompt + other for prompt, other in zip(prompts, [*rest[1:], rest[0]], strict=True)]
    assert batch[f"{MISMATCHED}input_ids"].offsets().diff().tolist() == mismatched
    # every response is asked about once in each half
    assert batch["loss_mask"].values().sum() == batch[f"{MISMATCHED}loss_mask"].values().sum()
    with pytest.raises(ValueError, match="2 per rank"):
        KtoCollator(hf_processor(str(checkpoint)))(samples[:1])


def test_labels(written: Write, records: Records, checkpoint: Path) -> None:
    config, source = records("eva")
    (first, *others), _ = load_records([source])

    def labelled(value: Any) -> Record:
        return replace(first, provenance={"label": value}, rewards={"acc": 0.5, "format": 0.4})

    assert [label_of(labelled(value)) for value in ("desirable", "chosen", True)] == [True] * 3
    assert [label_of(labelled(value)) for value in ("undesirable", "rejected", False)] == [False] * 3
    assert label_of(labelled("?"), "reward_extra_info.acc") and not label_of(labelled("?"), "reward_extra_info.format")
    for value in ("good", 1, None, ["desirable"]):
        with pytest.raises(LabelError, match=r"'provenance\.label'"):
            label_of(labelled(value))
    with pytest.raises(LabelError, match=r"'provenance\.kind'"):
        label_of(first, "provenance.kind")
    with pytest.raises(ValueError, match="label_field"):
        label_of(first, "video_qa.answer")

    path = written(labelled("good"), replace(first, provenance={}), *others[:2])
    dataset = dataset_of(config, path, checkpoint)
    assert len(dataset) == len(dataset.labels) == 2
    assert [problem.split("'")[1] for problem in dataset.problems] == ["provenance.label"] * 2
    with pytest.raises(ValueError, match=r"provenance\.kind"):
        dataset_of(config, path, checkpoint, label_field="provenance.kind")


def test_a_system_that_forgets_is_refused(records: Records, checkpoint: Path) -> None:
    with pytest.raises(ValueError, match=r"agentic_video\.system\.context=all"):
        dataset_of(*records("framemind"), checkpoint)
