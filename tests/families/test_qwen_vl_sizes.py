"""Sizes that processors keep: by hand, and against transformers' own processors."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AutoImageProcessor,
    AutoVideoProcessor,
    Glm4vImageProcessor,
    Glm46VImageProcessor,
    Qwen2VLImageProcessor,
)
from transformers.models.glm4v.video_processing_glm4v import Glm4vVideoProcessor
from transformers.models.glm46v.video_processing_glm46v import Glm46VVideoProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from agentic_video.families.base import ProcessorError, UnkeptSizeError
from agentic_video.families.qwen_vl_sizes import rules_of
from agentic_video.families.registry import DEFAULT, family_of, rules_in
from tests.families.processors import processor_of

QWEN2_5 = {"min_pixels": 3136, "max_pixels": 12_845_056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
QWEN3_IMAGE = {"size": {"longest_edge": 16_777_216, "shortest_edge": 65_536}, "patch_size": 16}
QWEN3_CLIP = {"size": {"longest_edge": 25_165_824, "shortest_edge": 4096}, "patch_size": 16}

GLM_IMAGE = {"size": {"shortest_edge": 12_544, "longest_edge": 9_633_792}, "patch_size": 14}
GLM_CLIP = {"size": {"shortest_edge": 12_544, "longest_edge": 47_040_000}, "patch_size": 14}

PROCESSORS = {
    "qwen2_5_vl": (
        Qwen2VLImageProcessor(**QWEN2_5),
        Qwen2VLVideoProcessor(size={"shortest_edge": 3136, "longest_edge": 12_845_056}),
    ),
    "qwen3_vl": (Qwen2VLImageProcessor(**QWEN3_IMAGE), Qwen3VLVideoProcessor(**QWEN3_CLIP)),
    "glm4v": (Glm4vImageProcessor(**GLM_IMAGE), Glm4vVideoProcessor(**GLM_CLIP)),
    "tight_glm": (
        Glm46VImageProcessor(size={"shortest_edge": 8192, "longest_edge": 40_000}),
        Glm46VVideoProcessor(size={"shortest_edge": 8192, "longest_edge": 60_000}),
    ),
    "tight": (
        Qwen2VLImageProcessor(patch_size=16, size={"shortest_edge": 4096, "longest_edge": 20_000}),
        Qwen3VLVideoProcessor(size={"shortest_edge": 8192, "longest_edge": 60_000}),
    ),
}
RULES = {
    name: family_of("glm4v" if "glm" in name else DEFAULT).rules(processor_of(*pair))
    for name, pair in PROCESSORS.items()
}


def test_published_sizes_by_hand() -> None:
    qwen2_5, qwen3 = RULES["qwen2_5_vl"], RULES["qwen3_vl"]
    # FrameThinker: 360 / 28 = 12.9 and 640 / 28 = 22.9 are rounded to 13 and 23 tokens
    assert qwen2_5.kept(640, 360) == (644, 364)
    assert qwen2_5.tokens(640, 360) == 23 * 13
    # ParaVT: 45 tokens of 32 pixels are fewer than the 64 that Qwen3-VL's processor enlarges an image to
    assert qwen3.kept(288, 160) == (352, 192)
    assert qwen3.tokens(288, 160) == 11 * 6
    assert qwen3.kept(224, 224) == (256, 256)
    # of a clip all frames together are counted: 4 x 288 x 160 are enough
    assert qwen3.kept(288, 160, 4) == (288, 160)
    assert qwen3.tokens(288, 160, 5) == 3 * 9 * 5
    # 1,024 frames share 25,165,824 pixels: 24,576 each
    assert qwen3.kept(640, 360, 1024) == (192, 96)
    assert qwen2_5.grid(56, 84, 5) == (3, 6, 4)
    # GLM counts an image twice: 12,544 pixels are 80 x 80 of it; of 2184 x 2184 twice 78 x 78 tokens fit
    glm = RULES["glm4v"]
    assert (glm.kept(56, 56), glm.kept(84, 84), glm.kept(5000, 5000)) == ((84, 84), (84, 84), (2184, 2184))
    # a side below a token's is first enlarged to it, the other with it
    assert glm.kept(10, 100) == (28, 280)
    # five frames are four, rounded; three temporal patches all the same
    assert (glm.kept(56, 56, 5), glm.grid(56, 56, 5)) == ((56, 56), (3, 4, 4))


@pytest.mark.parametrize("name", PROCESSORS)
@given(width=st.integers(1, 3000), height=st.integers(1, 3000))
def test_an_image_that_is_kept(name: str, width: int, height: int) -> None:
    processor, rules = PROCESSORS[name][0], RULES[name]
    if max(width, height) > 200 * min(width, height):
        with pytest.raises(ValueError):
            rules.kept(width, height)
        return
    assert rules.tokens(width, height) * 4 == processor.get_number_of_image_patches(height, width, {})
    size = rules.kept(width, height)
    rules.require_kept(*size)
    patch = processor.patch_size
    made = processor(images=[torch.zeros((3, size[1], size[0]), dtype=torch.uint8)], return_tensors="pt")
    assert made["image_grid_thw"].tolist() == [[1, size[1] // patch, size[0] // patch]]
    assert size[0] % (2 * patch) == size[1] % (2 * patch) == 0


@pytest.mark.parametrize("name", PROCESSORS)
@given(width=st.integers(1, 700), height=st.integers(1, 700), count=st.integers(2, 9))
def test_a_clip_that_is_kept(name: str, width: int, height: int, count: int) -> None:
    processor, rules = PROCESSORS[name][1], RULES[name]
    if max(width, height) > 200 * min(width, height):
        return
    size = rules.kept(width, height, count)
    frames = torch.zeros((count, 3, size[1], size[0]), dtype=torch.uint8)
    made = processor(videos=[frames], do_sample_frames=False, input_data_format="channels_first", return_tensors="pt")
    assert made["video_grid_thw"][0].tolist() == list(rules.grid(*size, count))
    assert rules.grid(*size, count)[1:] == (size[1] // processor.patch_size, size[0] // processor.patch_size)


def test_a_size_that_is_not_kept_is_named() -> None:
    with pytest.raises(UnkeptSizeError, match=r"288x160.*352x192"):
        RULES["qwen3_vl"].require_kept(288, 160)
    RULES["qwen3_vl"].require_kept(288, 160, 4)
    with pytest.raises(UnkeptSizeError, match=r"640x360.*644x364"):
        RULES["qwen2_5_vl"].require_kept(640, 360, 4)


def test_bounds_that_keep_no_size() -> None:
    # 3 x 3 tokens are too few, and 4 x 3 too many: a picture grows and shrinks for ever
    tight = Qwen2VLImageProcessor(patch_size=14, size={"shortest_edge": 10 * 784, "longest_edge": 10 * 784})
    rules = rules_of(processor_of(tight))
    with pytest.raises(ProcessorError, match="90x80"):
        rules.kept(90, 80)
    with pytest.raises(ProcessorError, match="no picture"):
        rules_of(processor_of(Qwen2VLImageProcessor(size={"shortest_edge": 10_000, "longest_edge": 9000})))


def test_processors_of_which_nothing_is_known() -> None:
    with pytest.raises(ProcessorError, match="object"):
        rules_of(processor_of(object()))
    with pytest.raises(ProcessorError, match="video"):
        rules_of(processor_of(PROCESSORS["qwen2_5_vl"][0])).kept(56, 56, 4)


def written(folder: Path, **files: dict[str, Any]) -> Path:
    for name, values in files.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return folder


FILES: dict[str, dict[str, dict[str, Any]]] = {
    "as Qwen2.5-VL is published": {
        "config": {"model_type": "qwen2_5_vl"},
        "preprocessor_config": {**QWEN2_5, "image_processor_type": "Qwen2VLImageProcessor"},
    },
    "as Qwen3-VL is published": {
        "config": {"model_type": "qwen3_vl"},
        "preprocessor_config": {
            **QWEN3_IMAGE,
            "merge_size": 2,
            "temporal_patch_size": 2,
            "image_processor_type": "Qwen2VLImageProcessorFast",
        },
        "video_preprocessor_config": {**QWEN3_CLIP, "video_processor_type": "Qwen3VLVideoProcessor"},
    },
    "as transformers 5 saves it": {
        "config": {"model_type": "qwen3_vl"},
        "preprocessor_config": QWEN2_5,
        "processor_config": {
            "processor_class": "Qwen3VLProcessor",
            "image_processor": {**QWEN3_IMAGE, "image_processor_type": "Qwen2VLImageProcessor"},
            "video_processor": {**QWEN3_CLIP, "video_processor_type": "Qwen3VLVideoProcessor"},
        },
    },
    "as GLM-4.1V is published": {
        "config": {"model_type": "glm4v"},
        "preprocessor_config": {**GLM_IMAGE, "image_processor_type": "Glm4vImageProcessor"},
        "video_preprocessor_config": {**GLM_CLIP, "video_processor_type": "Glm4vVideoProcessor"},
    },
    "GLM without sizes": {
        "config": {"model_type": "glm4v"},
        "preprocessor_config": {"patch_size": 14, "image_processor_type": "Glm46VImageProcessor"},
        "video_preprocessor_config": {"patch_size": 14, "video_processor_type": "Glm46VVideoProcessor"},
    },
    "old and new keys": {
        "config": {"model_type": "qwen2_5_vl"},
        "preprocessor_config": {
            "size": {"shortest_edge": 784, "longest_edge": 7840},
            "min_pixels": 1568,
            "image_processor_type": "Qwen2VLImageProcessor",
        },
    },
    "no size of clips, old keys": {
        "config": {"model_type": "qwen3_vl"},
        "preprocessor_config": {**QWEN3_IMAGE, "image_processor_type": "Qwen2VLImageProcessor"},
        "video_preprocessor_config": {
            **QWEN3_CLIP,
            "min_pixels": 1,
            "max_pixels": 2,
            "video_processor_type": "Qwen3VLVideoProcessor",
        },
    },
}


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_as_transformers_reads_them(name: str, tmp_path: Path) -> None:
    folder = written(tmp_path, **FILES[name])
    image, clip = AutoImageProcessor.from_pretrained(folder), AutoVideoProcessor.from_pretrained(folder)
    family = FILES[name]["config"]["model_type"]
    assert rules_in(folder) == family_of(family).rules(processor_of(image, clip, family))


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"preprocessor_config": {"size": {"height": 4, "width": 4}}},
        {"preprocessor_config": {"size": 224}},
        {"preprocessor_config": {**QWEN2_5, "min_pixels": 0}},
        {"preprocessor_config": {**QWEN2_5, "patch_size": "large"}},
        {"preprocessor_config": {**QWEN2_5, "patch_size": 0}},
        {"processor_config": {"image_processor": [1]}},
        {"preprocessor_config": QWEN2_5, "video_preprocessor_config": QWEN3_CLIP},
    ],
)
def test_files_of_no_processor_are_refused(files: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(ProcessorError):
        rules_in(written(tmp_path, **files))


@pytest.mark.parametrize("text", ["", "[1]", "[" * 100_000])
def test_files_that_are_no_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(ProcessorError, match=r"preprocessor_config\.json"):
        rules_in(tmp_path)
