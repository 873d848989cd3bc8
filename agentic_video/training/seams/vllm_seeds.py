"""Seeds of requests whose prompts vLLM prefills in chunks on a CPU, where a generator can't be set back."""

from functools import wraps
from types import ModuleType
from typing import Any


def keep_generators(gpu_model_runner: ModuleType) -> None:
    """Sample without a request's generator where vLLM discards the token, that after an unfinished prefill.

    vLLM sets the generator back by an offset, which only those of GPUs have.
    """
    runner: Any = gpu_model_runner.GPUModelRunner
    sample, bookkeeping = runner._sample, runner._bookkeeping_sync

    @wraps(sample)
    def _sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        generators = self.input_batch.generators
        discarded = self.discard_request_mask.np[: self.input_batch.num_reqs].nonzero()[0].tolist()
        self._kept_generators = {row: generators.pop(row) for row in discarded if row in generators}
        return sample(self, *args, **kwargs)

    @wraps(bookkeeping)
    def _bookkeeping_sync(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return bookkeeping(self, *args, **kwargs)
        finally:
            self.input_batch.generators.update(self.__dict__.pop("_kept_generators", {}))

    runner._sample, runner._bookkeeping_sync = _sample, _bookkeeping_sync
