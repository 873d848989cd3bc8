"""Our agents inside lmms-eval, where it is installed (it isn't among this package's dependencies)."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentic_video.toyworld.questions import World
from tests.evaluation.conftest import RECIPES

pytest.importorskip("lmms_eval.models.registry_v2")

from lmms_eval.api.instance import Instance
from lmms_eval.models.registry_v2 import ModelRegistryV2

from agentic_video.data.dataset import load_rows
from agentic_video.evaluation.lmms_eval_model import NAME, manifest, question
from agentic_video.evaluation.speakers import SetupError


def test_the_registry_finds_it_and_it_answers(checkpoint: Path, small_world: World, tmp_path: Path) -> None:
    registry = ModelRegistryV2()
    for found in registry._coerce_payload_to_manifests(manifest):
        registry.register_manifest(found)
    rows = load_rows([small_world.heldout])[0][:3]
    model = registry.get_model_class(NAME).create_from_arg_string(
        f"recipe={RECIPES / 'videozoomer'},model={checkpoint},profile=laptop,baseline=2",
        {"batch_size": 1, "device": None},
    )
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    model.task_dict["toy"] = {"test": [{"video": qa.video} for qa in rows] + [{"video": str(broken)}]}

    def visual(doc: dict[str, str]) -> list[str]:
        return [doc["video"]]

    requests = [
        Instance("generate_until", ("Which?", {"max_new_tokens": 16}, visual, number, "toy", "test"), number,
                 {"task": "toy", "doc_id": number, "repeats": 1})
        for number in range(4)
    ]  # fmt: skip
    try:
        answers = model.generate_until(requests)
    finally:
        model.clean()
    assert len(answers) == 4
    assert all(answer.token_counts.output_tokens > 0 for answer in answers[:3])
    assert answers[3].text == "" and answers[3].token_counts is None
    assert json.dumps([answer.text for answer in answers])


@pytest.mark.parametrize("visuals", [[], ["a.mp4", "b.mp4"], [object()]])
def test_a_task_without_one_video_is_refused(visuals: list[Any]) -> None:
    with pytest.raises(SetupError, match="one path of a video"):
        question("Which?", visuals, "task test 3")


def test_an_unknown_argument_is_named() -> None:
    registry = ModelRegistryV2()
    registry.register_manifest(manifest())
    with pytest.raises(SetupError, match="tool: unknown"):
        registry.get_model_class(NAME)(recipe="r", model="m", tool=False)
