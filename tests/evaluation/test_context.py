"""Shared resources of the episodes of one process."""

from pathlib import Path
from typing import Any

import pytest

from agentic_video.config.settings import Settings
from agentic_video.evaluation.context import EvalContext, make_retriever, require_encoder
from agentic_video.evaluation.model import ModelSpec
from agentic_video.evaluation.plan import EvalPlan
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.utils.errors import SetupError
from agentic_video.video.retrieval.config import RetrievalConfig
from tests.conftest import MemorySource
from tests.evaluation.scripted import CountingBackend, named


@pytest.fixture
def plan(tmp_path: Path) -> EvalPlan:
    limits = TokenLimits(prompt=8_000, response=8_000, turn=4_000)
    return EvalPlan(tmp_path, Settings(VideoBrain()), ModelSpec(named("CountingBackend"), "m"), limits, concurrency=1)


def test_a_context_closes_its_own_backend_alone(plan: EvalPlan) -> None:
    own = EvalContext(plan)
    assert isinstance(own.backend, CountingBackend) and own.backend.visual_token_side == VideoBrain().size_factor
    given = CountingBackend(plan.model, 14)
    other = own.with_backend(given)
    assert other.backend is given and own.backend is not given
    assert other.source is own.source and other.graders is own.graders and other.plan is plan
    own.close()
    EvalContext(plan, given).close()
    assert (own.backend.closed, given.closed) == (1, 0)


def test_frames_are_found_by_text_only_where_an_encoder_is_named(plan: EvalPlan) -> None:
    context = EvalContext(plan)
    assert context.retriever() is None
    context.close()
    source: Any = MemorySource()
    with pytest.raises(SetupError, match=r"agentic_video\.retrieval\.model=no-such-encoder: "):
        make_retriever(RetrievalConfig(model="no-such-encoder", pretrained="no-such-tag"), source)


def test_a_missing_encoder_is_named_before_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: True)
    monkeypatch.setattr("agentic_video.evaluation.model.hub_error", lambda model, timeout: OSError("offline"))
    by_name = RetrievalConfig("ViT-B-16-SigLIP2", "webli")
    for config, named_there in (
        (by_name, "hf download timm/ViT-B-16-SigLIP2"),
        (RetrievalConfig("hf-hub:owner/name"), "owner/name"),
        (RetrievalConfig("ViT-B-16-SigLIP2", "weblo"), "pretrained=weblo"),
        (RetrievalConfig("local-dir:/no/such"), "/no/such"),
    ):
        with pytest.raises(SetupError, match=rf"^agentic_video\.retrieval\.model=.*{named_there}"):
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
