"""verl's vLLM server with ours on top, without Ray: verl's own ``generate`` in front of any engine."""

from types import SimpleNamespace
from typing import Any

from verl.workers.rollout.replica import RolloutMode

from agentic_video.training.engines.vllm_server import VideoServer


class Config(SimpleNamespace):
    """The rollout's, as far as a request reads it."""

    def get(self, name: str, default: Any) -> Any:
        """As a mapping's."""
        return default


def server(engine: Any, processor: Any = None) -> VideoServer:
    """A server that runs, with everything that verl's constructor would need a cluster for left out."""
    made = object.__new__(VideoServer)
    made.config = Config(max_model_len=1024, full_determinism=False, mtp=None, enable_rollout_routing_replay=False)
    made.model_config = SimpleNamespace(processor=processor, lora_rank=0, lora={})
    made.rollout_mode, made.replica_rank, made.global_steps = RolloutMode.HYBRID, 0, 7
    made._disaggregation_role, made._submission_paused, made._rejecting, made._admitting = "null", False, False, 0
    made.engine = engine
    return made
