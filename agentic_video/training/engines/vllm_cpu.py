"""vLLM's CPU build as verl's rollout engine."""

from typing import Any

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """verl's worker extension for an engine whose weights must stay loadable.

    vLLM's CPU build packs linear weights for oneDNN and drops ``layer.weight``, so the first weight sync would fail.
    Without oneDNN it computes with the live parameters.
    """

    def __new__(cls, **kwargs: Any) -> "CpuWorkerExtension":
        import vllm._custom_ops as ops

        ops._supports_onednn = False
        return super().__new__(cls, **kwargs)
