"""The model of an evaluation: which, where, and how it is sampled."""

import itertools
import json
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from agentic_video.rollout.chat_policy import ChatConfig
from agentic_video.utils.journal import SetupError as SetupError

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


def turn_seeds(spec: ModelSpec, episode: str | None) -> Iterator[int | None]:
    """A seed for each turn of an episode; None where nothing is drawn, or for no certain episode."""
    if episode is None or spec.temperature == 0 or spec.seed < 0:
        return itertools.repeat(None)
    names = (f"{spec.seed}\n{episode}\n{turn}" for turn in itertools.count())
    return (int.from_bytes(blake2b(name.encode(), digest_size=4).digest()) >> 1 for name in names)
