"""Every system on every published checkpoint's processor: the opening and one tool turn.

Sizes, placeholders and patches must be the same in Hugging Face's processor, in vLLM's and here, difference 0. The
checkpoints are tiny models with random weights and the published processors' files; checkpoints with the same facts
share one.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache
from itertools import groupby
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoProcessor

from agentic_video.config.settings import settings_of
from agentic_video.evaluation.backends.vllm import vllm_prompt
from agentic_video.families.registry import FAMILY_OF, family_of
from agentic_video.planning.published_checkpoints import (
    CheckpointFacts,
    checkpoint_rules,
    published_checkpoints,
)
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.episode import play
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy, TokenSequence
from agentic_video.rollout.vllm_prompts import clip_item
from agentic_video.systems.base import System
from agentic_video.systems.registry import SYSTEMS
from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer, save_checkpoint
from agentic_video.training.inputs.model_inputs import visual_pixels
from agentic_video.types.frame import Clip, Frame
from agentic_video.types.message import Visual
from agentic_video.types.row import VideoQA
from agentic_video.video.errors import VideoError
from tests.config.configs import composed
from tests.conftest import MemorySource
from tests.golden.episodes import HashRetriever
from tests.hostile_cases import CASES

VIDEOS = {"wide": (640, 360), "small": (120, 90)}
"""(width, height) in pixels: one that FrameThinker and ParaVT round, one below Qwen3-VL's least image."""
ROOM = TokenLimits(prompt=10**6, response=10**6, turn=10**4)


class NoisySource(MemorySource):
    """Frames in which every pixel differs, so that a resized one can't look like another."""

    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        width, height = size or (self.info.width, self.info.height)
        draws = (np.random.default_rng(index) for index in indices)
        noise = [one.integers(0, 256, (height, width, 3), np.uint8) for one in draws]
        return [Frame(index, index / self.info.fps, image) for index, image in zip(indices, noise, strict=True)]


class Engine:
    """Says a tool's call, and then an answer; a side question's reply is short."""

    def __init__(self, chat_format: ChatFormat, turns: Sequence[str]):
        self._format, self._turns = chat_format, list(turns)
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        self.requests.append(request)
        text = self._turns.pop(0) if self._turns else "fine"
        return Completion((*self._format.encode(text), self._format.end_id))


EXAMPLES = {name: family.example for name, family in FAMILY_OF.items() if family.example in published_checkpoints()}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found, corpus = {}, [Path(__file__).read_text(encoding="utf-8")]
    for family, name in EXAMPLES.items():
        folder, tokenizer = tmp_path_factory.mktemp(family), build_tokenizer(corpus, family=family)
        save_checkpoint(build_model(tokenizer, ModelRecipe(family=family)), tokenizer, folder)
        write_published_files(published_checkpoints()[name], folder)
        found[family] = folder
    return found


def write_published_files(facts: CheckpointFacts, folder: Path) -> None:
    if facts.family == "gemma4":
        write_budget(facts, folder)
        return
    (folder / "processor_config.json").unlink()
    plain = {"patch_size": facts.patch, "merge_size": facts.merge, "temporal_patch_size": facts.temporal}
    if facts.family == "internvl":
        side, tokens = isqrt(facts.image[1]), facts.image[1] // (facts.patch * facts.merge) ** 2
        nested = {"processor_class": "InternVLProcessor", "image_seq_length": tokens}
        (folder / "processor_config.json").write_text(json.dumps(nested))
        image = {"crop_to_patches": False, "image_processor_type": "GotOcr2ImageProcessorFast"}
        image |= {"size": {"height": side, "width": side}, "processor_class": "InternVLProcessor"}
        clip = {"size": image["size"], "video_processor_type": "InternVLVideoProcessor"}
        (folder / "video_preprocessor_config.json").write_text(json.dumps(clip))
    elif facts.family == "qwen2_5_vl":
        image = {**plain, "min_pixels": facts.image[0], "max_pixels": facts.image[1]}
        image |= {"processor_class": "Qwen2_5_VLProcessor", "image_processor_type": "Qwen2VLImageProcessor"}
    else:
        whole, pictures, clips = "Qwen3VLProcessor", "Qwen2VLImageProcessorFast", "Qwen3VLVideoProcessor"
        if facts.family == "glm4v":
            whole, pictures, clips = "Glm4vProcessor", "Glm4vImageProcessor", "Glm4vVideoProcessor"
        plain |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "processor_class": whole}
        image = {**plain, "size": {"shortest_edge": facts.image[0], "longest_edge": facts.image[1]}}
        image["image_processor_type"] = pictures
        assert facts.clip is not None
        clip = {**plain, "size": {"shortest_edge": facts.clip[0], "longest_edge": facts.clip[1]}}
        clip["video_processor_type"] = clips
        (folder / "video_preprocessor_config.json").write_text(json.dumps(clip))
    (folder / "preprocessor_config.json").write_text(json.dumps(image))


def write_budget(facts: CheckpointFacts, folder: Path) -> None:
    sides = {"patch_size": facts.patch, "pooling_kernel_size": facts.merge}
    budget = facts.image[1] // (facts.patch * facts.merge) ** 2
    changes = {
        "processor_config.json": ("image_processor", {**sides, "max_soft_tokens": budget, "do_resize": True}),
        "config.json": ("vision_config", {**sides, "default_output_length": budget}),
    }
    for file, (part, values) in changes.items():
        whole = json.loads((folder / file).read_text())
        whole[part] |= values
        (folder / file).write_text(json.dumps(whole))


@cache
def processor_of(folder: Path) -> Any:
    return AutoProcessor.from_pretrained(folder)


@cache
def vllm_processor_of(folder: Path) -> Any:
    from vllm.config import ModelConfig
    from vllm.multimodal import MULTIMODAL_REGISTRY

    family_of(processor_of(folder)).prepare_vllm()
    limits = {"image": 4096, "video": 4096}
    config = ModelConfig(model=str(folder), dtype="float32", max_model_len=4096, limit_mm_per_prompt=limits)
    return MULTIMODAL_REGISTRY.create_processor(config)


def system_of(name: str, frames_as: str, side: int) -> System:
    """A recipe's system with few frames, and as the launcher asks for it: with the processor's cells."""
    settings = settings_of(composed(name, "cluster", f"agentic_video.system.frames_as={frames_as}"))
    system: Any = settings.system
    has = {one.name for one in fields(system)}
    few: dict[str, Any] = {"size_factor": side, "overview_max_frames": 6, "overview_fps": 0.2, "video_path": "none"}
    return replace(system, **{key: value for key, value in few.items() if key in has})


def played(name: str, frames_as: str, size: tuple[int, int], folder: Path) -> list[TokenSequence]:
    chat_format = ChatFormat.of(processor_of(folder))
    system: Any = system_of(name, frames_as, chat_format.rules.side)
    if any(one.name == "train_asides" for one in fields(system)):
        system = replace(system, train_asides=True)
    case = CASES[name]
    engine = Engine(chat_format, [case.call.removeprefix(system.reply_prefix)])
    policy = TokenPolicy(engine, chat_format, ROOM, system)
    qa = VideoQA("q", "memory", "What flashes?", "B", ("red", "green"), data_source="t", extra={"class": "active"})
    source = NoisySource(30.0, size=size)
    trajectory = asyncio.run(play(system, policy, qa, source, HashRetriever()))
    assert trajectory.turns[0].legal_calls >= 1, trajectory.error
    sizes = {(ref.width, ref.height) for ref in trajectory.visuals}
    shown = {(one.width, one.height) for request in engine.requests for one in request.visuals}
    assert sizes <= shown  # the record says what was shown
    return [*policy.sequences, *policy.aside_sequences]


@cache
def checked(name: str, frames_as: str, video: str, folder: Path) -> tuple[int, int]:
    """Compare all three for one episode; how many images and clips were compared."""
    images = clips = 0
    for sequence in played(name, frames_as, VIDEOS[video], folder):
        compare(sequence, folder)
        count = sum(isinstance(one, Clip) for one in sequence.visuals)
        images, clips = images + len(sequence.visuals) - count, clips + count
    return images, clips


def compare(sequence: TokenSequence, folder: Path) -> None:
    processor, shown = processor_of(folder), list(sequence.visuals)
    if not shown:
        return
    chat_format, rules = ChatFormat.of(processor), family_of(processor).rules(processor)
    for one in shown:
        rules.require_kept(one.width, one.height, len(one.frames) if isinstance(one, Clip) else 0)
    family, pixels = family_of(processor), visual_pixels(processor, shown)
    ours = {**family.joined([pixels[visual.key] for visual in shown]), **family.sizes(processor, shown)}

    prompt = vllm_prompt(sequence.ids, shown, chat_format)
    vllm = vllm_processor_of(folder)
    made = vllm(prompt["prompt_token_ids"], mm_items=vllm.info.parse_mm_data(prompt["multi_modal_data"]))
    assert made["prompt_token_ids"] == sequence.ids
    engine = made["mm_kwargs"].get_data()
    hf: dict[str, torch.Tensor] = {}
    for kinds in told_together(chat_format):
        made = hf_output(processor, chat_format, shown, prompt["prompt_token_ids"], kinds)
        hf |= made
        assert runs(made["input_ids"].tolist(), kinds) == runs(sequence.ids, kinds)
    for key in ("image_grid_thw", "pixel_values", "video_grid_thw", "pixel_values_videos"):
        assert (key in ours) == (key in hf) == (key in engine), key
        if key in ours:
            assert torch.equal(ours[key], hf[key]), key
            assert torch.equal(ours[key], engine[key]), key


def told_together(chat_format: ChatFormat) -> list[list[int | None]]:
    """Placeholders that a processor can write in one text: GLM's takes those of images for those of clips."""
    pads = [chat_format.image_token_id, chat_format.video_token_id]
    return [[pad] for pad in pads] if chat_format.family.processor_classes[0].startswith("Glm") else [pads]


def hf_output(
    processor: Any, chat_format: ChatFormat, shown: list[Visual], short: list[int], kinds: Sequence[int | None]
) -> dict[str, torch.Tensor]:
    """What Hugging Face's processor makes of the text and the pictures of some placeholders; clips have their own."""
    images = [Image.fromarray(one.image) for one in shown if not isinstance(one, Clip)]
    videos = [clip_item([frame.image for frame in one.frames], one.times) for one in shown if isinstance(one, Clip)]
    more: dict[str, Any] = {}
    if images and chat_format.image_token_id in kinds:
        more["images"] = images
    if videos and chat_format.video_token_id in kinds:
        metadata = [{key: value for key, value in facts.items() if key != "do_sample_frames"} for _, facts in videos]
        more |= {"videos": [frames for frames, _ in videos], "video_metadata": metadata, "do_sample_frames": False}
    text = chat_format.decode([token for token in short if token in kinds or token not in chat_format.visual_token_ids])
    made = processor(text=[text], return_tensors="pt", **more)
    ids = made["input_ids"][0]
    if more.get("videos"):
        ids = ids.masked_fill(made["mm_token_type_ids"][0] == 2, chat_format.video_token_id)
    return {**made, "input_ids": ids}


def runs(ids: Sequence[int], pads: Sequence[int | None]) -> list[tuple[int, int]]:
    """Each run of placeholders: which, and how many."""
    return [(token, len(list(some))) for token, some in groupby(ids) if token in pads]


@pytest.mark.slow
@pytest.mark.parametrize("video", VIDEOS)
@pytest.mark.parametrize("frames_as", ["images", "video"])
@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("checkpoint", list(published_checkpoints()))
def test_sizes_placeholders_and_patches_are_the_same_everywhere(
    checkpoint: str, name: str, frames_as: str, video: str, folders: dict[str, Path]
) -> None:
    facts = published_checkpoints()[checkpoint]
    folder = folders[facts.family]
    assert checkpoint_rules(str(folder)) == facts.rules == family_of(processor_of(folder)).rules(processor_of(folder))
    if frames_as == "video" and not facts.rules.takes_clips:
        with pytest.raises((AssertionError, VideoError), match="frames_as=images"):
            checked(name, frames_as, video, folder)
        return
    images, clips = checked(name, frames_as, video, folder)
    assert images + clips > 0
    assert not clips or frames_as == "video"


@pytest.mark.parametrize("family", EXAMPLES)
def test_one_system_of_each_family(family: str, folders: dict[str, Path]) -> None:
    """The quick part of the matrix: the system whose recipe is published for the family and whose sizes changed."""
    name = "framethinker" if family == "qwen2_5_vl" else "paravt"
    assert checked(name, "images", "wide", folders[family])[0] > 4
    if FAMILY_OF[family].rules_in(folders[family]).takes_clips:
        assert checked(name, "video", "wide", folders[family])[1] > 0


def test_qwen3_s_clip_has_no_outer_pair_of_vision_tokens(folders: dict[str, Path]) -> None:
    """As transformers had it from the model's release on: what the checkpoints were trained with."""
    folder = folders["qwen3_vl"]
    chat_format = ChatFormat.of(processor_of(folder))
    clip = Clip(tuple(Frame(number, 0.5 * number, np.zeros((64, 64, 3), np.uint8)) for number in range(4)))
    text = chat_format.decode(chat_format.clip_ids(clip))
    pads = "<|vision_start|>" + "<|video_pad|>" * 4 + "<|vision_end|>"
    assert text == f"<0.2 seconds>{pads}<1.2 seconds>{pads}"
    bare = [chat_format.video_token_id]
    whole = [*chat_format.encode("<|vision_start|>"), *bare, *chat_format.encode("<|vision_end|>")]
    hf = hf_output(processor_of(folder), chat_format, [clip], whole, bare)
    assert hf["input_ids"].tolist() == chat_format.clip_ids(clip)
    vllm = vllm_processor_of(folder)
    data = {"video": [clip_item([frame.image for frame in clip.frames], clip.times)]}
    assert vllm(whole, mm_items=vllm.info.parse_mm_data(data))["prompt_token_ids"] == chat_format.clip_ids(clip)
