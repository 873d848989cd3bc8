"""A chain in a folder: the action of each stage, and what is missing before one can start. Nothing is started."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, cast, get_args

from omegaconf import DictConfig, OmegaConf

from agentic_video.config.compose import compose_recipe
from agentic_video.config.overrides import leaves, parse_overrides, quoted
from agentic_video.converters import CONVERTERS
from agentic_video.converters.run import report_path
from agentic_video.evaluation.model import is_address
from agentic_video.launch.options import ON_TOYWORLD, Profile, Stage, changes, config_name, on_ray_cluster
from agentic_video.launch.reproduce.chain import PROGRAM, Chain, ChainStage, filled, places
from agentic_video.launch.reproduce.state import StageSettings, State, difference, fingerprint, video_names
from agentic_video.utils.errors import SetupError
from agentic_video.utils.units import duration

Action = Literal["run", "resume", "again", "changed", "complete", "keep", "given", "left out", "not needed"]
"""``run``: it wasn't begun; ``resume``: it was; ``again``: its outputs are set aside first; ``changed``: it was made
with other settings, and the user must decide."""
STARTS: frozenset[Action] = frozenset({"run", "resume", "again"})
PLAYED: Mapping[str, tuple[str, ...]] = {
    "eval": ("--model",),
    "classify": ("--base", "--teacher"),
    **dict.fromkeys(("distill", "reflect", "preferences"), ("--teacher",)),
}
"""Options of commands that name a model, which is played here where it is no server's address."""


@dataclass(frozen=True)
class ReproduceOptions:
    """A reproduction as its command asks for it; ``agentic_video/commands/reproduce.py`` has the help of its fields.

    Attributes:
        words: Pairs of a stage, or a pattern of stages, and a word that its command gets.
        given: Existing outputs by (stage, output).
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
    """A stage, with the words that the user adds, its action, and the reason for it."""

    stage: ChainStage
    action: Action
    note: str = ""

    @property
    def starts(self) -> bool:
        """Return True if its command will be run."""
        return self.action in STARTS


class Reproduction:
    """A chain in a folder: values of its placeholders, and what exists."""

    def __init__(self, chain: Chain, options: ReproduceOptions, state: State):
        self.chain, self.options, self.state = chain, options, state
        for name, output in options.given:
            if output not in chain.stage(name).makes:
                outputs = ", ".join(chain.stage(name).makes) or "nothing here"
                raise SetupError(f"--given {name}.{output}: {name} makes {outputs}", key="--given")
        for name in options.settings:
            if name not in chain.settings:
                known = ", ".join(chain.settings) or "none"
                raise SetupError(f"--set {name}: there is no such setting; there are {known}", key="--set")
        stages = [replace(stage, words=(*stage.words, *self.added_words(stage))) for stage in chain.stages]
        for pattern, word in options.words:
            if all(stage.left_out for stage in chain.matching(pattern)):
                raise SetupError(f"{pattern}:{word}: this stage is left out here")
        if options.until:
            last = chain.stage(options.until).name
            stages = stages[: [stage.name for stage in stages].index(last) + 1]
        self.stages = tuple(stages)
        self._configs: dict[tuple[str, ...], DictConfig] = {}

    def added_words(self, stage: ChainStage) -> tuple[str, ...]:
        """The words that the options add to a stage's command."""
        words = (word for pattern, word in self.options.words if fnmatchcase(stage.name, pattern))
        return () if stage.left_out else tuple(words)

    @property
    def base(self) -> str:
        """The checkpoint that the reproduction starts from."""
        return self.options.base or self.chain.base

    def path(self, name: str, output: str) -> Path | None:
        """An output of a stage, given or made; None where it is missing."""
        if found := self.options.given.get((name, output)):
            return found
        return self.state.output(self.chain.stage(name), output)

    def values(self, stage: ChainStage) -> dict[tuple[str, str], str]:
        """Known values of the placeholders of a stage's command."""
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

    def shell(self, stage: ChainStage) -> str:
        """A stage's command as one would type it here; unknown values stay in braces."""
        values = {place: shown(value) for place, value in self.values(stage).items()}
        variables = [f"{name}={shlex.quote(filled(value, values))}" for name, value in stage.variables.items()]
        words = [shlex.quote(put_in(word, values)) for word in stage.words]
        return " ".join([*variables, PROGRAM, *words])

    def words(self, stage: ChainStage) -> list[str]:
        """The words of a stage's command, after the program's name, with known values."""
        values = self.values(stage)
        return [put_in(word, values) for word in stage.words]

    def settings(self, stage: ChainStage, seen: dict[Path, str] | None = None) -> StageSettings:
        """Collect what a stage's outputs depend on; not addresses of servers and paths, but the content of paths."""
        known = {("base", ""): self.base}
        variables = [f"{name}={filled(value, known)}" for name, value in stage.variables.items()]
        inputs = {f"{name}.{output}": self.path(name, output) for name, output in stage.places if output}
        inputs |= {f"data/{name}": self.options.data / name for name in stage.downloads}
        # the values of placeholders are compared by themselves
        config = self._composed(stage, [word for word in stage.words if _is_override(word) and not list(places(word))])
        named = {name: self.options.settings.get(name, "") for name in self.settings_of([stage])}
        return StageSettings(
            command=shlex.join([*variables, PROGRAM, *(filled(word, known) for word in stage.words)]),
            inputs={name: fingerprint(path) if path else "" for name, path in inputs.items()},
            named={name: value for name, value in named.items() if value and not is_address(value)},
            videos=self._video_names(stage, {} if seen is None else seen),
            base=fingerprint(Path(self.base).expanduser()) if ("base", "") in stage.places else "",
            config={} if config is None else dict(leaves(OmegaConf.to_container(config))),
        )

    def _videos(self, stage: ChainStage) -> Path | None:
        """The folder in which a conversion looks for videos; None for other stages."""
        if stage.words[:1] != ("convert",):
            return None
        words = self.words(stage)
        folder = Path(option_of(words, "--videos") or option_of(words, "--source"))
        return folder.parent if folder.is_file() else folder

    def _video_names(self, stage: ChainStage, seen: dict[Path, str]) -> str:
        if (folder := self._videos(stage)) is None:
            return ""
        if folder not in seen:
            seen[folder] = video_names(folder)
        return seen[folder]

    def _other_videos(self, stage: ChainStage, before: StageSettings, now: StageSettings) -> str:
        """Report that other videos are there than when a conversion left questions out for want of theirs."""
        folder = self._videos(stage)
        if folder is None or not before.videos or before.videos == now.videos:
            return ""
        files = [file for name in stage.makes if (file := self.state.output(stage, name))]
        reports = [found for found in reports_of(files) if found.get("limit") is None or found["rows"] < found["limit"]]
        lack = sum(map(lacking, reports))
        return f"the videos in {shown(folder)} changed, of which {lack} questions lacked theirs" if lack else ""

    def config(self, stage: ChainStage) -> DictConfig | None:
        """The recipe's config as a stage's command composes it; None for a command without one."""
        return self._composed(stage, self.overrides(stage))

    def overrides(self, stage: ChainStage) -> list[str]:
        """The overrides of a stage's command whose values are known."""
        values = self.values(stage)
        known = [word for word in stage.words if _is_override(word) and values.keys() >= {*places(word)}]
        return [put_in(word, values) for word in known]

    def model_of(self, stage: ChainStage) -> str:
        """Folder of the checkpoint that a training starts from, else the user's base; empty for the paper's."""
        model = filled(stage.variables.get("MODEL_PATH", ""), self.values(stage))
        return model if (Path(model).expanduser() / "config.json").is_file() else self.options.base

    def _composed(self, stage: ChainStage, overrides: Sequence[str]) -> DictConfig | None:
        if "{recipe}" not in stage.words:
            return None
        trained = cast(Stage, stage.trained or "grpo")
        try:
            profile = profile_of(stage.words, "laptop" if self.chain.mode == "laptop" else "cluster")
            key = (config_name(trained, profile), *changes(profile), *overrides)
            if key not in self._configs:
                self._configs[key] = compose_recipe(self.chain.recipe, key[0], key[1:])
        except SetupError as error:
            raise SetupError(f"{stage.name}: {error}", key=error.key) from error
        return self._configs[key]

    @cached_property
    def steps(self) -> list[Step]:
        """The action of each stage."""
        chain = self.chain
        redone = chain.descendants({stage.name for pattern in self.options.redo for stage in chain.matching(pattern)})
        kept = {stage.name for pattern in self.options.keep for stage in chain.matching(pattern)}
        if both := sorted(redone & kept):
            raise SetupError(f"{both[0]}: either made again or kept, not both", key="--keep")
        seen: dict[Path, str] = {}
        steps = [self._step(stage, redone, kept, seen) for stage in self.stages]
        needed: set[str] = set()
        for number in reversed(range(len(steps))):
            step = steps[number]
            used = any(step.stage.name in other.stage.follows for other in steps)
            if step.starts and not (step.stage.name in needed or step.stage.row is not None or not used):
                steps[number] = replace(step, action="not needed", note="nothing that is to be made needs it")
            elif step.starts:
                needed.update(step.stage.follows)
        starting = {step.stage.name for step in steps if step.starts}
        for number, step in enumerate(steps):
            if step.action == "complete" and (again := [name for name in step.stage.follows if name in starting]):
                steps[number] = replace(step, action="changed", note=f"its input {again[0]} is made again")
        return steps

    def _step(self, stage: ChainStage, redone: set[str], kept: set[str], seen: dict[Path, str]) -> Step:
        """The action of one stage, whoever needs it."""
        name = stage.name
        if stage.left_out:
            return Step(stage, "left out", stage.left_out)
        if given := [shown(path) for (owner, _), path in self.options.given.items() if owner == name]:
            return Step(stage, "given", ", ".join(given))
        record, lacks = self.state.records.get(name), self.state.lacks(stage)
        settings = self.settings(stage, seen)
        self.config(stage)  # a wrong word of the user's, or a setting, is found now
        if name in kept:
            if lacks:
                raise SetupError(
                    f"--keep {name}: it has made no {lacks[0]} yet, in {self.state.home(stage)}", key="--keep"
                )
            return Step(stage, "keep", "as it is")
        if record is None:
            return Step(stage, "run")
        if name in redone:
            return Step(stage, "again", "what it made is set aside")
        if record.finished and lacks:
            return Step(stage, "again", f"its output {lacks[0]} is gone")
        attempts = f"{record.attempts} attempt{'s' if record.attempts > 1 else ''}, {duration(record.seconds)}"
        found = difference(record.settings, settings)
        if record.finished and not found:
            found = self._other_videos(stage, record.settings, settings)
        if found and (record.finished or self.state.has_made(stage)):
            return Step(stage, "changed", found)
        if found:  # what failed for want of something that was repaired since has nothing to lose
            return Step(stage, "resume", f"was begun: {attempts}, and made nothing; since then {found}")
        if not record.finished:
            return Step(stage, "resume", f"was begun: {attempts}")
        return Step(stage, "complete", f"{record.finished}, {duration(record.seconds)}")

    def changed(self) -> list[str]:
        """One line for each stage that was made with other settings, with the remedy."""
        lines = []
        for step in self.steps:
            if step.action == "changed":
                name = step.stage.name
                begun = "made" if self.state.records[name].finished else "begun"
                keep = "" if self.state.lacks(step.stage) else f", --keep {name} takes it as it is"
                lines.append(
                    f"{name}: {step.note} since it was {begun} in {shown(self.options.out)}; --redo {name} makes it "
                    f"and what follows again{keep}"
                )
        return lines

    def missing(self, gpus: int, environment: Mapping[str, str]) -> list[str]:
        """One line for each thing that the stages which are to start lack, with how to get it."""
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

    def _needs_gpus(self, stage: ChainStage, environment: Mapping[str, str]) -> bool:
        """Return True if a stage of the paper's trains or plays a model on this machine."""
        if not stage.trained:
            return self._plays_here(stage)
        trained = cast(Stage, stage.trained)
        return profile_of(stage.words, "cluster") not in ON_TOYWORLD and not on_ray_cluster(trained, environment)

    def _plays_here(self, stage: ChainStage) -> bool:
        """Return True if a stage plays a model that no server has, with vLLM."""
        words = self.words(stage)
        models = [option_of(words, option) for option in PLAYED.get(stage.words[0], ())]
        here = any(model and not is_address(model) for model in models)
        return here and option_of(words, "--engine") in ("", "auto", "vllm")

    def downloads(self, stages: Sequence[ChainStage]) -> dict[str, list[str]]:
        """The folders below ``--data`` that stages read, with the names of the stages."""
        found: dict[str, list[str]] = {}
        for stage in stages:
            for folder in stage.downloads:
                found.setdefault(folder, []).append(stage.name)
        return found

    def settings_of(self, stages: Sequence[ChainStage]) -> list[str]:
        """The settings that stages need, in the order of the file."""
        used = {name for stage in stages for name, output in stage.places if not output}
        return [name for name in self.chain.settings if name in used]

    def how_to_get(self, folder: str) -> str:
        """Description of a folder below ``--data``, and where to get it."""
        if text := self.chain.data.get(folder):
            return text
        if converter := CONVERTERS.get(folder):
            about = f"{converter.title}, {converter.source} ({converter.licence})"
            return f"{about}: {converter.files}; videos: {converter.videos}"
        return "the recipe's README describes it"


def reports_of(files: Iterable[Path]) -> Iterator[Mapping[str, Any]]:
    """The reports that ``agentic-video convert`` wrote next to files of rows."""
    for file in files:
        try:
            report = json.loads(report_path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(report, dict):
            yield report


def lacking(report: Mapping[str, Any]) -> int:
    """Number of questions that a conversion left out for want of their videos."""
    return int(report.get("counts", {}).get("missing_video", 0))


def shown(path: str | Path) -> str:
    """A path as one would type it: relative below the working directory."""
    absolute = Path(path)
    if absolute.is_absolute() and absolute.is_relative_to(Path.cwd()):
        return str(absolute.relative_to(Path.cwd()))
    return str(path)


def option_of(words: Sequence[str], option: str) -> str:
    """The last value that a command gives an option; empty without one."""
    value = ""
    for word, following in pairwise([*words, ""]):
        if word == option:
            value = following
        elif option and word.startswith(f"{option}="):
            value = word.partition("=")[2]
    return value


def profile_of(words: Sequence[str], default: Profile) -> Profile:
    """The profile that a command names, else the default."""
    given = any(word.partition("=")[0] == "--profile" for word in words)
    named = option_of(words, "--profile") if given else default
    if named not in get_args(Profile):
        raise SetupError(f"--profile {named}: there are {', '.join(get_args(Profile))}", key="--profile")
    return cast(Profile, named)


def put_in(word: str, values: Mapping[tuple[str, str], str]) -> str:
    """A word of a command with known values; in an override, quoted so that Hydra reads that very text."""
    plain = filled(word, values)
    if plain == word or not _is_override(word):
        return plain
    exact = filled(word, {place: quoted(value) for place, value in values.items()})
    # a placeholder within other text can't be quoted
    return exact if _read(exact) not in ((), _read(plain)) else plain


def _read(override: str) -> tuple[Any, ...]:
    """An override's value as Hydra reads it; empty where it doesn't."""
    try:
        return (parse_overrides([override])[0].value(),)
    except SetupError:
        return ()


def _is_override(word: str) -> bool:
    return "=" in word and not word.startswith("-") and "/" not in word.partition("=")[0]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
