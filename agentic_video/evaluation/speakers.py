"""Who speaks in an evaluation: an OpenAI-compatible server, vLLM in this process, or the tiny model's own engine."""

import itertools
import json
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import uuid4

from agentic_video.data.journal import SetupError as SetupError
from agentic_video.rewards.endpoint import Endpoint
from agentic_video.rollout.chat_policy import ChatConfig, ChatPolicy, Usage
from agentic_video.rollout.policy import EngineError, Policy
from agentic_video.rollout.tokens import ChatFormat, Completion, TokenLimits, TokenPolicy
from agentic_video.systems.base import System
from agentic_video.video.frames import Frame

EngineName = Literal["chat", "vllm", "toy"]
SMALL_BYTES = 64 << 20
"""Weights up to this size run on the tiny model's own engine where there is no GPU."""


@dataclass(frozen=True)
class ModelSpec:
    """The model to evaluate; plain data, so that it can travel to other machines.

    Attributes:
        engine: What runs it.
        model: Folder of a checkpoint, its name on a hub, or the address of a server.
        temperature: Of sampling; 0 takes the likeliest token.
        top_p: Of sampling.
        seed: Of sampling: with the question it gives each turn's own. Negative: turns have none.
        vllm: Arguments of vLLM's engine.
        chat: How to reach the server.
    """

    engine: EngineName
    model: str
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    vllm: Mapping[str, Any] = field(default_factory=dict)
    chat: ChatConfig = field(default_factory=ChatConfig)


def choose_engine(model: str, asked: str, gpus: int, option: str = "--model") -> EngineName:
    """A server for an address; the tiny model's engine for a tiny checkpoint without a GPU; else vLLM.

    Args:
        option: How messages call the option that names the model.

    Raises:
        SetupError: The model isn't there, or isn't what was asked for.
    """
    if model.startswith(("http://", "https://")):
        if asked not in ("auto", "chat"):
            raise SetupError(f"--engine {asked} needs the folder of a checkpoint, and {option} is an address: {model}")
        return "chat"
    folder = Path(model)
    if asked == "chat":
        raise SetupError(f"--engine chat needs the address of a server (http://host:8000/v1), got {option} {model}")
    if folder.is_dir() and not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise SetupError(
            f"{option} {folder}: no weights in Hugging Face's format there; turn a checkpoint of verl into one with "
            f"python -m verl.model_merger merge --backend fsdp --local_dir {folder} --target_dir NEW_FOLDER"
        )
    if asked in ("vllm", "toy"):
        return "vllm" if asked == "vllm" else "toy"
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder.is_dir() else SMALL_BYTES + 1
    return "toy" if not gpus and size <= SMALL_BYTES else "vllm"


def served_model(
    base_url: str, key: str | None, timeout: float = 30.0, option: str = "--model", name_option: str = "--model-name"
) -> str:
    """The name of the one model that a server has.

    Args:
        option: How messages call the option that names the server.
        name_option: The same for the option that names the model.

    Raises:
        SetupError: The server can't be reached, or has several.
    """
    request = urllib.request.Request(base_url.rstrip("/") + "/models")
    if key:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            names = [str(entry["id"]) for entry in json.load(reply)["data"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SetupError(
            f"{option} {base_url}: no list of models there ({error}); name one with {name_option}"
        ) from error
    if len(names) != 1:
        raise SetupError(f"{option} {base_url} serves {len(names)} models: choose one with {name_option}: {names[:10]}")
    return names[0]


class Speaker(Protocol):
    """Makes the policies of an evaluation's episodes."""

    factor: int
    """Pixels along each side of one visual token."""

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        """A policy for one episode.

        Args:
            episode: Which one it is: the same episode is sampled alike whatever else is played, in any order. None
                leaves sampling to the engine's own state.
        """

    def close(self) -> None:
        """Let go of the model."""


class ChatSpeaker:
    """A server."""

    def __init__(self, spec: ModelSpec, factor: int):
        self.factor = factor
        self._spec = spec
        self._endpoint = Endpoint(spec.chat, "model")

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        return ChatPolicy(self._endpoint, self._spec.chat, system, limits, turn_seeds(self._spec, episode))

    def close(self) -> None:
        pass


class ToySpeaker:
    """The tiny model's engine."""

    def __init__(self, spec: ModelSpec):
        from agentic_video.toyworld.engine import BatchEngine
        from agentic_video.toyworld.model import FAMILIES, family_of, image_processor, load_checkpoint

        model, tokenizer = load_checkpoint(Path(spec.model))
        model.eval()
        family = family_of(model)
        self.factor = FAMILIES[family].frame_side
        self._spec = spec
        self._engine = BatchEngine(model, tokenizer, temperature=spec.temperature, seed=spec.seed)
        self._format = ChatFormat(tokenizer, image_processor(family))

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        return TokenPolicy(_ToyEngine(self._engine, turn_seeds(self._spec, episode)), self._format, limits, system)

    def close(self) -> None:
        pass


class _ToyEngine:
    """One episode's view of the tiny model's engine; see :class:`agentic_video.rollout.tokens.Engine`."""

    def __init__(self, engine: Any, seeds: Iterator[int | None]):
        self._engine, self._seeds = engine, seeds

    async def generate(self, prompt_ids: Sequence[int], frames: Sequence[Frame], **limits: Any) -> Completion:
        completion: Completion = await self._engine.generate(prompt_ids, frames, **limits, seed=next(self._seeds))
        return completion


class VllmSpeaker:
    """vLLM in this process. It must be made where its event loop runs."""

    def __init__(self, spec: ModelSpec):
        from transformers import AutoProcessor
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        processor = AutoProcessor.from_pretrained(spec.model)
        self._format = ChatFormat(processor.tokenizer, processor.image_processor)
        self.factor = processor.image_processor.patch_size * processor.image_processor.merge_size
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=spec.model, seed=max(0, spec.seed), **spec.vllm))
        self._spec = spec

    def policy(self, system: System, limits: TokenLimits, episode: str | None = None) -> Policy:
        engine = _VllmEngine(self._llm, self._format, self._spec, turn_seeds(self._spec, episode))
        return TokenPolicy(engine, self._format, limits, system)

    def close(self) -> None:
        self._llm.shutdown()


class _VllmEngine:
    """One episode's view of vLLM; see :class:`agentic_video.rollout.tokens.Engine`."""

    def __init__(self, llm: Any, chat_format: ChatFormat, spec: ModelSpec, seeds: Iterator[int | None]):
        self._llm, self._format, self._spec, self._seeds = llm, chat_format, spec, seeds

    async def generate(
        self,
        prompt_ids: Sequence[int],
        frames: Sequence[Frame],
        *,
        stop: Sequence[str],
        max_tokens: int,
        banned_ids: Collection[int],
    ) -> Completion:
        from PIL import Image
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        prompt = TokensPrompt(prompt_token_ids=one_placeholder(prompt_ids, self._format.image_token_id))
        if frames:
            prompt["multi_modal_data"] = {"image": [Image.fromarray(frame.image) for frame in frames]}
        sampling = SamplingParams(
            temperature=self._spec.temperature,
            top_p=self._spec.top_p,
            seed=next(self._seeds),
            max_tokens=max_tokens,
            stop=list(stop),
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            logit_bias=dict.fromkeys(banned_ids, -100.0),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        ids: tuple[int, ...] = ()
        try:
            async for output in self._llm.generate(prompt, sampling, uuid4().hex):
                ids = tuple(output.outputs[0].token_ids)
        except Exception as error:
            raise EngineError(f"{type(error).__name__}: {error}") from error
        return Completion(ids)


def one_placeholder(ids: Sequence[int], image_token: int) -> list[int]:
    """Ids with one placeholder for each image: vLLM counts how many an image needs itself."""
    return [token for at, token in enumerate(ids) if not (at and token == image_token == ids[at - 1])]


def turn_seeds(spec: ModelSpec, episode: str | None) -> Iterator[int | None]:
    """A seed for each turn of an episode; None where nothing is drawn, or for no certain episode."""
    if episode is None or spec.temperature == 0 or spec.seed < 0:
        return itertools.repeat(None)
    names = (f"{spec.seed}\n{episode}\n{turn}" for turn in itertools.count())
    return (int.from_bytes(blake2b(name.encode(), digest_size=4).digest()) >> 1 for name in names)


def make_speaker(spec: ModelSpec, factor: int) -> Speaker:
    """The speaker of a model.

    Args:
        factor: Pixels along each side of one visual token, where the model doesn't say (a server).
    """
    if spec.engine == "chat":
        return ChatSpeaker(spec, factor)
    return ToySpeaker(spec) if spec.engine == "toy" else VllmSpeaker(spec)


def usage_of(policy: Policy) -> Usage:
    """What a policy's episode cost in tokens. An engine in this process reuses what it has seen: its prompt counts
    once."""
    if isinstance(policy, ChatPolicy):
        return policy.usage
    if isinstance(policy, TokenPolicy):
        said = sum(sum(sequence.response_mask) for sequence in policy.sequences)
        return Usage(policy.num_tokens - sum(policy.sequence.response_mask) if policy.sequence else 0, said, 0)
    return Usage()
