"""The stages of a reproduction, read from a recipe's ``reproduce.yaml``.

A stage is a command of ``agentic-video``, written as a user would type it. Placeholders in braces are filled in:
``{folder}`` is the stage's own folder, ``{data}`` the folder of downloads, ``{recipe}``, ``{base}``, a setting such as
``{judge}``, and ``{stage.output}`` an output of an earlier stage. A stage's needs follow from them.
"""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import yaml

from agentic_video.config.typed import dataclass_from
from agentic_video.utils.errors import SetupError, did_you_mean, one_line

FILE = "reproduce.yaml"
"""In a recipe's folder."""
PROGRAM = "agentic-video"
Mode = Literal["laptop", "paper"]
"""``paper``: the published stages. ``laptop``: the same chain in small, on the synthetic world."""
OWN = ("folder", "recipe", "data", "base")
"""Placeholders other than settings and outputs."""
_NAME = re.compile(r"[a-z][\w-]*")
_PLACEHOLDER = re.compile(r"\{([a-z][\w-]*)(?:\.([a-z]\w*))?\}")
_ASSIGNED = re.compile(r"([A-Z]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class TableRow:
    """Row of the table that an evaluation fills.

    Attributes:
        benchmark: As ``published.yaml`` names it; on the synthetic world what was evaluated. Likewise ``model``.
        table: Of the paper, where the benchmark is in several.
        frames: Only published numbers at as many frames are compared. None: at any number.
        figure: On the synthetic world: the accuracy in percent that the documentation has.
    """

    benchmark: str
    model: str = ""
    table: str = ""
    frames: float | None = None
    figure: float | None = None


@dataclass(frozen=True)
class ModeCommand:
    """A stage's command in one mode, or why there is none."""

    run: str = ""
    left_out: str = ""


@dataclass(frozen=True)
class StageEntry:
    """A stage as the file has it.

    Attributes:
        about: One line of description.
        run: The command, where both modes have the same.
        source: Section of the paper.
        cost: Published cost.
        rows: Published number of training rows; 0 for none.
        makes: Outputs by name: paths or patterns below its folder; the last match counts.
        row: Its row of the table; None where it is no evaluation.
    """

    name: str
    about: str
    run: str = ""
    source: str = ""
    cost: str = ""
    rows: int = 0
    makes: Mapping[str, str] = field(default_factory=dict)
    paper: ModeCommand = ModeCommand()
    laptop: ModeCommand = ModeCommand()
    row: TableRow | None = None


@dataclass(frozen=True)
class BenchmarkModel:
    """A model's evaluations on every benchmark.

    Attributes:
        model: As ``published.yaml`` names it.
        run: The command; ``{rows}`` is the benchmark's rows, ``{benchmark}`` its name.
        sets: Benchmarks to evaluate on; empty for all.
        frames: See :class:`TableRow`.
    """

    model: str
    run: str
    sets: tuple[str, ...] = ()
    frames: float | None = None


@dataclass(frozen=True)
class RehearsalEntry:
    """Evaluations of the small chain, where its figures are from, and how long it took."""

    stages: tuple[StageEntry, ...] = ()
    figures: str = ""
    took: str = ""


@dataclass(frozen=True)
class ChainFile:
    """The file.

    Attributes:
        paper: As ``published.yaml`` names it.
        base: The checkpoint that the paper starts from, by its name on the hub.
        settings: Settings that the user has to give, with their descriptions.
        data: Downloads that aren't a converter's, and how to get them.
        benchmarks: Models' evaluations by name; ``sets`` has the words of ``agentic-video convert`` for each benchmark.
    """

    paper: str
    base: str
    stages: tuple[StageEntry, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    benchmarks: Mapping[str, object] = field(default_factory=dict)
    toyworld: RehearsalEntry = RehearsalEntry()


@dataclass(frozen=True)
class ChainStage(StageEntry):
    """One command of a reproduction.

    Attributes:
        words: After the program's name, with placeholders.
        variables: Environment variables, with placeholders.
        left_out: Why it isn't run; empty where it is.
    """

    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    left_out: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that hold placeholders."""
        return (*self.variables.values(), *self.words)

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Placeholders as (name, output), each once; the output is empty for what no stage makes."""
        return tuple(dict.fromkeys(places(*self.texts)))

    @property
    def follows(self) -> tuple[str, ...]:
        """The stages whose outputs it reads."""
        return tuple(dict.fromkeys(name for name, output in self.places if output))

    @property
    def downloads(self) -> tuple[str, ...]:
        """The folders below ``{data}`` that it reads."""
        found = (re.match(r"\{data\}/([^/]+)", text) for text in self.texts)
        return tuple(dict.fromkeys(match[1] for match in found if match))

    @property
    def trained(self) -> str:
        """The stage of ``agentic-video run`` that it is (``grpo``, ``sft``, ``kto``, ``rft``); empty if it is none."""
        if self.words[:1] != ("run",):
            return ""
        return next((word for word in self.words if word in ("sft", "kto", "rft")), "grpo")


@dataclass(frozen=True, kw_only=True)
class Chain(ChainFile):
    """A recipe's stages in one mode."""

    recipe: Path
    mode: Mode
    stages: tuple[ChainStage, ...]

    def stage(self, name: str) -> ChainStage:
        """Return the stage of a name."""
        return self.matching(name)[0]

    def matching(self, pattern: str) -> list[ChainStage]:
        """Return the stages of a name, or of a pattern such as ``agent-*``."""
        if found := [stage for stage in self.stages if fnmatchcase(stage.name, pattern)]:
            return found
        names = [stage.name for stage in self.stages]
        raise SetupError(
            f"{pattern}: no such stage; {did_you_mean(pattern, names)}there are {', '.join(names)}", key=pattern
        )

    def descendants(self, names: Collection[str]) -> set[str]:
        """Return stages, and all that follow from them."""
        found = set(names)
        for stage in self.stages:
            if found.intersection(stage.follows):
                found.add(stage.name)
        return found


def places(*texts: str) -> Iterator[tuple[str, str]]:
    """The placeholders in some texts: (name, output)."""
    for text in texts:
        for match in _PLACEHOLDER.finditer(text):
            yield match[1], match[2] or ""


def filled(text: str, values: Mapping[tuple[str, str], str]) -> str:
    """A text with known values in its placeholders; the others stay."""
    return _PLACEHOLDER.sub(lambda match: values.get((match[1], match[2] or ""), match[0]), text)


def read_chain(recipe: Path, mode: Mode, benchmarks: Sequence[str] = ()) -> Chain:
    """Read a recipe's ``reproduce.yaml``; without ``benchmarks``, all of them are evaluated on."""
    file = recipe / FILE
    try:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise ValueError("expected keys and values")
        return _chain(recipe, mode, dataclass_from(ChainFile, raw, ""), benchmarks)
    except FileNotFoundError:
        raise SetupError(f"{recipe}: no {FILE}, so its stages aren't known (docs/reproduce.md)") from None
    except (yaml.YAMLError, ValueError) as error:
        raise SetupError(f"{file}: {one_line(error)}", key=getattr(error, "key", "")) from error


def _chain(recipe: Path, mode: Mode, file: ChainFile, benchmarks: Sequence[str]) -> Chain:
    entries = [*file.stages]
    if mode == "paper":
        entries += _evaluations(file.benchmarks, benchmarks)
    elif benchmarks:
        raise ValueError("--benchmarks: the synthetic world has none")
    else:
        entries += file.toyworld.stages
    stages = tuple(_stage(entry, mode) for entry in entries)
    chain = Chain(**{**vars(file), "recipe": recipe, "mode": mode, "stages": stages})
    _check(chain)
    return chain


def _evaluations(raw: Mapping[str, object], requested: Sequence[str]) -> Iterator[StageEntry]:
    """The stages of the published benchmarks: rows, then each model on them."""
    sets = raw.get("sets", {})
    if not isinstance(sets, Mapping):
        raise ValueError(f"benchmarks.sets: expected keys and values, got {sets!r}")
    models = {
        name: dataclass_from(BenchmarkModel, values, f"benchmarks.{name}")
        for name, values in raw.items()
        if name != "sets"
    }
    named = {"--benchmarks ": requested, **{f"benchmarks.{name}.sets: ": model.sets for name, model in models.items()}}
    for where, names in named.items():
        if unknown := [name for name in names if name not in sets]:
            raise ValueError(f"{where}{unknown[0]}: there are {', '.join(sets)}")
    for benchmark in requested or sets:
        words = shlex.split(sets[benchmark])
        yield StageEntry(
            f"rows-{benchmark}",
            f"rows of {benchmark}",
            f"{PROGRAM} convert {shlex.join(words)} --source {{data}}/{words[0]} --out {{folder}}/rows.parquet",
            makes={"rows": "rows.parquet"},
        )
        for name, model in models.items():
            if model.sets and benchmark not in model.sets:
                continue
            run = model.run.replace("{rows}", f"{{rows-{benchmark}.rows}}").replace("{benchmark}", benchmark)
            yield StageEntry(
                f"{name}-{benchmark}",
                f"{model.model} on {benchmark}",
                run,
                makes={"report": "report.json"},
                row=TableRow(benchmark, model.model, frames=model.frames),
            )


def _stage(entry: StageEntry, mode: Mode) -> ChainStage:
    """A stage of one mode."""
    own = entry.laptop if mode == "laptop" else entry.paper
    run, left_out = (entry.run, "") if own == ModeCommand() else (own.run, own.left_out)
    words, variables = shlex.split(run), {}
    while words and (match := _ASSIGNED.fullmatch(words[0])):
        variables[match[1]] = match[2]
        words.pop(0)
    if words[:1] not in ([PROGRAM], []) or bool(words) == bool(left_out):
        raise ValueError(f"{entry.name}: expected a command of {PROGRAM}, or why it is left out, got {run!r}")
    makes = {**entry.makes}
    if words[1:2] == ["run"]:
        variables["OUTPUT_DIR"] = "{folder}"
        makes = {"run": "*/run-*", "model": "*/run-*/model", **makes}
    makes = {} if left_out else {"folder": ".", **makes}
    own_fields = {"makes": makes, "words": tuple(words[1:]), "variables": variables, "left_out": left_out}
    return ChainStage(**{**vars(entry), **own_fields})


def _check(chain: Chain) -> None:
    """Check that each placeholder of a chain's commands can be filled."""
    before: dict[str, ChainStage] = {}
    for stage in chain.stages:
        if not _NAME.fullmatch(stage.name) or stage.name in before or stage.name == "logs":
            raise ValueError(f"{stage.name}: a stage's name is of small letters, digits, - and _, and there once")
        for name, output in stage.places:
            if not output and name not in OWN and name not in chain.settings:
                raise ValueError(f"{stage.name}: {{{name}}} is neither of {', '.join(OWN)} nor a setting")
            if output and output not in (before[name].makes if name in before else ()):
                raise ValueError(f"{stage.name}: no earlier stage makes {{{name}.{output}}}")
        before[stage.name] = stage
