"""Corrections from a real server, and what SFT learns from them."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verl.utils import hf_processor, hf_tokenizer

from agentic_video.cli import main
from agentic_video.config.compose import compose_recipe
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import EngineError, ScriptedPolicy
from agentic_video.synthesis.reflect import Diagnosis, PastPolicy, read_diagnosis
from agentic_video.systems.base import EpisodeView
from agentic_video.tools.base import Video
from agentic_video.training.sft_kto.datasets import TrajectoryDataset
from agentic_video.types.action import Illegal
from agentic_video.types.message import AsideRequest
from agentic_video.types.record import Record, load_records, write_record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Aside, Trajectory, Turn
from agentic_video.video.store import FrameStore
from tests.synthesis.conftest import RECIPES, command, lines, oracle_turns, system_of, wrong_letter
from tests.synthesis.oracle_server import Oracle, Part, images_in

FAR = '<think>look at the start</think><video_zoom>{"segment": [0, 1], "fps": 2}</video_zoom>'
ILLEGAL = '<think>look at all</think><video_zoom>{"segment": [0, 60], "fps": 30}</video_zoom>'
FLAW = json.dumps({"turn": 1, "flaw": "the stretch is not where the question asks"})


def rollout(qa: VideoQA, *turns: str, system: str = "videozoomer") -> Trajectory:
    """A recorded episode that says these turns."""
    policy = ScriptedPolicy(lambda view: turns[min(len(view.turns), len(turns) - 1)])
    return asyncio.run(play(system_of(system), policy, qa, FrameStore()))


def wrong_answer(qa: VideoQA, system: str = "videozoomer") -> str:
    return oracle_turns(system, qa, wrong_letter(qa))[-1]


def corrected(qa: VideoQA) -> tuple[str, ...]:
    call, answer = oracle_turns("videozoomer", qa)
    return call.replace("<think>", "<think>that was the wrong place; "), answer


@pytest.fixture(scope="module")
def failed(asked: list[VideoQA], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of a run: failures of several kinds, and one that is right."""
    episodes = [
        Record(asked[0], rollout(asked[0], FAR, wrong_answer(asked[0])), {"acc": 0.0}, {"step": 3}),
        Record(asked[1], rollout(asked[1], *oracle_turns("videozoomer", asked[1])), {"acc": 1.0}),
        Record(asked[2], rollout(asked[2], ILLEGAL, wrong_answer(asked[2]))),  # not graded yet
        Record(asked[3], rollout(asked[3], wrong_answer(asked[3])), {"acc": 0.0}),
        Record(asked[4], rollout(asked[4], FAR, wrong_answer(asked[4])), {"acc": 0.0}),
        Record(asked[5], rollout(asked[5], FAR, "no idea")),
        Record(asked[6], rollout(asked[6], FAR, wrong_answer(asked[6])), {"acc": 0.0}),
        Record(asked[0], rollout(asked[0], FAR, FAR, FAR, FAR, FAR, FAR)),
    ]
    path = tmp_path_factory.mktemp("failed") / "episodes-000.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for record in episodes:
            write_record(file, record)
    return path


@pytest.fixture(scope="module")
def server(asked: list[VideoQA]) -> Oracle:
    parts = {qa.id: Part(diagnosis=FLAW, corrected=corrected(qa)) for qa in asked}
    parts["q4"].diagnosis = "The first call was wrong."
    parts["q6"].corrected = (FAR, corrected(asked[6])[1])
    return Oracle(parts)


@pytest.fixture(scope="module")
def out(server: Oracle, failed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reflected")
    with server.running() as url:
        assert main(command("videozoomer", "reflect", url, failed, folder)) == 0
    return folder


def test_failures_are_corrected_from_the_flawed_call_on(out: Path, asked: list[VideoQA], failed: Path) -> None:
    kept = lines(out / "kept.jsonl")
    assert [row["video_qa"]["id"] for row in kept] == ["q0", "q2", "q5", "q0"]
    first = kept[0]
    assert [turn["text"] for turn in first["trajectory"]["turns"]] == [FAR, *corrected(asked[0])]
    assert [turn.get("loss_mask", True) for turn in first["trajectory"]["turns"]] == [False, True, True]
    before = lines(failed)[0]
    assert first["trajectory"]["opening"] == before["trajectory"]["opening"]
    assert first["trajectory"]["turns"][0]["observation"] == before["trajectory"]["turns"][0]["observation"]
    note = first["provenance"]
    assert note["original"] == {
        "trajectory": before["trajectory"],
        "reward_extra_info": {"acc": 0.0},
        "provenance": {"step": 3},
    }
    assert (note["source"], note["flawed_turn"]) == ("reflection", 1)
    assert note["flaw"] == "the stretch is not where the question asks"
    report = json.loads((out / "report.json").read_text())
    assert report["items"] == 7, "the right one is no failure"
    assert report["rejected"] == {"no call to correct": 1, "the same call again": 1, "unclear diagnosis": 1}
    illegal = kept[1]["trajectory"]["turns"]
    assert [turn["illegal_calls"] for turn in illegal] == [1, 0, 0], "the flaw may be illegal, its correction not"


def test_the_whole_episode_but_its_answer_is_kept(asked: list[VideoQA], tmp_path: Path) -> None:
    """The released code's way: the flaw isn't asked for, and all turns may have loss."""
    early = FAR.replace("[0, 1]", "[1, 2]")
    episodes = tmp_path / "episodes-000.jsonl"
    with episodes.open("w", encoding="utf-8") as file:
        write_record(file, Record(asked[0], rollout(asked[0], early, FAR, wrong_answer(asked[0])), {"acc": 0.0}))
    server = Oracle({"q0": Part(corrected=corrected(asked[0])[1:])})
    loss = {}
    with server.running() as url:
        for which in ("correction", "all"):
            words = ("--keep", "whole", "--loss", which)
            assert main(command("videozoomer", "reflect", url, episodes, tmp_path / which, *words)) == 0
            (kept,) = lines(tmp_path / which / "kept.jsonl")
            turns = kept["trajectory"]["turns"]
            assert [turn["text"] for turn in turns] == [early, FAR, corrected(asked[0])[1]]
            assert (kept["provenance"]["flawed_turn"], kept["provenance"]["flaw"]) == (2, "")
            loss[which] = [turn.get("loss_mask", True) for turn in turns]
    assert loss == {"correction": [False, False, True], "all": [True, True, True]}
    assert not any("Do not continue" in str(body) for body in server.asked)
    assert wrong_answer(asked[0]) not in str(server.asked), "its answer isn't shown"


def test_a_correction_that_repeats_or_ignores_what_came_before_is_none(asked: list[VideoQA], tmp_path: Path) -> None:
    # FrameThinker pays nothing for either, and whether it is so can't be seen in the correction by itself.
    def look(start: int, end: int) -> str:
        return f"<think>look between {start} and {end}</think><action>choose frames between {start} and {end}</action>"

    right = [oracle_turns("framethinker", qa) for qa in asked]
    seen = [[int(number) for number in re.findall(r"[0-9]+", turns[1])[:2]] for turns in right]
    begun = [(look(*seen[0]),), (look(100, 120),), right[2][:1]]
    parts = {
        "q0": Part(diagnosis=FLAW, corrected=(look(seen[0][0] + 1, seen[0][1] - 1), right[0][-1])),
        "q1": Part(diagnosis=FLAW, corrected=right[1]),
        "q2": Part(diagnosis=FLAW, corrected=right[2][-1:]),
    }
    with (tmp_path / "episodes-000.jsonl").open("w", encoding="utf-8") as file:
        for qa, turns in zip(asked, begun, strict=False):
            ended = rollout(qa, *turns, wrong_answer(qa, "framethinker"), system="framethinker")
            write_record(file, Record(qa, ended, {"acc": 0.0}))
    with Oracle(parts).running() as url:
        assert main(command("framethinker", "reflect", url, tmp_path / "episodes-000.jsonl", tmp_path / "out")) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["rejected"] == {"inconsistent: redundancy": 1, "inconsistent: logical_flow": 1}
    assert [row["video_qa"]["id"] for row in lines(tmp_path / "out" / "kept.jsonl")] == ["q1"]


def test_an_episode_more_leaves_the_others_what_they_are(asked: list[VideoQA], tmp_path: Path) -> None:
    # An evaluation plays again what failed: its folder may get another episode of a question.
    first, second = (
        Record(asked[0], rollout(asked[0], flaw, wrong_answer(asked[0])), {"acc": 0.0}) for flaw in (FAR, ILLEGAL)
    )
    server, out = Oracle({"q0": Part(diagnosis=FLAW, corrected=corrected(asked[0]))}), tmp_path / "out"
    episodes = tmp_path / "episodes-000.jsonl"
    requests = []
    with server.running() as url:
        for records in ([second], [first, second], [first, second, second]):
            with episodes.open("w", encoding="utf-8") as file:
                for record in records:
                    write_record(file, record)
            assert main(command("videozoomer", "reflect", url, episodes, out)) == 0
            requests.append(len(server.asked))
    assert [row["trajectory"]["turns"][0]["text"] for row in lines(out / "kept.jsonl")] == [FAR, ILLEGAL]
    assert requests[1] == 2 * requests[0] and requests[2] == requests[1], "each is corrected once"


def test_the_teacher_sees_the_failed_attempt_with_its_frames(out: Path, server: Oracle, failed: Path) -> None:
    diagnosis = next(body for body in server.asked if "[q0]" in str(body) and "Do not continue" in str(body))
    shown = len(load_records([failed])[0][0].trajectory.frames)
    assert images_in(diagnosis) == shown
    assert "These turns hold a call that was carried out or refused: 1." in str(diagnosis)


def test_sft_learns_the_correction_and_not_the_flaw(
    out: Path, asked: list[VideoQA], checkpoint: Path, tmp_path: Path
) -> None:
    lengths = ["data.max_prompt_length=3000", "data.max_response_length=6000", "agentic_video.max_turn_tokens=0"]
    overrides = ["data.train_files=none", "model.path=none", *lengths]
    config = compose_recipe(RECIPES / "videozoomer", "sft_laptop", overrides)
    tokenizer, processor = hf_tokenizer(str(checkpoint)), hf_processor(str(checkpoint))
    samples = TrajectoryDataset(str(out / "kept.jsonl"), tokenizer, config.data, processor)
    assert samples.problems == []
    sample: dict[str, Any] = samples[0]
    learnt = tokenizer.decode(sample["input_ids"][sample["loss_mask"].bool()])
    assert learnt.replace("<|im_end|>", "") == "".join(corrected(asked[0]))
    assert FAR in tokenizer.decode(sample["input_ids"])


def test_other_frames_than_recorded_are_noticed(
    asked: list[VideoQA], server: Oracle, failed: Path, tmp_path: Path
) -> None:
    row = lines(failed)[0]
    row["video_qa"]["video"] = asked[1].video
    frame = next(part for part in row["trajectory"]["turns"][0]["observation"] if isinstance(part, dict))
    frame["index"] += 1
    path = tmp_path / "rollouts.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with server.running() as url:
        assert main(command("videozoomer", "reflect", url, path, tmp_path / "out")) == 0
    assert json.loads((tmp_path / "out" / "report.json").read_text())["rejected"] == {"plays differently now": 1}


def test_episodes_of_another_system_are_named(
    failed: Path, asked: list[VideoQA], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Oracle({"q1": Part()}).running() as url:
        assert main(command("eva", "reflect", url, failed, tmp_path / "out")) == 2
        assert "videozoomer" in capsys.readouterr().err.splitlines()[-1] and not (tmp_path / "out").exists()
        mixed = tmp_path / "episodes-000.jsonl"
        right = rollout(asked[1], *oracle_turns("eva", asked[1]), system="eva")
        with mixed.open("w", encoding="utf-8") as file:
            write_record(file, Record(asked[1], right, {"acc": 1.0}))
        assert main(command("eva", "reflect", url, failed, tmp_path / "out", "--rollouts", str(mixed))) == 0
    told = capsys.readouterr().err
    assert "8 episodes of other systems" in told and "1 episodes, 0 of them failures" in told


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ('{"turn": 2, "flaw": " x "}', Diagnosis(2, "x")),
        ('<think>hm</think>```json\n{"turn": 1, "flaw": "x"}\n```', None),  # thoughts are cut off before
        ('```json\n{"turn": 1, "flaw": "x"}\n```', Diagnosis(1, "x")),
        ('{"turn": 3, "flaw": "x"}', None),
        ('{"turn": true, "flaw": "x"}', None),
        ('{"turn": 1, "flaw": ""}', None),
        ('{"turn": 1}', None),
        ("[1]", None),
        ("turn 1", None),
    ],
)
def test_diagnoses(reply: str, found: Diagnosis | None) -> None:
    assert read_diagnosis(reply, [1, 2]) == found


@given(st.text() | st.from_regex(r'\{"turn": .{0,6}, "flaw": .{0,9}\}', fullmatch=True))
def test_any_reply_is_read(reply: str) -> None:
    found = read_diagnosis(reply, [1, 2])
    assert found is None or (found.turn in (1, 2) and found.flaw)


def test_a_past_is_said_again_with_its_prefix_and_its_asides() -> None:
    aside = Aside((), "a reply", 2)
    past = PastPolicy((Turn("<think>look", Illegal(""), 1),), prefix="<think>", asides=(aside,))
    view = EpisodeView(VideoQA("q", "v", "What?", "it"), cast(Video, None))

    async def run() -> None:
        # the episode puts the prefix before what a policy says
        assert (await past.say(view)).text == "look"
        assert await past.ask(AsideRequest((), 9)) is aside
        with pytest.raises(EngineError):
            await past.ask(AsideRequest((), 9))

    asyncio.run(run())
