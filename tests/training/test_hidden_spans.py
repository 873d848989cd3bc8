"""Hidden spans through the engine that trains and verl's forward, against a mask that is written out pair by pair."""

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import verl  # noqa: F401 (loads the plugin)
from tensordict import TensorDict
from transformers import AutoModelForImageTextToText, AutoProcessor
from verl.utils import tensordict_utils
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from agentic_video.training.engines.actor import VideoEngine
from agentic_video.training.inputs.spans import HIDDEN

IDS = [[5, 6, 7, 8, 9, 10], [11, 12, 13]]
SPANS = [[(3, 5, 1, 2), (5, 6, 0, 1)], []]


def engine_of(checkpoint: Path, attention: str = "sdpa") -> Any:
    """The engine as far as it prepares a micro-batch; a whole one needs a process group."""
    engine: Any = VideoEngine.__new__(VideoEngine)
    engine.pad_to_length = engine.use_ulysses_sp = False
    processor = AutoProcessor.from_pretrained(checkpoint)
    engine.model_config = SimpleNamespace(
        processor=processor, hf_config=SimpleNamespace(_attn_implementation=attention)
    )
    engine._hides = True
    return engine


def micro_batch(**settings: Any) -> TensorDict:
    ids = [torch.tensor(row) for row in IDS]
    positions = [torch.arange(len(row)).repeat(4, 1) for row in IDS]
    batch = TensorDict(
        {
            "input_ids": torch.nested.as_nested_tensor(ids, layout=torch.jagged),
            "position_ids": tensordict_utils.nested_tensor_from_tensor_list(positions, ragged_idx=2),
        },
        batch_size=[len(IDS)],
    )
    rows = [{HIDDEN: torch.tensor(spans, dtype=torch.int64).reshape(-1, 4)} for spans in SPANS]
    tensordict_utils.assign_non_tensor_stack(batch, "multi_modal_inputs", rows)
    defaults = {"use_remove_padding": False, "pad_mode": DatasetPadMode.NO_PADDING, "temperature": 1.0}
    tensordict_utils.assign_non_tensor(batch, **{**defaults, "pad_token_id": 0, **settings})
    return batch


def log_probs(model: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    """Of each next token, without padding."""
    logits = model(**inputs).logits.log_softmax(-1)
    return [
        logits[number, : len(row) - 1].gather(-1, torch.tensor(row[1:])[:, None]).squeeze(-1)
        for number, row in enumerate(IDS)
    ]


def test_the_loss_is_that_of_a_mask_written_out(checkpoint: Path) -> None:
    inputs, _ = engine_of(checkpoint).prepare_model_inputs(micro_batch())
    assert HIDDEN not in inputs and inputs["attention_mask"].shape == (2, 1, 6, 6)
    model = AutoModelForImageTextToText.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    found = log_probs(model, inputs)

    # Each sequence by itself, in another implementation of attention, with a mask of numbers.
    plain = AutoModelForImageTextToText.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    for number, row in enumerate(IDS):
        mask = torch.zeros(1, 1, len(row), len(row))
        for query, key in product(range(len(row)), repeat=2):
            blocked = any(start <= query < end and first <= key < last for start, end, first, last in SPANS[number])
            if key > query or blocked:
                mask[0, 0, query, key] = torch.finfo(torch.float32).min
        alone = {
            "input_ids": torch.tensor([row]),
            "position_ids": torch.arange(len(row)).repeat(4, 1, 1),
            "attention_mask": mask,
        }
        logits = plain(**alone).logits[0].log_softmax(-1)
        expected = logits[:-1].gather(-1, torch.tensor(row[1:])[:, None]).squeeze(-1)
        torch.testing.assert_close(found[number], expected, atol=1e-5, rtol=1e-4)

    sum(item.sum() for item in found).backward()  # type: ignore[union-attr]
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in model.parameters())


def test_otherwise_nothing_is_hidden(checkpoint: Path) -> None:
    engine = engine_of(checkpoint)
    engine._hides = False
    inputs, _ = engine.prepare_model_inputs(micro_batch())
    assert HIDDEN not in inputs and inputs["attention_mask"].tolist() == [[1] * 6, [1] * 3 + [0] * 3]


@pytest.mark.parametrize(("attention", "packed"), [("flash_attention_2", False), ("sdpa", True)])
def test_attention_that_takes_no_mask_is_refused(checkpoint: Path, attention: str, packed: bool) -> None:
    with pytest.raises(ValueError, match=r"agentic_video\.sft\.hidden needs model\.use_remove_padding=False"):
        engine_of(checkpoint, attention).prepare_model_inputs(micro_batch(use_remove_padding=packed))


def test_all_ranks_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> list[bool]:
        engine: Any = VideoEngine(None)
        engine.hidden_probability = 0.3
        made = [engine.train_batch({}, None) for _ in range(1000)]
        assert not any(output["metrics"] for output in made)  # verl's SFT logs what is there as it is
        return [output["hides"] for output in made]

    monkeypatch.setattr(FSDPEngineWithLMHead, "__init__", lambda self, *given: None)
    monkeypatch.setattr(FSDPEngineWithLMHead, "train_batch", lambda self, *given: {"hides": self._hides, "metrics": {}})
    first = drawn()
    assert first == drawn() and 200 < sum(first) < 400
