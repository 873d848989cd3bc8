"""The model of an evaluation: which, what runs it, where, and how it is sampled."""

import http.client
import itertools
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from agentic_video.config.settings import template_kwargs_of
from agentic_video.graders.connection import MAX_REPLY_BYTES, api_key
from agentic_video.rollout.chat_policy import ChatConfig
from agentic_video.systems.base import System
from agentic_video.systems.registry import SYSTEMS, system_class
from agentic_video.types.text import printable
from agentic_video.utils.errors import SetupError
from agentic_video.utils.proxies import proxy_for, proxy_problem

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
_NO_SCHEME = re.compile(r"(?:[\w-]+(?:\.[\w-]+)*|\[[0-9a-fA-F:]+\]):\d{1,5}(?:/\S*)?")
"""``host:port/...``: an address without ``http://``."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
OF_TEXT = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "llama", "mistral")
"""``model_type`` of models that see nothing; of others it isn't known."""
TAUGHT = "toyworld_system"
"""In a tiny model's ``config.json``: the system that it was taught. What is trained further keeps it."""
MODEL_BELOW = (
    "model",
    "huggingface",
    "actor/huggingface",
    "global_step_*/huggingface",
    "global_step_*/actor/huggingface",
    "checkpoints/global_step_*/huggingface",
    "checkpoints/global_step_*/actor/huggingface",
)
"""Where a run's folder, or one of its checkpoints', has its models."""
VLLM_NEVER = ("worker_extension_cls",)
"""What training needs of vLLM and an evaluation doesn't."""


@dataclass(frozen=True)
class ModelSpec:
    """The model to evaluate; plain data, so that it can travel to other machines."""

    engine: str  # what runs it: see ModelOptions
    model: str  # folder of a checkpoint, its name on a hub, or the address of a server
    temperature: float = 0.0  # of sampling; 0 takes the likeliest token
    top_p: float = 1.0  # of sampling
    seed: int = 0  # of sampling: with the question it gives each turn's own. Negative: turns have none
    vllm: Mapping[str, Any] = field(default_factory=dict)  # arguments of vLLM's engine
    chat: ChatConfig = field(default_factory=ChatConfig)  # how to reach the server
    processor: str = ""  # folder or name of the processor of a model behind a server; empty where it isn't needed
    # variables for the model's chat template (`data.apply_chat_template_kwargs`)
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


SERVED = ("chat", "vllm-server")
"""Engines that are servers."""


@dataclass(frozen=True)
class ModelOptions:
    """A model as a command names it."""

    model: str  # folder of a checkpoint, its name on a hub, or the address of a server
    engine: str  # what runs it: `chat`, `vllm`, `vllm-server`, or the dotted path of a Backend class
    model_name: str = ""  # its name on the server; empty where the server has one only
    temperature: float | None = None  # of sampling; None takes the recipe's `val_kwargs`
    top_p: float | None = None  # likewise
    seed: int = 0  # see ModelSpec
    concurrency: int = 32  # most requests to a server at a time
    api_key_env: str = "OPENAI_API_KEY"  # environment variable that holds the server's key
    # folder or name of the processor of a model behind a server. With `vllm-server`, empty takes what the server says
    # it loaded; with `chat` it tells how the chat template begins replies
    processor: str = ""


def is_address(model: str) -> bool:
    """Whether a model is named by the address of its server."""
    return model.lower().startswith(("http://", "https://"))


def engine_of(model: str, asked: str, option: str = "--model") -> str:
    """What runs a model: a server for an address, else vLLM, unless something else is asked for."""
    if "." in asked:
        return asked
    if asked not in ("auto", "vllm", *SERVED):
        raise SetupError(
            f"--engine {asked}: there are auto, vllm, {', '.join(SERVED)}, and the dotted path of a class of your own"
        )
    if is_address(model) and asked != "vllm":
        return "chat" if asked == "auto" else asked
    if asked in SERVED:
        raise SetupError(f"--engine {asked} needs the address of a server (http://host:8000/v1), got {option} {model}")
    require_checkpoint(model, asked, option)
    return "vllm"


def require_checkpoint(model: str, engine: str, option: str = "--model") -> None:
    """Make sure that an engine in this process can load a model, as far as its name and its folder tell."""
    if is_address(model):
        raise SetupError(f"--engine {engine} needs the folder of a checkpoint, and {option} is an address: {model}")
    folder = Path(model)
    check_place(folder, f"{option} {folder}")
    if not folder.is_dir():
        if _NO_SCHEME.fullmatch(model) and not folder.exists():
            raise SetupError(f"{option} {model}: no such folder; the address of a server begins with http://{model}")
        if folder.exists() or not _HUB_NAME.fullmatch(model):
            raise SetupError(
                f"{option} {model}: no such folder; name that of a checkpoint, or a model of the hub as OWNER/NAME"
            )
        return
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise SetupError(
            f"{option} {folder}: no weights in Hugging Face's format there; turn a checkpoint of verl into one with "
            f"python -m verl.model_merger merge --backend fsdp --local_dir {folder} --target_dir NEW_FOLDER"
        )
    _check_sees(folder / "config.json", f"{option} {folder}")


def _check_sees(config: Path, named: str) -> None:
    """Make sure that a model isn't one of text alone."""
    try:
        values = json.loads(config.read_text(encoding="utf-8"))
        kind = "" if "auto_map" in values or "vision_config" in values else values.get("model_type")
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return
    if kind in OF_TEXT:
        raise SetupError(f"{named}: its model_type is {kind!r}, a model of text alone, which sees no frames")


def check_taught(model: str, system: System, option: str = "--model") -> None:
    """Make sure that a tiny model of the synthetic world speaks a system's grammar; of others nothing is known."""
    try:
        taught = json.loads((Path(model) / "config.json").read_text(encoding="utf-8")).get(TAUGHT)
    except (OSError, ValueError, AttributeError, RecursionError):
        return
    alike = taught == system.name or (taught in SYSTEMS and isinstance(system, system_class(taught)))
    if taught and not alike:
        raise SetupError(
            f"{option} {model}: this tiny model was taught {taught}, which is written and shown otherwise than "
            f"{system.name}; name one that was taught {system.name}, or none, so that it is made"
        )


def cached_config(model: str) -> Path | None:
    """The ``config.json`` of a model in the hub's cache; None where it isn't there."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model, "config.json")
    return Path(found) if isinstance(found, str) else None


def has_cached_weights(model: str) -> bool:
    """Whether the hub's cache has weights of a model, in whichever format."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    snapshots = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=model, repo_type="model") / "snapshots"
    return any(one.suffix in (".safetensors", ".bin", ".pt", ".pth") for one in snapshots.glob("*/*"))


def check_place(folder: Path, named: str) -> None:
    """Make sure that what is named as a model isn't a file, or a folder which only has one further below."""
    if folder.is_file():
        raise SetupError(f"{named}: a file; name its folder")
    if _has_model(folder):
        return
    for pattern in MODEL_BELOW:
        found = [one for one in folder.glob(pattern) if _has_model(one)]
        if found:
            kind = "a run's folder" if pattern.startswith(("model", "checkpoints")) else "a folder of verl's"
            last = max(found, key=lambda one: [int(number) for number in re.findall(r"global_step_(\d+)", str(one))])
            raise SetupError(f"{named} is {kind}; its model is {last}")


def _has_model(folder: Path) -> bool:
    """Whether a folder has a model in Hugging Face's format."""
    weights = any(folder.glob("*.safetensors")) or any(folder.glob("*.bin"))
    return weights and (folder / "config.json").is_file()


def require_model(options: ModelOptions, option: str = "--model", name_option: str = "") -> None:
    """Make sure that a model can be had, before anything is read or made for it: that a server answers, or that a hub
    has it."""
    if options.engine in SERVED:
        found = list_models(options.model, options.api_key_env, option=option)
        if name_option and options.model_name:
            warn_of_name(found, options.model, f"{name_option} {options.model_name}", options.model_name)
    elif options.engine == "vllm" and not Path(options.model).is_dir():
        _require_hub_model(options.model, option)


def _require_hub_model(model: str, option: str) -> None:
    """Make sure that a model is in the hub's cache, or on the hub."""
    if problem := hub_problem(model):
        raise SetupError(f"{option} {model}: no such folder here, {problem}")
    if config := cached_config(model):
        _check_sees(config, f"{option} {model}")


def hub_problem(model: str, timeout: float = 20.0) -> str:
    """What stands in the way of a model of the hub, and what to do about it; empty where nothing does."""
    from huggingface_hub import is_offline_mode

    error = hub_error(model, timeout)
    if error is None:
        return ""
    if is_offline_mode():
        return f"not in the hub's cache (offline); download it first: hf download {model}"
    why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"not in the hub's cache, and not to be had from the hub: {why}"


def hub_error(model: str, timeout: float) -> Exception | None:
    """Why a model can't be had from the hub's cache or from the hub, as the hub's client says it; None where it can."""
    from huggingface_hub import HfApi

    try:
        if cached_config(model) is None:
            HfApi().model_info(model, timeout=timeout)
    except Exception as error:  # its classes of errors change from version to version
        return error
    return None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Redirects would carry the key to another server."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


@dataclass(frozen=True)
class ModelList:
    """What a server says of its models."""

    # what it loaded under each name; empty where it doesn't say. None where it answers, but has no list
    roots: Mapping[str, str] | None
    missing: str = "it is empty"  # why there are no names, in a few words

    @property
    def names(self) -> list[str]:
        """The names of its models."""
        return list(self.roots or ())


def list_models(
    base_url: str,
    key_env: str,
    timeout: float = 30.0,
    option: str = "--model",
    key_option: str = "--api-key-env",
) -> ModelList:
    """Ask a server for its models."""
    if not is_address(base_url):
        raise SetupError(f"{option} {base_url}: no address of a server; name one as {_with_scheme(base_url)}")
    key = api_key(key_env)
    proxy = proxy_for(base_url)
    if proxy and (problem := proxy_problem(proxy)):
        raise SetupError(f"{option} {base_url}: {problem}")
    through = f"; {proxy}" if proxy else ""
    if proxy and proxy.url.lower().startswith("socks"):
        return ModelList(None, f"it can't be asked through a SOCKS proxy{through}")
    proxies = {base_url.partition(":")[0].lower(): proxy.url} if proxy else {}
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler(proxies))
    try:
        request = urllib.request.Request(base_url.rstrip("/") + "/models")
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        with opener.open(request, timeout=timeout) as reply:
            text = reply.read(MAX_REPLY_BYTES)
    except urllib.error.HTTPError as error:
        if 300 <= error.code < 400:
            where = error.headers.get("Location")
            raise SetupError(f"{option} {base_url}: redirects to {where}; give the address that answers") from error
        if error.code in (401, 403):
            said = f"refuses the key in {key_env} (HTTP {error.code})"
            if not key:
                said = f"asks for a key (HTTP {error.code}), and the variable {key_env} is not set"
            raise SetupError(f"{option} {base_url}: the server {said}; {key_option} names another variable") from error
        return ModelList(None, f"HTTP {error.code}{_ask_for_v1(base_url) if error.code == 404 else ''}{through}")
    except (OSError, ValueError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise SetupError(f"{option} {base_url}: no server answers there ({why}){through}") from error
    try:
        entries = json.loads(text)["data"]
        return ModelList({str(entry["id"]): str(entry.get("root") or "") for entry in entries})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        page = text.lstrip()[:1] == b"<"
        return ModelList(None, f"a web page{_ask_for_v1(base_url)}" if page else "another reply")


def warn_of_name(found: ModelList, base_url: str, named: str, name: str) -> None:
    """Say on standard error that a server doesn't list a model. That is no mistake for certain: some take names that
    they don't list (an alias, an adapter that is loaded when it is asked for)."""
    if found.names and name not in found.names:
        more = f" and {len(found.names) - 10} more" if len(found.names) > 10 else ""
        known = printable(", ".join(found.names[:10]) + more)
        print(f"{named}: {base_url} lists {known}, and none of that name: its requests may all fail", file=sys.stderr)


def _ask_for_v1(base_url: str) -> str:
    """What to ask of an address where no list of models is."""
    return "" if base_url.rstrip("/").endswith("/v1") else "; should the address end in /v1?"


def _with_scheme(address: str) -> str:
    """An address that lacks ``http://`` with it; an example where it lacks more."""
    return f"http://{address}" if _NO_SCHEME.fullmatch(address) else "http://host:8000/v1"


def served_model(
    base_url: str, key_env: str, timeout: float = 30.0, option: str = "--model", name_option: str = "--model-name"
) -> str:
    """The name of the one model that a server has."""
    found = list_models(base_url, key_env, timeout, option)
    names = found.names
    if not names:
        raise SetupError(f"{option} {base_url}: no list of models there ({found.missing}); name one with {name_option}")
    if len(names) != 1:
        raise SetupError(f"{option} {base_url} serves {len(names)} models: choose one with {name_option}: {names[:10]}")
    return names[0]


def model_spec(options: ModelOptions, config: DictConfig) -> ModelSpec:
    """The model to evaluate, with the sampling of the recipe's validation unless the options say otherwise."""
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
    if options.engine in SERVED:
        processor = _processor_of(options) if options.engine == "vllm-server" else options.processor
        return replace(
            spec,
            processor=processor,
            chat=_chat_config(options, spec, int(config.agentic_video.get("max_turn_tokens", 0))),
        )
    return replace(spec, vllm=_vllm_arguments(rollout)) if options.engine == "vllm" else spec


def _processor_of(options: ModelOptions, timeout: float = 30.0) -> str:
    """Folder or name of the processor of a model behind vLLM's server."""
    if options.processor:
        return options.processor
    found = list_models(options.model, options.api_key_env, timeout).roots or {}
    roots = {root for name, root in found.items() if root and options.model_name in ("", name)}
    if len(roots) != 1:
        raise SetupError(
            f"{options.model}: the server doesn't say which model it loaded; name whose processor it has with "
            "--processor MODEL"
        )
    return roots.pop()


def _chat_config(options: ModelOptions, spec: ModelSpec, max_turn_tokens: int) -> ChatConfig:
    return ChatConfig(
        base_url=options.model,
        model=options.model_name or served_model(options.model, options.api_key_env),
        api_key_env=options.api_key_env,
        concurrency=options.concurrency,
        temperature=spec.temperature,
        max_tokens=max_turn_tokens or ChatConfig.max_tokens,
        fields={
            **({"top_p": spec.top_p} if spec.top_p < 1 else {}),
            # vLLM's and SGLang's name for them
            **({"chat_template_kwargs": dict(spec.template_kwargs)} if spec.template_kwargs else {}),
        },
    )


def _vllm_arguments(rollout: DictConfig) -> dict[str, Any]:
    arguments: dict[str, Any] = {key: rollout[key] for key in VLLM_KEYS if rollout.get(key) is not None}
    arguments["tensor_parallel_size"] = int(rollout.tensor_model_parallel_size)
    extra = OmegaConf.to_container(rollout.engine_kwargs.get("vllm") or OmegaConf.create({}), resolve=True)
    assert isinstance(extra, dict)
    return arguments | {str(key): value for key, value in extra.items() if key not in VLLM_NEVER and value is not None}


def fit_images(spec: ModelSpec, most: int, clips: bool = False) -> ModelSpec:
    """The model's settings with room for so many images in an episode."""
    if spec.engine != "vllm":
        return spec
    limit = dict(spec.vllm.get("limit_mm_per_prompt") or {})
    limit["image"] = max(int(limit.get("image", 0)), most)
    if clips:
        limit["video"] = max(int(limit.get("video", 0)), most // 2)
    return replace(spec, vllm={**spec.vllm, "limit_mm_per_prompt": limit})


def turn_seeds(spec: ModelSpec, episode: str | None) -> Iterator[int | None]:
    """A seed for each turn of an episode; None where nothing is drawn, or for no certain episode."""
    if episode is None or spec.temperature == 0 or spec.seed < 0:
        return itertools.repeat(None)
    return episode_seeds(spec.seed, episode)


def episode_seeds(seed: int, episode: str) -> Iterator[int]:
    """A seed for each turn of an episode, whatever else is played meanwhile."""
    names = (f"{seed}\n{episode}\n{turn}" for turn in itertools.count())
    return (int.from_bytes(blake2b(name.encode(), digest_size=4).digest()) >> 1 for name in names)
