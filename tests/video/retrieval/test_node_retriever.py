"""One retriever per node: its client, and a real local Ray."""

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.retrieval import node_retriever
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.node_retriever import NodeRetriever, actor_options, all_retrieval_stats
from agentic_video.video.store_config import StoreConfig
from tests.video.conftest import kill_actor
from tests.video.retrieval.clip_models import write_clip


class StubActor:
    def __init__(self, answers: dict[str, Any], seconds: float = 0.0) -> None:
        self.answers, self.seconds = answers, seconds
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    async def call(self, method: str, *arguments: Any) -> Any:
        self.calls.append((method, arguments))
        await asyncio.sleep(self.seconds)
        return self.answers[method]


def test_gpus_are_visible_without_being_taken() -> None:
    keep = {"env_vars": {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}}
    assert actor_options(RetrievalConfig()) == {"num_gpus": 0, "runtime_env": keep}
    assert actor_options(RetrievalConfig(device="cuda")) == {"num_gpus": 0, "runtime_env": keep}
    assert actor_options(RetrievalConfig(device="cpu")) == {"num_gpus": 0}
    # Ray hands the share out, and shows that GPU alone
    assert actor_options(RetrievalConfig(num_gpus=0.25)) == {"num_gpus": 0.25}


def test_prompts_are_cut_before_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    actor = StubActor({"ready": True, "ask": [0.5]})
    monkeypatch.setattr(node_retriever, "NodeActor", lambda *_: actor)
    retriever = NodeRetriever(RetrievalConfig("local-dir:/m", max_prompt_chars=5))
    for _ in range(2):
        assert asyncio.run(retriever.asimilarities("a.mp4", range(1), "red " * 10**6)) == [0.5]
    sent = ("ask", ("asimilarities", "a.mp4", [0], "red r"))
    assert actor.calls == [("ready", ()), sent, sent]
    asyncio.run(retriever.acompare("a.mp4", range(1), "red " * 10**6))
    assert actor.calls[-1] == ("ask", ("acompare", "a.mp4", [0], "red r"))
    with pytest.raises(ValueError, match="4096"):
        asyncio.run(retriever.acompare("a.mp4", range(5000), "red"))


@pytest.mark.parametrize(("num_gpus", "remedy"), [(0.0, "loaded"), (0.5, "n_gpus_per_node")])
def test_a_retriever_that_does_not_start_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, num_gpus: float, remedy: str
) -> None:
    monkeypatch.setattr(node_retriever, "NodeActor", lambda *_: StubActor({"ready": True}, seconds=600))
    retriever = NodeRetriever(RetrievalConfig("local-dir:/m", num_gpus=num_gpus, start_seconds=0.02))
    with pytest.raises(RuntimeError, match=remedy):
        asyncio.run(retriever.asimilarities("a.mp4", [0], "red"))


@pytest.mark.ray
def test_clients_of_a_node_share_one_retriever(local_ray: None, video: Callable[[str], str], tmp_path: Path) -> None:
    path = video("h264_b_frames")
    one = NodeRetriever(RetrievalConfig(write_clip(tmp_path / "clip")), StoreConfig(max_bytes=10**6))
    other = pickle.loads(pickle.dumps(one))

    async def use() -> None:
        assert all_retrieval_stats() == []
        asked = (client.asimilarities(path, [30, 2], "red") for client in (one, other, one, other))
        answers = await asyncio.gather(*asked)
        assert len(answers[0]) == 2 and all(answer == pytest.approx(answers[0]) for answer in answers)
        stats = await other.stats()
        assert (stats.asked, stats.embedded, stats.hits, stats.texts) == (8, 2, 6, 1)
        assert all_retrieval_stats() == [stats]
        relevance, alike = await other.acompare(path, [30, 2], "red")
        assert relevance.tolist() == pytest.approx(answers[0], abs=1e-5)
        assert alike.shape == (2, 2) and alike.diagonal() == pytest.approx(1.0, abs=1e-5)
        assert (await one.stats()).embedded == 2
        with pytest.raises(VideoError) as caught:
            await other.asimilarities(str(tmp_path / "none.mp4"), [0], "red")
        assert caught.value.reason == "missing" and caught.value.path.endswith("none.mp4")

        kill_actor("agentic-video-retrieval")
        assert len(await one.asimilarities(path, [5], "red")) == 1

    asyncio.run(use())
