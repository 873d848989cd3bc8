"""Whole evaluations: one that is killed and resumed, unplayable rows, parts and variants."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.evaluation.ablations import without_tools
from agentic_video.evaluation.baseline import Baseline
from agentic_video.evaluation.evaluate import PartResult, evaluate, parts_of, read_rows, variant_of
from agentic_video.evaluation.options import EvalOptions, Variant
from agentic_video.evaluation.results import NO_VIDEO, SAME_ID, SAME_ROW, UNREADABLE, finished, read_settings
from agentic_video.evaluation.sweep import Point
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.toyworld.questions import World
from agentic_video.utils.errors import SetupError
from tests.evaluation.conftest import RECIPES, command
from tests.evaluation.scripted import named
from tests.faulty_server import Reply, Serve

LIMITS = TokenLimits(prompt=8_000, response=8_000, turn=4_000)


def options(data: tuple[Path, ...], out: Path, **changes: Any) -> EvalOptions:
    """An evaluation of scripted agents that always know."""
    played = {"recipe": RECIPES / "videozoomer", "profile": "laptop", "model": "nothing"}
    return EvalOptions(**{**played, "engine": named("OracleBackend"), "data": data, "out": out, **changes})


def lines(out: Path) -> list[dict[str, Any]]:
    """The whole lines of all journals."""
    whole = [line for file in out.glob("episodes-*.jsonl") for line in file.read_bytes().split(b"\n")[:-1]]
    return [json.loads(line) for line in whole]


@pytest.mark.slow
def test_killed_and_started_again(checkpoint: Path, small_world: World, tmp_path: Path, capsys: Any) -> None:
    data, out = Path(small_world.heldout), tmp_path / "out"
    slow = command(checkpoint, data, out, "--concurrency", "1")
    python = [sys.executable, "-m", "agentic_video.cli"]
    with subprocess.Popen([*python, *slow], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        while len(lines(out)) < 3 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    journal_file = out / "episodes-000.jsonl"
    before = journal_file.read_bytes()
    rows = load_rows([data])[0]
    assert 3 <= len(lines(out)) < len(rows), "it was killed in the middle"
    journal_file.write_bytes(before + b'{"version": 1, "video_qa": {"id"')

    again = subprocess.run([*python, *slow], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    played = [line["video_qa"]["id"] for line in lines(out)]
    assert sorted(played) == sorted(qa.id for qa in rows), "each question exactly once"
    whole = before[: before.rfind(b"\n") + 1]
    assert journal_file.read_bytes().startswith(whole), "no episode was played again"
    result = json.loads((out / "report.json").read_text())
    assert result["episodes"] == len(rows) and result["failed"] == 0
    assert sum(result["ends"].values()) == len(rows)

    # a third time there is nothing to do: not even the model is loaded
    assert main(command(checkpoint, data, out, "--concurrency", "1")) == 0
    assert main(command(checkpoint, data, out, "agentic_video.system.max_turns=2")) == 2
    assert "system.max_turns" in capsys.readouterr().err


def test_an_unreadable_video_is_reported_and_tried_again(
    checkpoint: Path, small_world: World, tmp_path: Path, capsys: Any
) -> None:
    rows = [qa.to_row() for qa in load_rows([small_world.heldout])[0][:3]]
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    good, rows[1]["video"] = rows[1]["video"], str(broken)
    data, out = tmp_path / "rows.jsonl", tmp_path / "out"
    data.write_text("\n".join(json.dumps(row) for row in [*rows, {"id": "half"}]) + "\n")
    assert main(command(checkpoint, data, out)) == 1
    assert len(lines(out)) == 2
    result = json.loads((out / "report.json").read_text())
    assert (result["asked"], result["episodes"], result["failed"], result["left_out"]["rows"]) == (4, 2, 1, 1)
    assert "broken.mp4" in capsys.readouterr().out
    # once the file is there, the same command plays what is missing; the broken row is still there
    broken.write_bytes(Path(good).read_bytes())
    assert main(command(checkpoint, data, out)) == 1
    assert len(lines(out)) == 3
    result = json.loads((out / "report.json").read_text())
    assert (result["asked"], result["episodes"], result["failed"], result["left_out"]["rows"]) == (4, 3, 0, 1)
    assert result["left_out"]["by_reason"] == {UNREADABLE: 1}
    data.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    assert main(command(checkpoint, data, out)) == 0
    assert json.loads((out / "report.json").read_text())["asked"] == 3


def test_missing_videos_and_duplicates_are_in_every_report_of_a_sweep(small_world: World, tmp_path: Path) -> None:
    rows = [qa.to_row() for qa in load_rows([small_world.heldout])[0][:2]]
    gone = {**rows[0], "id": "gone", "video": "no-such.mp4"}
    other = {**rows[0], "question": "another question under the same id?"}
    data, out = tmp_path / "rows.jsonl", tmp_path / "out"
    data.write_text("".join(json.dumps(row) + "\n" for row in [*rows, gone, other, rows[1]]))
    asked = options((data,), out, sweep=("calls", "1,2"))
    results = evaluate(asked)
    for result in results:
        # both right, of two that were played and four that were asked for: the last row is the second once more
        assert result.figures["official"]["mean"] == 1.0 and result.figures["official_unplayed_wrong"] == 0.5
        assert result.figures["left_out"]["by_reason"] == {NO_VIDEO: 1, SAME_ID: 1, SAME_ROW: 1}
        assert (result.missing, result.excluded, result.complete) == (0, 3, False)
    assert [result.part.folder.name for result in results] == ["calls-agent-001", "calls-agent-002"]
    assert [point.value for result in results if (point := result.point)] == [1, 2]
    assert (out / "sweep-calls.png").is_file()
    # with a limit that cuts something they might not have been asked for: they count nowhere
    (limited,) = evaluate(replace(asked, sweep=None, out=tmp_path / "one", limit=1))
    assert (limited.figures["asked"], limited.figures["official_unplayed_wrong"], limited.excluded) == (1, 1.0, 3)
    assert not limited.complete and limited.figures["left_out"]["counted_wrong"] == 0
    # one that cuts nothing is none
    rows_read, excluded = read_rows(replace(asked, limit=2))
    assert len(rows_read) == 2 and sum(row.asked for row in excluded) == 2


def test_a_submission_has_the_questions_whose_rows_were_left_out(small_world: World, tmp_path: Path) -> None:
    (qa,) = load_rows([small_world.heldout])[0][:1]
    row = {
        **qa.to_row(),
        "data_source": "ego",
        "options": list("vwxyz"),
        "answer_type": "multiple_choice",
        "answer": "",
    }
    videos = {"u1": row["video"], "u2": "gone: it is.mp4", "u3": str(tmp_path / "broken.mp4")}
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    rows = [
        {**row, "id": f"ego-{name}", "video": video, "extra_info": {"answer_hidden": True, "original_id": name}}
        for name, video in videos.items()
    ]
    data, says = tmp_path / "ego: all" / "rows.jsonl", tmp_path / "says.json"
    data.parent.mkdir()
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    says.write_text(json.dumps({row["id"]: ["<answer>C</answer>"] for row in rows}))
    asked = options((data,), tmp_path / "out", baseline=2)
    (result,) = evaluate(replace(asked, model=str(says), engine=named("FileBackend")))
    assert (result.missing, result.excluded) == (1, 1)
    assert json.loads((tmp_path / "out" / "submission-ego.json").read_text()) == {"u1": 2, "u2": -1, "u3": -1}


def test_a_library_call_gives_figures_and_resumes(small_world: World, tmp_path: Path) -> None:
    asked = options((small_world.heldout,), tmp_path, limit=3)
    (first,) = evaluate(asked)
    assert (first.figures["episodes"], first.missing, first.part.folder) == (3, 0, tmp_path)
    assert first.figures["official"]["mean"] == 1.0 and first.point is None
    before = lines(tmp_path)
    (second,) = evaluate(replace(asked, limit=5))
    assert second.figures["episodes"] == 5 and lines(tmp_path)[:3] == before
    # fewer again: the report is about these, the journal keeps all
    (third,) = evaluate(replace(asked, limit=2))
    assert third.figures["episodes"] == 2 and len(finished(tmp_path)[0]) == 5


def test_corrected_rows_are_graded_again_or_played_again(small_world: World, tmp_path: Path) -> None:
    rows = [qa.to_row() for qa in load_rows([small_world.heldout])[0] if qa.answer_type == "multiple_choice"][:4]
    data, out, says = tmp_path / "rows.jsonl", tmp_path / "out", tmp_path / "says.json"

    def evaluated(**say: str) -> PartResult:
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        says.write_text(json.dumps({row["id"]: [f"<answer>{say.get(row['id'], 'A')}</answer>"] for row in rows}))
        asked = options((data,), out, baseline=2)
        (result,) = evaluate(replace(asked, model=str(says), engine=named("FileBackend")))
        return result

    for row in rows:
        row["answer"] = "A"
    assert evaluated().figures["official"]["mean"] == 1.0
    # another gold: the agent isn't asked
    rows[0]["answer"], says_b = "B", {rows[1]["id"]: "B"}
    result = evaluated(**says_b)
    assert (result.figures["official"]["mean"], result.figures["robust"]["mean"], result.complete) == (0.75, 0.75, True)
    assert len(lines(out)) == 5 and len(finished(out)[0]) == 4
    # another question: the agent answers again
    rows[1]["question"] += " Really?"
    result = evaluated(**says_b)
    assert (result.figures["official"]["mean"], result.figures["episodes"], result.complete) == (0.5, 4, True)
    # nothing is done twice
    assert evaluated(**says_b).figures["official"]["mean"] == 0.5 and len(lines(out)) == 6
    # and as it was
    rows[0]["answer"] = "A"
    assert evaluated().figures["official"]["mean"] == 0.75 and len(lines(out)) == 7


def test_a_corrected_question_that_cannot_be_played_has_no_grade(small_world: World, tmp_path: Path) -> None:
    row = load_rows([small_world.heldout])[0][0].to_row()
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps(row) + "\n")
    asked = options((data,), tmp_path / "out")
    assert evaluate(asked)[0].figures["episodes"] == 1
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    data.write_text(json.dumps({**row, "video": str(broken)}) + "\n")
    (result,) = evaluate(asked)
    assert (result.figures["episodes"], result.figures["failed"], result.missing) == (0, 1, 1)


def test_a_judge_is_asked_again_for_missing_grades(small_world: World, tmp_path: Path, serve: Serve) -> None:
    known = {"answer_type": "open_ended", "options": []}
    rows = [{**qa.to_row(), **known, "id": str(n)} for n, qa in enumerate(load_rows([small_world.heldout])[0][:3])]
    data, out, says = tmp_path / "rows.jsonl", tmp_path / "out", tmp_path / "says.json"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    says.write_text(json.dumps({row["id"]: ["<answer>a dog</answer>"] for row in rows}))
    asked = options((data,), out, concurrency=1, baseline=2)
    asked = replace(asked, model=str(says), engine=named("FileBackend"))
    # without a judge everything is done that can be
    (result,) = evaluate(asked)
    assert (result.figures["ungraded"], result.complete) == (3, True)
    # with one the recorded episodes are graded: one reply can't be read
    replies = ["1", "0", "no idea"]
    server = serve(lambda body, number: Reply(replies[min(number, 2)]), [{"id": "j"}])
    judge = {"base_url": server.url, "model": "j", "max_retries": 0}
    asked = replace(asked, overrides=tuple(f"agentic_video.judge.{key}={value}" for key, value in judge.items()))
    (result,) = evaluate(asked)
    assert (result.figures["official"]["mean"], result.figures["ungraded"]) == (0.5, 1)
    assert (result.missing, result.ungraded, result.complete) == (0, 1, False)
    assert len(lines(out)) == 5, "only new grades are written"
    # the same command again
    replies[:] = ["1"] * 3
    (result,) = evaluate(asked)
    assert result.figures["official"]["mean"] == pytest.approx(2 / 3) and result.complete
    assert len(finished(out)[0]) == 3 and len(lines(out)) == 6
    server.stop()
    assert evaluate(asked)[0].complete


def test_a_judge_that_is_needed_must_answer_before_anything_is_played(
    small_world: World, tmp_path: Path, serve: Serve
) -> None:
    (qa,) = load_rows([small_world.heldout])[0][:1]
    data, out = tmp_path / "rows.jsonl", tmp_path / "out"
    data.write_text(json.dumps({**qa.to_row(), "answer_type": "open_ended", "options": []}) + "\n")
    judge = "agentic_video.judge.base_url=http://127.0.0.1:9/v1"
    asked = options((data,), out, overrides=(judge, "agentic_video.judge.model=j"))
    with pytest.raises(SetupError) as caught:
        evaluate(asked)
    assert caught.value.key == "agentic_video.judge.base_url" and not out.exists()
    # an address alone is no judge
    evaluate(replace(asked, overrides=(judge,)))
    # a judge that is gone later doesn't stop a resumed evaluation
    server = serve(lambda body, number: Reply("1"), [{"id": "other"}])
    elsewhere = tmp_path / "elsewhere"
    there = replace(asked, out=elsewhere, overrides=(f"agentic_video.judge.base_url={server.url}", asked.overrides[1]))
    evaluate(there)
    server.stop()
    assert evaluate(there)[0].complete
    # without open questions it isn't asked
    evaluate(replace(asked, data=(Path(small_world.heldout),), limit=1, out=tmp_path / "choices"))


def test_a_sweep_is_drawn_without_another_model_s_points(
    small_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, list[int]]] = []

    def noted(kind: str, curves: Mapping[str, Sequence[Point]], *more: Any) -> None:
        drawn.append({name: [point.value for point in points] for name, points in curves.items()})

    monkeypatch.setattr("agentic_video.evaluation.evaluate.draw", noted)
    asked = options((small_world.heldout,), tmp_path, limit=1, sweep=("calls", "1,2"))
    evaluate(asked)
    other = replace(asked, model="something")
    evaluate(replace(other, sweep=("calls", "3")))
    evaluate(replace(asked, sweep=("calls", "4")))
    assert drawn == [{"agent": [1, 2]}, {"agent": [3]}, {"agent": [1, 2, 4]}]
    with pytest.raises(SetupError, match="model"):
        evaluate(other)


def test_required_frames_of_a_sweep(small_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = load_rows([small_world.heldout])[0][:2]
    says = tmp_path / "says.json"
    says.write_text(json.dumps({first.id: [f"<answer>{first.answer}</answer>"], second.id: ["<answer>none</answer>"]}))
    out = tmp_path / "out"
    asked = options((small_world.heldout,), out, limit=2, baseline=16)
    asked = replace(asked, model=str(says), engine=named("FileBackend"), sweep=("frames", "0,1"))
    evaluate(asked)
    assert not (out / "required-frames.json").exists()
    # where one frame is the most, both numbers were played
    monkeypatch.setattr("agentic_video.evaluation.required_frames.MOST", 1)
    evaluate(asked)
    assert json.loads((out / "required-frames.json").read_text())["without"] == 0.5
    with pytest.raises(SetupError) as caught:
        evaluate(replace(asked, baseline=None))
    assert caught.value.key == "--sweep"


def test_a_model_and_rows_are_needed(small_world: World, tmp_path: Path) -> None:
    asked = options((small_world.heldout,), tmp_path)
    for lacking in (replace(asked, data=()), replace(asked, model="")):
        with pytest.raises(SetupError, match="--model"):
            evaluate(lacking)
    assert not list(tmp_path.iterdir())


def test_a_folder_belongs_to_the_model_behind_the_address(small_world: World, tmp_path: Path, serve: Serve) -> None:
    models = [{"id": "policy", "root": "/checkpoints/step_100"}, {"id": "other"}]
    server = serve(lambda body, number: Reply("<answer>A</answer>"), models)
    asked = options((small_world.heldout,), tmp_path, limit=1, baseline=2)
    asked = replace(asked, model=server.url, engine="chat", model_name="policy")
    evaluate(asked)
    found = read_settings(tmp_path)
    assert (found["model_name"], found["model_root"], found["engine"]) == ("policy", "/checkpoints/step_100", "chat")
    evaluate(asked)
    with pytest.raises(SetupError) as caught:
        evaluate(replace(asked, model_name="other"))
    assert caught.value.key == "model_name"
    models[0]["root"] = "/checkpoints/step_200"
    with pytest.raises(SetupError) as caught:
        evaluate(asked)
    assert caught.value.key == "model_root"
    # where nothing is left to play, no server is needed
    server.stop()
    assert evaluate(asked)[0].complete and read_settings(tmp_path) == found


def test_a_folder_belongs_to_what_its_results_depend_on(small_world: World, tmp_path: Path) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Look, and answer in <answer>tags</answer>.")
    judge = ("agentic_video.judge.base_url=http://127.0.0.1:9/v1", "agentic_video.judge.model=j")
    asked = options((small_world.heldout,), tmp_path / "out", limit=1)
    asked = replace(asked, overrides=(f"agentic_video.system.prompt={prompt}", *judge))
    evaluate(asked)
    elsewhere = "agentic_video.judge.base_url=http://127.0.0.2:9/v1"
    evaluate(replace(asked, concurrency=1, overrides=(*asked.overrides, elsewhere)))
    retrieval = (f"agentic_video.retrieval.model='local-dir:{tmp_path}'",)
    engine = named("CountingBackend")
    for changed, key in (
        (replace(asked, overrides=(*asked.overrides, "agentic_video.judge.model=k")), "judge"),
        (
            replace(asked, overrides=(*asked.overrides, "agentic_video.frame_store.backend=decord")),
            "frame_store.backend",
        ),
        (replace(asked, overrides=(*asked.overrides, *retrieval)), "retrieval.model"),
        (replace(asked, engine=engine), "engine"),
        (asked, f"prompts.{prompt}"),
    ):
        if changed is asked:
            prompt.write_text("Look again.")
        with pytest.raises(SetupError) as caught:
            evaluate(changed)
        assert caught.value.key == key


def test_variants_of_a_system() -> None:
    zoomer = VideoZoomer()
    assert variant_of(zoomer, Variant(), tiny=False) == (zoomer, "videozoomer")
    assert variant_of(zoomer, Variant("no-tools"), tiny=False) == (without_tools(zoomer), "videozoomer without tools")
    baseline, title = variant_of(zoomer, Variant("baseline", 8), tiny=False)
    assert isinstance(baseline, Baseline) and baseline.frames == 8 and title == "baseline of 8 frames"
    thinking, title = variant_of(zoomer, Variant("baseline", 8, "baseline_cot"), tiny=False)
    assert thinking == replace(baseline, prompt="baseline_cot") and title == "baseline_cot of 8 frames"
    for frames in (-1, 100_000_001):
        with pytest.raises(ValueError, match=str(frames)):
            variant_of(zoomer, Variant("baseline", frames), tiny=False)


def test_parts_have_folders_titles_and_budgets_of_their_own(tmp_path: Path) -> None:
    once = options((), tmp_path)
    (part,) = parts_of(once, VideoZoomer(), LIMITS, tiny=False)
    assert (part.folder, part.title, part.value, part.limits) == (tmp_path, "videozoomer", None, LIMITS)
    many = replace(once, no_tools=True, sweep=("frames", "4,16"))
    parts = parts_of(many, VideoZoomer(), LIMITS, tiny=False)
    assert [part.folder.name for part in parts] == ["frames-no-tools-004", "frames-no-tools-016"]
    assert [part.title for part in parts] == ["videozoomer, frames 4", "videozoomer, frames 16"]
    assert parts[0].system == without_tools(VideoZoomer(overview_max_frames=4))
    assert all(part.limits == TokenLimits(prompt=13_952, response=2_048, turn=2_048) for part in parts)
