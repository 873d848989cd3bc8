"""Every recipe's ``reproduce.yaml``: commands that parse, numbers that are published, the documentation's figures."""

import asyncio
import re
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path

import pytest

from agentic_video import cli
from agentic_video.commands.parsing import COMMANDS
from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.converters import CONVERTERS
from agentic_video.evaluation.evaluate import variant_of
from agentic_video.evaluation.options import Variant
from agentic_video.evaluation.plan import fit_limits
from agentic_video.evaluation.runner import visual_tokens
from agentic_video.launch.reproduce.chain import Mode, read_chain
from agentic_video.launch.reproduce.plan import plan_text
from agentic_video.launch.reproduce.reproduction import ReproduceOptions, Reproduction
from agentic_video.launch.reproduce.state import State
from agentic_video.launch.reproduce.table import numbers_of
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import System
from agentic_video.systems.needs import check_needs
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason
from tests.config.configs import RECIPES, SYSTEMS, set_environment
from tests.conftest import FlatSource
from tests.docs.tables import REPOSITORY, TITLES, rows_of, section_of

MODES: tuple[Mode, ...] = ("laptop", "paper")
CHAINS = [(name, mode) for name in SYSTEMS for mode in MODES]


@pytest.fixture
def planned(tmp_path: Path, request: pytest.FixtureRequest) -> Reproduction:
    name, mode = request.param
    chain = read_chain(RECIPES / name, mode)
    settings = dict.fromkeys(chain.settings, "http://host:8000/v1")
    return Reproduction(
        chain, ReproduceOptions(tmp_path / "out", tmp_path / "data", settings=settings), State(tmp_path)
    )


@pytest.mark.parametrize("planned", CHAINS, ids="-".join, indirect=True)
def test_every_command_can_be_parsed(planned: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    for name in COMMANDS:
        module = import_module(f"agentic_video.commands.{name}")
        monkeypatch.setattr(module, "run", wraps(module.run)(lambda options: asked.append(options) or 0))
    stages = [stage for stage in planned.stages if not stage.left_out]
    for stage in stages:
        words = [re.sub(r"\{[\w.-]+\}", "/there", word) for word in stage.words]
        assert cli.main(words) == 0, words
        # what isn't an option of the command is a Hydra override, or the recipe and its stage
        others = set(getattr(asked[-1], "overrides", [])) - {"sft", "kto", "rft"}
        assert all("=" in word for word in others), others
    assert len(asked) == len(stages) >= 4


@pytest.mark.parametrize("planned", CHAINS, ids="-".join, indirect=True)
def test_its_configs_compose_and_it_is_planned(planned: Reproduction) -> None:
    """Overrides are checked against the recipe's config; with all settings only downloads and GPUs are missing."""
    missing = planned.missing(8, {})
    assert all("not there" in line for line in missing)
    assert all(folder in CONVERTERS or folder in planned.chain.data for folder in planned.downloads(planned.stages))
    text = plan_text(planned, missing)
    assert ("REHEARSAL" in text) == (planned.chain.mode == "laptop")
    if planned.chain.mode == "laptop":
        assert missing == [] and "the paper:" not in text
    else:
        assert len(missing) >= 4 and "computed, not measured:" in text
        assert set(planned.chain.settings) == set(planned.settings_of(planned.stages))


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_a_model_plays_for_training_can_be_graded(name: str, qa: VideoQA, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that plays rows names a judge wherever its recipe grades open answers by one: the rows may have some."""
    rows = [qa, replace(qa, answer="it is red", answer_type="open_ended", options=())]
    stages = [stage for stage in read_chain(RECIPES / name, "paper").stages if not stage.left_out and not stage.row]
    for stage in stages:
        if stage.words[0] not in ("distill", "classify", "reflect", "eval"):
            continue
        for variable in ("JUDGE_BASE_URL", "JUDGE_MODEL"):
            monkeypatch.setenv(variable, "http://there" if variable in stage.variables else "")
        words = [re.sub(r"\{[\w.-]+\}", "http://there", word) for word in stage.words]
        overrides = [word for word in words if "=" in word and not word.startswith("-")]
        settings = settings_of(compose_recipe(RECIPES / name, "cluster", overrides))
        missing = set() if settings.judge.base_url and settings.judge.model else {"judge"}
        check_needs(stage.name, rows, settings.system, missing, demonstrations=True)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_file_of_rows_is_played(name: str) -> None:
    """Rows are taken from the first file on: those before the last one may not fill the number that is played."""
    chain = read_chain(RECIPES / name, "paper")
    for stage in chain.stages:
        files = [stage.words[number + 1] for number, word in enumerate(stage.words) if word == "--data"]
        if stage.words[:1] != ("distill",) or len(files) < 2 or "--limit" not in stage.words:
            continue
        makers = [chain.stage(file.strip("{}").partition(".")[0]) for file in files[:-1]]
        taken = sum(int(item.words[item.words.index("--limit") + 1]) for item in makers)
        assert taken < int(stage.words[stage.words.index("--limit") + 1]), stage.name


SUBTITLE_TOKENS = 32
"""Of a line of subtitles with its time. Each of so many frames of an hour's film is at a line of its own."""


def first_view_tokens(system: System, qa: VideoQA) -> int:
    """Visual tokens of the first view of 40 minutes of 1280 x 720, with a few for the marks around each."""
    source = FlatSource(2400.0, size=(1280, 720))
    trajectory = asyncio.run(play(system, ScriptedPolicy(lambda view: "A"), qa, source))
    assert trajectory.end is not EndReason.IMAGE_BUDGET
    return visual_tokens(trajectory, system.size_factor) + 2 * len(trajectory.frames)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_evaluation_s_first_view_fits(name: str, qa: VideoQA, monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)
    chain = read_chain(RECIPES / name, "paper")
    seen = set()
    for stage in chain.stages:
        if stage.words[:1] != ("eval",):
            continue
        words = [re.sub(r"\{[\w.-]+\}", "http://there", word) for word in stage.words]
        frames = words[words.index("--baseline") + 1] if "--baseline" in words else "0"
        overrides = tuple(word for word in words if "=" in word and not word.startswith("-"))
        rows = f"rows-{stage.row.benchmark}" if stage.row else ""
        lines = sum(
            int(item.words[item.words.index("--subtitles") + 1])
            for item in chain.stages
            if item.name == rows and "--subtitles" in item.words
        )
        if (asked := (frames, overrides, lines)) in seen:
            continue
        seen.add(asked)
        config = compose_recipe(RECIPES / name, "cluster", overrides)
        variant = Variant("baseline" if int(frames) else "agent", int(frames))
        system, _ = variant_of(settings_of(config).system, variant, tiny=False)
        limits = fit_limits(system, limits_of(config))
        text = 1_500 + SUBTITLE_TOKENS * lines
        assert first_view_tokens(system, qa) + text <= limits.prompt, stage.name
        assert limits.prompt + limits.response <= config.actor_rollout_ref.rollout.max_model_len, stage.name
        assert limits.response == (limits.turn if int(frames) else config.data.max_response_length), stage.name
    assert seen


ONLY_DRAWN = {("VideoZoomer", "lsdbench")}
"""Whose published figures are points of a picture (Figure 1), without numbers."""


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_benchmark_has_its_published_number(name: str) -> None:
    chain = read_chain(RECIPES / name, "paper")
    assert chain.paper == TITLES[name]
    rows = [stage.row for stage in chain.stages if stage.row]
    assert len(rows) >= 6
    for row in rows:
        own = row.model.startswith(chain.paper)  # the model's size or stage may follow
        # a base model's number isn't in every paper
        drawn = (chain.paper, row.benchmark) in ONLY_DRAWN
        assert numbers_of(chain.paper, row) or not own or drawn, row


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_rehearsal_trains_all_that_the_paper_trains(name: str) -> None:
    """KTO where there is one, GRPO always; and it stays on this machine: the laptop profile in every command."""
    small = [stage for stage in read_chain(RECIPES / name, "laptop").stages if not stage.left_out]
    big = [stage for stage in read_chain(RECIPES / name, "paper").stages if not stage.left_out]
    assert {stage.trained for stage in big} <= {stage.trained for stage in small}
    for stage in small:
        assert "laptop" in stage.words or "{recipe}" not in stage.words, stage.name
        assert stage.words[0] != "eval" or "toy" in stage.words


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_synthetic_world_s_figures_are_the_documentation_s(name: str) -> None:
    learning = (REPOSITORY / "docs" / "learning.md").read_text(encoding="utf-8")
    measured = {
        f"after {stage}": float(sampled.split()[0])
        for system, stage, _, sampled, *_ in rows_of(section_of(learning, "## Every stage"))
        if system == name
    }
    rows = [stage.row for stage in read_chain(RECIPES / name, "laptop").stages if stage.row and not stage.left_out]
    assert {row.benchmark: row.figure for row in rows if row.figure is not None} == {
        stage: figure for stage, figure in measured.items() if stage != "after base"
    }


@pytest.mark.parametrize("name", SYSTEMS)
def test_its_script(name: str) -> None:
    script = RECIPES / name / "reproduce.sh"
    other = (RECIPES / "eva" / "reproduce.sh").read_text(encoding="utf-8")
    assert script.read_text(encoding="utf-8") == other.replace("# EVA's", f"# {TITLES[name]}'s")
    assert script.stat().st_mode == (RECIPES / name / "run_grpo.sh").stat().st_mode
