"""Shared resources of the episodes of one process: a backend, frames, retrieval, graders."""

import copy

from agentic_video.evaluation.backends.base import Backend
from agentic_video.evaluation.backends.make import make_backend
from agentic_video.evaluation.model import has_cached_weights, hub_problem
from agentic_video.evaluation.plan import EvalPlan
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import Judge
from agentic_video.tools.base import Retriever
from agentic_video.utils.errors import SetupError
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.source import FrameSource
from agentic_video.video.store import FrameStore


class EvalContext:
    """Shared resources of the episodes of one process; made where its event loop runs."""

    def __init__(self, plan: EvalPlan, backend: Backend | None = None):
        self.plan = plan
        self._own = backend is None
        self.backend = backend or make_backend(plan.model, plan.system.size_factor)
        if (chat_format := self.backend.chat_format) is not None:
            try:
                chat_format.check_role(plan.system.observation_role)
            except ValueError as error:
                if self._own:
                    self.backend.close()
                raise SetupError(str(error)) from error
        self.source = FrameStore(plan.settings.frame_store)
        self.graders = make_graders(plan, self.source)

    def with_backend(self, backend: Backend) -> "EvalContext":
        """The same frames and graders with another backend; only the first context is to be closed."""
        other = copy.copy(self)
        other.backend = backend
        return other

    def retriever(self) -> Retriever | None:
        """The search of frames by text, where a model for it is configured."""
        return make_retriever(self.plan.settings.retrieval, self.source)

    def close(self) -> None:
        """Let go of frames and, if it was made here, of the model."""
        self.source.close()
        if self._own:
            self.backend.close()


def make_graders(plan: EvalPlan, source: FrameSource) -> Graders:
    """Graders of answers, which belong to the event loop that asks them first."""
    return Graders(judge=Judge(plan.settings.judge), source=source)


def require_encoder(config: RetrievalConfig) -> None:
    """Check that the model that finds frames by text is available; it isn't loaded."""
    if not config.model:
        return
    from agentic_video.video.retrieval.encoder import hub_name

    try:
        name = hub_name(config)
    except ValueError as error:
        raise SetupError(f"agentic_video.retrieval.model={config.model}: {error}") from error
    if name and not has_cached_weights(name) and (problem := hub_problem(name)):
        raise SetupError(f"agentic_video.retrieval.model={config.model}: {name} is {problem}")


def make_retriever(config: RetrievalConfig, source: FrameSource) -> Retriever | None:
    """The retriever of this process; None where no model is configured."""
    if not config.model:
        return None
    from agentic_video.video.retrieval.encoder import ClipEncoder
    from agentic_video.video.retrieval.retriever import FrameRetriever

    try:
        encoder = ClipEncoder(config)
    except (OSError, RuntimeError, ValueError) as error:
        raise SetupError(f"agentic_video.retrieval.model={config.model}: {error}") from error
    return FrameRetriever(source, encoder, config)
