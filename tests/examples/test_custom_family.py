"""A family of models outside the package: against its Hugging Face processor and model, and as a laptop job."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from llava_family import Llava

from agentic_video.families import registry
from agentic_video.families.base import ProcessorError, UnkeptSizeError
from agentic_video.report.metrics import read_metrics, series
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer, save_checkpoint
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "custom_family"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        family = Llava()
        patch.setattr(registry, "FAMILIES", (*registry.FAMILIES, family))
        patch.setitem(registry.FAMILY_OF, "llava", family)  # type: ignore[arg-type]
        tokenizer = build_tokenizer(["what happens in the video"] * 4, family="llava")
        model = build_model(tokenizer, ModelRecipe(family="llava")).eval()
        folder = tmp_path_factory.mktemp("llava")
        save_checkpoint(model, tokenizer, folder)
        yield family, model, registry.load_processor(folder), folder


def pictures(count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(0).integers(0, 256, (count, 28, 28, 3), np.uint8))


def test_sizes(checkpoint: Any) -> None:
    family, _, processor, folder = checkpoint
    rules = family.rules(processor)
    assert rules == family.rules_in(folder)
    assert rules.kept(1280, 720) == (28, 28) and rules.tokens(28, 28) == 1 and not rules.takes_clips
    with pytest.raises(ProcessorError):
        rules.resized(28, 28, frames=2)
    with pytest.raises(UnkeptSizeError):
        family.sizes(processor, [Frame(0, 0.0, np.zeros((28, 56, 3), np.uint8))])


def test_ids_and_pixels_are_the_processors(checkpoint: Any) -> None:
    family, _, processor, _ = checkpoint
    first, second = pictures(2)
    chat_format = ChatFormat.of(processor)
    frames = [Frame(number, float(number), picture) for number, picture in enumerate((first, second))]
    ids = chat_format.opening_ids([Message("user", ("look ", frames[0], " and ", frames[1], " what is it?"))])
    content = [{"type": "text", "text": "look "}, {"type": "image"}, {"type": "text", "text": " and "}]
    content += [{"type": "image"}, {"type": "text", "text": " what is it?"}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    whole = processor(images=[first, second], text=text, return_tensors="pt")
    assert ids == whole["input_ids"][0].tolist()
    made = family.joined(list(family.pixels(processor, {"a": first, "b": second}, {}).values()))
    assert torch.equal(made["pixel_values"], whole["pixel_values"])


def test_the_tiny_model_is_transformers_own(checkpoint: Any) -> None:
    family, model, processor, _ = checkpoint
    image = model.config.image_token_id
    ids, shown = torch.tensor([[5, image, 6, image, 7, 8]]), pictures(2)
    inputs = family.tiny.embed(model, ids, shown)
    made = family.joined(list(family.pixels(processor, dict(enumerate(shown)), {}).values()))
    with torch.no_grad():
        found = model.lm_head(model.model.language_model(**inputs).last_hidden_state)
        stock = model(input_ids=ids, **made).logits
    assert torch.allclose(found, stock, atol=1e-5)


@pytest.mark.recipes
@pytest.mark.timeout(3600)
def test_two_steps_of_the_laptop_job(tmp_path: Path) -> None:
    command = ["bash", str(EXAMPLE / "run.sh"), "--profile", "laptop", "trainer.total_training_steps=2"]
    command += ["trainer.val_before_train=False", "trainer.save_freq=-1", "trainer.test_freq=-1"]
    environment = {**os.environ, "PYTHON": sys.executable, "OUTPUT_DIR": str(tmp_path)}
    del environment["VERL_PLATFORM"]  # the command sets it
    job = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3500, check=False)
    assert job.returncode == 0, job.stdout[-4000:] + job.stderr[-4000:]
    (made,) = (tmp_path / "videozoomer-laptop").glob("run-*")
    steps, differences = series(read_metrics(made), "training/rollout_probs_diff_mean")
    assert steps == [1, 2] and max(differences) < 1e-4
