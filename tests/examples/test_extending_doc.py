"""The listings of docs/extending.md work as they stand."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.systems.base import System
from agentic_video.toyworld.build import base
from agentic_video.toyworld.build.cold_start import ColdStartRecipe, make_aiming, make_demonstrations
from agentic_video.toyworld.build.recipe import toy_recipe
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.model import TAGS, ModelRecipe, build_model, build_tokenizer
from agentic_video.toyworld.oracles import oracle, turns_of
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.types.action import Answer, Calls
from agentic_video.types.frame import Frame
from agentic_video.types.record import load_records
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn, recorded_frames
from agentic_video.utils.imports import make_importable
from tests.config.configs import RECIPES, set_environment
from tests.conftest import REPOSITORY
from tests.faulty_server import FaultyServer, Reply, Script

DOC = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
LISTED = re.compile(r"^`(recipes/moments/[\w./]+)`:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The page's recipe as files, with its folder on the path as the commands put it there."""
    root = tmp_path_factory.mktemp("repository")
    for name, content in LISTED.findall(DOC.read_text(encoding="utf-8")):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    folder = root / "recipes" / "moments"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        assert make_importable(folder)
        yield folder
    for module in ("moments", "moments_oracle"):
        sys.modules.pop(module, None)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@pytest.fixture(scope="module")
def listings(recipe: Path) -> dict[str, Any]:
    """All names that the page's other listings define."""
    names: dict[str, Any] = {"__name__": "extending"}
    text = LISTED.sub("", DOC.read_text(encoding="utf-8"))
    for listing in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(compile(listing, str(DOC), "exec"), names)
    return names


@pytest.fixture(scope="module")
def moments(recipe: Path) -> Any:
    """The page's system, showing small frames."""
    import moments  # type: ignore[import-not-found]

    return moments.Moments(side=56)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> str:
    """5 s at 10 frames a second."""
    path = tmp_path_factory.mktemp("video") / "v.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10, options={"threads": "1"})
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        for number in range(50):
            picture = np.full((64, 64, 3), 4 * number, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return str(path)


def system_of(config: DictConfig) -> System:
    return settings_of(config).system


def test_the_page_shows_all_files_of_the_recipe(recipe: Path) -> None:
    tree = DOC.read_text(encoding="utf-8").split("```\nrecipes/moments/\n")[1].split("```")[0]
    named = {line.split()[0] for line in tree.splitlines()}
    files = {file.relative_to(recipe) for file in recipe.rglob("*") if file.is_file()}
    assert named == {str(file) for file in files if file.parts[0] != "__pycache__"}


def test_the_small_system_plays(moments: Any, listings: dict[str, Any], video: str) -> None:
    turns = ("<tool_call>3.5</tool_call>", "<answer>B</answer>")
    trajectory, score = listings["rehearse"](moments, video, *turns)
    assert trajectory.end is EndReason.ANSWER
    assert [(frame.index, frame.width) for frame in trajectory.frames] == [(0, 56), (35, 56)]
    assert "a video of 5 seconds" in trajectory.opening[0].parts[0]
    # right, after one look of 0.05
    assert (score.acc, score.format) == (1.0, 1.0)
    assert score.reward == pytest.approx(0.95)


@pytest.mark.parametrize("asked", ["99", "-1", "nan", "x", "", "1e999", "</tool_call></tool_call>"])
def test_the_small_system_refuses_times_that_do_not_exist(
    asked: str, moments: Any, listings: dict[str, Any], video: str
) -> None:
    turns = (f"<tool_call>{asked}</tool_call>", "<answer>A</answer>")
    trajectory, score = listings["rehearse"](moments, video, *turns)
    assert (trajectory.tool_calls, trajectory.illegal_calls, len(trajectory.frames)) == (0, 1, 1)
    assert score.reward == pytest.approx(-0.05)


def test_a_turn_that_is_neither_ends_the_episode(moments: Any, listings: dict[str, Any], video: str) -> None:
    trajectory, score = listings["rehearse"](moments, video, "hm")
    assert trajectory.end is EndReason.ILLEGAL
    assert score.reward == 0.0


def test_a_quarter_of_a_frame(listings: dict[str, Any]) -> None:
    picture = np.zeros((4, 4, 3), np.uint8)
    picture[:2, :2] = 200
    _, whole, _, corner = listings["with_quarter"](Frame(3, 0.3, picture))
    assert whole.image is picture and (corner.image == 200).all() and corner.image.shape == (4, 4, 3)


def test_a_sub_agent_describes_what_the_agent_looks_at(listings: dict[str, Any], video: str) -> None:
    turns = ("<tool_call>3.5</tool_call>", "<answer>B</answer>")
    system = listings["Described"](side=56)
    trajectory, score = listings["rehearse"](system, video, *turns, asides=lambda request: "It is grey.")
    assert trajectory.turns[0].observation == ("3.50 s: It is grey.",)
    assert [frame.index for frame in trajectory.frames] == [0]
    (aside,) = trajectory.turns[0].asides
    assert [frame.index for frame in recorded_frames(aside.messages[0].parts)] == [35]
    assert score.reward == pytest.approx(0.95)
    # a refused look needs no description
    trajectory, _ = listings["rehearse"](system, video, "<tool_call>99</tool_call>", "<answer>B</answer>")
    assert trajectory.all_asides == () and trajectory.answer == "B"


@pytest.mark.parametrize(
    ("answer", "verdict", "sure", "reward"),
    [("B", "Yes.", True, 1.2), ("B", "no", False, 1.0), ("A", "yes", True, 0.0), ("A", "no", False, 0.2)],
)
def test_a_verdict_after_the_end_is_paid_for(
    answer: str, verdict: str, sure: bool, reward: float, listings: dict[str, Any], video: str
) -> None:
    system = listings["Sure"](side=56)
    trajectory, score = listings["rehearse"](
        system, video, f"<answer>{answer}</answer>", asides=lambda request: " " + verdict
    )
    assert trajectory.notes == {"sure": sure}
    assert [aside.text for aside in trajectory.asides] == [f"Verdict:  {verdict}"]
    assert score.reward == pytest.approx(reward) and set(score.terms) == {"acc", "turns", "candid"}


def test_words_are_found_in_what_is_said(listings: dict[str, Any], video: str, tmp_path: Path) -> None:
    system, end = listings["Listening"](side=56), "<answer>B</answer>"
    film = tmp_path / "film.mp4"
    film.write_bytes(Path(video).read_bytes())

    def shown(asked: str) -> tuple[Any, ...]:
        trajectory, _ = listings["rehearse"](system, str(film), f"<tool_call>{asked}</tool_call>", end)
        turn = trajectory.turns[0]
        return (*turn.observation[:1], turn.legal_calls, turn.illegal_calls)

    assert shown("say: red ball") == ("This video has no subtitles.", 1, 0)
    (tmp_path / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,500\nA red ball\n")
    assert shown("say: red ball") == ("[1.0 - 2.5 s] A red ball", 1, 0)
    assert shown("say: cat") == ("No such words.", 1, 0)
    assert shown("say: ?") == ("query must be a text of at most 256 characters with a word in it.", 0, 1)
    assert shown("3.5") == ("3.50 s: ", 1, 0)
    (tmp_path / "film.srt").write_text("00:xx --> 00:00:02,000\nhello\n")
    trajectory, _ = listings["rehearse"](system, str(film), "<tool_call>say: hello</tool_call>", end)
    assert trajectory.end is EndReason.TOOL_ERROR


def test_a_service_is_asked(
    listings: dict[str, Any], video: str, serve: Callable[[Script], FaultyServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its moments are shown from the video's own frames; when it fails the episode goes on, and says so."""
    replies = [Reply(body=b'{"text": "somebody at ", "times": [3.5, 99]}'), Reply(status=500)]
    server = serve(lambda body, number: replies[min(number, 1)])
    monkeypatch.setitem(sys.modules, "extending", SimpleNamespace(**listings))
    settings = {"_target_": "extending.Served", "side": 56, "service": {"url": f"http://{server.address}"}}
    system = settings_of(
        OmegaConf.merge(
            compose_recipe(RECIPES / "videozoomer", "laptop"),
            {"agentic_video": {"system": None}},
            {"agentic_video": {"system": {**settings, "service": {**settings["service"], "retry_wait": 0.01}}}},
        )
    ).system
    turns = ("<tool_call>ask: who?</tool_call>", "<tool_call>ask: and now?</tool_call>", "<answer>B</answer>")
    trajectory, score = listings["rehearse"](system, video, *turns)
    text, frame = trajectory.turns[0].observation
    assert (text, frame.index, frame.width) == ("somebody at ", 35, 56)
    assert trajectory.turns[1].observation == ("The service doesn't answer.",)
    assert (trajectory.answer, trajectory.tool_calls, score.terms["unanswered"]) == ("B", 2, 1.0)
    assert [body["arguments"] for body in server.bodies] == [{"query": " who?"}] + [{"query": " and now?"}] * 2
    assert server.bodies[0]["video"] == video and server.bodies[0]["duration"] == pytest.approx(5.0)


def test_turns_begin_and_episodes_end_as_the_page_says(listings: dict[str, Any], video: str) -> None:
    system, look = listings["Firm"](side=56, max_turns=2), "a</think><tool_call>3</tool_call>"
    turns = (look, look, "b</think><answer>B</answer>")
    trained, _ = listings["rehearse"](system, video, *turns)
    assert (trained.end, trained.tool_calls, len(trained.frames)) == (EndReason.TURN_LIMIT, 2, 2)
    assert all(turn.text.startswith("<think>a") for turn in trained.turns)
    evaluated, score = listings["rehearse"](system, video, *turns, force_answer=True)
    assert (evaluated.answer, evaluated.forced, score.acc) == ("B", True, 1.0)
    assert evaluated.turns[1].observation == (system.forced_answer,)


@pytest.mark.parametrize("profile", ["cluster", "laptop"])
def test_the_recipe_passes_verl_s_validation(profile: str, recipe: Path, moments: Any) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    config = compose_recipe(recipe, profile)
    if profile == "laptop":
        config.actor_rollout_ref.model.path = "/models/tiny"
    OmegaConf.resolve(config)
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    system, rollout = system_of(config), config.actor_rollout_ref.rollout
    assert type(system) is type(moments)
    assert rollout.engine_kwargs.vllm.limit_mm_per_prompt.image >= system.max_images
    longest = config.data.max_prompt_length + config.data.max_response_length
    assert longest <= rollout.max_model_len
    assert longest <= config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu


def test_the_cluster_s_system_is_the_class_s_own(recipe: Path, moments: Any) -> None:
    config = compose_recipe(recipe, "cluster")
    assert system_of(config) == type(moments)()
    # all turns, and a frame of 256 tokens with some text after each but the last
    assert 6 * limits_of(config).turn + 5 * (256 + 64) <= config.data.max_response_length


def test_the_recipe_s_command_starts_verl(recipe: Path) -> None:
    recipes = recipe.parent
    (recipes / "setup.sh").write_bytes((RECIPES / "setup.sh").read_bytes())
    command = ["bash", str(recipe / "run_grpo.sh"), "--profile", "cluster", "--dry-run", "trainer.total_epochs=2"]
    job = subprocess.run(
        command, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=120, check=True
    )
    assert "verl.trainer.main_ppo" in job.stdout
    assert f"--config-dir {recipe / 'config'} --config-name cluster " in job.stdout
    assert job.stdout.endswith(" trainer.total_epochs=2\n")


@pytest.fixture
def questions(tmp_path: Path, video: str) -> Path:
    """Two questions about the film, in a folder with what a scripted agent says to each."""
    rows = [VideoQA(name, video, "Which?", "B", options=("red", "blue"), data_source="mine") for name in ("a", "b")]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(qa.to_row()) + "\n" for qa in rows), encoding="utf-8")
    turns = ["<tool_call>3.5</tool_call>", "<answer>B</answer>"]
    (tmp_path / "says.json").write_text(json.dumps({"a": turns, "b": ["<answer>A</answer>"]}), encoding="utf-8")
    return file


def run(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A command in a process of its own, which finds the package by the working directory and nothing by PYTHONPATH."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MODEL_PATH")}
    environment |= variables
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)


def scripted(questions: Path) -> list[str]:
    return ["--engine", "tests.evaluation.scripted.FileBackend", "--data", str(questions), "--profile", "laptop"]


@pytest.mark.slow
def test_it_can_be_evaluated_and_distilled_without_pythonpath(recipe: Path, questions: Path, tmp_path: Path) -> None:
    says, own = str(tmp_path / "says.json"), ["--recipe", str(recipe), *scripted(questions)]
    job = run("agentic_video.cli", "eval", *own, "--model", says, "--out", str(tmp_path / "eval"))
    assert job.returncode == 0, job.stderr
    # one of two: the other answers at once, and wrong
    assert "# moments on rows" in job.stdout and "Accuracy 50.0 %" in job.stdout
    job = run("agentic_video.cli", "distill", *own, "--teacher", says, "--out", str(tmp_path / "made"))
    assert job.returncode == 0, job.stderr
    kept, _ = load_records([tmp_path / "made" / "kept.jsonl"])
    assert [(record.qa.id, record.trajectory.system) for record in kept] == [("a", "moments")]


def test_the_scripted_teacher_plays_its_oracle(recipe: Path, questions: Path, tmp_path: Path) -> None:
    rows, problems = load_rows([questions], "probe")
    assert not problems
    words = ["--recipe", str(recipe), "--profile", "laptop", "--data", str(questions), "--out", str(tmp_path / "made")]
    job = run("agentic_video.cli", "distill", *words)
    assert job.returncode == 0, job.stderr
    kept, _ = load_records([tmp_path / "made" / "kept.jsonl"])
    assert [(record.qa.id, record.trajectory.answer) for record in kept] == [(row.id, "blue") for row in rows]
    assert all(record.trajectory.tool_calls == 1 for record in kept)

    nobody = run(
        "agentic_video.cli", "distill", *words[:-1], str(tmp_path / "none"), "agentic_video.toyworld.oracle=no"
    )
    assert nobody.returncode == 2 and not (tmp_path / "none").exists()
    assert nobody.stderr.startswith(
        "error: system 'moments' has no oracle for the synthetic world (No module named 'no')"
    )


@pytest.mark.slow
@pytest.mark.ray
def test_it_can_be_evaluated_in_shards_without_pythonpath(recipe: Path, questions: Path, tmp_path: Path) -> None:
    words = ["--recipe", str(recipe), *scripted(questions), "--model", str(tmp_path / "says.json"), "--shards", "2"]
    job = run("agentic_video.cli", "eval", *words, "--out", str(tmp_path / "eval"))
    assert job.returncode == 0, job.stderr
    assert "Accuracy 50.0 %" in job.stdout and len(list((tmp_path / "eval").glob("episodes-*.jsonl"))) == 2


def test_its_sft_starts_without_pythonpath(recipe: Path) -> None:
    words = ["agentic_video.cli", "run", str(recipe), "sft", "--profile", "cluster", "--dry-run"]
    job = run(*words, MODEL_PATH=os.environ["MODEL_PATH"], GPUS_PER_NODE="1", NNODES="1")
    assert job.returncode == 0, job.stderr
    assert f"-m agentic_video.training.sft --config-dir {recipe / 'config'} --config-name sft" in job.stdout


@pytest.mark.parametrize(("sft", "grpo"), [("sft", "cluster"), ("sft_laptop", "laptop")])
def test_its_sft_learns_what_its_grpo_can_hold(sft: str, grpo: str, recipe: Path) -> None:
    config, follows = compose_recipe(recipe, sft), compose_recipe(recipe, grpo)
    for key in ("max_prompt_length", "max_response_length"):
        assert config.data[key] == follows.data[key]
    assert system_of(config) == system_of(follows)
    assert toy_recipe(config).oracle == toy_recipe(follows).oracle


def test_the_tiny_model_can_be_taught_the_laptop_s_system(recipe: Path) -> None:
    """All that the laptop profile makes before it trains: demonstrations that end with an answer within the budgets."""
    config = compose_recipe(recipe, "laptop")
    system, toy = system_of(config), toy_recipe(config)
    assert set(system.stop) <= set(TAGS)
    tokenizer = build_tokenizer(base.tokenizer_corpus())
    model = build_model(tokenizer, ModelRecipe())
    few = ColdStartRecipe(demonstrations=40)
    setting = Setting(system, limits_of(config), turns_of(system, toy.oracle))
    demonstrations, _ = make_demonstrations(model, tokenizer, setting, toy.world, few, toy.seed)
    assert len(demonstrations) == 40
    assert all(example.trained.any() for example in demonstrations)
    assert {len(example.images) for example in demonstrations} == {1, 2}
    assert make_aiming(model, tokenizer, setting, toy.world, ColdStartRecipe(demonstrations=4), toy.seed)


def test_the_oracle_finds_the_events_of_the_synthetic_world(recipe: Path) -> None:
    config = compose_recipe(recipe, "laptop")
    system, toy = system_of(config), toy_recipe(config)
    shown = {path_of(scene): scene for scene in scenes("heldout", 20, 0, toy.world)}
    source = SceneSource(shown, toy.world)
    policy = ScriptedPolicy(oracle(turns_of(system, toy.oracle)))

    async def reward(qa: VideoQA) -> float:
        trajectory = await play(system, policy, qa, source)
        time = qa.extra["event_time"]
        assert time is None or trajectory.frames[-1].time == time
        return (await system.score(trajectory, qa, Graders())).reward

    for path, scene in shown.items():
        looks = scene.event_time is not None
        assert asyncio.run(reward(row_of(scene, path, "heldout"))) == pytest.approx(0.95 if looks else 1.0)


def test_custom_rows(listings: dict[str, Any], video: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    listings["write_rows"](file, [(video, "What?", ["red", "blue"], "B"), (video, "Why?", ["a", "b"], "a.")])
    rows, problems = load_rows([file], "probe")
    assert not problems
    assert [(row.id, row.answer, row.options) for row in rows] == [
        ("mine-0", "B", ("red", "blue")),
        ("mine-1", "A", ("a", "b")),
    ]


def test_a_reward_by_turn(listings: dict[str, Any]) -> None:
    call = Turn("", Calls(()), 1, illegal_calls=2)
    trajectory = Trajectory("q", "s", (), (call, Turn("", Answer("blue"), 1)), EndReason.ANSWER)
    qa = VideoQA(id="q", video="/v.mp4", question="What?", answer="B", options=("red", "blue"))
    score = listings["cheap_calls"](trajectory, qa, Graders())
    assert score.turns == (-0.2, 0.0) and score.reward == pytest.approx(0.8)


@pytest.mark.parametrize("reward", ["few_turns", "cheap_calls"])
@pytest.mark.parametrize(("answer", "acc"), [("B", 1.0), ("blue", 1.0), ("B. blue", 1.0), ("red", 0.0), ("", 0.0)])
def test_a_reward_takes_the_letter_and_the_option_s_text(
    answer: str, acc: float, reward: str, listings: dict[str, Any]
) -> None:
    trajectory = Trajectory("q", "s", (), (Turn("", Answer(answer), 1),), EndReason.ANSWER)
    qa = VideoQA(id="q", video="/v.mp4", question="What?", answer="B", options=("red", "blue"))
    score = listings[reward](trajectory, qa, Graders())
    assert score.acc == score.terms["right"] == acc
