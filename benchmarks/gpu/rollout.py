"""vLLM as verl runs it, fed by token ids and images as an agent loop feeds it, without Ray."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from agentic_video.families.registry import load_processor
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.utils.environment import spawn_engines
from benchmarks.gpu.sequences import Episode, Turn, make_sequence, picture_tokens
from benchmarks.gpu.sleeper import EXTENSION


@dataclass(frozen=True)
class RolloutSetting:
    """Settings of an engine: those of a recipe's ``cluster.yaml`` and verl's (``vllm_async_server.py:305``)."""

    model: Path  # folder of its checkpoint
    device: str  # ``cuda`` or ``cpu``
    dtype: str = "bfloat16"  # ``bfloat16`` or ``float32``
    dummy: bool = False  # random weights of vLLM's own; the checkpoint needs none
    tokens: int = 2048  # most tokens of a sequence
    batched_tokens: int = 2048  # most tokens of a step
    sequences: int = 8  # most sequences at a time
    images: int = 8  # most images of a sequence
    memory: float = 0.6  # share of the GPU that vLLM takes
    eager: bool = True  # no CUDA graphs
    sleeps: bool = False  # the engine may sleep
    lora_rank: int = 0  # of adapters that it serves; 0 for none

    def arguments(self) -> dict[str, Any]:
        """Arguments of vLLM's engine."""
        return {
            "model": str(self.model),
            "dtype": self.dtype,
            "load_format": "dummy" if self.dummy else "auto",
            "max_model_len": self.tokens,
            "max_num_batched_tokens": self.batched_tokens,
            "max_num_seqs": self.sequences,
            "limit_mm_per_prompt": {"image": self.images, "video": 0},
            "enable_chunked_prefill": True,
            "enable_prefix_caching": True,
            "enforce_eager": self.eager,
            # Before special tokens are barred: a model of random weights would say them often. verl asks for processed
            # ones, which at temperature 1 are the same but for that.
            "logprobs_mode": "raw_logprobs",
            "seed": 0,
            **({"gpu_memory_utilization": self.memory} if self.device == "cuda" else {"skip_mm_profiling": True}),
            **({"enable_lora": True, "max_lora_rank": self.lora_rank} if self.lora_rank else {}),
            **({"enable_sleep_mode": True, "worker_extension_cls": EXTENSION} if self.sleeps else {}),
        }


@dataclass(frozen=True)
class Said:
    """A reply."""

    ids: list[int]  # its tokens
    log_probs: list[float]  # one for each
    cached: int  # tokens of the prompt that the prefix cache had
    seconds: float  # until it was whole


class Rollout:
    """An engine in this process (its core is a process of vLLM's)."""

    def __init__(self, setting: RolloutSetting):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        spawn_engines()
        started = time.perf_counter()
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**setting.arguments()))
        self.start_seconds = time.perf_counter() - started
        self.chat_format = ChatFormat.of(load_processor(setting.model))

    def kv_tokens(self) -> int:
        """Capacity of the KV cache in tokens; 0 where vLLM doesn't report it."""
        cache = self._llm.vllm_config.cache_config
        return int(cache.num_gpu_blocks or 0) * int(cache.block_size or 0)

    def block(self) -> int:
        """Tokens of a block of the cache: the prefix cache knows whole blocks only."""
        return int(self._llm.vllm_config.cache_config.block_size or 1)

    async def say(
        self, ids: Sequence[int], images: Sequence[Any], tokens: int, seed: int = 0, adapter: Path | None = None
    ) -> Said:
        """One reply of exactly so many tokens, at temperature 1, with a LoRA adapter where one is named."""
        from PIL import Image
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind

        chat_format = self.chat_format  # vLLM writes the placeholders of an image itself
        short = chat_format.family.one_placeholder(chat_format.encode, ids)
        prompt = TokensPrompt(prompt_token_ids=short)
        if images:
            prompt["multi_modal_data"] = {"image": [Image.fromarray(image) for image in images]}
        sampling = SamplingParams(
            temperature=1.0,
            max_tokens=tokens,
            ignore_eos=True,
            logprobs=0,
            seed=seed,
            # an agent may not say them either
            logit_bias=dict.fromkeys({*chat_format.tokenizer.all_special_ids, *chat_format.visual_token_ids}, -100.0),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        started = time.perf_counter()
        last: Any = None
        lora = LoRARequest("adapter", 1, str(adapter)) if adapter else None
        async for output in self._llm.generate(prompt, sampling, uuid4().hex, lora_request=lora):
            last = output
        said = last.outputs[0]
        chosen = [entry[token].logprob for token, entry in zip(said.token_ids, said.logprobs, strict=True)]
        return Said(list(said.token_ids), chosen, int(last.num_cached_tokens or 0), time.perf_counter() - started)

    async def play(self, turns: Sequence[Turn], size: tuple[int, int], seed: int) -> tuple[Episode, list[Said]]:
        """Play an episode whose observations are random; return it and the engine's replies."""
        count = picture_tokens(self.chat_format, size)
        shown = make_sequence(turns, self.chat_format, size, seed)
        played = Episode(images=shown.images)
        said: list[Said] = []
        # What is shown is cut out of the made-up episode, turn by turn.
        ids, at, images = shown.ids, 0, 0
        for number, turn in enumerate(turns):
            length = turn.words + turn.images * count
            view = ids[at : at + length]
            at, images = at + length + turn.says, images + turn.images
            if number:
                played.response += view
                played.mask += [0] * length
            else:
                played.prompt = view
            reply = await self.say(played.ids, shown.images[:images], turn.says, seed)
            said.append(reply)
            played.response += reply.ids
            played.mask += [1] * len(reply.ids)
        return played, said

    async def play_all(
        self, turns: Sequence[Turn], size: tuple[int, int], seeds: Sequence[int]
    ) -> list[tuple[Episode, list[Said]]]:
        """Play episodes in parallel."""
        return list(await asyncio.gather(*(self.play(turns, size, seed) for seed in seeds)))

    async def sleep_and_wake(self, level: int) -> list[int]:
        """Sleep and wake as around verl's update; return the bytes of each tensor kept besides weights and buffers."""
        await self._llm.collective_rpc("spoil_memory")
        await self._llm.sleep(level=level)
        (kept,) = await self._llm.collective_rpc("kept_sizes")
        await self._llm.wake_up(tags=["weights"])
        if level > 1:
            await self._llm.collective_rpc("reload_weights")
        await self._llm.wake_up(tags=["kv_cache"])
        await self._llm.reset_prefix_cache()
        return list(kept)

    def close(self) -> None:
        """End the engine's process, so that the GPU is free."""
        self._llm.shutdown()
