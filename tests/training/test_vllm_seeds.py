from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from agentic_video.training.seams.vllm_seeds import keep_generators


class GPUModelRunner:
    """The parts of vLLM's runner that the patch touches, which draw and set back as vLLM does."""

    def __init__(self, generators: dict[int, torch.Generator]):
        self.input_batch = SimpleNamespace(generators=generators, num_reqs=2)
        self.discard_request_mask = SimpleNamespace(np=np.array([True, False, True]))

    def _sample(self) -> list[float]:
        drawn = torch.empty(2).exponential_()
        for row, generator in self.input_batch.generators.items():
            drawn[row].exponential_(generator=generator)
        return drawn.tolist()

    def _bookkeeping_sync(self) -> None:
        for row in self.discard_request_mask.np[:2].nonzero()[0]:
            generator = self.input_batch.generators.get(int(row))
            if generator is not None:
                generator.set_offset(generator.get_offset() - 4)


def test_a_request_s_draws_are_the_same_however_often_its_prompt_is_cut() -> None:
    module: Any = SimpleNamespace(GPUModelRunner=GPUModelRunner)
    keep_generators(module)
    generators = {row: torch.Generator().manual_seed(row) for row in range(2)}
    runner = GPUModelRunner(generators)
    runner._sample()
    runner._bookkeeping_sync()
    assert list(runner.input_batch.generators) == [1, 0]
    runner.discard_request_mask.np[:] = False
    found = runner._sample()[0]
    runner._bookkeeping_sync()
    assert found == torch.empty(()).exponential_(generator=torch.Generator().manual_seed(0)).item()
