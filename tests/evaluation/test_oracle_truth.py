"""Whole evaluations of scripted agents over the synthetic benchmark, against a truth that is worked out from the rows'
file and the scripts alone: nothing of the package takes part in it."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from agentic_video.cli import main
from agentic_video.toyworld.questions import World
from tests.evaluation.conftest import RECIPES
from tests.evaluation.scripted import named
from tests.share import a_few_systems

ROWS = 24


@pytest.fixture
def benchmark(small_world: World, tmp_path: Path) -> tuple[Path, pd.DataFrame]:
    """Rows of every kind, every third of which has a wrong option as its answer: even who knows all errs there."""
    rows = pd.read_parquet(small_world.heldout)
    # to find a frame by what it shows needs an encoder
    rows = rows[rows["extra_info"].map(lambda extra: extra["kind"] != "beside")].head(ROWS).reset_index(drop=True)
    assert len(rows) == ROWS and set(rows["answer_type"]) == {"multiple_choice"}
    rows["video"] = rows["video"].map(lambda name: str(small_world.heldout.parent / name))
    for number in range(0, ROWS, 3):
        count = len(rows.at[number, "options"])
        rows.at[number, "answer"] = chr(65 + (ord(rows.at[number, "answer"]) - 65 + 1) % count)
    file = tmp_path / "rows.parquet"
    rows.to_parquet(file)
    # read again: the truth is about what the file says
    return file, pd.read_parquet(file)


def evaluate(recipe: str, data: Path, engine: str, model: str, out: Path) -> dict[str, Any]:
    """The report of the command, in which only the model is an engine of these tests' own."""
    words = ["eval", "--recipe", str(RECIPES / recipe), "--profile", "laptop", "--engine", named(engine)]
    assert main([*words, "--model", model, "--data", str(data), "--out", str(out), "--concurrency", "4"]) == 0
    return dict(json.loads((out / "report.json").read_text()))


def accuracies(rows: pd.DataFrame) -> dict[str, float]:
    """Share of right answers in all and by kind, of rows with a column ``right``."""
    kinds = rows["extra_info"].map(lambda extra: extra["kind"])
    return {"": rows["right"].mean(), **rows["right"].groupby(kinds).mean().to_dict()}


def reported(result: Mapping[str, Any], rule: str) -> dict[str, float]:
    by_kind = {name: group[rule]["mean"] for name, group in result["by"]["category"].items()}
    return {"": result[rule]["mean"], **by_kind}


def event(row: Any) -> float | None:
    """When a row's event is; pandas gives NaN where there is none."""
    time = row.extra_info["event_time"]
    return None if time is None or math.isnan(time) else time


CALLS: dict[str, Callable[[float | None], int]] = {
    "videozoomer": lambda time: int(time is not None),
    "framethinker": lambda time: 2 * (time is not None),  # a look-up of the frame's number, a look
    "framemind": lambda time: 0 if time is None else 1 + int(time) % 2,  # odd seconds with both tools
    "videobrain": lambda time: int(time is not None),
    "eva": lambda time: 1,  # it starts without frames
    "videoo3": lambda time: int(time is not None),
    "paravt": lambda time: 0 if time is None else 1 + int(time) % 2,  # two crops at once for odd seconds
    "timesearch": lambda time: int(time is not None),
    "longvt": lambda time: int(time is not None),
}
"""Calls of each oracle, by when a row's event is."""


@pytest.mark.parametrize("name", a_few_systems(CALLS))
def test_the_oracle(name: str, benchmark: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    data, rows = benchmark
    # What the oracle answers is extra_info.answer_text; what is right is the option of the letter in the column answer.
    rows["right"] = [
        float(row.extra_info["answer_text"] == row.options[ord(row.answer) - ord("A")]) for row in rows.itertuples()
    ]
    truth = accuracies(rows)
    assert truth[""] == pytest.approx(2 / 3) and len(truth) > 4

    result = evaluate(name, data, "OracleBackend", "nothing", tmp_path / "out")
    assert result["episodes"] == ROWS and result["failed"] == result["ungraded"] == 0
    assert reported(result, "official") == pytest.approx(truth)
    assert reported(result, "robust") == pytest.approx(truth)
    assert result["ends"] == {"answer": ROWS}
    calls = [CALLS[name](event(row)) for row in rows.itertuples()]
    counted = pd.Series(calls).value_counts()
    assert result["distribution"]["tool_calls"] == {str(key): int(counted[key]) for key in sorted(counted.index)}
    assert result["per_episode"]["tool_calls"]["mean"] == pytest.approx(sum(calls) / ROWS)


def test_scripted_answers_in_many_dresses(benchmark: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    """Some right, some wrong, some never: accuracy, frames, calls, turns, rates and ends are all known before."""
    data, rows = benchmark
    zoom = '<think>?</think><video_zoom>{{"segment": [{0}, {1}], "fps": {2}}}</video_zoom>'
    says, truths = {}, []
    for number, row in enumerate(rows.itertuples()):
        letter, word = row.answer, row.options[ord(row.answer) - ord("A")]
        other = next(option for option in row.options if option != word)
        # turns, right, frames of calls, calls, rates, end
        script, *truth = {
            0: ([f"<answer>{letter}</answer>"], 1.0, 0, 0, [], "answer"),
            1: ([zoom.format(2, 4, 1), f"<answer>({letter.lower()}) {word}</answer>"], 1.0, 2, 1, [1], "answer"),
            2: ([zoom.format(2, 4, 3), f"<answer>{other}</answer>"], 0.0, 6, 1, [3], "answer"),
            3: ([zoom.format(2, 4, 1)] * 3, 0.0, 4, 2, [1, 1], "turn_limit"),
            4: ([f"<answer>{letter} or maybe {other}</answer>"], 0.0, 0, 0, [], "answer"),
            5: ([f"<answer>The answer is **{word.upper()}**.</answer>"], 1.0, 0, 0, [], "answer"),
        }[number % 6]
        says[row.id] = script
        truths.append([*truth, len(script)])
    table = pd.DataFrame(truths, columns=["right", "frames", "calls", "rates", "end", "turns"])
    rows["right"] = table["right"]

    (tmp_path / "says.json").write_text(json.dumps(says))
    result = evaluate("videozoomer", data, "FileBackend", str(tmp_path / "says.json"), tmp_path / "out")
    assert reported(result, "official") == pytest.approx(accuracies(rows))
    assert result["official"]["mean"] == 0.5
    # every video lasts at least 40 s: the overview is its limit of 6 frames
    assert result["per_episode"]["frames"]["mean"] == pytest.approx(6 + table["frames"].mean())
    assert result["per_episode"]["frames"]["max"] == 6 + 6
    # one visual token a frame
    assert result["per_episode"]["visual_tokens"] == result["per_episode"]["frames"]
    for name, column in (("turns", "turns"), ("tool_calls", "calls")):
        counted = table[column].value_counts()
        assert result["distribution"][name] == {str(key): int(counted[key]) for key in sorted(counted.index)}
    assert result["ends"] == {"answer": 20, "turn_limit": 4}
    rates = [rate for some in table["rates"] for rate in some]
    # at rate 1 the third turn's call isn't carried out, as no turn is left
    assert result["chosen_fps"] == {"(0, 1]": rates.count(1), "(2, 4]": rates.count(3)}
    seconds = rows["extra_info"].map(lambda extra: extra["seconds"])
    assert result["per_episode"]["seconds"]["min"] > 0
    assert result["by"]["duration"]["(0, 60] s"]["official"]["episodes"] == int((seconds <= 60).sum()) == ROWS
