"""Our agents inside lmms-eval, where it is installed (it isn't among this package's dependencies)."""

import json
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from agentic_video.evaluation.engine import TOY
from agentic_video.toyworld.questions import World
from tests.evaluation.conftest import RECIPES
from tests.faulty_server import Reply, Serve

pytest.importorskip("lmms_eval.models.registry_v2")

from lmms_eval.api.instance import Instance
from lmms_eval.models.registry_v2 import ModelRegistryV2

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.evaluation.lmms_eval_model import NAME, manifest, question, question_of_messages
from agentic_video.types.record import load_records
from agentic_video.utils.errors import SetupError


@pytest.mark.parametrize("simple", [True, False])
def test_the_registry_finds_it_and_it_answers(
    simple: bool, checkpoint: Path, small_world: World, tmp_path: Path
) -> None:
    registry = ModelRegistryV2()
    (entry,) = entry_points(group="lmms_eval.models", name=NAME)
    registry.register_manifest(entry.load()())
    rows = load_rows([small_world.heldout])[0][:3]
    model = registry.get_model_class(NAME, force_simple=simple).create_from_arg_string(
        f"recipe={RECIPES / 'videozoomer'},model={checkpoint},profile=laptop,baseline=2,engine={TOY}",
        {"batch_size": 1, "device": None},
    )
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    model.task_dict["toy"] = {"test": [{"video": qa.video} for qa in rows] + [{"video": str(broken)}]}

    def visual(doc: dict[str, str]) -> list[str]:
        return [doc["video"]]

    def messages(doc: dict[str, str]) -> list[dict[str, Any]]:
        content = [{"type": "video", "url": doc["video"]}, {"type": "text", "text": "Which?"}]
        return [{"role": "user", "content": content}]

    assert model.is_simple is simple
    budget = {"max_new_tokens": 16}
    requests = [
        Instance(
            "generate_until",
            ("Which?", *((budget, visual) if simple else (messages, budget)), number, "toy", "test"),
            number,
            {"task": "toy", "doc_id": number, "repeats": 1},
        )
        for number in range(4)
    ]
    try:
        answers = model.generate_until(requests)
    finally:
        model.clean()
    assert len(answers) == 4
    assert all(answer.token_counts.output_tokens > 0 for answer in answers[:3])
    assert answers[3].text == "" and answers[3].token_counts is None
    assert json.dumps([answer.text for answer in answers])


@pytest.mark.parametrize("visuals", [[], ["a.mp4", "b.mp4"], [object()]])
def test_a_task_without_one_video_is_refused(visuals: list[Any]) -> None:
    with pytest.raises(SetupError, match="one path of a video"):
        question("Which?", visuals, "task test 3")


VIDEO = {"type": "video", "url": "a.mp4"}


def test_messages_become_a_question() -> None:
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Think in tags."}]},
        {"role": "user", "content": [{"type": "text", "text": "Watch."}, VIDEO, {"type": "text", "text": "Which?"}]},
        {"role": "user", "content": "Answer with a letter."},
    ]
    qa = question_of_messages(messages, "task test 3")
    assert (qa.video, qa.question) == ("a.mp4", "Watch.\nWhich?\nAnswer with a letter.")


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([{"role": "user", "content": "Which?"}], "one path of a video"),
        ([{"role": "user", "content": [VIDEO, VIDEO]}], "one path of a video"),
        ([{"role": "user", "content": [{"type": "video", "url": object()}]}], "one path of a video"),
        ([{"role": "user", "content": [VIDEO, {"type": "image", "url": "a.png"}]}], "it gave image"),
        ([{"role": "assistant", "content": "B"}], "a message of assistant"),
        ([{"role": "user", "content": [{**VIDEO, "start_time": 3.0}]}], "a part of a video"),
        ([{"role": "user", "content": [{"type": "text"}]}], "lmms-eval's form"),
        ([{"content": "x"}], "lmms-eval's form"),
        (None, "lmms-eval's form"),
        (["x"], "lmms-eval's form"),
    ],
)
def test_other_messages_are_refused(messages: Any, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        question_of_messages(messages, "task test 3")


def test_an_unknown_argument_is_named() -> None:
    registry = ModelRegistryV2()
    registry.register_manifest(manifest())
    for simple in (True, False):
        with pytest.raises(SetupError, match="tool: unknown"):
            registry.get_model_class(NAME, force_simple=simple)(recipe="r", model="m", tool=False)


TASK = """
task: toyvideo
dataset_path: parquet
dataset_kwargs:
  data_files: {{test: {data}}}
test_split: test
output_type: generate_until
doc_to_visual: !function utils.visual
doc_to_text: !function utils.text
doc_to_target: answer
process_results: !function utils.results
generation_kwargs: {{max_new_tokens: 16}}
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""
UTILS = """
from pathlib import Path

def visual(doc):
    return [str(Path({folder!r}) / doc["video"])]

def text(doc, kwargs=None):
    return doc["question"] + "".join(f"\\n{{letter}}. {{text}}" for letter, text in zip("ABCDEFGH", doc["options"]))

def results(doc, results):
    return {{"acc": float(results[0] == doc["options"][ord(doc["answer"]) - ord("A")])}}
"""
ROWS = 12


def says(body: dict[str, Any], number: int) -> Reply:
    """Some look first; all choose an option that depends on the question's text alone, rightly now and then."""
    opening = "\n".join(part["text"] for part in body["messages"][0]["content"] if part["type"] == "text")
    options = re.findall(r"^[A-H]\. (.+)$", opening, re.MULTILINE)
    mark = sum(opening.encode())
    if mark % 3 and len(body["messages"]) == 1:
        return Reply('<think>?</think><video_zoom>{"segment": [2, 4], "fps": 1}</video_zoom>')
    return Reply(f"<think>!</think><answer>{options[mark % len(options)]}</answer>")


@pytest.mark.parametrize("kind", ["chat", "simple"])
def test_a_task_of_its_own_gives_what_our_own_evaluation_gives(
    kind: str, serve: Serve, small_world: World, tmp_path: Path
) -> None:
    """The whole of lmms-eval, as a user starts it, against one server."""
    pytest.importorskip("lmms_eval.evaluator", exc_type=ImportError)
    task = tmp_path / "task"
    task.mkdir()
    (task / "toyvideo.yaml").write_text(TASK.format(data=small_world.heldout))
    (task / "utils.py").write_text(UTILS.format(folder=str(small_world.heldout.parent)))
    url = serve(says).url
    recipe = RECIPES / "videozoomer"
    words = [
        sys.executable,
        "-m",
        "lmms_eval",
        "--model",
        "agentic_video",
        "--tasks",
        "toyvideo",
        *(["--force_simple"] if kind == "simple" else []),
        "--include_path",
        str(task),
        "--limit",
        str(ROWS),
        "--output_path",
        str(tmp_path / "lmms"),
        "--log_samples",
        "--model_args",
        f"recipe={recipe},model={url},model_name=m,profile=laptop",
    ]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    (results,) = (tmp_path / "lmms").rglob("*_results.json")
    (samples,) = (tmp_path / "lmms").rglob("*_samples_toyvideo.jsonl")
    assert f"({kind})" in json.loads(results.read_text())["config"].get("model_backend", f"({kind})")
    theirs = json.loads(results.read_text())["results"]["toyvideo"]["acc,none"]
    answers = [json.loads(line)["filtered_resps"] for line in samples.read_text().splitlines()]

    out = tmp_path / "ours"
    words = ["eval", "--recipe", str(recipe), "--profile", "laptop", "--model", url, "--model-name", "m"]
    assert main([*words, "--data", str(small_world.heldout), "--limit", str(ROWS), "--out", str(out)]) == 0
    result = json.loads((out / "report.json").read_text())
    ours = {record.qa.id: record.trajectory.answer for record in load_records([out / "episodes-000.jsonl"])[0]}
    rows = load_rows([small_world.heldout])[0][:ROWS]
    assert answers == [ours[qa.id] for qa in rows]
    assert theirs == pytest.approx(result["robust"]["mean"])
    assert 0 < theirs < 1 and len(set(answers)) > 2 and len(result["distribution"]["turns"]) == 2
