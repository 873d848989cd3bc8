"""What the episodes of one process share."""

from pathlib import Path
from typing import Any

import pytest

from agentic_video.evaluation.context import EvalContext, make_retriever, require_encoder
from agentic_video.evaluation.model import ModelSpec
from agentic_video.evaluation.plan import EvalPlan
from agentic_video.graders.judge import JudgeConfig
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.utils.errors import SetupError
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.store_config import StoreConfig
from tests.conftest import MemorySource
from tests.evaluation.scripted import CountingBackend, named


@pytest.fixture
def plan(tmp_path: Path) -> EvalPlan:
    return EvalPlan(
        folder=tmp_path,
        system=VideoBrain(),
        model=ModelSpec(named("CountingBackend"), "m"),
        limits=TokenLimits(prompt=8_000, response=8_000, turn=4_000),
        frame_store=StoreConfig(),
        retrieval=RetrievalConfig(),
        judge=JudgeConfig(),
        concurrency=1,
        provenance={},
    )


def test_a_backend_of_its_own_is_closed_with_it_and_another_s_is_not(plan: EvalPlan) -> None:
    own = EvalContext(plan)
    assert isinstance(own.backend, CountingBackend) and own.backend.visual_token_side == VideoBrain().size_factor
    own.close()
    assert own.backend.closed == 1
    given = CountingBackend(plan.model, 28)
    context = EvalContext(plan, given)
    context.close()
    assert context.backend is given and given.closed == 0


def test_another_backend_with_the_same_frames_and_graders(plan: EvalPlan) -> None:
    first = EvalContext(plan)
    second = CountingBackend(plan.model, 14)
    other = first.with_backend(second)
    assert other.backend is second and first.backend is not second
    assert other.source is first.source and other.graders is first.graders and other.plan is plan
    first.close()
    assert second.closed == 0


def test_frames_are_found_by_text_only_where_an_encoder_is_named(plan: EvalPlan) -> None:
    context = EvalContext(plan)
    assert context.retriever() is None
    context.close()
    source: Any = MemorySource()
    with pytest.raises(SetupError, match=r"agentic_video\.retrieval\.model=no-such-encoder: "):
        make_retriever(RetrievalConfig(model="no-such-encoder", pretrained="no-such-tag"), source)


def test_an_encoder_that_cannot_be_had_is_named_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: True)
    monkeypatch.setattr("agentic_video.evaluation.model.hub_error", lambda model, timeout: OSError("offline"))
    by_name = RetrievalConfig("ViT-B-16-SigLIP2", "webli")
    for config, message in (
        (by_name, "=ViT-B-16-SigLIP2: timm/ViT-B-16-SigLIP2 is not in the hub's cache .*: hf download timm/ViT-B-16-S"),
        (RetrievalConfig("hf-hub:owner/name"), "=hf-hub:owner/name: owner/name is not in the hub's cache"),
        (RetrievalConfig("ViT-B-16-SigLIP2", "weblo"), "=ViT-B-16-SigLIP2: open_clip has none .* pretrained=weblo"),
        (RetrievalConfig("local-dir:/no/such"), "=local-dir:/no/such: no such folder: /no/such"),
    ):
        with pytest.raises(SetupError, match=rf"^agentic_video\.retrieval\.model{message}"):
            require_encoder(config)
    # what was downloaded, or is a file here, isn't asked for
    snapshot = tmp_path / "hub" / "models--timm--ViT-B-16-SigLIP2" / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    weights = snapshot / "open_clip_model.safetensors"
    weights.touch()
    for config in (
        by_name,
        RetrievalConfig("ViT-B-16-SigLIP2", str(weights)),
        RetrievalConfig(f"local-dir:{snapshot}"),
        RetrievalConfig(),
    ):
        require_encoder(config)
