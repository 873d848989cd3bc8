"""Distillation from a real server, killed half way, and what SFT makes of its output."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from verl.utils import hf_processor, hf_tokenizer

from agentic_video.cli import main
from agentic_video.config.compose import compose_recipe
from agentic_video.synthesis.distill import read_yes_no
from agentic_video.synthesis.template_mix import GUIDANCE
from agentic_video.training.sft_kto.datasets import TrajectoryDataset
from agentic_video.types.record import load_records
from agentic_video.types.row import VideoQA
from tests.synthesis.conftest import RECIPES, command, lines, oracle_turns, wrong_letter
from tests.synthesis.oracle_server import MODEL, Oracle, Part

OUTPUTS = ("kept.jsonl", "rejected.jsonl", "report.json")


def zoomer_parts(asked: list[VideoQA]) -> dict[str, Part]:
    """Rights, and one of each thing that is rejected."""
    parts = {qa.id: Part(oracle_turns("videozoomer", qa)) for qa in asked}
    parts["q1"].turns = oracle_turns("videozoomer", asked[1], wrong_letter(asked[1]))
    parts["q2"].turns = ("<think>hm</think>no idea",)
    far = '<think>far</think><video_zoom>{"segment": [900, 901], "fps": 1}</video_zoom>'
    parts["q3"].turns = (far, parts["q3"].turns[-1])
    parts["q4"].turns = (parts["q4"].turns[0], parts["q4"].turns[1].replace("<think>", "so <think>"))
    parts["q5"].turns = (parts["q5"].turns[0],)
    return parts


def verdicts(out: Path) -> dict[str, str]:
    return {row["video_qa"]["id"]: row["provenance"]["rejected"] for row in lines(out / "rejected.jsonl")}


def test_what_is_kept_and_why_the_rest_is_not(asked: list[VideoQA], data: Path, tmp_path: Path, capsys: Any) -> None:
    server = Oracle(zoomer_parts(asked), faults=True)
    prices = ("--price-in", "2", "--price-out", "10")
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out"
    rows.write_text('{"id": "half"}\n' + data.read_text())
    with server.running() as url:
        assert main(command("videozoomer", "distill", url, rows, out, *prices)) == 0
    kept = lines(out / "kept.jsonl")
    assert [row["video_qa"]["id"] for row in kept] == ["q0", *(f"q{n}" for n in range(6, len(asked)))]
    assert verdicts(out) == {
        "q1": "wrong answer",
        "q2": "no answer: illegal",
        "q3": "illegal call",
        "q4": "format",
        "q5": "no answer: turn_limit",
    }
    assert kept[0]["provenance"] == {"source": "distillation", "teacher": MODEL, "sample": 0}
    assert kept[0]["reward_extra_info"] == {"acc": 1.0, "format": 1.0}
    assert kept[0]["trajectory"]["turns"][0]["token_ids"] == []
    report = json.loads((out / "report.json").read_text())
    assert (report["items"], report["kept"], report["failed"], report["rows_left_out"]) == (12, 7, 0, 1)
    # by hand: each request of turn t (from 0) has 1 + 2 t messages and costs 101 + 2 t prompt tokens
    turns = [len(row["trajectory"]["turns"]) for row in [*kept, *lines(out / "rejected.jsonl")]]
    prompt = sum(101 + 2 * t for count in turns for t in range(count))
    assert report["usage"] == {"prompt_tokens": prompt, "completion_tokens": 10 * sum(turns), "requests": sum(turns)}
    assert report["cost"] == round((2 * prompt + 10 * 10 * sum(turns)) / 1e6, 6)
    assert "rejected: wrong answer" in capsys.readouterr().out
    assert server.faulty > 0


def test_a_corrected_row_is_played_again(asked: list[VideoQA], tmp_path: Path) -> None:
    data, out, question = tmp_path / "rows.jsonl", tmp_path / "out", asked[0]
    server = Oracle({"q0": Part(oracle_turns("videozoomer", question))})
    with server.running() as url:
        for qa, requests, kept in (
            (question, 2, 1),
            (replace(question, answer=wrong_letter(question)), 4, 0),
            (question, 4, 1),
        ):
            data.write_text(json.dumps(qa.to_row()) + "\n")
            assert main(command("videozoomer", "distill", url, data, out)) == 0
            assert len(server.asked) == requests
            assert [row["video_qa"]["answer"] for row in lines(out / "kept.jsonl")] == [question.answer] * kept


def test_a_missing_judge_is_noticed_before_the_teacher_is_asked(
    asked: list[VideoQA], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free = replace(asked[0], answer="it is red", answer_type="open_ended", options=())
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(qa.to_row()) + "\n" for qa in (free, asked[1])))
    server = Oracle({})
    with server.running() as url:
        assert main(command("videozoomer", "distill", url, data, tmp_path / "out")) == 2
    assert "agentic_video.judge.base_url" in capsys.readouterr().err and server.asked == []


def test_intervals_that_must_be_exact_are_warned_of(
    asked: list[VideoQA], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timed = replace(asked[0], answer="2 - 6", answer_type="interval", options=(), windows=((2.0, 6.0),))
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(qa.to_row()) + "\n" for qa in (timed, asked[1])))
    said = '<think>so</think><answer>{"temporal_segment": [2, 5]}</answer>'
    turns = (*oracle_turns("videoo3", asked[0])[:-1], said)
    server = Oracle({"q0": Part(turns), "q1": Part(oracle_turns("videoo3", asked[1]))})
    with server.running() as url:
        for name, least, kept, warned in (("exact", "1", ["q1"], 1), ("near", "0.5", ["q0", "q1"], 0)):
            out = tmp_path / name
            assert main(command("videoo3", "distill", url, data, out, "--min-acc", least)) == 0
            assert capsys.readouterr().err.count("--min-acc 1 ") == warned
            assert [row["video_qa"]["id"] for row in lines(out / "kept.jsonl")] == kept


def test_rows_of_videobrain_need_not_be_classified(asked: list[VideoQA], tmp_path: Path) -> None:
    question = replace(asked[0], extra={name: value for name, value in asked[0].extra.items() if name != "class"})
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps(question.to_row()) + "\n")
    with Oracle({"q0": Part(oracle_turns("videobrain", question))}).running() as url:
        assert main(command("videobrain", "distill", url, data, tmp_path / "out")) == 0
    (kept,) = lines(tmp_path / "out" / "kept.jsonl")
    assert "class" not in kept["video_qa"]["extra_info"]


def test_samples_differ_by_their_seed(asked: list[VideoQA], data: Path, tmp_path: Path) -> None:
    qa = asked[0]
    right, wrong = oracle_turns("videozoomer", qa), oracle_turns("videozoomer", qa, wrong_letter(qa))
    server = Oracle({"q0": Part(samples={7: wrong, 8: right, 9: wrong})})
    more = ("--limit", "1", "--samples", "3", "--seed", "7")
    with server.running() as url:
        assert main(command("videozoomer", "distill", url, data, tmp_path / "x", *more, "--temperature", "0")) == 2
        assert main(command("videozoomer", "distill", url, data, tmp_path / "out", *more, "--temperature", "1")) == 0
    (kept,) = lines(tmp_path / "out" / "kept.jsonl")
    assert kept["provenance"]["sample"] == 1
    assert {(body["seed"], body["temperature"]) for body in server.asked} == {(7, 1.0), (8, 1.0), (9, 1.0)}


def test_illogical_paths_of_framethinker(asked: list[VideoQA], data: Path, tmp_path: Path) -> None:
    parts = {qa.id: Part(oracle_turns("framethinker", qa)) for qa in asked[:4]}
    lookup, _, answer = parts["q1"].turns
    parts["q1"].turns = (lookup, answer)
    parts["q2"].critic = "No."
    parts["q3"].critic = "Yes, it is logical"
    with Oracle(parts).running() as url:
        critic = ("--limit", "4", "--critic", url)
        assert main(command("framethinker", "distill", url, data, tmp_path, *critic)) == 0
    assert [row["video_qa"]["id"] for row in lines(tmp_path / "kept.jsonl")] == ["q0"]
    assert verdicts(tmp_path) == {"q1": "inconsistent: logical_flow", "q2": "critic: no", "q3": "critic: unclear"}


def test_templates_are_asked_for_checked_and_recorded(asked: list[VideoQA], data: Path, tmp_path: Path) -> None:
    parts = {qa.id: Part(oracle_turns("framethinker", qa)) for qa in asked[:3]}
    parts["q1"].turns = parts["q1"].turns[-1:]  # right, and at once
    parts["q2"].turns = oracle_turns("framethinker", asked[2], wrong_letter(asked[2]))
    with (server := Oracle(parts)).running() as url:
        mix = ("--limit", "3", "--template-mix", "timestamp_grounded:1")
        assert main(command("framethinker", "distill", url, data, tmp_path, *mix)) == 0
    (kept,) = lines(tmp_path / "kept.jsonl")
    assert kept["video_qa"]["id"] == "q0"
    both = {"asked": "timestamp_grounded", "followed": "timestamp_grounded"}
    assert kept["provenance"]["template"] == both
    assert verdicts(tmp_path) == {"q1": "template: direct, not timestamp_grounded", "q2": "wrong answer"}
    told = GUIDANCE["timestamp_grounded"]
    openings = [body["messages"] for body in server.asked if len(body["messages"]) == 2]
    assert len(openings) == 3 and all(told in json.dumps(messages[0]) for messages in openings)
    assert told not in json.dumps(kept)


def test_templates_need_their_system_and_a_teacher(data: Path, tmp_path: Path) -> None:
    mix = ("--template-mix", "direct:1")
    with Oracle({}).running() as url:
        assert main(command("videozoomer", "distill", url, data, tmp_path / "a", *mix)) == 2
    recipe = ["--recipe", str(RECIPES / "framethinker"), "--out", str(tmp_path / "b")]
    assert main(["distill", *recipe, *mix]) == 2


@pytest.mark.parametrize("name", ["videozoomer", "framethinker", "eva"])
def test_sft_takes_what_is_kept(name: str, asked: list[VideoQA], data: Path, checkpoint: Path, tmp_path: Path) -> None:
    with Oracle({qa.id: Part(oracle_turns(name, qa)) for qa in asked}).running() as url:
        single = ["--single-teacher"] if name == "eva" else []
        assert main(command(name, "distill", url, data, tmp_path, "--limit", "2", *single)) == 0
    lengths = ["data.max_prompt_length=3000", "data.max_response_length=6000"]
    config = compose_recipe(RECIPES / name, "sft_laptop", ["data.train_files=none", "model.path=none", *lengths])
    tokenizer, processor = hf_tokenizer(str(checkpoint)), hf_processor(str(checkpoint))
    kept = tmp_path / "kept.jsonl"
    samples = TrajectoryDataset(str(kept), tokenizer, config.data, processor)
    assert samples.problems == [] and len(samples) == 2
    records, _ = load_records([kept])
    for sample, record in zip((samples[0], samples[1]), records, strict=True):
        learnt = tokenizer.decode(sample["input_ids"][sample["loss_mask"].bool()])
        said = [turn.text for turn in record.trajectory.turns]
        assert learnt.replace("<|im_end|>", "") == "".join(said)


@given(st.text(max_size=12))
def test_only_a_clear_yes_counts(text: str) -> None:
    assert (read_yes_no(text) is True) == (text.strip().lower() in ("yes", "yes."))
    # thoughts before it don't count
    replies = ("<think>no ... or yes?</think>\nYes", "NO.", "yes and no")
    assert [read_yes_no(reply) for reply in replies] == [True, False, None]


def test_a_folder_in_which_nothing_was_done_takes_the_corrected_command(
    data: Path, checkpoint: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"no weights")
    out, more = tmp_path / "out", ("--engine", "toy", "--limit", "1")
    assert main(command("videozoomer", "distill", str(broken), data, out, *more)) == 2
    # the folder knows the broken checkpoint already, and holds no result
    assert (out / "journal.jsonl").read_bytes() == b""
    assert main(command("videozoomer", "distill", str(checkpoint), data, out, *more)) == 0
    assert json.loads((out / "settings.json").read_text())["teacher"] == str(checkpoint)
    # now there is one: another teacher needs another folder
    assert main(command("videozoomer", "distill", str(checkpoint), data, out, *more, "--temperature", "0.5")) == 2
