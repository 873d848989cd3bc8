"""Custom reward functions: a function replaces the system's reward, or is added to it."""

import inspect
import math
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from agentic_video.graders.base import Graders
from agentic_video.systems.base import System
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.utils.errors import described, one_line, return_type_error
from agentic_video.utils.time_limit import call_limited

T = TypeVar("T")

RewardFunction = Callable[..., Score | Awaitable[Score]]
"""``(trajectory, row, graders, **reward_kwargs) -> Score``; may be a coroutine function."""

Mode = Literal["replace", "add"]

SCORE_TIMEOUT = 300.0
"""Default seconds for a score, as in verl's limited reward manager."""

OF_VERL = frozenset({"data_source", "solution_str", "ground_truth"})
"""Arguments of verl's own reward functions; those for batches end in an "s"."""


@dataclass(frozen=True)
class RewardConfig:
    """The function that scores episodes. The keys are those of verl's ``custom_reward_function``, and more.

    Attributes:
        path: A Python file, or ``pkg://`` and the name of a module, with the function; empty: the system's own reward.
        name: Name of the function. It gets (trajectory, row, graders) and returns a ``Score``; it may be a coroutine.
        mode: ``replace``: its score is the episode's. ``add``: its reward and terms are added to the system's, whose
            accuracy and format are kept.
        weight: With ``add``, what its reward and its terms are multiplied by.
        reward_kwargs: More arguments of the function, by name.
        timeout: Seconds for the function, or a system's own reward, on one episode, without the time of the judge and
            the verifier; beyond them the rollout fails. 0 sets no limit.
    """

    path: str = ""
    name: str = ""
    mode: Mode = "replace"
    weight: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    reward_kwargs: Mapping[str, Any] = field(default_factory=dict)
    timeout: Annotated[float, Field(ge=0)] = SCORE_TIMEOUT

    def __post_init__(self) -> None:
        if bool(self.path) != bool(self.name):
            raise ValueError(f"path and name belong together, got path {self.path!r} and name {self.name!r}")


@lru_cache(maxsize=8)
def load_function(path: str, name: str) -> RewardFunction:
    """The function that a config names."""
    module: Any
    if path.startswith("pkg://"):
        try:
            module = import_module(path.removeprefix("pkg://"))
        except ModuleNotFoundError as error:
            raise ValueError(f"agentic_video.reward.path={path}: {error}; is its folder on PYTHONPATH?") from error
        except (Exception, SystemExit) as error:  # whatever the user's module raises
            raise ValueError(f"agentic_video.reward.path={path}: {described(error)}") from error
    else:
        module = _loaded(path)
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"agentic_video.reward.name={name}: no such function in {path}")
    found: RewardFunction = function
    return found


def _loaded(path: str) -> ModuleType:
    """A Python file as a module that can import the files next to it."""
    file = Path(path).expanduser().resolve()
    # a name for each file, as others may be called the same in another folder
    name = f"agentic_video_reward_{file.stem}_{blake2b(str(file).encode(), digest_size=4).hexdigest()}"
    spec = spec_from_file_location(name, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"agentic_video.reward.path={path}: no such Python file")
    module = module_from_spec(spec)
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # the last: nothing there hides another module
    sys.modules[name] = module  # where dataclasses look up the names in annotations
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise ValueError(f"agentic_video.reward.path={path}: {described(error)}") from error
    return module


def check_function(config: RewardConfig) -> None:
    """Make sure that a config's function can be loaded, and called as episodes call it."""
    if not config.path:
        return
    function = load_function(config.path, config.name)
    names = list(inspect.signature(function).parameters)
    if len(OF_VERL.intersection(name.removesuffix("s") for name in names[:3])) > 1:
        raise ValueError(
            f"agentic_video.reward: {config.name}({', '.join(names[:2])}, ...) is verl's form; "
            "ours is (trajectory, row, graders) -> Score (docs/extending.md)"
        )
    try:
        inspect.signature(function).bind(None, None, None, **config.reward_kwargs)
    except TypeError as error:
        kwargs = "".join(f", {name}=..." for name in config.reward_kwargs)
        raise ValueError(
            f"agentic_video.reward: {config.name}{inspect.signature(function)} can't be called as "
            f"{config.name}(trajectory, row, graders{kwargs}): {error}"
        ) from error


async def score_episode(
    system: System, trajectory: Trajectory, qa: VideoQA, graders: Graders, config: RewardConfig
) -> Score:
    """Score a finished episode: by the system's reward, unless a config names a function.

    Raises:
        EndpointError: A grader gave no verdict.
        PluginTypeError: The function or the system returned no ``Score``.
        ArithmeticError: A number of the score isn't finite.
        TimeLimitError: One of them took longer than ``timeout``.
    """
    if not config.path:
        return await system_score(system, trajectory, qa, graders, config.timeout)
    function = load_function(config.path, config.name)
    own = await call_limited(
        partial(function, trajectory, qa, graders, **config.reward_kwargs),
        seconds=config.timeout,
        whose=_whose(f"agentic_video.reward: {config.name}", qa),
    )
    if config.mode == "add" and isinstance(own, Score):
        own = replace(own, acc=0.0, format=0.0)  # whatever they are: the system's are kept
    own = plain_score(f"agentic_video.reward: {config.name}", own)
    if config.mode == "replace":
        return own
    base = await system_score(system, trajectory, qa, graders, config.timeout)
    terms = {f"{config.name}_{name}": config.weight * value for name, value in own.terms.items()}
    return Score(
        reward=base.reward + config.weight * own.reward,
        acc=base.acc,
        format=base.format,
        terms={**base.terms, **terms},
        turns=tuple(turn + config.weight * added for turn, added in zip_longest(base.turns, own.turns, fillvalue=0.0)),
    )


async def system_score(
    system: System, trajectory: Trajectory, qa: VideoQA, graders: Graders, timeout: float = SCORE_TIMEOUT
) -> Score:
    """Score an episode by the system's own reward (see :func:`score_episode`)."""
    whose = f"{type(system).__name__}.score"
    return plain_score(whose, await limited(system.score, trajectory, qa, graders, timeout=timeout))


async def limited(
    method: Callable[..., Awaitable[T]],
    trajectory: Trajectory,
    qa: VideoQA,
    graders: Graders,
    timeout: float = SCORE_TIMEOUT,
) -> T:
    """Call ``score``, ``grade`` or ``demonstration_score`` within a time limit, without the time that graders take."""
    returned: T = await call_limited(
        method, trajectory, qa, graders, seconds=timeout, whose=_whose(method.__qualname__, qa)
    )
    return returned


def _whose(function: str, qa: VideoQA) -> str:
    return f"{function} of row {getattr(qa, 'id', '?')} (agentic_video.reward.timeout)"


def plain_score(whose: str, score: object) -> Score:
    """Convert a score to Python's own finite numbers; ``whose`` names its function for messages.

    numpy's numbers don't fit torch and JSON everywhere, and NaN would spoil its whole group's advantages.
    """
    if not isinstance(score, Score):
        raise return_type_error(whose, "a Score", score)
    if not isinstance(score.terms, Mapping):
        raise return_type_error(whose, "a Score whose terms are numbers by name", score.terms)
    if not isinstance(score.turns, Iterable):
        raise return_type_error(whose, "a Score whose turns are a tuple of numbers", score.turns)
    return Score(
        reward=plain_number(whose, "reward", score.reward),
        acc=plain_number(whose, "acc", score.acc),
        format=plain_number(whose, "format", score.format),
        terms={str(name): plain_number(whose, f"terms[{name!r}]", value) for name, value in score.terms.items()},
        turns=tuple(plain_number(whose, f"turns[{number}]", value) for number, value in enumerate(score.turns)),
    )


def plain_number(whose: str, name: str, value: Any) -> float:
    """Convert to a finite Python float, or raise ArithmeticError."""
    try:
        # float() would read texts, too
        number = float(value) if math.isfinite(value) else math.nan
    except Exception:  # whatever a value raises that isn't a single number
        number = math.nan
    if math.isnan(number):
        raise ArithmeticError(f"{whose} returned {name} {one_line(repr(value))[:80]}, which is no finite number")
    return number
