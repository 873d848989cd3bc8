from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transfer_queue
from omegaconf import DictConfig, OmegaConf

from agentic_video.report.collapse import WARNING
from agentic_video.report.failures import failures_text
from agentic_video.report.held_out import HeldOutScore, read_scores
from agentic_video.training.engines.vllm_images import ImageStats
from agentic_video.training.logs import episode_log
from agentic_video.training.logs.episode_log import (
    EpisodeWriter,
    engine_counters,
    episode_metrics,
    final_extras,
    groups_alike,
    sampled_reward,
    store_counters,
    watched_validation,
    whole_groups,
)
from agentic_video.types.record import read_records
from agentic_video.types.row import VideoQA
from agentic_video.video.retrieval.retriever import RetrievalStats
from agentic_video.video.store_config import StoreStats
from tests.training.episodes import Queue, batch_of, episode
from tests.types.test_trajectory import FULL


def test_means_over_episodes() -> None:
    episodes = [{"reward_extra_info": {"reward": 1.0, "acc": 1.0}}, {"reward_extra_info": {"reward": 0.1, "acc": 0.0}}]
    assert episode_metrics(episodes) == {"episode/reward": 0.55, "episode/acc": 0.5}


def test_sampled_reward_counts_evicted_groups() -> None:
    # four kept episodes of 0.5 in mean, one evicted group of two at 1.5: (4 * 0.5 + 2 * 1.5) / 6
    assert sampled_reward([0.0, 1.0, 0.0, 1.0], {15_000.0: 1}, 2) == pytest.approx(5 / 6)
    assert sampled_reward([0.0, 1.0], {}, 2) == 0.5
    # two groups of 2 that were too many count as those that are kept, mean 0.25: (6 * 0.25 + 2 * 1.0) / 8
    assert sampled_reward([0.5, 0.0], {10_000.0: 1}, 2, surplus=2) == pytest.approx(3.5 / 8)


def test_groups_that_teach_nothing() -> None:
    def of(question: str, reward: float, untrained: bool = False) -> Any:
        made = episode(reward)
        return {**made, "video_qa": {**made["video_qa"], "id": question}, "untrained": untrained}

    right, wrong, mixed = [of("a", 1.0)] * 3, [of("b", 0.0)] * 3, [of("c", 0.0), of("c", 1.0), of("c", 1.0)]
    assert groups_alike(right + wrong + mixed) == pytest.approx(2 / 3)
    # what isn't trained on doesn't tell them apart
    assert groups_alike([of("d", 1.0), of("d", 1.0), of("d", 0.0, True)]) == 1.0
    assert groups_alike([of("d", 1.0), of("d", 0.0, True)]) == 1.0
    assert groups_alike([]) == 0.0


def test_an_episode_counts_once(queue: Queue) -> None:
    unscored = {name: value for name, value in episode(1.0).items() if name != "reward_extra_info"}
    queue.update(a=episode(0.0, final=False), b=episode(1.0), c=episode(0.5), d=unscored)
    found = final_extras(batch_of(["a", "b", "c", "d"], c={"is_padding": True}))
    assert [item["reward_extra_info"]["acc"] for item in found] == [1.0]
    assert final_extras(batch_of([])) == []


def test_whole_groups_by_hand() -> None:
    # Four groups of two, a0 b0 c0 d0 a1 b1 c1 d1
    episodes = [{"video_qa": {"id": name}, "member": member} for member in (0, 1) for name in "abcd"]

    def chosen(count: int, turn: int) -> str:
        return " ".join(f"{group['video_qa']['id']}{group['member']}" for group in whole_groups(episodes, count, turn))

    assert [chosen(2, turn) for turn in (0, 1, 5)] == ["a0 a1", "b0 b1", "b0 b1"]
    assert chosen(1, 3) == "d0 d1"
    assert chosen(3, 0) == "a0 a1 c0 c1"
    assert chosen(100, 7).split() == [f"{name}{member}" for name in "abcd" for member in (0, 1)]
    assert chosen(0, 1) == "" and whole_groups([], 8, 1) == []


def writer_config(folder: str) -> DictConfig:
    return OmegaConf.create(
        {
            "agentic_video": {"episodes_dir": folder, "episodes_per_step": 2},
            "trainer": {"experiment_name": "run"},
            "actor_rollout_ref": {"model": {"path": "/models/m"}},
        }
    )


def test_some_episodes_of_a_step_are_written(tmp_path: Path) -> None:
    qa = VideoQA(id="q", video="/v.mp4", question="What?", answer="it", answer_type="open_ended")
    first = {"video_qa": qa.to_row(), "trajectory": FULL.to_dict(), "reward_extra_info": {"reward": 1}, "other": 1}
    other = {**first, "video_qa": {**qa.to_row(), "id": "other"}}
    EpisodeWriter.of(writer_config(str(tmp_path / "e"))).write(7, [other, first, other, first])
    records = list(read_records(tmp_path / "e" / "step_000007.jsonl"))
    assert [(item.qa, item.trajectory, item.rewards) for item in records] == [(qa, FULL, {"reward": 1.0})] * 2
    assert records[0].provenance == {"source": "grpo", "step": 7, "experiment": "run", "model": "/models/m"}
    assert len(list((tmp_path / "e").iterdir())) == 1


def test_an_episode_that_cannot_be_written_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = episode(1.0)
    bad["trajectory"]["turns"][0]["observation"] = ({"index": 0, "time": {1}, "width": 56, "height": 28},)
    EpisodeWriter.of(writer_config(str(tmp_path))).write(7, [bad, bad, episode(0.5)])
    (record,) = read_records(tmp_path / "step_000007.jsonl")
    assert record.rewards["acc"] == 0.5
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{WARNING} step 7: 2 of 3 ") and "turns[0].observation[0].time" in line


def test_failures_are_reported_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = EpisodeWriter.of(writer_config(str(tmp_path)))
    writer.write_failures(3, [])
    assert not list(tmp_path.iterdir()) and not capsys.readouterr().out
    writer.write_failures(3, [{"row": "q7", "video": "/v.mp4", "error": "engine_error"}, {}])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{WARNING} step 3: 2 ") and "q7" in line
    assert any("/v.mp4" in text for text in failures_text(tmp_path))
    EpisodeWriter.of(writer_config("")).write_failures(3, [{}])


def test_a_validation_s_scores_are_written(tmp_path: Path) -> None:
    rated, greedy, unrated = episode(0.5), {**episode(1.0), "greedy": True}, episode(0.0)
    del unrated["reward_extra_info"]["reward"]
    writer = EpisodeWriter.of(writer_config(str(tmp_path)))
    writer.write_validation(0, [unrated])
    assert not list(tmp_path.iterdir())
    writer.write_validation(20, [rated, unrated, greedy])
    assert read_scores(tmp_path) == {
        20: [HeldOutScore("toy", False, "q", "/v.mp4", 0.5, 0.5), HeldOutScore("toy", True, "q", "/v.mp4", 1.0, 1.0)]
    }
    EpisodeWriter.of(writer_config("")).write_validation(20, [rated])


@pytest.mark.parametrize(("folder", "count"), [("", 0), ("", 2), ("{tmp}/none", 0)])
def test_nothing_is_written_where_nothing_is_asked(folder: str, count: int, tmp_path: Path) -> None:
    EpisodeWriter.of(writer_config(folder.format(tmp=tmp_path))).write(1, [episode(1.0)] * count)
    assert not list(tmp_path.iterdir())


def test_a_batch_all_of_whose_episodes_failed_counts_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl ends at a batch without episodes: the last of a validation is one row, and its video is unreadable."""
    put: list[dict[str, Any]] = []
    monkeypatch.setattr(transfer_queue, "kv_batch_put", lambda **given: put.append(given))
    loader = [{"data_source": ["toy", "toy"]}]
    buffer = SimpleNamespace(sample=lambda **asked: (batch_of([]), {}))
    trainer = SimpleNamespace(replay_buffer=buffer, val_dataloader=loader)
    with watched_validation(trainer) as episodes:
        for batch in trainer.val_dataloader:
            batch["uid"] = ["u1", "u2"]  # as verl does
            taken, _ = trainer.replay_buffer.sample(partition_id="val", batch_size=2)
    assert not episodes and trainer.val_dataloader is loader
    (given,) = put
    assert given["keys"] == taken.keys == ["u1_0_0"] and given["partition_id"] == taken.partition_id == "val"
    assert given["fields"]["rm_scores"].sum() == 0 and given["fields"]["data_source"][0] == "toy"
    assert given["fields"]["extra_fields"][0] == {}


def test_counters_of_all_nodes_and_engines_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    retrievers = [RetrievalStats(asked=n, **{field.name: 0 for field in fields(RetrievalStats)[1:]}) for n in (3, 4)]
    store = StoreStats(requested=5, decoded=2, hits=3, evicted=0, errors=0, timeouts=0, bytes=0)
    monkeypatch.setattr(episode_log, "all_store_stats", lambda: [store])
    monkeypatch.setattr(episode_log, "all_retrieval_stats", lambda: retrievers)
    counters = store_counters()
    assert counters["retrieval/asked"] == 7.0 and counters["frame_store/decoded"] == 2.0
    kinds = {"retrieval": RetrievalStats, "frame_store": StoreStats}
    assert set(counters) == {f"{name}/{field.name}" for name, kind in kinds.items() for field in fields(kind)}

    def server(stats: ImageStats) -> SimpleNamespace:
        return SimpleNamespace(image_stats=SimpleNamespace(remote=lambda: stats))

    monkeypatch.setattr(episode_log.ray, "get", lambda answers: answers)
    servers = [server(ImageStats(asked=8, processed=3)), server(ImageStats(asked=1, seconds=0.5)), SimpleNamespace()]
    counters = engine_counters(servers)
    assert [counters[f"engine_images/{name}"] for name in ("asked", "processed", "seconds")] == [9.0, 3.0, 0.5]
    assert set(counters) == {f"engine_images/{field.name}" for field in fields(ImageStats)}
    assert engine_counters([SimpleNamespace()]) == {}  # a server of another kind
