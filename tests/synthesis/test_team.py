"""EVA's team of teachers, against a real server."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.cli import main
from agentic_video.synthesis.team import (
    WORKFLOWS,
    Experience,
    ExperienceBank,
    experience_text,
    read_review,
    workflow_of,
)
from agentic_video.types.row import VideoQA
from tests.synthesis.conftest import command, lines, oracle_turns
from tests.synthesis.oracle_server import Oracle, Part, text_of


def parts_of(asked: list[VideoQA]) -> dict[str, Part]:
    return {qa.id: Part(oracle_turns("eva", qa)) for qa in asked}


def test_the_thinker_corrects_a_call_and_leaves_no_trace(asked: list[VideoQA], data: Path, tmp_path: Path) -> None:
    parts = parts_of(asked)
    good, answer = parts["q0"].turns
    everything = good.replace('"nframes": 4', '"nframes": 40')
    assert everything != good
    # one turn written again; one whose second version can't be read; one whose review is unclear
    parts["q0"] = Part((everything, answer), revised={0: good}, reviews={0: "REVISE: 40 frames are too many"})
    parts["q1"].reviews, parts["q1"].revised = {0: "REVISE: wrong place"}, {0: "I can't"}
    parts["q2"].reviews = {0: "Looks fine to me"}
    server = Oracle(parts)
    with server.running() as url:
        more = ("--limit", "4", "--experiences", "0", "--thinker-rounds", "1", "--concurrency", "1")
        assert main(command("eva", "distill", url, data, tmp_path, *more)) == 0
    kept = {row["video_qa"]["id"]: row for row in lines(tmp_path / "kept.jsonl")}
    assert sorted(kept) == ["q0", "q1", "q2", "q3"]
    assert [turn["text"] for turn in kept["q0"]["trajectory"]["turns"]] == [good, answer]
    assert kept["q1"]["trajectory"]["turns"][0]["text"] == parts["q1"].turns[0]
    notes = {name: row["provenance"]["team"] for name, row in kept.items()}
    counts = {name: [note[key] for key in ("reviews", "objections", "unclear_reviews")] for name, note in notes.items()}
    assert counts["q0"] == [1, 1, 0] and counts["q2"] == [1, 0, 1] and notes["q0"]["experiences"] == []
    # the executor's last request knows nothing of the first version
    executor = [body for body in server.asked if "[q0]" in str(body) and not is_review(body)]
    last = executor[-1]["messages"]
    assert [message["role"] for message in last] == ["system", "user", "assistant", "user"]
    assert text_of(last[2]) == good and "reviewer" not in str(last)
    assert "consider at least two different actions" in text_of(last[0])
    assert "consider at least two" not in str(kept["q0"]), "the learner sees the system's own prompt"
    workflow = WORKFLOWS[notes["q0"]["workflow"]]
    assert workflow in text_of(last[0]) and workflow not in str(kept["q0"])
    # four requests: draft, review, second version, answer
    assert json.loads((tmp_path / "journal.jsonl").read_text().splitlines()[0])["usage"]["requests"] == 4


def is_review(body: dict[str, Any]) -> bool:
    return text_of(body["messages"][0]).startswith("You check how")


def test_experiences_depend_on_rounds_and_not_on_the_order_of_ends(
    asked: list[VideoQA], data: Path, tmp_path: Path
) -> None:
    more = ("--limit", "6", "--bank-round", "2", "--experiences", "2", "--thinker-rounds", "0")
    outputs = []
    for number, concurrency in enumerate(("1", "6")):
        server, out = Oracle(parts_of(asked), faults=bool(number)), tmp_path / concurrency
        with server.running() as url:
            assert main(command("eva", "distill", url, data, out, *more, "--concurrency", concurrency)) == 0
            if number:
                # the second half is lost, and played again with the same experiences
                journal = out / "journal.jsonl"
                journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:3]))
                assert main(command("eva", "distill", url, data, out, *more, "--concurrency", concurrency)) == 0
        outputs.append((out / "kept.jsonl").read_bytes())
    assert outputs[0] == outputs[1]
    shown = [row["provenance"]["team"]["experiences"] for row in lines(tmp_path / "1" / "kept.jsonl")]
    assert [len(names) for names in shown] == [0, 0, 2, 2, 2, 2]
    assert {name for _, name in shown[2]} == {"q0", "q1"}
    last = [text_of(body["messages"][0]) for body in server.asked if "[q5]" in str(body["messages"][-1])]
    assert any(text.count("It looked at the whole video first.") == 2 for text in last), "summaries, not turns"


def test_a_summary_that_cannot_be_had_costs_nothing(asked: list[VideoQA], data: Path, tmp_path: Path) -> None:
    parts = parts_of(asked)
    parts["q0"].summary = ""
    with Oracle(parts).running() as url:
        more = ("--limit", "2", "--bank-round", "1", "--experiences", "1", "--thinker-rounds", "0")
        assert main(command("eva", "distill", url, data, tmp_path, *more)) == 0
    kept = lines(tmp_path / "kept.jsonl")
    assert len(kept) == 2 and [row["provenance"]["team"]["summary"] == "" for row in kept] == [True, False]


def test_samples_of_a_question_get_different_hints() -> None:
    qa = question("a", "b")
    hints = [workflow_of(qa, sample) for sample in range(len(WORKFLOWS))]
    assert sorted(hints) == list(range(len(WORKFLOWS))) and hints[0] == workflow_of(replace(qa, question="c"), 0)


def question(name: str, text: str) -> VideoQA:
    return VideoQA(name, f"{name}.mp4", text, "red", "open_ended")


def test_similar_questions_first_and_none_about_the_same_video() -> None:
    texts = ("Who scores the last goal?", "How many eggs does the cook break?", "Who scores the first goal?")
    bank = ExperienceBank([Experience(question(str(n), text), ("t",)) for n, text in enumerate(texts)])
    asked = question("new", "Who scores the winning goal of the last match?")
    assert [found.qa.id for found in bank.similar(asked, 2)] == ["0", "2"]
    assert [found.qa.id for found in bank.similar(replace(asked, video="0.mp4"), 1)] == ["2"]
    assert bank.similar(asked, 0) == []
    assert len(bank.similar(question("odd", "?!"), 9)) == 3


def test_an_empty_bank_has_nothing() -> None:
    assert ExperienceBank().similar(question("a", "b"), 3) == []


def test_an_experience_is_cut_to_size() -> None:
    text = experience_text([Experience(question("a", "b"), ("x" * 1_500, "y" * 1_500, "z"))])
    assert json.loads(text) == [{"question": "b", "turns": ["x" * 1_500, "y" * 500]}]
    text = experience_text([Experience(question("a", "b"), ("x",), "It began coarsely.")])
    assert json.loads(text) == [{"question": "b", "approach": "It began coarsely."}]


@pytest.mark.parametrize(
    ("reply", "objection"),
    [
        ("OK", ""),
        (" OK.\n", ""),
        ("<think>REVISE: no</think> OK", ""),
        ("REVISE: too short a stretch", "too short a stretch"),
        ("REVISE:\ntwo\nlines", "two\nlines"),
        ("REVISE:", None),
        ("OK, but fewer frames", None),
        ("", None),
    ],
)
def test_reviews(reply: str, objection: str | None) -> None:
    assert read_review(reply) == objection


@given(st.text())
def test_any_reply_is_read(reply: str) -> None:
    objection = read_review(reply)
    assert objection is None or objection == "" or reply.count(objection)
