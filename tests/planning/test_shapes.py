import json
from pathlib import Path

import pytest

from agentic_video.planning.shapes import published_shapes, shape_from, shape_of
from agentic_video.utils.errors import SetupError
from tests.config.configs import composed
from tests.planning.models import HYBRID, TINY, config_of, first_block, model_of, tower_parts

PARAMETERS = {
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen/Qwen2.5-VL-32B-Instruct": 33_452_718_336,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen3-VL-8B-Instruct": 8_767_123_696,
    "Qwen/Qwen3.5-9B": 9_409_813_744,
    "Qwen/Qwen3.5-27B": 27_356_728_560,
    "Qwen/Qwen3.5-35B-A3B": 35_107_181_936,
    "Qwen/Qwen3-VL-30B-A3B-Instruct": 31_070_754_032,
    "zai-org/GLM-4.1V-9B-Thinking": 10_292_777_472,
    "OpenGVLab/InternVL3_5-8B-HF": 8_528_318_464,
}
"""As the models' pages say; Qwen3.5's, GLM's and InternVL's as transformers builds them."""
SHAPES = {**TINY, **HYBRID}
EXCLUDED = composed("videozoomer", "cluster").actor_rollout_ref.model.exclude_modules


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_published_parameters(name: str, count: int) -> None:
    assert published_shapes()[name].parameters == count


@pytest.mark.parametrize("name", PARAMETERS)
def test_transformers_builds_as_many(name: str) -> None:
    shape = published_shapes()[name]
    model = model_of(shape, "meta")
    assert sum(one.numel() for one in model.parameters()) == shape.parameters
    assert sum(one.numel() for part in tower_parts(model) for one in part.parameters()) == shape.tower
    assert sum(one.numel() for one in first_block(model).parameters()) == shape.block
    layers = [sum(one.numel() for one in layer.parameters()) for layer in model.model.language_model.layers]
    assert (max(layers), sum(layers)) == (shape.layer, shape.decoder)
    assert model.lm_head.weight.numel() == shape.embedding


@pytest.mark.parametrize("family", SHAPES)
def test_adapters_are_as_many_as_peft_makes(family: str) -> None:
    from peft import LoraConfig, get_peft_model

    shape = SHAPES[family]
    adapted = get_peft_model(
        model_of(shape),
        LoraConfig(r=4, target_modules="all-linear", exclude_modules=EXCLUDED, task_type="CAUSAL_LM"),
    )
    trained = {name: one.numel() for name, one in adapted.named_parameters() if one.requires_grad}
    assert sum(trained.values()) == shape.adapters(4)
    assert not [name for name in trained if ".language_model." not in name]


@pytest.mark.parametrize("family", SHAPES)
def test_a_folder_s_config_is_read(family: str, tmp_path: Path) -> None:
    config_of(SHAPES[family]).save_pretrained(tmp_path)
    read = shape_of(str(tmp_path))
    assert (read.family, read.text, read.vision) == (family, SHAPES[family].text, SHAPES[family].vision)


def test_older_files_have_the_text_s_keys_at_the_top() -> None:
    whole = config_of(TINY["qwen2_5_vl"]).to_dict()
    older = {**whole.pop("text_config"), **whole, "model_type": "qwen2_5_vl"}
    assert shape_from(older, "").text == TINY["qwen2_5_vl"].text


def test_names() -> None:
    assert shape_of("Qwen2.5-VL-3B").name == "Qwen/Qwen2.5-VL-3B-Instruct"
    assert shape_of("someone/qwen3-vl-8b-instruct").name == "Qwen/Qwen3-VL-8B-Instruct"


def test_a_model_of_no_known_shape_costs_one_line(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^LLaVA: no folder with config.json, and no model of known shape"):
        shape_of("LLaVA")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava"}), encoding="utf-8")
    with pytest.raises(SetupError, match="llava"):
        shape_of(str(tmp_path))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([], "can't be a model's: holds no JSON object"),
        ({"model_type": "qwen3_vl"}, "'vision_config' is missing"),
        ({"model_type": "qwen3_vl", "vision_config": 3}, "can't be a model's: "),
    ],
)
def test_a_config_that_is_none_costs_one_line(values: object, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(SetupError) as caught:
        shape_of(str(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/config.json: ") and said in str(caught.value)
