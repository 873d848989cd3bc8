import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.synthesis.classes import SetOptions
from agentic_video.synthesis.classify import write_sets
from agentic_video.synthesis.jobs import JobOptions, open_job
from agentic_video.systems.videobrain.reward import question_class
from agentic_video.toyworld.questions import World
from agentic_video.types.record import load_records
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from tests.faulty_server import FaultyServer, Reply, Serve
from tests.synthesis.made import CHOICE, asks, brain
from tests.toyworld.conftest import recipe, small_world

__all__ = ["recipe", "small_world"]


def test_sets_are_disjoint_carry_classes_and_do_not_depend_on_the_order(tmp_path: Path) -> None:
    rows = [replace(CHOICE, id=f"q{number:02}") for number in range(60)]
    # three thirds: direct, adaptive, active
    base = {("test", qa.id): [brain("B", float(number % 3 == 0), 0, qa=qa)] for number, qa in enumerate(rows)}
    teacher = {("test", qa.id): [brain("B", 1.0, int(number % 3 == 2), qa=qa)] for number, qa in enumerate(rows)}
    shares = {"sft_shares": "adaptive=0.5,active=0.5", "rl_shares": "direct=0.5,adaptive=0.25,active=0.25"}
    options = SetOptions(sft_size=10, rl_size=20, **shares)
    chosen = []
    for name, order in (("a", rows), ("b", rows[::-1])):
        with open_job(JobOptions(out=tmp_path / name), {}, "classification") as job:
            more = write_sets(job, order, {"base": base, "teacher": teacher}, options)
        assert (more["direct"], more["adaptive"], more["active"]) == (20, 20, 20)
        assert more["RL set, direct"] == "10 (50.0 %)"
        sft, problems = load_records([tmp_path / name / "sft.jsonl"])
        rl = [VideoQA.from_row(json.loads(line)) for line in (tmp_path / name / "rl.jsonl").read_text().splitlines()]
        assert not problems and not {record.qa.id for record in sft} & {qa.id for qa in rl}
        assert Counter(question_class(record.qa) for record in sft) == {"adaptive": 5, "active": 5}
        assert Counter(map(question_class, rl)) == {"direct": 10, "adaptive": 5, "active": 5}
        chosen.append(([record.qa.id for record in sft], [qa.id for qa in rl]))
    assert chosen[0] == (chosen[1][0][::-1], chosen[1][1][::-1])


# the command, with real servers, videos and processes


def letter_of(body: dict[str, Any], right: bool) -> str:
    """The letter of the right option, which the test's rows name in their question, or another one."""
    text = json.dumps(body["messages"])
    found = re.search(r"\(gold ([A-Z])\)", text)
    assert found
    return found[1] if right else ("B" if found[1] == "A" else "A")


def number_of(body: dict[str, Any]) -> int:
    found = re.search(r"number (\d+)", json.dumps(body["messages"]))
    assert found
    return int(found[1])


def base_says(body: dict[str, Any], request: int) -> Reply:
    """Right on every third question."""
    assert "uniform_sample" not in json.dumps(body["messages"]), "the base model hears of no tools"
    return Reply(f"<thinking>hm</thinking><answer>{letter_of(body, number_of(body) % 3 == 0)}</answer>")


def teacher_says(body: dict[str, Any], request: int) -> Reply:
    """Right always; looks once at every third question from the third on."""
    if number_of(body) % 3 == 2 and len(body["messages"]) == 2:
        return Reply(asks())
    return Reply(f"<thinking>hm</thinking><answer>{letter_of(body, True)}</answer>")


@pytest.fixture
def data(tmp_path: Path, small_world: World) -> Path:
    file = tmp_path / "rows.jsonl"
    with file.open("w") as lines:
        for number, qa in enumerate(load_rows([small_world.heldout])[0][:9]):
            asked = replace(qa, id=f"r{number}", question=f"{qa.question} number {number} (gold {qa.answer})")
            lines.write(json.dumps(asked.to_row()) + "\n")
    return file


SIZES = ("--sft-size", "4", "--sft-shares", "adaptive=0.5,active=0.5")
SIZES += ("--rl-size", "6", "--rl-shares", "direct=0.34,adaptive=0.33,active=0.33")


def command(data: Path, out: Path, base: FaultyServer, teacher: FaultyServer, *more: str) -> list[str]:
    models = ["--base", base.url, "--base-name", "small", "--teacher", teacher.url, "--teacher-name", "large"]
    return ["classify", "--profile", "laptop", "--data", str(data), "--out", str(out), *models, *SIZES, *more]


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("classified.jsonl", "rl.jsonl", "report.json")}


def sft_of(folder: Path) -> list[tuple[VideoQA, Trajectory]]:
    """Without what a replay changes: how long it took."""
    return [(record.qa, record.trajectory) for record in load_records([folder / "sft.jsonl"])[0]]


@pytest.mark.slow
def test_both_models_play_and_sets_come_out(
    tmp_path: Path, data: Path, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    base, teacher = serve(base_says), serve(teacher_says)
    assert main(command(data, tmp_path / "out", base, teacher)) == 0
    assert len(base.bodies) == 9 and len(teacher.bodies) == 12
    verdicts = [json.loads(line) for line in (tmp_path / "out" / "classified.jsonl").read_text().splitlines()]
    assert [line["verdict"] for line in verdicts] == ["direct", "adaptive", "active"] * 3
    assert verdicts[2]["teacher"] == {"right": True, "used_tools": True, "samples": 1, "right_samples": 1}
    sft, problems = load_records([tmp_path / "out" / "sft.jsonl"])
    # 3 of the 4 adaptive rows that both sets want: a factor of 0.75
    assert not problems and Counter(question_class(record.qa) for record in sft) == {"adaptive": 1, "active": 1}
    assert all(record.provenance["model"] == "large" for record in sft)
    rl, problems = load_rows([tmp_path / "out" / "rl.jsonl"])
    assert not problems and Counter(map(question_class, rl)) == {"direct": 1, "adaptive": 1, "active": 1}
    assert "run_grpo.sh" in capsys.readouterr().out
    # nothing is asked again
    before = outputs(tmp_path / "out")
    assert main(command(data, tmp_path / "out", base, teacher)) == 0
    assert len(base.bodies) == 9 and len(teacher.bodies) == 12 and outputs(tmp_path / "out") == before
    # another draw from the same answers
    assert main(command(data, tmp_path / "out", base, teacher, "--fill", "--rl-size", "9")) == 0
    assert len(load_rows([tmp_path / "out" / "rl.jsonl"])[0]) > 3


@pytest.mark.slow
def test_the_base_model_may_see_the_plain_baselines_frames(tmp_path: Path, data: Path, serve: Serve) -> None:
    base, teacher = serve(base_says), serve(teacher_says)
    assert main(command(data, tmp_path / "out", base, teacher, "--base-frames", "3")) == 0
    assert len(base.bodies) == 9
    for body in base.bodies:
        (user,) = body["messages"]
        assert [part["type"] for part in user["content"]].count("image_url") == 3
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert (settings["base"]["system"]["class"], settings["teacher"]["system"]["class"]) == ("Baseline", "VideoBrain")


@pytest.mark.slow
def test_evaluations_give_the_same_sets(tmp_path: Path, data: Path, serve: Serve) -> None:
    base, teacher = serve(base_says), serve(teacher_says)
    assert main(command(data, tmp_path / "out", base, teacher)) == 0
    for name, server, more in (("base", base, ["--no-tools"]), ("teacher", teacher, [])):
        model = ["--model", server.url, "--model-name", name, "--out", str(tmp_path / name)]
        assert main(["eval", "--system", "videobrain", "--profile", "laptop", "--data", str(data), *model, *more]) == 0
    folders = ["--base-results", str(tmp_path / "base"), "--teacher-results", str(tmp_path / "teacher")]
    assert main(["classify", *folders, "--out", str(tmp_path / "again"), *SIZES]) == 0
    before, after = outputs(tmp_path / "out"), outputs(tmp_path / "again")
    assert before["classified.jsonl"] == after["classified.jsonl"] and before["rl.jsonl"] == after["rl.jsonl"]
    assert sft_of(tmp_path / "out") == sft_of(tmp_path / "again")
    assert len(sft_of(tmp_path / "again")) == 2


def test_a_server_that_fails_leaves_rows_for_the_next_start(
    tmp_path: Path, data: Path, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [True]

    def unsteady(body: dict[str, Any], request: int) -> Reply:
        if broken[0] and number_of(body) == 4:
            return Reply(status=401)
        return teacher_says(body, request)

    base, teacher = serve(base_says), serve(unsteady)
    assert main(command(data, tmp_path / "out", base, teacher)) == 1
    assert "not classified: an answer is missing" in capsys.readouterr().out
    broken[0] = False
    assert main(command(data, tmp_path / "out", base, teacher)) == 0
    verdicts = [
        json.loads(line)["verdict"] for line in (tmp_path / "out" / "classified.jsonl").read_text().splitlines()
    ]
    assert verdicts == ["direct", "adaptive", "active"] * 3
