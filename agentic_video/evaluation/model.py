"""The model of an evaluation: its checks before anything starts, its engine, and its sampling."""

import asyncio
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agentic_video.config.settings import template_kwargs_of
from agentic_video.evaluation.results import read_json
from agentic_video.graders.connection import RefusedReply, api_key, connect
from agentic_video.rollout.chat_policy import ChatConfig
from agentic_video.systems.base import System
from agentic_video.systems.registry import SYSTEMS, system_class
from agentic_video.types.text import printable
from agentic_video.utils.errors import SetupError, one_line
from agentic_video.utils.proxies import proxy_for

SERVED = ("chat", "vllm-server")
"""Engines that are servers."""
VLLM_KEYS = (
    "dtype",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "enforce_eager",
    "enable_chunked_prefill",
    "enable_prefix_caching",
)
"""Keys of verl's rollout config that vLLM's engine knows by the same name."""
VLLM_TRAINING_ONLY = ("worker_extension_cls",)
TEXT_ONLY = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "llama", "mistral")
"""``model_type`` of models that see no frames; others may."""
TAUGHT = "toyworld_system"
"""Key of a tiny model's ``config.json``: the system that it was taught. Further training keeps it."""
MODEL_BELOW = (
    "model",
    "huggingface",
    "actor/huggingface",
    "global_step_*/huggingface",
    "global_step_*/actor/huggingface",
    "checkpoints/global_step_*/huggingface",
    "checkpoints/global_step_*/actor/huggingface",
)
"""Places of models below a run's folder, or below one of its checkpoints."""
_NO_SCHEME = re.compile(r"(?:[\w-]+(?:\.[\w-]+)*|\[[0-9a-fA-F:]+\]):\d{1,5}(?:/\S*)?")
"""``host:port/...``: an address without ``http://``."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class ModelSpec:
    """The model to evaluate; plain data, so that it can travel to other machines."""

    engine: str  # see ModelOptions
    model: str  # folder of a checkpoint, its name on a hub, or the address of a server
    temperature: float = 0.0  # 0 is greedy
    top_p: float = 1.0
    seed: int = 0  # gives each turn its own, with the question; negative: turns have none
    vllm: Mapping[str, Any] = field(default_factory=dict)  # arguments of vLLM's engine
    chat: ChatConfig = field(default_factory=ChatConfig)  # connection to the server
    processor: str = ""  # folder or name of the processor of a model behind a server
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)  # data.apply_chat_template_kwargs


@dataclass(frozen=True)
class ModelOptions:
    """A model as a command names it."""

    model: str  # folder of a checkpoint, its name on a hub, or the address of a server
    engine: str  # chat, vllm, vllm-server, or the dotted path of a Backend class
    model_name: str = ""  # its name on the server; empty where the server has only one
    temperature: float | None = None  # None takes the recipe's val_kwargs
    top_p: float | None = None  # None takes the recipe's val_kwargs
    seed: int = 0  # see ModelSpec
    concurrency: int = 32  # most requests to a server at a time
    api_key_env: str = "OPENAI_API_KEY"
    # Processor of a model behind a server: with vllm-server, empty takes what the server reports; with chat it tells
    # how the chat template begins replies.
    processor: str = ""


def is_address(model: str) -> bool:
    """Return True for the address of a server."""
    return model.lower().startswith(("http://", "https://"))


def engine_of(model: str, requested: str, option: str = "--model") -> str:
    """The engine of a model, which must suit it; ``auto`` takes a server for an address, else vLLM."""
    if "." in requested:
        return requested
    if requested not in ("auto", "vllm", *SERVED):
        raise SetupError(
            f"--engine {requested}: there are auto, vllm, {', '.join(SERVED)}, and the dotted path of a custom class",
            key="--engine",
        )
    if is_address(model) and requested != "vllm":
        return "chat" if requested == "auto" else requested
    if requested in SERVED:
        raise SetupError(
            f"--engine {requested} needs the address of a server (http://host:8000/v1), got {option} {model}",
            key=option,
        )
    require_checkpoint(model, requested, option)
    return "vllm"


def require_checkpoint(model: str, engine: str, option: str = "--model") -> None:
    """Check that an engine in this process can load a model, as far as its name and its folder tell."""
    if is_address(model):
        raise SetupError(
            f"--engine {engine} needs the folder of a checkpoint, and {option} is an address: {model}", key=option
        )
    folder = Path(model)
    check_place(folder, f"{option} {folder}")
    if folder.is_dir():
        if not _has_weights(folder):
            raise SetupError(
                f"{option} {folder}: no weights in Hugging Face's format there; turn a checkpoint of verl into one "
                f"with python -m verl.model_merger merge --backend fsdp --local_dir {folder} --target_dir NEW_FOLDER",
                key=option,
            )
        _check_sees(folder / "config.json", f"{option} {folder}", option)
    elif _NO_SCHEME.fullmatch(model):
        raise SetupError(
            f"{option} {model}: no such folder; the address of a server begins with http://{model}", key=option
        )
    elif not _HUB_NAME.fullmatch(model):
        raise SetupError(
            f"{option} {model}: no such folder; name that of a checkpoint, or a model of the hub as OWNER/NAME",
            key=option,
        )


def _check_sees(config: Path, named: str, option: str) -> None:
    values = read_json(config)
    kind = values.get("model_type")
    if kind in TEXT_ONLY and "auto_map" not in values and "vision_config" not in values:
        raise SetupError(
            f"{named}: its model_type is {kind!r}, a model of text alone, which sees no frames", key=option
        )


def check_taught(model: str, system: System, option: str = "--model") -> None:
    """Check that a tiny model of the synthetic world was taught a system's grammar; other models pass."""
    taught = read_json(Path(model) / "config.json").get(TAUGHT)
    alike = taught == system.name or (taught in SYSTEMS and isinstance(system, system_class(taught)))
    if taught and not alike:
        raise SetupError(
            f"{option} {model}: this tiny model was taught {taught}, which is written and shown otherwise than "
            f"{system.name}; name one that was taught {system.name}, or none, so that it is made",
            key=option,
        )


def check_place(folder: Path, named: str) -> None:
    """Check that a model's folder isn't a file, or a folder of a run, which has a model further below."""
    if folder.is_file():
        raise SetupError(f"{named}: a file; name its folder", key=named)
    if _has_model(folder):
        return
    for pattern in MODEL_BELOW:
        if found := [path for path in folder.glob(pattern) if _has_model(path)]:
            kind = "a run's folder" if pattern.startswith(("model", "checkpoints")) else "a folder of verl's"
            last = max(found, key=lambda path: [int(step) for step in re.findall(r"global_step_(\d+)", str(path))])
            raise SetupError(f"{named} is {kind}; its model is {last}", key=named)


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))


def _has_model(folder: Path) -> bool:
    return _has_weights(folder) and (folder / "config.json").is_file()


def cached_config(model: str) -> Path | None:
    """The ``config.json`` of a model in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model, "config.json")
    return Path(found) if isinstance(found, str) else None


def has_cached_weights(model: str) -> bool:
    """Return True if the hub's cache has weights of a model, in whichever format."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    snapshots = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=model, repo_type="model") / "snapshots"
    return any(path.suffix in (".safetensors", ".bin", ".pt", ".pth") for path in snapshots.glob("*/*"))


def require_model(options: ModelOptions, option: str = "--model", name_option: str = "") -> None:
    """Check that the model's server answers, or that the hub has the model; ``name_option`` looks its name up, too."""
    if options.engine in SERVED:
        listed = list_models(options.model, options.api_key_env, option=option)
        if name_option and options.model_name:
            warn_of_name(listed, options.model, f"{name_option} {options.model_name}", options.model_name)
    elif options.engine == "vllm" and not Path(options.model).is_dir():
        if problem := hub_problem(options.model):
            raise SetupError(f"{option} {options.model}: no such folder here, {problem}", key=option)
        if config := cached_config(options.model):
            _check_sees(config, f"{option} {options.model}", option)


def hub_problem(model: str) -> str:
    """Why a model of the hub isn't available, with the remedy; empty where it is."""
    from huggingface_hub import is_offline_mode

    error = hub_error(model, timeout=20.0)
    if error is None:
        return ""
    if is_offline_mode():
        return f"not in the hub's cache (offline); download it first: hf download {model}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"not in the hub's cache, and not available from the hub: {lines[0]}"


def hub_error(model: str, timeout: float) -> Exception | None:
    """The error of the hub's client about a model that is neither in its cache nor on the hub."""
    from huggingface_hub import HfApi

    try:
        if cached_config(model) is None:
            HfApi().model_info(model, timeout=timeout)
    except Exception as error:  # its classes of errors change from version to version
        return error
    return None


@dataclass(frozen=True)
class ModelList:
    """Models that a server lists."""

    roots: Mapping[str, str] = field(default_factory=dict)  # what it loaded under each name, empty where it doesn't say
    missing: str = "it is empty"  # why there are no names

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return list(self.roots)


def list_models(
    base_url: str,
    key_env: str,
    timeout: float = 30.0,
    option: str = "--model",
    key_option: str = "--api-key-env",
) -> ModelList:
    """Ask a server for its models; a SetupError where none answers, or it refuses the key, or it redirects."""
    if not is_address(base_url):
        example = f"http://{base_url}" if _NO_SCHEME.fullmatch(base_url) else "http://host:8000/v1"
        raise SetupError(f"{option} {base_url}: no address of a server; name one as {example}", key=option)
    key = api_key(key_env)
    proxy = proxy_for(base_url)
    through = f"; {proxy}" if proxy else ""
    ask_for_v1 = "" if base_url.rstrip("/").endswith("/v1") else "; should the address end in /v1?"
    try:
        text = asyncio.run(_get_models(base_url, key, timeout))
    except Exception as error:  # whatever a server can make the client raise
        status = getattr(error, "status_code", None)
        if status in (401, 403):
            refusal = f"refuses the key in {key_env} (HTTP {status})"
            if not key:
                refusal = f"asks for a key (HTTP {status}), and the variable {key_env} is not set"
            raise SetupError(
                f"{option} {base_url}: the server {refusal}; {key_option} names another variable", key=key_option
            ) from error
        if status is not None:
            return ModelList(missing=f"HTTP {status}{ask_for_v1 if status == 404 else ''}{through}")
        cause = error.__cause__ or error
        if isinstance(cause, SetupError | RefusedReply):
            raise SetupError(f"{option} {base_url}: {cause}", key=option) from error
        raise SetupError(
            f"{option} {base_url}: no server answers there ({one_line(cause)}){through}", key=option
        ) from error
    try:
        return ModelList({str(entry["id"]): str(entry.get("root") or "") for entry in json.loads(text)["data"]})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ModelList(missing=f"a web page{ask_for_v1}" if text.lstrip()[:1] == b"<" else "another reply")


async def _get_models(base_url: str, key: str, timeout: float) -> bytes:
    import httpx

    async with connect(base_url, key or "none", timeout) as client:
        return (await client.get("/models", cast_to=httpx.Response)).content


def warn_of_name(listed: ModelList, base_url: str, named: str, name: str) -> None:
    """Warn on standard error of a model that a server doesn't list; some servers take names that they don't list."""
    if listed.names and name not in listed.names:
        more = f" and {len(listed.names) - 10} more" if len(listed.names) > 10 else ""
        known = printable(", ".join(listed.names[:10]) + more)
        print(f"{named}: {base_url} lists {known}, and none of that name: its requests may all fail", file=sys.stderr)


def served_model(
    base_url: str, key_env: str, timeout: float = 30.0, option: str = "--model", name_option: str = "--model-name"
) -> str:
    """The name of a server's only model; a SetupError where it lists none, or several."""
    listed = list_models(base_url, key_env, timeout, option)
    if not listed.names:
        raise SetupError(
            f"{option} {base_url}: no list of models there ({listed.missing}); name one with {name_option}", key=option
        )
    if len(listed.names) != 1:
        raise SetupError(
            f"{option} {base_url} serves {len(listed.names)} models; choose one with {name_option}: "
            f"{', '.join(listed.names[:10])}",
            key=name_option,
        )
    return listed.names[0]


def model_spec(options: ModelOptions, config: DictConfig) -> ModelSpec:
    """The model with the sampling of the recipe's validation, unless the options name another."""
    rollout = config.actor_rollout_ref.rollout
    recipe_temperature = float(rollout.val_kwargs.temperature) if rollout.val_kwargs.do_sample else 0.0
    spec = ModelSpec(
        options.engine,
        options.model,
        recipe_temperature if options.temperature is None else options.temperature,
        float(rollout.val_kwargs.top_p) if options.top_p is None else options.top_p,
        options.seed,
        template_kwargs=template_kwargs_of(config),
    )
    if options.engine == "vllm":
        return replace(spec, vllm=_vllm_arguments(rollout))
    if options.engine not in SERVED:
        return spec
    processor = options.processor
    if options.engine == "vllm-server" and not processor:
        processor = _served_processor(options)
    chat = ChatConfig(
        base_url=options.model,
        model=options.model_name or served_model(options.model, options.api_key_env),
        api_key_env=options.api_key_env,
        concurrency=options.concurrency,
        temperature=spec.temperature,
        max_tokens=int(config.agentic_video.get("max_turn_tokens", 0)) or ChatConfig.max_tokens,
        fields={
            **({"top_p": spec.top_p} if spec.top_p < 1 else {}),
            # the name that vLLM and SGLang have for them
            **({"chat_template_kwargs": dict(spec.template_kwargs)} if spec.template_kwargs else {}),
        },
    )
    return replace(spec, processor=processor, chat=chat)


def _served_processor(options: ModelOptions) -> str:
    """Processor of the checkpoint that vLLM's server reports."""
    listed = list_models(options.model, options.api_key_env).roots
    roots = {root for name, root in listed.items() if root and options.model_name in ("", name)}
    if len(roots) != 1:
        raise SetupError(
            f"{options.model}: the server doesn't report which model it loaded; name whose processor it has with "
            "--processor MODEL",
            key="--processor",
        )
    return roots.pop()


def _vllm_arguments(rollout: DictConfig) -> dict[str, Any]:
    arguments: dict[str, Any] = {key: rollout[key] for key in VLLM_KEYS if rollout.get(key) is not None}
    arguments["tensor_parallel_size"] = int(rollout.tensor_model_parallel_size)
    extra = OmegaConf.to_container(rollout.engine_kwargs.get("vllm") or OmegaConf.create({}), resolve=True)
    assert isinstance(extra, dict)
    known = ((str(key), value) for key, value in extra.items() if value is not None)
    return arguments | {key: value for key, value in known if key not in VLLM_TRAINING_ONLY}


def fit_images(spec: ModelSpec, most: int, clips: bool = False) -> ModelSpec:
    """The model with room for so many images in an episode, which may come as clips."""
    if spec.engine != "vllm":
        return spec
    limit = dict(spec.vllm.get("limit_mm_per_prompt") or {})
    limit["image"] = max(int(limit.get("image", 0)), most)
    if clips:
        limit["video"] = max(int(limit.get("video", 0)), most // 2)
    return replace(spec, vllm={**spec.vllm, "limit_mm_per_prompt": limit})


def turn_seeds(spec: ModelSpec, episode: str | None) -> Iterator[int | None]:
    """A seed for each turn of an episode; None for greedy decoding, or for an unnamed episode."""
    if episode is None or spec.temperature == 0 or spec.seed < 0:
        return itertools.repeat(None)
    return episode_seeds(spec.seed, episode)


def episode_seeds(seed: int, episode: str) -> Iterator[int]:
    """A seed for each turn of an episode, independent of all other episodes."""
    names = (f"{seed}\n{episode}\n{turn}" for turn in itertools.count())
    return (int.from_bytes(blake2b(name.encode(), digest_size=4).digest()) >> 1 for name in names)
