import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.synthesis.classify import (
    DROPPED_WITH,
    DROPPED_WITHOUT,
    Options,
    Quota,
    Side,
    class_of,
    demonstration,
    set_sizes,
    shares,
    side_of,
    write_sets,
)
from agentic_video.synthesis.jobs import open_job
from agentic_video.systems.videobrain.reward import question_class
from agentic_video.toyworld.questions import World
from agentic_video.types.action import Answer, Calls, ToolCall
from agentic_video.types.record import Record, load_records
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory, Turn
from tests.faulty_server import FaultyServer, Reply
from tests.synthesis.made import CHOICE, look, record
from tests.toyworld.conftest import recipe, small_world

__all__ = ["recipe", "small_world"]


def side(right: bool, used_tools: bool = False) -> Side:
    return Side(right, used_tools, 1, int(right))


@pytest.mark.parametrize(
    ("base", "teacher", "tools", "expected"),
    [
        (True, True, False, "direct"),
        (True, True, True, "direct"),
        (False, True, False, "adaptive"),
        (False, True, True, "active"),
        (False, False, False, "active"),
        (False, False, True, "active"),
        (True, False, True, DROPPED_WITH),
        (True, False, False, DROPPED_WITHOUT),
    ],
)
def test_the_classes_are_the_papers(base: bool, teacher: bool, tools: bool, expected: str) -> None:
    assert class_of(side(base), side(teacher, tools)) == expected
    with_slip = "direct" if expected == DROPPED_WITHOUT else expected
    assert class_of(side(base), side(teacher, tools), "direct") == with_slip


def sample(acc: float, calls: int = 0) -> Record:
    return record([look(0, 9)] * calls, rewards={"acc": acc})


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([sample(1.0)], Side(True, False, 1, 1)),
        ([sample(0.9, 1)], Side(False, True, 1, 0)),  # a fraction is a wrong answer
        ([sample(1.0), sample(0.0, 1)], Side(False, True, 2, 1)),  # a tie isn't right
        ([sample(1.0), sample(1.0), sample(0.0, 1)], Side(True, False, 3, 2)),
        ([sample(1.0, 1), sample(1.0), sample(0.0)], Side(True, True, 3, 2)),
    ],
)
def test_the_majority_of_samples_counts(samples: list[Record], expected: Side) -> None:
    assert side_of(samples, right_from=1.0) == expected
    assert side_of([*samples, replace(samples[0], rewards={})], right_from=1.0) is None
    assert side_of([], right_from=1.0) is None


def test_plenty_of_rows_gives_the_papers_sets() -> None:
    plenty = dict.fromkeys(("direct", "adaptive", "active"), 10_000)
    sft, rl = set_sizes(plenty, plenty, Options().sft, Options().rl)  # type: ignore[arg-type]
    assert sft == {"direct": 0, "adaptive": 677, "active": 923}
    assert rl == {"direct": 2874, "adaptive": 518, "active": 3008}


def test_scarce_rows_shrink_both_sets_and_shares_hold() -> None:
    sft, rl = Quota(100, {"adaptive": 0.4, "active": 0.6}), Quota(400, {"direct": 0.5, "adaptive": 0.1, "active": 0.4})
    rows = {"direct": 1000, "adaptive": 40, "active": 1000}
    # adaptive: 40 of the 40 + 40 that are wanted
    halves = ({"direct": 0, "adaptive": 20, "active": 30}, {"direct": 100, "adaptive": 20, "active": 80})
    assert set_sizes(rows, rows, sft, rl) == halves  # type: ignore[arg-type]
    # 10 of the 40 trajectories that are wanted
    quarters = ({"direct": 0, "adaptive": 10, "active": 15}, {"direct": 50, "adaptive": 10, "active": 40})
    usable = {"adaptive": 10, "active": 900}
    assert set_sizes(rows, usable, sft, rl) == quarters  # type: ignore[arg-type]
    filled = ({"direct": 0, "adaptive": 10, "active": 60}, {"direct": 200, "adaptive": 30, "active": 160})
    assert set_sizes(rows, usable, sft, rl, fill=True) == filled  # type: ignore[arg-type]
    assert set_sizes({"direct": 5}, {}, sft, rl)[1] == {"direct": 0, "adaptive": 0, "active": 0}


def test_shares_are_checked() -> None:
    assert shares("adaptive=0.25, active=0.75") == {"adaptive": 0.25, "active": 0.75}
    for bad in ("adaptive=0.5", "easy=1", "active=0.5,active=0.5", "active=2", "active"):
        with pytest.raises((argparse.ArgumentTypeError, ValueError)):
            shares(bad)


CALL = ToolCall("uniform_sample", {"start_frame": 0, "end_frame": 50})
ASKS = (
    "<thinking>more</thinking>"
    '<tool_call>{"name": "uniform_sample", "arguments": {"start_frame": 0, "end_frame": 50}}</tool_call>'
)


def brain(
    letter: str, acc: float, calls: int = 1, think: str = "<thinking>so</thinking>", qa: VideoQA = CHOICE
) -> Record:
    turns = [Turn(ASKS, Calls((CALL,)), 9, legal_calls=1)] * calls
    turns.append(Turn(f"{think}<answer>{letter}</answer>", Answer(letter), 9))
    made = record(answer=letter, qa=qa, system="videobrain", rewards={"acc": acc})
    return replace(made, trajectory=replace(made.trajectory, turns=tuple(turns)))


def test_the_demonstration_is_right_and_passes_the_gate() -> None:
    wrong, sloppy, good = brain("A", 0.0), brain("B", 1.0, think=""), brain("B", 1.0)
    repeats = brain("B", 1.0, calls=2)
    assert demonstration([wrong, sloppy, repeats, good], 1.0, wrong_too=False, margin=1) == good
    assert demonstration([wrong, sloppy, repeats], 1.0, wrong_too=False, margin=1) is None
    assert demonstration([sloppy, wrong], 1.0, wrong_too=True, margin=1) == wrong
    other = record(rewards={"acc": 1.0})
    assert demonstration([other], 1.0, wrong_too=False, margin=1) == other


def test_sets_are_disjoint_carry_classes_and_do_not_depend_on_the_order(tmp_path: Path) -> None:
    rows = [replace(CHOICE, id=f"q{number:02}") for number in range(60)]
    # three thirds: direct, adaptive, active
    base = {("test", qa.id): [brain("B", float(number % 3 == 0), 0, qa=qa)] for number, qa in enumerate(rows)}
    teacher = {("test", qa.id): [brain("B", 1.0, int(number % 3 == 2), qa=qa)] for number, qa in enumerate(rows)}
    options = Options(sft=Quota(10, {"adaptive": 0.5, "active": 0.5}),
                      rl=Quota(20, {"direct": 0.5, "adaptive": 0.25, "active": 0.25}))  # fmt: skip
    chosen = []
    for name, order in (("a", rows), ("b", rows[::-1])):
        with open_job(tmp_path / name, {}, "classification") as job:
            more = write_sets(job, order, {"base": base, "teacher": teacher}, options)
        assert (more["direct"], more["adaptive"], more["active"]) == (20, 20, 20)
        assert more["RL set, direct"] == "10 (50.0 %)"
        sft, problems = load_records([tmp_path / name / "sft.jsonl"])
        rl = [VideoQA.from_row(json.loads(line)) for line in (tmp_path / name / "rl.jsonl").read_text().splitlines()]
        assert not problems and not {one.qa.id for one in sft} & {qa.id for qa in rl}
        assert Counter(question_class(one.qa) for one in sft) == {"adaptive": 5, "active": 5}
        assert Counter(map(question_class, rl)) == {"direct": 10, "adaptive": 5, "active": 5}
        chosen.append(([one.qa.id for one in sft], [qa.id for qa in rl]))
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
        return Reply(ASKS)
    return Reply(f"<thinking>hm</thinking><answer>{letter_of(body, True)}</answer>")


Serve = Callable[[Callable[[dict[str, Any], int], Reply]], FaultyServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[FaultyServer] = []

    def start(script: Callable[[dict[str, Any], int], Reply]) -> FaultyServer:
        servers.append(FaultyServer(script))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def data(tmp_path: Path, small_world: World) -> Path:
    file = tmp_path / "rows.jsonl"
    with file.open("w") as lines:
        for number, qa in enumerate(load_rows([small_world.heldout])[0][:9]):
            asked = replace(qa, id=f"r{number}", question=f"{qa.question} number {number} (gold {qa.answer})")
            lines.write(json.dumps(asked.to_row()) + "\n")
    return file


def command(data: Path, out: Path, base: FaultyServer, teacher: FaultyServer, *more: str) -> list[str]:
    sizes = ["--sft-size", "4", "--sft-shares", "adaptive=0.5,active=0.5", "--rl-size", "6", "--rl-shares",
             "direct=0.34,adaptive=0.33,active=0.33"]  # fmt: skip
    return ["classify", "--profile", "laptop", "--data", str(data), "--out", str(out), "--base", base.url,
            "--base-name", "small", "--teacher", teacher.url, "--teacher-name", "large", *sizes, *more]  # fmt: skip


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("classified.jsonl", "rl.jsonl", "report.json")}


def sft_of(folder: Path) -> list[tuple[VideoQA, Trajectory]]:
    """Without what a replay changes: how long it took."""
    return [(one.qa, one.trajectory) for one in load_records([folder / "sft.jsonl"])[0]]


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
    assert not problems and Counter(question_class(one.qa) for one in sft) == {"adaptive": 1, "active": 1}
    assert all(one.provenance["model"] == "large" for one in sft)
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


def test_evaluations_give_the_same_sets(tmp_path: Path, data: Path, serve: Serve) -> None:
    base, teacher = serve(base_says), serve(teacher_says)
    assert main(command(data, tmp_path / "out", base, teacher)) == 0
    for name, server, more in (("base", base, ["--no-tools"]), ("teacher", teacher, [])):
        evaluate = ["eval", "--system", "videobrain", "--profile", "laptop", "--data", str(data), "--model", server.url,
                    "--model-name", name, "--out", str(tmp_path / name), *more]  # fmt: skip
        assert main(evaluate) == 0
    sizes = command(data, tmp_path / "again", base, teacher)[-8:]
    folders = ["--base-results", str(tmp_path / "base"), "--teacher-results", str(tmp_path / "teacher")]
    assert main(["classify", *folders, "--out", str(tmp_path / "again"), *sizes]) == 0
    before, after = outputs(tmp_path / "out"), outputs(tmp_path / "again")
    assert before["classified.jsonl"] == after["classified.jsonl"] and before["rl.jsonl"] == after["rl.jsonl"]
    assert sft_of(tmp_path / "out") == sft_of(tmp_path / "again")
    assert len(sft_of(tmp_path / "again")) == 2


@pytest.mark.slow
def test_a_killed_job_goes_on_and_ends_the_same(tmp_path: Path, data: Path, serve: Serve) -> None:
    base, teacher = serve(base_says), serve(teacher_says)
    assert main(command(data, tmp_path / "whole", base, teacher)) == 0
    asked = (len(base.bodies), len(teacher.bodies))

    def slowly(script: Callable[[dict[str, Any], int], Reply]) -> Callable[[dict[str, Any], int], Reply]:
        def reply(body: dict[str, Any], request: int) -> Reply:
            time.sleep(0.3)
            return script(body, request)

        return reply

    base, teacher = serve(slowly(base_says)), serve(slowly(teacher_says))
    arguments = command(data, tmp_path / "cut", base, teacher, "--concurrency", "1")
    process = subprocess.Popen([sys.executable, "-m", "agentic_video.cli", *arguments], stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    journal = tmp_path / "cut" / "journal.jsonl"
    deadline = time.monotonic() + 120
    while (journal.read_bytes().count(b"\n") if journal.is_file() else 0) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = journal.read_bytes().count(b"\n")
    assert 4 <= done < 18 and not (tmp_path / "cut" / "rl.jsonl").exists()
    assert main(arguments) == 0
    assert journal.read_bytes().count(b"\n") == 18
    # what was under way when it was killed is asked once more
    assert sum(asked) <= len(base.bodies) + len(teacher.bodies) <= sum(asked) + 2
    whole, cut = outputs(tmp_path / "whole"), outputs(tmp_path / "cut")
    assert whole["classified.jsonl"] == cut["classified.jsonl"] and whole["rl.jsonl"] == cut["rl.jsonl"]
    assert sft_of(tmp_path / "whole") == sft_of(tmp_path / "cut")


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--base", "http://127.0.0.1:1/v1"], "name either --teacher or --teacher-results"),
        (["--teacher-results", "none"], "name either --base or --base-results"),
        (["--base-results", "none", "--teacher-results", "none"], "no episodes there"),
        (["--base", "http://127.0.0.1:1/v1", "--base-name", "m", "--teacher", "http://127.0.0.1:1/v1"],
         "name the rows with --data"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: Sequence[str], message: str
) -> None:
    assert main(["classify", "--out", str(tmp_path), "--profile", "laptop", *more]) == 2
    assert message in capsys.readouterr().err
