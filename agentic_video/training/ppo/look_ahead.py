"""Rows of the next batch, drawn while the actor is updated, so that its first views are decoded in the meantime."""

import copy
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tensordict import TensorDict
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils

from agentic_video.training.ppo.replay_buffer import oversampled

# Only type checkers see the mixin as a trainer itself.
_Base: Any = PPOTrainerSync if TYPE_CHECKING else object


class LookAhead(_Base):
    """Draws the next batch of verl's synchronous trainer early, in the order in which it would be drawn.

    A checkpoint doesn't count what was drawn and not yet played.
    """

    train_dataloader: Any

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._ahead: deque[TensorDict] = deque()
        self._drawn: Any = None

    def on_sample_end(self) -> None:
        """verl's hook between a step's rollouts and its update."""
        super().on_sample_end()
        wanted = self.config.agentic_video.get("frame_store", {}).get("ahead", True)
        if wanted and self.global_steps < self.total_training_steps and not self._ahead:
            self._look_ahead()

    def prepare_step(self) -> Any:
        """verl's hook that deals out a step's questions: also those of ``agentic_video.oversample``."""
        prepared = super().prepare_step()
        if more := oversampled(self.config):
            self._add_prompts_to_generate(more)
        return prepared

    def _look_ahead(self) -> None:
        batch = self.config.data.train_batch_size
        size = batch + oversampled(self.config)
        self._drawn = copy.deepcopy(self.train_dataloader.state_dict())
        chunks = [super()._fetch_one_gen_batch()]
        while sum(len(chunk) for chunk in chunks) < size:
            chunks.append(super()._fetch_one_gen_batch())
        self._ahead = deque(chunks)
        drawn = tensordict_utils.concat_tensordict(chunks) if len(chunks) > 1 else chunks[0]
        more = [drawn[batch:]] if len(drawn) > batch else []  # as prepare_step hands them out
        self.agent_loop_manager.prefetch(drawn[:batch], *more)

    def _fetch_one_gen_batch(self) -> TensorDict:
        chunk: TensorDict = self._ahead.popleft() if self._ahead else super()._fetch_one_gen_batch()
        return chunk

    def _save_checkpoint(self) -> None:
        loader = self.train_dataloader
        if self._ahead:
            self.train_dataloader = SimpleNamespace(state_dict=lambda: self._drawn)
        try:
            super()._save_checkpoint()
        finally:
            self.train_dataloader = loader
