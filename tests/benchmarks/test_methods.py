import json
from pathlib import Path
from typing import Any

import pytest

from agentic_video.config.settings import settings_of
from agentic_video.utils.errors import SetupError
from benchmarks.learning.cells import SEARCH
from benchmarks.methods import report, run
from benchmarks.methods.run import BUDGET, METHODS, SYSTEM, run_cell
from tests.config.configs import composed
from tests.launch.paths import values_of


@pytest.mark.parametrize("method", METHODS)
def test_a_method_changes_the_profile_and_keeps_the_budget(method: str) -> None:
    plain = composed(SYSTEM, "laptop", SEARCH, *BUDGET)
    changed = composed(SYSTEM, "laptop", SEARCH, *BUDGET, *METHODS[method])
    settings_of(changed)
    assert (changed == plain) == (method == report.PLAIN)
    assert changed.data == plain.data and changed.trainer == plain.trainer
    assert changed.actor_rollout_ref.rollout == plain.actor_rollout_ref.rollout


@pytest.mark.parametrize("words", [["gsp"], ["gspo", "algorithm.gamma=0.5"], ["gspo", "--seeds", "one"]])
def test_an_unknown_name_and_a_known_one_with_overrides_are_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["run", *words, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as refused:
        run.main()
    assert refused.value.code == 2 and not (tmp_path / "out").exists()


def test_a_seed_that_fails_leaves_the_others_and_the_command_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def cell(method: str, overrides: list[str], seed: int, out: Path) -> dict[str, Any]:
        begun.append(seed)
        if seed == 1 and begun.count(1) == 1:
            raise SetupError("no room")
        return {**result(method, seed, [1.0], [1, 0]), "overrides": overrides}

    monkeypatch.setattr(run, "run_cell", cell)
    monkeypatch.setattr("sys.argv", ["run", "mine", "algorithm.gamma=0.5", "--seeds", "1", "2", "--out", str(tmp_path)])
    assert run.main() == 1
    assert run.main() == 0
    assert begun == [1, 2, 1]  # what is finished isn't made again
    monkeypatch.setattr("sys.argv", ["run", "mine", "algorithm.gamma=0.9", "--seeds", "1", "--out", str(tmp_path)])
    assert run.main() == 1 and begun == [1, 2, 1]  # another method of that name
    assert json.loads((tmp_path / "cells" / "mine-2" / "result.json").read_text())["overrides"] == [
        "algorithm.gamma=0.5"
    ]


def test_all_methods_start_from_one_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Started(Exception):
        pass

    def started(stage: str, system: str, overrides: list[str], folder: Path) -> None:
        raise Started(overrides)

    # a path with everything that a config's grammar could take for its own
    out = tmp_path / "runs, (1)=[x]"
    model = f"{out}/model"
    monkeypatch.setattr(run, "cold_start", lambda seed, out: {"model": model, "before": {}})
    monkeypatch.setattr(run, "train", started)
    for method in (report.PLAIN, "gspo"):
        with pytest.raises(Started) as seen:
            run_cell(method, METHODS[method], 1, out)
        (overrides,) = seen.value.args
        plain = overrides[: len(overrides) - len(METHODS[method])]
        assert model in values_of(plain[1:]) and [*plain, *METHODS[method]] == overrides


def test_what_a_step_played_by_hand() -> None:
    kinds = [f"training/filter_groups/{kind}_samples" for kind in ("evicted", "discarded_surplus")]
    metrics = {1: {kinds[0]: 9.0, kinds[1]: 3.0}, 2: {kinds[0]: 6.0, kinds[1]: 0.0}}
    # 12 and 6 questions more than two batches of 12
    assert run.batches_played(metrics) == 1.75 and run.batches_played({1: {}}) == 1.0


def result(method: str, seed: int, again: list[float], answers: list[int], **more: Any) -> dict[str, Any]:
    figures = {"accuracy": sum(answers) / len(answers), "answers": answers}
    curve = [list(range(1, len(again) + 1)), again]
    return {
        "cell": f"{method}-{seed}",
        "method": method,
        "seed": seed,
        "steps": 20,
        "seconds": 90.0,
        "played": 1.5,
        "searched": dict.fromkeys(report.SEARCHED, curve),
        "before": {"greedy": figures, "sampled": figures},
        "after": {"greedy": figures, "sampled": figures},
        **more,
    }


FOUND = [
    result("grpo", 1, [0.5, 0.9, 0.9], [0, 0, 1, 1]),
    result("grpo", 2, [0.5, 0.5, 0.5], [0, 0, 0, 1]),
    result("mine", 1, [0.9, 0.9, 0.9], [1, 1, 1, 1]),
    result("mine", 2, [0.9, 0.9, 0.9], [0, 1, 1, 1]),
]


def test_gains_by_hand() -> None:
    # 50 and 50 points: seeds don't differ. Questions: 1, 1, 0, 0 and 0, 1, 1, 0 have standard deviations of
    # sqrt(1/3), over sqrt(4) 28.87 points; of two seeds sqrt(2 * 28.87^2) / 2
    gained = report.gained(FOUND, "mine", "greedy")
    assert gained is not None and gained.error is not None
    assert (gained.mean, gained.error) == (50.0, pytest.approx(20.41, abs=0.01))
    assert gained.clear and str(gained) == "**+50.0 (20.4)**"
    assert not report.Gain(40.0, 20.41).clear and not report.Gain(40.0, None).clear
    # seeds that differ: 0 and 40, a standard deviation of 28.28, over sqrt(2)
    assert report.gain([0.0, 40.0], [1.0, 1.0]).error == pytest.approx(20.0)


def test_a_seed_of_one_method_alone_is_compared_with_nothing() -> None:
    alone = [FOUND[0], FOUND[3]]
    assert report.gained(alone, "mine", "greedy") is None and report.sooner(alone, "mine") is None
    assert "| mine | 1 |" in report.method_table(alone)


def test_a_second_look_that_isn_t_found_counts_as_one_step_more_than_all() -> None:
    assert [report.second_look(each) for each in FOUND[1:3]] == [21, 1]
    late = report.sooner(FOUND, "mine")
    first = report.second_look(FOUND[0])
    assert late is not None and late.mean == ((1 - first) + (1 - 21)) / 2


def test_intervals_by_hand() -> None:
    # 50, 60, 70: standard deviation 10, over sqrt(3), by 4.30
    assert report.interval([0.5, 0.6, 0.7]) == "60.0 ± 24.8"
    assert report.interval([0.5]) == "50.0"


def test_the_page_has_all_methods_and_keeps_what_stands_above(tmp_path: Path) -> None:
    docs, out = tmp_path / "docs", tmp_path / "out"
    docs.mkdir()
    (docs / "methods.md").write_text(f"# Methods\n\n{report.MARKER}\nstale\n", encoding="utf-8")
    (docs / "methods.json").write_text(json.dumps([FOUND[0]]), encoding="utf-8")
    for each in FOUND[1:]:
        folder = out / "cells" / each["cell"]
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({**each, "checkpoint": "/x"}), encoding="utf-8")
    report.publish(out, docs)
    page = (docs / "methods.md").read_text(encoding="utf-8")
    assert page.startswith("# Methods\n") and "stale" not in page
    rows = [line for line in page.splitlines() if line.startswith(("| grpo |", "| mine |"))]
    assert len(rows) == 2 and "**+50.0 (20.4)**" in rows[1]
    known = json.loads((docs / "methods.json").read_text(encoding="utf-8"))
    assert [each["cell"] for each in known] == ["grpo-1", "grpo-2", "mine-1", "mine-2"]
    assert not any("checkpoint" in each for each in known)
    assert (docs / "methods.png").stat().st_size > 5_000
