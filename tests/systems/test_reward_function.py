"""Custom reward functions: replacing the system's reward, or added to it."""

import asyncio
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.config.typed import dataclass_from
from agentic_video.graders.base import Graders
from agentic_video.systems.reward_function import RewardConfig, check_function, load_function, score_episode
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.types.action import Answer
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from agentic_video.utils.time_limit import TimeLimitError

RIGHT = Turn("<think>a</think><answer>B</answer>", Answer("B"), 5)
TRAJECTORY = Trajectory("q1", "videozoomer", (), (RIGHT,), EndReason.ANSWER)
SOURCE = """
from agentic_video.types.score import Score

def turns(trajectory, row, graders, price=1.0):
    count = float(len(trajectory.turns))
    return Score(reward=-price * count, acc=0.25, format=0.5, terms={"turns": -price * count})

async def later(trajectory, row, graders):
    return turns(trajectory, row, graders, price=2.0)

def number(trajectory, row, graders):
    return 1.0

def endless(trajectory, row, graders):
    return Score(reward=float("nan"), acc=0.0, format=0.0)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def score(qa: VideoQA, config: RewardConfig) -> Score:
    return asyncio.run(score_episode(VideoZoomer(), TRAJECTORY, qa, Graders(), config))


def test_without_a_function_the_system_scores(qa: VideoQA) -> None:
    found = score(qa, RewardConfig())
    # 0.9 for the right answer, 0.1 for the format, no tool
    assert (found.reward, found.acc, found.format) == (pytest.approx(1.0), 1.0, 1.0)


def test_a_replacing_function_may_be_a_coroutine(qa: VideoQA, file: Path) -> None:
    found = score(qa, RewardConfig(str(file), "turns", reward_kwargs={"price": 3.0}))
    assert found == Score(-3.0, 0.25, 0.5, {"turns": -3.0})
    assert score(qa, RewardConfig(str(file), "later")).reward == -2.0


def test_an_added_function(qa: VideoQA, file: Path) -> None:
    """Reward and terms are added up with the weight; accuracy and format stay the system's."""
    found = score(qa, RewardConfig(str(file), "turns", mode="add", weight=0.1))
    assert found.reward == pytest.approx(1.0 - 0.1)
    assert (found.acc, found.format) == (1.0, 1.0)
    assert found.terms == {
        "acc": pytest.approx(0.9),
        "format": pytest.approx(0.1),
        "tool": 0.0,
        "turns_turns": pytest.approx(-0.1),
    }
    assert found.reward == pytest.approx(sum(found.terms.values()))


def test_a_module_by_its_name() -> None:
    assert load_function("pkg://evidence_reward", "few_frames").__name__ == "few_frames"


def test_a_file_may_have_dataclasses_and_import_its_neighbours(
    qa: VideoQA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "prices_beside_it.py").write_text("PRICE = 0.5\n", encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        """from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import get_type_hints

from agentic_video.types import Score
from prices_beside_it import PRICE


@dataclass(frozen=True)
class Weights:
    _: KW_ONLY
    price: float = PRICE


def weighed(trajectory, row, graders):
    assert get_type_hints(Weights)["price"] is float
    return Score(reward=Weights(price=PRICE).price, acc=1.0, format=1.0)
""",
        encoding="utf-8",
    )
    assert score(qa, RewardConfig(str(tmp_path / "mine.py"), "weighed")).reward == 0.5
    assert sys.path[-1] == str(tmp_path)
    sys.modules.pop("prices_beside_it")


def test_files_of_one_name_are_two_modules(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / file.name
    other.write_text("def turns(trajectory, row, graders): ...\n", encoding="utf-8")
    loaded = [load_function(str(path), "turns") for path in (file, other)]
    assert len({function.__module__ for function in loaded}) == 2
    assert all(sys.modules[function.__module__].turns is function for function in loaded)


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("/nowhere/mine.py", "turns", r"agentic_video\.reward\.path=/nowhere/mine\.py: no such Python file"),
        ("pkg://no_such_module", "turns", r"agentic_video\.reward\.path=pkg://no_such_module: .*PYTHONPATH"),
        ("pkg://evidence_reward", "nothing", r"agentic_video\.reward\.name=nothing: no such function"),
        ("pkg://evidence_reward", "__name__", r"no such function"),
    ],
)
def test_what_cannot_be_loaded_is_named(path: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_function(path, name)


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("turns", {}, ""),
        ("verls", {}, r"verls\(data_source, solution_str, \.\.\.\) is verl's form"),
        ("optional", {}, r"optional\(data_source, solution_str, \.\.\.\) is verl's form"),
        ("batched", {}, r"batched\(data_sources, solution_strs, \.\.\.\) is verl's form"),
        ("short", {}, r"short\(solution_str, ground_truth, \.\.\.\) is verl's form"),
        ("four", {}, r"four\(a, b, c, d\) can't be called as "),
        ("others", {"data_source": 1, "ground_truth": 2}, ""),
        ("budgeted", {"budget": 16}, ""),
        ("budgeted", {"budgets": 16}, r"budgeted\(trajectory, row, graders, budgets=\.\.\.\): "),
        ("budgeted", {}, "missing a required argument: 'budget'"),
        ("anything", {"budget": 16}, ""),
    ],
)
def test_a_function_that_cannot_be_called_is_named(
    tmp_path: Path, file: Path, name: str, kwargs: dict[str, int], message: str
) -> None:
    more = (
        "def verls(data_source, solution_str, ground_truth, extra_info): ...\n"
        "def optional(data_source, solution_str, ground_truth, extra_info=None): ...\n"
        "def batched(data_sources, solution_strs, ground_truths, extra_infos=None): ...\n"
        "def short(solution_str, ground_truth, method='strict'): ...\n"
        "def four(a, b, c, d): ...\n"
        "def others(data, truth, judge, data_source, ground_truth): ...\n"
        "def budgeted(trajectory, row, graders, budget): ...\n"
        "def anything(*args, **kwargs): ...\n"
    )
    written = tmp_path / "more_rewards.py"
    written.write_text(file.read_text(encoding="utf-8") + more, encoding="utf-8")
    config = RewardConfig(str(written), name, reward_kwargs=kwargs)
    if not message:
        check_function(config)
        return
    with pytest.raises(ValueError, match=message):
        check_function(config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("'1', 1.0, 1.0", "ours returned reward '1', "),
        ("1.0, float('nan'), 1.0", "ours returned acc nan"),
        ("1.0, 1.0, float('inf')", "ours returned format inf"),
        ("1.0, 1.0, 1.0, {'x': float('nan')}", r"ours returned terms\['x'\] nan"),
        ("1.0, 1.0, 1.0, {}, (0.5, None)", r"ours returned turns\[1\] None"),
        ("np.ones((2, 2)), 1.0, 1.0", r"ours returned reward array\(\[\[1., 1.\], \[1., 1.\]\]\), which"),
        ("1.0, 1.0, 1.0, None", "ours must return a Score whose terms are numbers by name, got NoneType"),
        ("1.0, 1.0, 1.0, [1.0]", "ours must return a Score whose terms are numbers by name, got list"),
        ("1.0, 1.0, 1.0, {}, None", "ours must return a Score whose turns are a tuple of numbers, got NoneType"),
        ("True, np.float32(0.5), np.bool_(True), {'x': np.int64(2), 'y': 1}, np.ones(2)", ""),
    ],
)
def test_each_number_of_a_score_is_checked_by_its_name(qa: VideoQA, tmp_path: Path, fields: str, message: str) -> None:
    written = tmp_path / "numbers_reward.py"
    lines = ("import numpy as np", "from agentic_video.types import Score", f"SCORE = Score({fields})")
    written.write_text("\n".join([*lines, "def ours(trajectory, row, graders): return SCORE"]), encoding="utf-8")
    config = RewardConfig(str(written), "ours")
    if message:
        with pytest.raises((TypeError, ArithmeticError), match=f"agentic_video.reward: {message}"):
            score(qa, config)
    else:
        scored = score(qa, config)
        assert scored.terms == {"x": 2, "y": 1}
        # neither torch nor JSON takes numpy's everywhere
        numbers = [scored.reward, scored.acc, scored.format, *scored.terms.values(), *scored.turns]
        assert {type(number) for number in numbers} == {float}


@pytest.mark.parametrize("mode", ["replace", "add", None])
def test_a_system_that_returns_no_score_is_named(qa: VideoQA, file: Path, mode: str | None) -> None:
    @dataclass(frozen=True)
    class Careless(VideoZoomer):
        async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
            if trajectory is not TRAJECTORY:
                await asyncio.Event().wait()
            return 1.0  # type: ignore[return-value]

    with pytest.raises(TimeLimitError):
        asyncio.run(score_episode(Careless(), replace(TRAJECTORY), qa, Graders(), RewardConfig(timeout=0.2)))
    config = RewardConfig(str(file), "turns", mode=mode) if mode else RewardConfig()  # type: ignore[arg-type]
    played = score_episode(Careless(), TRAJECTORY, qa, Graders(), config)
    if mode == "replace":
        assert asyncio.run(played).reward == -1.0
    else:
        with pytest.raises(TypeError, match=r"Careless\.score must return a Score, got float"):
            asyncio.run(played)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import json\nTABLE = json.load(open('table.json'))", r"FileNotFoundError: .* \(broken_reward\.py line 2\)$"),
        ("import sys\nsys.exit(0)", r"SystemExit: 0 \(broken_reward\.py line 2\)$"),
    ],
)
def test_a_file_that_fails_is_named_with_its_line_and_leaves_no_module(tmp_path: Path, code: str, error: str) -> None:
    (tmp_path / "broken_reward.py").write_text(code + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=error):
        load_function(str(tmp_path / "broken_reward.py"), "turns")
    assert not [name for name in sys.modules if "broken_reward" in name]


@pytest.mark.parametrize(
    "values",
    [
        {"path": "x.py"},
        {"name": "f"},
        {"timeout": -1.0},
        {"timeout": math.nan},
        {"weight": math.nan},
        {"weight": math.inf},
    ],
)
def test_an_impossible_config_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        dataclass_from(RewardConfig, values, "agentic_video.reward")


@pytest.mark.parametrize(("kind", "mode"), [("def", "replace"), ("async def", "add")])
def test_a_function_that_hangs_fails_its_episode_by_name(qa: VideoQA, tmp_path: Path, kind: str, mode: str) -> None:
    waits = "import asyncio, threading\nGATE = threading.Event()\n"
    wait = "GATE.wait(20)" if kind == "def" else "await asyncio.Event().wait()"
    written = tmp_path / f"hangs_{kind.split()[0]}.py"
    written.write_text(f"{waits}{kind} ours(trajectory, row, graders): {wait}\n", encoding="utf-8")
    config = RewardConfig(str(written), "ours", mode=mode, timeout=0.2)  # type: ignore[arg-type]
    with pytest.raises(TimeLimitError, match=f"ours of row {qa.id}"):
        score(qa, config)
    assert score(qa, RewardConfig()).reward == pytest.approx(1.0)
    load_function(str(written), "ours").__globals__["GATE"].set()
