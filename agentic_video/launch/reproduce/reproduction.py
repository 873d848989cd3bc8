"""A chain in a folder: what becomes of each stage, and what is missing before one can start. Nothing is started."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast, get_args

from omegaconf import DictConfig, OmegaConf

from agentic_video.config.compose import compose_recipe
from agentic_video.config.overrides import parse_overrides
from agentic_video.converters import CONVERTERS
from agentic_video.evaluation.model import is_address
from agentic_video.launch.handover import quoted
from agentic_video.launch.options import ON_TOYWORLD, Profile, changes, config_name, on_ray_cluster
from agentic_video.launch.options import Stage as Trained
from agentic_video.launch.reproduce.chain import PROGRAM, Chain, Stage, filled, places
from agentic_video.launch.reproduce.conversions import lacking, reports_of
from agentic_video.launch.reproduce.state import Record, State, difference, identity, video_names
from agentic_video.utils.errors import SetupError
from agentic_video.utils.units import duration

Action = Literal["run", "go on", "again", "changed", "whole", "keep", "given", "left out", "not needed"]
"""What becomes of a stage. ``run``: it wasn't begun; ``go on``: it was; ``again``: what it made is set aside first;
``changed``: it was made with other settings, and the user must say what becomes of it."""
STARTS: frozenset[Action] = frozenset({"run", "go on", "again"})
PLAYED: Mapping[str, tuple[str, ...]] = {
    "eval": ("--model",),
    "classify": ("--base", "--teacher"),
    **dict.fromkeys(("distill", "reflect", "preferences"), ("--teacher",)),
}
"""The options of commands that name a model, which is played here where it is no server's address."""


@dataclass(frozen=True)
class ReproduceOptions:
    """What a command asks for.

    Attributes:
        out: Folder of the reproduction.
        data: Folder of the downloads.
        base: The checkpoint to start from; empty for the paper's.
        settings: What the chain asks the user to name.
        words: Pairs of a stage, or a pattern of stages, and a word that its command gets.
        given: Outputs by (stage, output) that are there already.
        until: The last stage; empty for all.
        redo: Stages, or patterns, that are made again, and all that follows from them.
        keep: Stages, or patterns, whose outputs count as whole whatever has changed.
    """

    out: Path
    data: Path
    base: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    words: tuple[tuple[str, str], ...] = ()
    given: Mapping[tuple[str, str], Path] = field(default_factory=dict)
    until: str = ""
    redo: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """A stage, and what becomes of it.

    Attributes:
        stage: With the words that the user adds.
        action: What becomes of it.
        note: Why; empty where there is nothing to say.
    """

    stage: Stage
    action: Action
    note: str = ""

    @property
    def starts(self) -> bool:
        """Whether its command will be run."""
        return self.action in STARTS


class Reproduction:
    """A chain in a folder: what its places stand for, and what is there.

    Args:
        chain: The stages.
        options: What is asked for.
        state: What has been made.

    Raises:
        SetupError: A stage, an output or a setting that the options name doesn't exist.
    """

    def __init__(self, chain: Chain, options: ReproduceOptions, state: State):
        self.chain, self.options, self.state = chain, options, state
        for name, output in options.given:
            if output not in chain.stage(name).makes:
                outputs = ", ".join(chain.stage(name).makes) or "nothing here"
                raise SetupError(f"--given {name}.{output}: {name} makes {outputs}")
        for name in options.settings:
            if name not in chain.settings:
                known = ", ".join(chain.settings) or "none"
                raise SetupError(f"--set {name}: there is no such setting; there are {known}")
        stages = [self._with_words(stage) for stage in chain.stages]
        for pattern, word in options.words:
            if all(stage.left_out for stage in chain.matching(pattern)):
                raise SetupError(f"{pattern}:{word}: this stage is left out here")
        if options.until:
            last = chain.stage(options.until).name
            stages = stages[: [stage.name for stage in stages].index(last) + 1]
        self.stages = tuple(stages)
        self._configs: dict[tuple[str, ...], DictConfig] = {}

    def added_words(self, stage: Stage) -> tuple[str, ...]:
        """The words that the options add to a stage's command."""
        return tuple(word for pattern, word in self.options.words if fnmatchcase(stage.name, pattern))

    def _with_words(self, stage: Stage) -> Stage:
        return replace(stage, words=(*stage.words, *self.added_words(stage))) if stage.words else stage

    @property
    def base(self) -> str:
        """The checkpoint that the reproduction starts from."""
        return self.options.base or self.chain.base

    def path(self, name: str, output: str) -> Path | None:
        """An output of a stage, given or made; None where it isn't there."""
        if found := self.options.given.get((name, output)):
            return found
        return self.state.output(self.chain.stage(name), output)

    def values(self, stage: Stage) -> dict[tuple[str, str], str]:
        """What the places of a stage's command stand for, as far as it is known."""
        values = {
            ("folder", ""): str(self.state.home(stage)),
            ("recipe", ""): str(self.chain.recipe),
            ("data", ""): str(self.options.data),
            ("base", ""): self.base,
            **{(name, ""): value for name, value in self.options.settings.items()},
        }
        for name, output in stage.places:
            if output and (path := self.path(name, output)):
                values[name, output] = str(path)
        return values

    def shell(self, stage: Stage) -> str:
        """A stage's command as one would type it here; what isn't known yet stays in braces."""
        values = {place: shown(value) for place, value in self.values(stage).items()}
        variables = [f"{name}={shlex.quote(filled(value, values))}" for name, value in stage.variables.items()]
        words = [shlex.quote(put_in(word, values)) for word in stage.words]
        return " ".join([*variables, PROGRAM, *words])

    def words(self, stage: Stage) -> list[str]:
        """The words of a stage's command, after the program's name, with what is known put in."""
        values = self.values(stage)
        return [put_in(word, values) for word in stage.words]

    def settings(self, stage: Stage, seen: dict[Path, str] | None = None) -> dict[str, Any]:
        """On what a stage's outputs depend: see :class:`~agentic_video.launch.reproduce.state.Record`.

        Addresses of servers and paths aren't part of it: what lies in a path is.

        Args:
            seen: Gets the videos of each folder that is looked through; one that is in it isn't again.

        Raises:
            SetupError: Its config doesn't compose.
        """
        known = {("base", ""): self.base}
        variables = [f"{name}={filled(value, known)}" for name, value in stage.variables.items()]
        inputs = {f"{name}.{output}": self.path(name, output) for name, output in stage.places if output}
        inputs |= {f"data/{name}": self.options.data / name for name in stage.downloads}
        # what is put into the others is compared by itself
        config = self._composed(stage, [word for word in stage.words if _is_override(word) and not list(places(word))])
        return {
            "command": shlex.join([*variables, PROGRAM, *(filled(word, known) for word in stage.words)]),
            "inputs": {name: identity(path) if path else "" for name, path in inputs.items()},
            "named": {name: value for name in self.settings_of([stage]) if (value := self._compared(name))},
            "videos": self._video_names(stage, {} if seen is None else seen),
            "base": identity(Path(self.base).expanduser()) if ("base", "") in stage.places else "",
            "config": {} if config is None else dict(_flat(OmegaConf.to_container(config))),
        }

    def _videos(self, stage: Stage) -> Path | None:
        """The folder in which a conversion looks for videos; None for other stages."""
        if stage.words[:1] != ("convert",):
            return None
        words = self.words(stage)
        folder = Path(option_of(words, "--videos") or option_of(words, "--source"))
        return folder.parent if folder.is_file() else folder

    def _video_names(self, stage: Stage, seen: dict[Path, str]) -> str:
        """The videos that a conversion may find; empty for other stages."""
        folder = self._videos(stage)
        if folder is None:
            return ""
        if folder not in seen:
            seen[folder] = video_names(folder)
        return seen[folder]

    def _other_videos(self, stage: Stage, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
        """That other videos are there than when a conversion left questions out for want of theirs; else empty."""
        folder = self._videos(stage)
        if folder is None or not before.get("videos") or before["videos"] == now["videos"]:
            return ""
        files = [file for name in stage.makes if (file := self.state.output(stage, name))]
        lack = sum(lacking(one) for one in reports_of(files) if one.get("limit") is None or one["rows"] < one["limit"])
        return f"the videos in {shown(folder)} changed, of which {lack} questions lacked theirs" if lack else ""

    def _compared(self, setting: str) -> str:
        """A setting's value as far as outputs depend on it: an address says nothing of the model that is there."""
        value = self.options.settings.get(setting, "")
        return "" if is_address(value) else value

    def config(self, stage: Stage) -> DictConfig | None:
        """The recipe's config as a stage's command composes it; None for a command without one.

        Raises:
            SetupError: It doesn't compose: an override is wrong, say.
        """
        return self._composed(stage, self.overrides(stage))

    def overrides(self, stage: Stage) -> list[str]:
        """The overrides of a stage's command, but for those into which something is put that isn't known yet."""
        values = self.values(stage)
        known = [word for word in stage.words if _is_override(word) and values.keys() >= {*places(word)}]
        return [put_in(word, values) for word in known]

    def model_of(self, stage: Stage) -> str:
        """The model that a training starts from, as far as it is known which shape it has.

        Returns:
            Folder of a checkpoint that is there, else the checkpoint that the user starts from; empty for the paper's.
        """
        model = filled(stage.variables.get("MODEL_PATH", ""), self.values(stage))
        return model if (Path(model).expanduser() / "config.json").is_file() else self.options.base

    def _composed(self, stage: Stage, overrides: Sequence[str]) -> DictConfig | None:
        """The recipe's config as a stage's command composes it with other overrides."""
        if "{recipe}" not in stage.words:
            return None
        trained = cast(Trained, stage.trained or "grpo")
        try:
            profile = profile_of(stage.words, "laptop" if self.chain.mode == "laptop" else "cluster")
            key = (config_name(trained, profile), *changes(profile), *overrides)
            if key not in self._configs:
                self._configs[key] = compose_recipe(self.chain.recipe, key[0], key[1:])
        except SetupError as error:
            raise SetupError(f"{stage.name}: {error}") from error
        return self._configs[key]

    @cached_property
    def steps(self) -> list[Step]:
        """What becomes of each stage.

        Raises:
            SetupError: Stages are named that don't exist, or what is to be kept isn't there.
        """
        chain = self.chain
        redone = chain.descendants({stage.name for pattern in self.options.redo for stage in chain.matching(pattern)})
        kept = {stage.name for pattern in self.options.keep for stage in chain.matching(pattern)}
        if both := sorted(redone & kept):
            raise SetupError(f"{both[0]}: either made again or kept, not both")
        given = {name for name, _ in self.options.given}
        seen: dict[Path, str] = {}
        steps = [self._look(stage, redone, kept, given, seen) for stage in self.stages]
        needed: set[str] = set()
        for number in reversed(range(len(steps))):
            step = steps[number]
            used = any(step.stage.name in other.stage.follows for other in steps)
            wanted = step.stage.name in needed or step.stage.row is not None or not used
            if step.starts and not wanted:
                steps[number] = replace(step, action="not needed", note="nothing that is to be made needs it")
            elif step.starts:
                needed.update(step.stage.follows)
        starting = {step.stage.name for step in steps if step.starts}
        for number, step in enumerate(steps):
            if step.action == "whole" and (again := [name for name in step.stage.follows if name in starting]):
                steps[number] = replace(step, action="changed", note=f"its input {again[0]} is made again")
        return steps

    def _look(self, stage: Stage, redone: set[str], kept: set[str], given: set[str], seen: dict[Path, str]) -> Step:
        """What becomes of one stage, whoever needs it."""
        name = stage.name
        if stage.left_out:
            return Step(stage, "left out", stage.left_out)
        if name in given:
            paths = [shown(path) for (who, _), path in self.options.given.items() if who == name]
            return Step(stage, "given", ", ".join(paths))
        record, lacks = self.state.records.get(name), self.state.lacks(stage)
        settings = self.settings(stage, seen)
        self.config(stage)  # a wrong word of the user's, or a setting, is found now
        if name in kept:
            if lacks:
                raise SetupError(f"--keep {name}: it has made no {lacks[0]} yet, in {self.state.home(stage)}")
            return Step(stage, "keep", "as it is")
        if record is None:
            return Step(stage, "run")
        if name in redone:
            return Step(stage, "again", "what it made is set aside")
        if record.finished and lacks:
            return Step(stage, "again", f"its output {lacks[0]} is gone")
        found = difference(record.settings, settings)
        if record.finished and not found:
            found = self._other_videos(stage, record.settings, settings)
        if found:
            # what failed for want of something that has been mended since has nothing to lose
            if record.finished or self.state.has_made(stage):
                return Step(stage, "changed", found)
            return Step(stage, "go on", f"was begun: {_attempts(record)}, and made nothing; since then {found}")
        if not record.finished:
            return Step(stage, "go on", f"was begun: {_attempts(record)}")
        return Step(stage, "whole", f"{record.finished}, {duration(record.seconds)}")

    def changed(self) -> list[str]:
        """One line for each stage that was made with other settings, with what to do."""
        where, lines = shown(self.options.out), []
        for step in self.steps:
            if step.action == "changed":
                name, begun = step.stage.name, "made" if self._finished(step) else "begun"
                keep = "" if self.state.lacks(step.stage) else f", --keep {name} takes it as it is"
                lines.append(
                    f"{name}: {step.note} since it was {begun} in {where}; --redo {name} makes it and what follows "
                    f"again{keep}"
                )
        return lines

    def _finished(self, step: Step) -> bool:
        return bool(self.state.records[step.stage.name].finished)

    def missing(self, gpus: int, environment: Mapping[str, str]) -> list[str]:
        """One line for each thing that the stages which are to start lack, with how to get it.

        Args:
            gpus: Of this machine.
            environment: Environment variables.
        """
        starting = [step.stage for step in self.steps if step.starts]
        given = {name for name, _ in self.options.given}
        lines = [
            f"{stage.name}: needs {name}.{output}, which isn't given: --given {name}.{output}=PATH"
            for stage in starting
            for name, output in stage.places
            if output and name in given and (name, output) not in self.options.given
        ]
        for (name, output), path in self.options.given.items():
            if not path.exists():
                lines.append(f"--given {name}.{output}={path}: no such file or folder")
        for folder, stages in self.downloads(starting).items():
            path = self.options.data / folder
            if not path.exists():
                lines.append(f"{shown(path)}: not there (for {_some(stages)}); what belongs there is above")
        for name in self.settings_of(starting):
            if not self.options.settings.get(name):
                lines.append(f"--set {name}=...: not named; {self.chain.settings[name]}")
        if any(("base", "") in stage.places for stage in starting):
            local = Path(self.base).expanduser()
            if (local.is_absolute() or self.base.startswith(".")) and not (local / "config.json").is_file():
                lines.append(f"--base {self.base}: no checkpoint in Hugging Face's format (config.json is missing)")
        on_gpus = [stage.name for stage in starting if self._needs_gpus(stage, environment)]
        if self.chain.mode == "paper" and on_gpus and not gpus:
            ray = "; RAY_ADDRESS serves GRPO only" if environment.get("RAY_ADDRESS") else ""
            lines.append(
                f"GPUs: this machine has none (for {_some(on_gpus)}{ray}); run this where they are, or rehearse it "
                "with --laptop"
            )
        if find_spec("vllm") is None and any(stage.trained == "grpo" or self._plays_here(stage) for stage in starting):
            lines.append(f"vLLM: isn't installed in this environment; agentic-video install {'gpu' if gpus else 'cpu'}")
        return lines

    def _needs_gpus(self, stage: Stage, environment: Mapping[str, str]) -> bool:
        """Whether a stage of the paper's trains or plays a model on this machine."""
        if not stage.trained:
            return self._plays_here(stage)
        trained = cast(Trained, stage.trained)
        return profile_of(stage.words, "cluster") not in ON_TOYWORLD and not on_ray_cluster(trained, environment)

    def _plays_here(self, stage: Stage) -> bool:
        """Whether a stage plays a model that no server has, with vLLM."""
        words = self.words(stage)
        models = [option_of(words, option) for option in PLAYED.get(stage.words[0], ())]
        here = any(model and not is_address(model) for model in models)
        return here and option_of(words, "--engine") in ("", "auto", "vllm")

    def downloads(self, stages: Sequence[Stage]) -> dict[str, list[str]]:
        """The folders below ``--data`` that stages read, and which stages."""
        found: dict[str, list[str]] = {}
        for stage in stages:
            for folder in stage.downloads:
                found.setdefault(folder, []).append(stage.name)
        return found

    def settings_of(self, stages: Sequence[Stage]) -> list[str]:
        """The settings that stages need, in the order of the file."""
        used = {name for stage in stages for name, output in stage.places if not output}
        return [name for name in self.chain.settings if name in used]

    def how_to_get(self, folder: str) -> str:
        """How to get what belongs into a folder below ``--data``."""
        if text := self.chain.data.get(folder):
            return text
        if converter := CONVERTERS.get(folder):
            return (
                f"{converter.title}, {converter.source} ({converter.licence}): {converter.files}; videos: "
                f"{converter.videos}"
            )
        return "the recipe's README says what it is"


def shown(path: str | Path) -> str:
    """A path as one would type it: relative where it lies below the working directory."""
    whole = Path(path)
    if whole.is_absolute() and whole.is_relative_to(Path.cwd()):
        return str(whole.relative_to(Path.cwd()))
    return str(path)


def option_of(words: Sequence[str], option: str) -> str:
    """What a command gives an option, the last time that it does; empty where it doesn't."""
    value = ""
    for word, following in pairwise([*words, ""]):
        if word == option:
            value = following
        elif option and word.startswith(f"{option}="):
            value = word.partition("=")[2]
    return value


def profile_of(words: Sequence[str], default: Profile) -> Profile:
    """The profile that a command names.

    Args:
        default: Where it names none.

    Raises:
        SetupError: There is no such profile.
    """
    given = any(word.partition("=")[0] == "--profile" for word in words)
    named = option_of(words, "--profile") if given else default
    if named not in get_args(Profile):
        raise SetupError(f"--profile {named}: there are {', '.join(get_args(Profile))}")
    return cast(Profile, named)


def put_in(word: str, values: Mapping[tuple[str, str], str]) -> str:
    """A word of a command with what is known put in; an override gets it so that Hydra reads that very text."""
    plain = filled(word, values)
    if plain == word or not _is_override(word):
        return plain
    exact = filled(word, {place: quoted(value) for place, value in values.items()})
    # a place within other text can't be quoted
    return exact if _read(exact) not in ((), _read(plain)) else plain


def _read(override: str) -> tuple[Any, ...]:
    """An override's value as Hydra reads it; empty where it doesn't."""
    try:
        return (parse_overrides([override])[0].value(),)
    except SetupError:
        return ()


def _is_override(word: str) -> bool:
    return "=" in word and not word.startswith("-") and "/" not in word.partition("=")[0]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A config's values by their full keys."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _flat(one, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _attempts(record: Record) -> str:
    return f"{record.attempts} attempt{'s' if record.attempts > 1 else ''}, {duration(record.seconds)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
