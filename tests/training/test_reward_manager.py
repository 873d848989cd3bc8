import asyncio
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.reward import get_custom_reward_fn

from agentic_video.config.settings import settings_of
from agentic_video.graders.base import Graders
from agentic_video.graders.judge import EndpointError
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.training.loop.reward_manager import VideoAgentRewardManager, graders_of, score_with_fallback
from agentic_video.types.action import Answer, Calls, Illegal, ToolCall
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, FrameRef, Trajectory, Turn
from tests.conftest import MemorySource
from tests.faulty_server import FaultyServer, Reply, Script

Serve = Callable[[Script], FaultyServer]
ZOOMER = "agentic_video.systems.videozoomer.system.VideoZoomer"
DOWN = {"base_url": "http://127.0.0.1:1/v1", "model": "m", "max_retries": 0}
CHOICE = VideoQA(id="q", video="v", question="What?", answer="B", options=("x", "y"))
OPEN = VideoQA(id="q", video="v", question="What?", answer="a cat", answer_type="open_ended")
LOOK = Turn("<think>a</think><video_zoom>{}</video_zoom>", Calls((ToolCall("video_zoom", {}),)), 5, legal_calls=1)
SAID = Turn("<think>b</think><answer>B</answer>", Answer("B"), 5)
ANSWERED = Trajectory("q", "videozoomer", (), (LOOK, SAID), EndReason.ANSWER)
FAILED = Trajectory("q", "videozoomer", (), (Turn("x", Illegal("y"), 1, illegal_calls=1),), EndReason.ILLEGAL)


def batch_of(trajectory: Trajectory, qa: VideoQA) -> DataProto:
    fields = np.empty(1, dtype=object)
    fields[0] = {"trajectory": trajectory.to_dict(), "video_qa": qa.to_row()}
    batch = TensorDict({"responses": torch.zeros(1, 3)}, batch_size=1)
    return DataProto(batch=batch, non_tensor_batch={"tool_extra_fields": fields})


def config_of(system: str = ZOOMER, **block: Any) -> DictConfig:
    config = OmegaConf.create({"agentic_video": {"system": {"_target_": system}, **block}})
    assert isinstance(config, DictConfig)
    return config


def run(
    trajectory: Trajectory,
    qa: VideoQA,
    system: str = ZOOMER,
    verifier: dict[str, Any] | None = None,
    credit: str = "trajectory",
    **judge: Any,
) -> dict[str, Any]:
    config = config_of(system, judge=judge, verifier=verifier or {}, credit=credit)

    async def score() -> dict[str, Any]:
        return await VideoAgentRewardManager(config, None, None).run_single(batch_of(trajectory, qa))

    return asyncio.run(score())


def test_score_and_what_is_logged() -> None:
    result = run(ANSWERED, CHOICE)
    info = result["reward_extra_info"]
    assert result["reward_score"] == info["reward"] == 1.5
    assert info["reward_key"] == 15_000.0
    assert (info["acc"], info["format"], info["tool"], info["turns"], info["tool_calls"]) == (1.0, 1.0, 1.0, 2.0, 1.0)
    assert (info["end_answer"], info["end_illegal"], info["untrained"]) == (1.0, 0.0, 0.0)
    assert sum(value for key, value in info.items() if key.startswith("end_")) == 1.0
    assert sum(value for key, value in info.items() if key.startswith("term_")) == pytest.approx(1.5)


def test_credit_by_turn_has_rewards_of_turns() -> None:
    info = run(ANSWERED, CHOICE, credit="turn")["reward_extra_info"]
    earned = {key: value for key, value in info.items() if key.startswith("turn_reward_")}
    # VideoZoomer says nothing of turns: all is the last one's
    assert len(earned) == 5 and earned["turn_reward_2"] == sum(earned.values()) == 1.5


def test_keys_are_always_the_same() -> None:
    infos = [run(ANSWERED, CHOICE), run(FAILED, CHOICE), run(ANSWERED, OPEN, **DOWN, on_failure="zero")]
    assert len({tuple(result["reward_extra_info"]) for result in infos}) == 1
    assert infos[2]["reward_score"] == pytest.approx(0.1)  # format alone
    assert run(FAILED, OPEN)["reward_score"] == 0.0  # without an answer no judge is asked


class AnswersAside(VideoZoomer):
    untrained_ends = ("answer",)


def test_a_rollout_that_is_not_trained_on_is_scored_and_counted() -> None:
    result = run(ANSWERED, CHOICE, f"{__name__}.AnswersAside")
    assert result["reward_score"] == 1.5 and result["reward_extra_info"]["untrained"] == 1.0


class TwoGraders(VideoZoomer):
    """Asks both: reward 1 for the judge's grade and 2 for a verifier that says B."""

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        assert graders.judge is not None and graders.verifier is not None
        grade = await graders.judge.grade(qa.question, qa.answer, trajectory.answer or "")
        said = await graders.verifier.ask("What?", [])
        return Score(grade + 2.0 * (said == "B"), grade, 1.0)


@pytest.mark.parametrize(
    ("judge_up", "verifier_up", "judge_policy", "verifier_policy", "reward"),
    [
        (True, True, "drop_group", "drop_group", 3.0),
        (False, True, "zero", "drop_group", 2.0),  # each policy is its own endpoint's
        (False, True, "drop_group", "zero", None),
        (True, False, "drop_group", "zero", 1.0),
        (True, False, "zero", "drop_group", None),
        (False, False, "zero", "zero", 0.0),
        (False, False, "zero", "drop_group", None),
        (False, False, "drop_group", "zero", None),
    ],
)
def test_the_policy_of_the_endpoint_that_failed_applies(
    serve: Serve, judge_up: bool, verifier_up: bool, judge_policy: str, verifier_policy: str, reward: float | None
) -> None:
    judge, verifier = serve(lambda body, number: Reply("1")), serve(lambda body, number: Reply("B"))
    blocks = {
        "judge": {**DOWN, "on_failure": judge_policy} | ({"base_url": judge.url} if judge_up else {}),
        "verifier": {**DOWN, "on_failure": verifier_policy} | ({"base_url": verifier.url} if verifier_up else {}),
    }

    def score() -> dict[str, Any]:
        return run(ANSWERED, OPEN, f"{__name__}.TwoGraders", blocks["verifier"], **blocks["judge"])

    if reward is None:
        with pytest.raises(EndpointError):
            score()
        return
    result = score()
    assert result["reward_score"] == reward
    info = result["reward_extra_info"]
    assert (info["judge_failed"], info["verifier_failed"]) == (float(not judge_up), float(not verifier_up))


@pytest.mark.parametrize(("policy", "reward"), [("zero", 0.05), ("drop_group", None)])
def test_frames_that_the_verifier_cannot_have_are_dealt_with_by_its_policy(policy: str, reward: float | None) -> None:
    call, frame = Calls((ToolCall("frame_select", {}),)), FrameRef(0, 0.0, 28, 28)
    look = Turn("<tool_call>", call, 5, observation=(frame,), legal_calls=1)
    trajectory = Trajectory("q", "eva", (), (look, Turn("<answer>B</answer>", Answer("B"), 5)), EndReason.ANSWER)
    config = config_of("agentic_video.systems.eva.system.Eva", verifier={"on_failure": policy})
    settings = settings_of(config)
    graders = replace(graders_of(settings, None, None), source=MemorySource(fail=True))
    scored = score_with_fallback(settings.system, trajectory, CHOICE, graders, settings)
    if reward is None:
        with pytest.raises(EndpointError, match="no frames for the verifier"):
            asyncio.run(scored)
        return
    score, failed = asyncio.run(scored)
    assert (score.reward, failed) == (reward, {"verifier"})


def test_without_a_url_the_reward_model_that_verl_serves_is_asked(serve: Serve) -> None:
    server = serve(lambda body, number: Reply("1"))
    own = serve(lambda body, number: Reply("0"))

    async def ask(**block: Any) -> None:
        config = config_of(**block)
        config.reward = {"reward_model": {"enable": True, "model_path": "/models/verifier"}}
        # the keywords with which verl's reward loop makes a manager
        router = {"reward_router_address": server.address, "reward_model_tokenizer": None}
        graders = VideoAgentRewardManager(config=config, tokenizer=None, compute_score=None, **router).graders
        assert graders.judge is not None and graders.verifier is not None
        await graders.verifier.ask("What?", [])
        await graders.judge.grade("q", "r", "c")

    asyncio.run(ask())
    assert server.paths == {"/v1/chat/completions"}
    assert [body["model"] for body in server.bodies] == ["/models/verifier"] * 2
    asyncio.run(ask(judge={"base_url": own.url, "model": "judge"}, verifier={"model": "another name"}))
    assert [body["model"] for body in server.bodies[2:]] == ["another name"]
    assert [body["model"] for body in own.bodies] == ["judge"]


def test_verl_asks_the_manager_where_there_is_a_reward_model() -> None:
    # Without a custom function verl would post the episode to the model as to a classifier (RewardLoopWorker)
    config = OmegaConf.load(files("agentic_video.config") / "agentic_video.yaml")
    assert get_custom_reward_fn(config) is not None
