import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentic_video.config.settings import settings_of
from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.systems.framethinker.consistency import ConsistencyRules, failed_checks
from agentic_video.systems.framethinker.grammar import read_steps
from agentic_video.toyworld.build.recipe import toy_recipe
from agentic_video.toyworld.oracles import oracle_policy, turns_of
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.toyworld.world import Scene, WorldRecipe
from agentic_video.types.action import Calls
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from benchmarks.learning import report
from benchmarks.learning import run as running
from benchmarks.learning.cells import ALL as VARIANTS
from benchmarks.learning.cells import SYSTEMS, Variant, cells
from benchmarks.learning.cells import VARIANTS as NAMES
from benchmarks.learning.labels import labelled
from benchmarks.learning.run import HELD_OUT, once, run_cell, search_preferences, world_overrides
from tests.config.configs import composed
from tests.launch.paths import values_of
from tests.toyworld.conftest import laptop_setting


@pytest.mark.parametrize("variant", VARIANTS, ids=[f"{one.system}-{one.name}" for one in VARIANTS])
def test_what_a_variant_changes_is_in_its_config(variant: Variant) -> None:
    plain = composed(variant.system, "laptop", *variant.world, *world_overrides(2))
    assert (toy_recipe(plain).seed, toy_recipe(plain).heldout) == (2, HELD_OUT)
    changed = composed(variant.system, "laptop", *variant.world, *world_overrides(2), *variant.overrides)
    assert (changed == plain) == (not variant.overrides)
    settings_of(changed)
    taught = composed(variant.system, "laptop", *variant.built)
    assert (toy_recipe(taught) == toy_recipe(composed(variant.system, "laptop"))) == (not variant.cold_start)
    assert (variant.system, variant.beside) in {(one.system, one.name) for one in VARIANTS}
    for _, overrides in variant.budgets:
        settings_of(composed(variant.system, "laptop", *overrides))
    settings_of(composed(variant.system, "laptop", *variant.evaluated))
    # what is measured before GRPO is measured once for all that start there
    same_start = [one for one in VARIANTS if one.start_name == variant.start_name]
    assert {one.evaluated for one in same_start} == {variant.evaluated}


def test_the_first_seed_is_finished_before_the_second_begins() -> None:
    names = [cell.name for cell in cells(SYSTEMS, (0, 1), NAMES)]
    assert len(names) == len(set(names)) == 2 * len(VARIANTS)
    assert all(name.endswith("-0") for name in names[: len(VARIANTS)])
    assert [cell.name for cell in cells(("eva",), (3,), ("chain",))] == ["eva-chain-3"]


def test_a_result_is_made_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> dict[str, int]:
        made.append(1)
        return {"a": 1}

    for _ in range(2):
        assert once(tmp_path / "below" / "x.json", make) == {"a": 1}
    assert made == [1]


def test_results_may_be_kept_in_a_folder_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Started(Exception):
        """What a job would be given."""

    def train(stage: str, system: str, overrides: list[str], folder: Path) -> None:
        raise Started(*overrides)

    out = tmp_path / "cells, (1)=[x]"
    out.mkdir()
    monkeypatch.setattr(running, "build_toyworld", lambda *_: {"train": "rows"})
    monkeypatch.setattr(running, "measure", lambda *_: {})
    monkeypatch.setattr(running, "labelled", lambda records: records)
    monkeypatch.setattr(running, "start_of", lambda *_: {"paths": {"sft": f"{out}/sft"}})
    monkeypatch.setattr(running, "train", train)
    files = [f"{out}/kto.jsonl"]
    preferred = search_preferences("eva", {"sft": f"{out}/sft"}, ["+profile=search"], out)
    assert values_of(preferred)[-3:] == [files, files, f"{out}/sft"]
    (cell,) = cells(("videozoomer",), (0,), ("chain",))
    with pytest.raises(Started) as started:
        run_cell(cell, out)
    assert f"{out}/sft" in values_of(started.value.args)


def result(variant: str, seed: int, after: float, **calls: float) -> dict[str, Any]:
    def measured(accuracy: float) -> dict[str, Any]:
        figures = {"accuracy": accuracy, "tool_calls": 1.0, "frames": 9.0, "illegal_calls": 0.0, "calls": calls}
        if variant == "no-behaviour-reward":
            figures["illogical"] = 0.25
        return {"sampled": figures, "greedy": figures}

    return {
        "system": "videobrain",
        "variant": variant,
        "seed": seed,
        "seconds": 300.0,
        "claim": "" if variant == "chain" else "calls follow the class",
        "beside": "chain",
        "seconds_before": {"build and SFT": 300.0},
        "budgets": {},
        "stages": {"base": measured(0.1), "sft": measured(0.5), "grpo": measured(after)},
        "curves": {key: [[1, 2], [0.5, after]] for key in report.PICTURED},
    }


def test_tables_by_hand(tmp_path: Path) -> None:
    results = [
        result("chain", 0, 0.7, active=1.0, direct=0.25),
        result("chain", 1, 0.9, active=1.0, direct=0.75),
        result("no-behaviour-reward", 1, 0.6, active=0.5, direct=0.5),
    ]
    # 70 and 90: mean 80, standard deviation 10 * sqrt(2)
    assert "| videobrain | GRPO | 2 | 80.0 ± 14.1 | 80.0 ± 14.1 | +20.0, +40.0 | 1.00 ± 0.00 |" in report.tables(
        results
    )
    # means of 1 and 1, of 0.25 and 0.75; there is no adaptive question
    assert "| videobrain | GRPO | 1.00 ± 0.00 |  | 0.50 ± 0.35 |" in report.class_table(results)
    # an ablation of one seed stands beside the chain of that seed: 60 of 90
    changed = "| videobrain | no-behaviour-reward | chain | 60.0 / 90.0 | -30.0 | 1.00 / 1.00 | 25.0 |"
    assert report.claim_table(results).splitlines()[2:] == [changed]
    assert report.draw(results, "videobrain", tmp_path / "v.png")
    assert (tmp_path / "v.png").stat().st_size > 5_000


def test_a_system_that_was_only_trained_in_the_other_world_has_no_curves_of_this_one(tmp_path: Path) -> None:
    results = [result("search", 0, 0.9), {**result("chain", 0, 0.9), "system": "eva"}]
    assert not report.draw(results, "videobrain", tmp_path / "v.png")
    assert not list(tmp_path.iterdir())


def test_gains_have_errors_over_the_questions_that_both_answered() -> None:
    def graded(seed: int, before: list[int] | None, after: list[int] | None) -> dict[str, Any]:
        shares = [sum(each) / 4 if each else 0.5 for each in (before, after)]
        stages = {
            stage: {"sampled": {"accuracy": share, "answers": answers}}
            for stage, share, answers in zip(("sft", "grpo"), shares, (before, after), strict=True)
        }
        return {**result("chain", seed, 0.9), "stages": stages}

    found = [
        graded(0, [0, 0, 1, 1], [0, 1, 1, 1]),
        graded(1, [0, 0, 0, 0], [1, 1, 1, 1]),
        graded(2, None, [1, 1, 1, 1]),
    ]
    # differences 0, 1, 0, 0: standard deviation 0.5, over sqrt(4); then all the same; then unknown
    assert report.gained(found, "sft", found, "grpo", "sampled") == "+25.0 (25.0), +100.0 (0.0), +50.0"


def test_a_pair_that_began_from_different_cold_starts_is_marked() -> None:
    def graded(variant: str, seed: int, before: list[int] | None, **more: Any) -> dict[str, Any]:
        one = result(variant, seed, 0.9)
        one["stages"]["sft"] = {
            kind: {**one["stages"]["sft"][kind], "answers": before} for kind in ("sampled", "greedy")
        }
        return {**one, **more}

    compared = [graded("chain", seed, [0, 1]) for seed in (0, 1, 2)]
    changed = [graded("other", 0, [0, 1]), graded("other", 1, [1, 0]), graded("other", 2, None)]
    # the same share is right, but not of the same questions; the third isn't known
    assert report.other_starts(changed, compared) == [1]
    assert "| other (seed 1: another cold start) | chain |" in report.claim_table([*compared, *changed])
    assert report.other_starts([{**one, "cold_start": "restless"} for one in changed], compared) == []


def test_search_has_a_row_for_each_changed_key(tmp_path: Path) -> None:
    def searched(variant: str, after: float) -> dict[str, Any]:
        one = result(variant, 1, after)
        looks = {"looks": 1.5, "first_follows": 1.0, "again": 0.5, "second_follows": None, "found": after}
        for kinds in one["stages"].values():
            for kind in kinds:
                kinds[kind] = {**kinds[kind], "searched": looks}
        curves = {key: [[1, 2], [0.5, after]] for key in report.SEARCHED if key != "second_follows"}
        return {**one, "beside": "search", "searched": curves}

    results = [searched("search", 0.9), searched("search-no-tool-reward", 0.6)]
    assert report.search_table(results).splitlines()[2:] == [
        "| videobrain | search | 1 | 50.0 to 90.0 | 50.0 to 90.0 | +40.0 | 90.0 |",
        "| videobrain | search-no-tool-reward | 1 | 50.0 to 60.0 | 50.0 to 60.0 | +10.0 | 60.0 |",
    ]
    assert not report.draw(results, "videobrain", tmp_path / "v.png")
    assert report.draw_search(results, tmp_path / "s.png")
    # over two steps the moving average is the mean of both: 0.7, then 0.85
    results[1]["searched"]["found"] = [[1, 2], [0.7, 1.0]]
    assert report.soon_table(results).splitlines()[2:] == [
        "| videobrain | search | 1 | - | - | - |",
        "| videobrain | search-no-tool-reward | 1 | - | - | 1 |",
    ]
    assert "| videobrain | search-no-tool-reward | search | 60.0 / 90.0 | -30.0 |" in report.claim_table(results)


def test_a_right_guess_is_no_episode_to_prefer() -> None:
    def record(number: int, second: float, acc: float) -> Record:
        look = Turn("", Calls(()), 1, observation=tuple(FrameRef(0, second + half, 28, 28) for half in (0.0, 0.5)))
        qa = VideoQA(str(number), "v.mp4", "Which?", "A", extra={"event_time": 45.0})
        return Record(qa, Trajectory(qa.id, "eva", (), (look,), EndReason.ANSWER), rewards={"acc": acc})

    found_right = [record(number, 45.0, 1.0) for number in range(10)]
    others = [record(10, 15.0, 1.0), record(11, 15.0, 0.0), record(12, 45.0, 0.0), *(record(13, 15.0, 0.0),) * 9]
    labels = [one.provenance["label"] for one in labelled([*others, *found_right])]
    # all 10 of the right ones, and 10 / 0.63 * 0.37 = 5.9 of the others
    assert labels == ["desirable"] * 10 + ["undesirable"] * 6


def test_other_budgets_by_hand() -> None:
    results: list[dict[str, Any]] = [
        {**result(variant, seed, 0.9), "budgets": {"4 frames": {"accuracy": accuracy}}}
        for variant, seed, accuracy in (("chain", 0, 0.7), ("chain", 1, 0.9), ("fixed", 1, 0.6))
    ]
    results.append(result("chain", 2, 0.9))  # of a seed that nobody measured so
    # and one that was measured with a budget that the others don't have
    results.append({**result("chain", 3, 0.9), "budgets": {"8 frames": {"accuracy": 0.5}}})
    lines = report.budget_table(results).splitlines()
    # of seed 1 alone: 60 less 90
    assert lines[2:] == [
        "| videobrain | chain | 4 frames | 2 | 80.0 ± 14.1 |  |",
        "| videobrain | chain | 8 frames | 1 | 50.0 |  |",
        "| videobrain | fixed | 4 frames | 1 | 60.0 | -30.0 |",
    ]


def test_nothing_finished(tmp_path: Path) -> None:
    assert "nothing" in report.write_report(tmp_path)


def test_what_was_published_from_elsewhere_stays(tmp_path: Path) -> None:
    out, docs = tmp_path / "out", tmp_path / "docs"
    docs.mkdir()
    (docs / "learning.md").write_text("words\n<!-- results -->\nold tables")
    for seed, after in ((0, 0.7), (1, 0.9)):
        name = f"videobrain-chain-{seed}"
        file = out / f"machine{seed}" / "cells" / name / "result.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({**result("chain", seed, after), "cell": name, "checkpoint": "/a/path"}))
        report.publish(out / f"machine{seed}", docs)
    text = (docs / "learning.md").read_text()
    assert text.startswith("words\n<!-- results -->\n## Every stage") and "old tables" not in text
    assert "| videobrain | GRPO | 2 | 80.0 ± 14.1 |" in text and "(learning-videobrain.png)" in text
    assert (docs / "learning-videobrain.png").is_file() and "/a/path" not in (docs / "learning.json").read_text()


@pytest.mark.parametrize("variant", [one for one in VARIANTS if one.cold_start], ids=lambda one: one.name)
def test_faulty_oracles_answer_right_all_the_same(variant: Variant) -> None:
    setting, recipe = laptop_setting(variant.system), WorldRecipe()
    turns = turns_of(setting.system, composed_oracle(variant))
    shown = {path_of(scene): scene for scene in scenes("demonstrations", 200, 0, recipe)}
    source = SceneSource(shown, recipe)

    async def played(path: str, scene: Scene) -> tuple[bool, bool, tuple[str, ...]]:
        qa = row_of(scene, path, "demonstrations")
        trajectory = await play(setting.system, oracle_policy(turns), qa, source)
        assert await setting.system.grade(trajectory, qa, Graders()) == 1.0
        failed = failed_checks(read_steps(trajectory), ConsistencyRules()) if variant.system == "framethinker" else ()
        return scene.event_time is not None, trajectory.tool_calls > 0, failed

    counted = Counter(asyncio.run(played(path, scene)) for path, scene in shown.items() if scene.beside is None)
    assert {called for needed, called, _ in counted if needed} == {True}
    fault = (True, True, ("fidelity",)) if variant.cold_start == "illogical" else (False, True, ())
    plain = (True, True, ()) if variant.cold_start == "illogical" else (False, False, ())
    assert 0.25 < counted[fault] / (counted[fault] + counted[plain]) < 0.55


def composed_oracle(variant: Variant) -> str:
    return toy_recipe(composed(variant.system, "laptop", *variant.built)).oracle
