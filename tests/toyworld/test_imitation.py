from pathlib import Path

import numpy as np
import pytest
import torch

from agentic_video.toyworld.build.imitation import Demonstration, DemonstrationSet, batch_loss, train
from agentic_video.toyworld.model import load_checkpoint


def test_the_loss_is_the_mean_over_trained_ids_of_all_sequences(checkpoint: Path) -> None:
    model, tokenizer = load_checkpoint(checkpoint)
    texts, trained = ("one red", "two blue squares flash"), ([2], [1, 3])
    batch, expected = [], []
    for text, places in zip(texts, trained, strict=True):
        ids = tokenizer(text)["input_ids"]
        mask = np.isin(np.arange(len(ids)), [place for place in places if place < len(ids)])
        batch.append(Demonstration.make(model, ids, mask, []))
        with torch.no_grad():
            scores = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        expected += [-float(scores[place - 1, ids[place]]) for place in np.flatnonzero(mask)]
    assert len(expected) > 1
    assert batch_loss(model, batch, tokenizer.pad_token_id).item() == pytest.approx(np.mean(expected), abs=1e-4)


def test_training_learns_and_follows_from_its_seed(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights, losses = [], []
    for seed in (1, 1, 2):
        model, tokenizer = load_checkpoint(checkpoint)
        pool = [
            Demonstration.make(model, ids, np.array([False] + [True] * (len(ids) - 1)), [])
            for ids in (tokenizer(f"What colour flashes? {word}")["input_ids"] for word in ("red", "blue", "pink"))
        ]
        before = batch_loss(model, pool, tokenizer.pad_token_id).item()
        train(
            model,
            [DemonstrationSet(pool, 2), DemonstrationSet(pool, 0)],
            tokenizer.pad_token_id,
            phase="words",
            steps=20,
            learning_rate=3e-2,
            seed=seed,
        )
        losses.append((before, batch_loss(model, pool, tokenizer.pad_token_id).item()))
        weights.append(model.lm_head.weight.detach().clone())
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert all(after < before / 2 for before, after in losses)
    # of the two sets only one takes part
    assert capsys.readouterr().out.startswith("[cold start] words: step 20 of 20, loss ")
