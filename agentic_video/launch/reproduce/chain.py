"""The stages of a reproduction, read from a recipe's ``reproduce.yaml``.

A stage is a command of ``agentic-video``, written as a user would type it. Words in braces are put in: ``{folder}`` is
the stage's own folder, ``{data}`` the folder of downloads, ``{recipe}``, ``{base}``, a setting such as ``{judge}``, and
``{stage.output}`` what an earlier stage has made. What a stage needs follows from them.
"""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import yaml

from agentic_video.config.typed import dataclass_from
from agentic_video.utils.choices import did_you_mean
from agentic_video.utils.errors import SetupError, one_line

FILE = "reproduce.yaml"
"""In a recipe's folder."""
PROGRAM = "agentic-video"
Mode = Literal["laptop", "paper"]
"""``paper``: the published stages. ``laptop``: the same chain in small, on the synthetic world."""
OWN = ("folder", "recipe", "data", "base")
"""What can be put in beside settings and outputs."""
_NAME = re.compile(r"[a-z][\w-]*")
_PLACE = re.compile(r"\{([a-z][\w-]*)(?:\.([a-z]\w*))?\}")
_ASSIGNED = re.compile(r"([A-Z]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Row:
    """What an evaluation stands for in the table.

    Attributes:
        benchmark: As ``published.yaml`` names it; on the synthetic world what was evaluated.
        model: As ``published.yaml`` names it.
        table: Of the paper, where the benchmark is in several.
        frames: Of the evaluation: only published numbers at as many are beside it. None: at any number.
        figure: On the synthetic world: the accuracy in percent that the documentation has.
    """

    benchmark: str
    model: str = ""
    table: str = ""
    frames: float | None = None
    figure: float | None = None


@dataclass(frozen=True)
class Instead:
    """What stands for a stage in one mode.

    Attributes:
        run: Its command there.
        left_out: Why there is none.
    """

    run: str = ""
    left_out: str = ""


@dataclass(frozen=True)
class Entry:
    """A stage as the file has it; see :class:`Stage`."""

    name: str
    about: str
    run: str = ""
    source: str = ""
    cost: str = ""
    rows: int = 0
    makes: Mapping[str, str] = field(default_factory=dict)
    paper: Instead = Instead()
    laptop: Instead = Instead()
    row: Row | None = None


@dataclass(frozen=True)
class _File:
    """The file; see :class:`Chain`.

    Attributes:
        benchmarks: ``sets``, the words of ``agentic-video convert`` for each, and how each model plays them.
        toyworld: The small chain's evaluations (``stages``), its ``figures`` and what it ``took``.
    """

    paper: str
    base: str
    stages: tuple[Any, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    benchmarks: Mapping[str, Any] = field(default_factory=dict)
    toyworld: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Played:
    """How every benchmark is played by one model.

    Attributes:
        model: As ``published.yaml`` names it.
        run: The command; ``{rows}`` is the benchmark's rows, ``{benchmark}`` its name.
        sets: The benchmarks that are played so; empty for all.
        frames: See :class:`Row`.
    """

    model: str
    run: str
    sets: tuple[str, ...] = ()
    frames: float | None = None


@dataclass(frozen=True)
class Stage:
    """One command of a reproduction.

    Attributes:
        name: Of the stage and of its folder.
        about: What it does, in one line.
        words: After the program's name, with places in braces.
        variables: Environment variables, with places in braces.
        makes: Outputs by name: paths or patterns below its folder; the last match counts.
        source: Where the paper has it.
        cost: What it took the authors.
        rows: How many rows it trains on; 0 where that isn't published.
        left_out: Why it isn't run; empty where it is.
        row: Its row of the table; None where it is no evaluation.
    """

    name: str
    about: str
    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    makes: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    cost: str = ""
    rows: int = 0
    left_out: str = ""
    row: Row | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that hold places."""
        return (*self.variables.values(), *self.words)

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """What is put in, each once: (name, output); the output is empty for what no stage makes."""
        return tuple(dict.fromkeys(places(*self.texts)))

    @property
    def follows(self) -> tuple[str, ...]:
        """The stages whose outputs it reads."""
        return tuple(dict.fromkeys(name for name, output in self.places if output))

    @property
    def downloads(self) -> tuple[str, ...]:
        """The folders below ``{data}`` that it reads."""
        found = (re.match(r"\{data\}/([^/]+)", text) for text in self.texts)
        return tuple(dict.fromkeys(one[1] for one in found if one))

    @property
    def trained(self) -> str:
        """The stage of ``agentic-video run`` that it is (``grpo``, ``sft``, ``kto``, ``rft``); empty if it is none."""
        if self.words[:1] != ("run",):
            return ""
        return next((word for word in self.words if word in ("sft", "kto", "rft")), "grpo")


@dataclass(frozen=True)
class Chain:
    """A reproduction.

    Attributes:
        recipe: Folder of the recipe.
        mode: Whether it is the paper's, or the small one on the synthetic world.
        paper: As ``published.yaml`` names it.
        base: The checkpoint that the paper starts from, by its name on the hub.
        settings: What the user has to name, and what it is.
        data: Downloads that aren't a converter's, and how to get them.
        stages: In order.
        remarks: What to know of this reproduction.
        figures: Where the synthetic world's figures are from.
        took: What the small chain took where it was measured; empty where it wasn't.
    """

    recipe: Path
    mode: Mode
    paper: str
    base: str
    stages: tuple[Stage, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    figures: str = ""
    took: str = ""

    def stage(self, name: str) -> Stage:
        """The stage of a name.

        Raises:
            SetupError: There is none.
        """
        for one in self.stages:
            if one.name == name:
                return one
        names = [one.name for one in self.stages]
        raise SetupError(f"{name}: no such stage; {did_you_mean(name, names)}there are {', '.join(names)}")

    def matching(self, pattern: str) -> list[Stage]:
        """The stages of a name, or of a pattern such as ``agent-*``.

        Raises:
            SetupError: There is none.
        """
        found = [one for one in self.stages if fnmatchcase(one.name, pattern)]
        return found or [self.stage(pattern)]

    def descendants(self, names: Collection[str]) -> set[str]:
        """Stages, and all that follow from them."""
        found = set(names)
        for one in self.stages:
            if found.intersection(one.follows):
                found.add(one.name)
        return found


def places(*texts: str) -> Iterator[tuple[str, str]]:
    """The places in some texts: (name, output)."""
    for text in texts:
        for one in _PLACE.finditer(text):
            yield one[1], one[2] or ""


def filled(text: str, values: Mapping[tuple[str, str], str]) -> str:
    """A text with what is known put into its places; the others stay."""
    return _PLACE.sub(lambda one: values.get((one[1], one[2] or ""), one[0]), text)


def read_chain(recipe: Path, mode: Mode, benchmarks: Sequence[str] = ()) -> Chain:
    """Read a recipe's ``reproduce.yaml``.

    Args:
        recipe: Its folder.
        mode: Which chain of it.
        benchmarks: Those that are evaluated on; empty for all.

    Raises:
        SetupError: There is no such file, or something in it is wrong; the message names it.
    """
    file = recipe / FILE
    try:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SetupError(f"{recipe}: no {FILE}, so its stages aren't known (docs/reproduce.md)") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SetupError(f"{file}: {one_line(error)}") from error
    try:
        return _chain(recipe, mode, dataclass_from(_File, raw, "the file"), benchmarks)
    except ValueError as error:
        raise SetupError(f"{file}: {one_line(error)}") from error


def _chain(recipe: Path, mode: Mode, file: _File, benchmarks: Sequence[str]) -> Chain:
    """See :func:`read_chain`."""
    small = dict(_mapping(file.toyworld, "toyworld"))
    entries = [_entry(one, f"stages[{number}]") for number, one in enumerate(file.stages)]
    if mode == "paper":
        entries += _evaluations(_mapping(file.benchmarks, "benchmarks"), benchmarks)
    else:
        if benchmarks:
            raise ValueError("--benchmarks: the synthetic world has none")
        entries += [_entry(one, f"toyworld.stages[{number}]") for number, one in enumerate(small.get("stages", ()))]
    chain = Chain(
        recipe,
        mode,
        file.paper,
        file.base,
        tuple(_stage(one, mode) for one in entries),
        _texts(file.settings, "settings"),
        _texts(file.data, "data"),
        file.remarks,
        figures=str(small.get("figures", "")),
        took=str(small.get("took", "")),
    )
    _check(chain)
    return chain


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    """What should be keys and values."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}: expected keys and values, got {value!r}")
    return value


def _texts(value: Any, where: str) -> dict[str, str]:
    return {str(key): str(one) for key, one in _mapping(value, where).items()}


def _entry(raw: Any, where: str) -> Entry:
    """A stage as the file has it, of the right types."""
    values = dict(_mapping(raw, where))
    row = values.pop("row", None)
    made: Entry = dataclass_from(Entry, values, where)
    return made if row is None else replace(made, row=dataclass_from(Row, row, f"{where}.row"))


def _evaluations(raw: Mapping[str, Any], wanted: Sequence[str]) -> Iterator[Entry]:
    """The stages of the published benchmarks: rows, then each model on them."""
    raw = dict(raw)
    sets = _texts(raw.pop("sets", {}), "benchmarks.sets")
    if unknown := [name for name in wanted if name not in sets]:
        raise ValueError(f"--benchmarks {unknown[0]}: there are {', '.join(sets)}")
    players = {who: dataclass_from(Played, values, f"benchmarks.{who}") for who, values in raw.items()}
    for who, played in players.items():
        if unknown := [name for name in played.sets if name not in sets]:
            raise ValueError(f"benchmarks.{who}.sets: {unknown[0]}: there are {', '.join(sets)}")
    for benchmark in wanted or sets:
        words = shlex.split(sets[benchmark])
        yield Entry(
            f"rows-{benchmark}",
            f"rows of {benchmark}",
            f"{PROGRAM} convert {shlex.join(words)} --source {{data}}/{words[0]} --out {{folder}}/rows.parquet",
            makes={"rows": "rows.parquet"},
        )
        for who, played in players.items():
            if played.sets and benchmark not in played.sets:
                continue
            run = played.run.replace("{rows}", f"{{rows-{benchmark}.rows}}").replace("{benchmark}", benchmark)
            yield Entry(
                f"{who}-{benchmark}",
                f"{played.model} on {benchmark}",
                run,
                makes={"report": "report.json"},
                row=Row(benchmark, played.model, frames=played.frames),
            )


def _stage(entry: Entry, mode: Mode) -> Stage:
    """A stage of one mode."""
    instead = entry.laptop if mode == "laptop" else entry.paper
    run, left_out = (entry.run, "") if instead == Instead() else (instead.run, instead.left_out)
    words = shlex.split(run)
    variables = {}
    while words and (found := _ASSIGNED.fullmatch(words[0])):
        variables[found[1]] = found[2]
        words.pop(0)
    if words[:1] not in ([PROGRAM], []) or bool(words) == bool(left_out):
        raise ValueError(f"{entry.name}: expected a command of {PROGRAM}, or why it is left out, got {run!r}")
    makes = _texts(entry.makes, f"{entry.name}.makes")
    if words[1:2] == ["run"]:
        variables["OUTPUT_DIR"] = "{folder}"
        makes = {"run": "*/run-*", "model": "*/run-*/model", **makes}
    return Stage(
        entry.name,
        entry.about,
        tuple(words[1:]),
        variables,
        {} if left_out else {"folder": ".", **makes},
        entry.source,
        entry.cost,
        entry.rows,
        left_out,
        entry.row,
    )


def _check(chain: Chain) -> None:
    """Make sure that each place of a chain's commands can be filled."""
    before: dict[str, Stage] = {}
    for stage in chain.stages:
        if not _NAME.fullmatch(stage.name) or stage.name in before or stage.name == "logs":
            raise ValueError(f"{stage.name}: a stage's name is of small letters, digits, - and _, and there once")
        for name, output in stage.places:
            if not output and name not in OWN and name not in chain.settings:
                raise ValueError(f"{stage.name}: {{{name}}} is neither of {', '.join(OWN)} nor a setting")
            if output and output not in (before[name].makes if name in before else ()):
                raise ValueError(f"{stage.name}: no earlier stage makes {{{name}.{output}}}")
        before[stage.name] = stage
