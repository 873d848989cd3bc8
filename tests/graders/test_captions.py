"""Caption scores: each benchmark's procedure by hand, and that no text aimed at the judge wins one."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agentic_video.evaluation.runner import grades
from agentic_video.graders.base import Graders
from agentic_video.graders.captions import CHOOSE, COMPARE, EVENTS, READ, RELATIONS, is_caption, score_caption
from agentic_video.graders.endpoint import EndpointError
from agentic_video.graders.judge import Judge, JudgeConfig
from agentic_video.systems.eva.system import Eva
from agentic_video.types.action import Answer
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from tests.faulty_server import FaultyServer, Reply, Script

Serve = Callable[[Script], FaultyServer]

DREAM = VideoQA(
    "d",
    "d.mp4",
    "Describe the video.",
    "A cat jumps on a table and knocks a cup over.",
    "open_ended",
    data_source="dream1k",
    extra={"events": ["a cat jumps on a table", "the cat knocks a cup over"], "category": "stock"},
)
PAIRS = [{"question": "What colour is the car?", "answer": "red"}, {"question": "Where is it?", "answer": "a street"}]
VDC = replace(DREAM, data_source="vdc", extra={"qa_list": json.dumps(PAIRS)})
CHOICE = replace(
    DREAM, data_source="tempcompass", answer="B. clockwise", extra={"mc_question": "Which way?\nA. left\nB. clockwise"}
)


def served(answers: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Script:
    def script(body: dict[str, Any], number: int) -> Reply:
        system, user = (message["content"] for message in body["messages"])
        found = answers[system](json.loads(user))
        return Reply(found if isinstance(found, str) else json.dumps(found))

    return script


def score(url: str, qa: VideoQA, caption: str) -> dict[str, float]:
    judge = Judge(JudgeConfig(base_url=url, model="m", retry_wait=0.01, timeout=5.0, max_retries=1))
    return asyncio.run(score_caption(judge, qa, caption))


def test_events_of_both_are_compared_with_the_other(serve: Serve) -> None:
    told = ["a cat jumps", "a dog barks", "a cup falls", "a man laughs"]

    def relations(material: dict[str, Any]) -> list[str]:
        if material["description"] == DREAM.answer:
            assert material["events"] == told
            return ["entailment", "contradiction", "entailment", "neutral"]
        assert material == {"description": "A cat jumps.", "events": DREAM.extra["events"]}
        return ["entailment", "neutral"]

    server = serve(served({EVENTS: lambda material: told, RELATIONS: relations}))
    # precision 2 of 4, recall 1 of 2: neutral events count in neither
    assert score(server.url, DREAM, "A cat jumps.") == {
        "acc": 0.5,
        "caption_precision": 0.5,
        "caption_recall": 0.5,
    }


def test_a_caption_without_events_has_no_precision(serve: Serve) -> None:
    server = serve(served({EVENTS: lambda material: []}))
    assert score(server.url, DREAM, "Nothing.") == {"acc": 0.0, "caption_precision": 0.0, "caption_recall": 0.0}


def test_at_most_ten_events_and_none_twice(serve: Serve) -> None:
    seen: list[list[str]] = []

    def relations(material: dict[str, Any]) -> list[str]:
        seen.append(material["events"])
        return ["entailment"] * len(material["events"])

    told = [f"event {number // 2}" for number in range(40)]
    score(serve(served({EVENTS: lambda material: told, RELATIONS: relations})).url, DREAM, "x")
    assert [f"event {number}" for number in range(10)] in seen


@pytest.mark.parametrize("labels", [[], ["entailment"], ["entailment"] * 3, ["entailment", "yes"], {"a": 1}, "sure"])
def test_relations_of_another_form_are_no_score(serve: Serve, labels: Any) -> None:
    server = serve(served({EVENTS: lambda material: ["a cat jumps"], RELATIONS: lambda material: labels}))
    with pytest.raises(EndpointError):
        score(server.url, replace(DREAM, extra={"events": ["one", "two"]}), "x")


def test_questions_are_answered_from_the_caption_and_compared(serve: Serve) -> None:
    def read(material: dict[str, Any]) -> str:
        assert material["description"] == "A red car." and set(material) == {"description", "question"}
        return "red" if "colour" in material["question"] else "not told"

    def compare(material: dict[str, Any]) -> dict[str, Any]:
        right = material["reference"] == material["candidate"]
        return {"match": "yes" if right else "no", "score": 5 if right else 0}

    server = serve(served({READ: read, COMPARE: compare}))
    assert score(server.url, VDC, "A red car.") == {"acc": 0.5, "caption_score": 2.5}


@pytest.mark.parametrize(
    "reply",
    [{"match": "yes", "score": 6}, {"match": "yes"}, {"match": True, "score": 5}, {"match": "yes", "score": 4.5}, "5"],
)
def test_comparisons_of_another_form_are_no_score(serve: Serve, reply: Any) -> None:
    server = serve(served({READ: lambda material: "red", COMPARE: lambda material: reply}))
    with pytest.raises(EndpointError):
        score(server.url, VDC, "A red car.")


@pytest.mark.parametrize(
    ("reply", "acc"), [("B", 1.0), ("b.", 1.0), ("A", 0.0), ("none", 0.0), ("<think>A</think>B", 1.0)]
)
def test_the_judge_chooses_from_the_caption(serve: Serve, reply: str, acc: float) -> None:
    assert score(serve(served({CHOOSE: lambda material: reply})).url, CHOICE, "It turns.") == {"acc": acc}


def test_only_rows_that_carry_what_scores_them_are_captions() -> None:
    assert all(map(is_caption, (DREAM, VDC, CHOICE)))
    assert not is_caption(replace(DREAM, extra={})) and not is_caption(replace(DREAM, data_source="mine"))
    assert not is_caption(replace(DREAM, answer_type="multiple_choice", options=("a", "b"), answer="A"))


def ended(answer: str) -> Trajectory:
    return Trajectory("d", "s", (), (Turn(answer, Answer(answer), 1),), EndReason.ANSWER)


def test_an_evaluation_scores_captions_by_the_judge_and_not_by_the_system_s_rule(serve: Serve) -> None:
    assert asyncio.run(grades(Eva(), ended("A cat."), DREAM, Graders())) == {}, "there is no judge"
    assert asyncio.run(grades(Eva(), ended(" "), VDC, Graders())) == {"acc": 0.0, "caption_score": 0.0}
    server = serve(served({CHOOSE: lambda material: "B"}))
    judge = Judge(JudgeConfig(base_url=server.url, model="m"))
    assert asyncio.run(grades(Eva(), ended("It turns."), CHOICE, Graders(judge=judge))) == {"acc": 1.0}
