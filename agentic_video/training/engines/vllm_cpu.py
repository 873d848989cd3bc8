"""vLLM's CPU build as verl's rollout engine."""

from typing import Any

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """Keeps weights loadable: with oneDNN vLLM packs them and drops ``layer.weight``, which a weight sync needs."""

    def __new__(cls, **kwargs: Any) -> "CpuWorkerExtension":
        import vllm._custom_ops as ops

        ops._supports_onednn = False
        return super().__new__(cls, **kwargs)
