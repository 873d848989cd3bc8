"""Figures and records of finished episodes: verl's ``extra_fields`` of scored outputs (``VideoAgentLoop``)."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import DictConfig
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from agentic_video.report.collapse import WARNING
from agentic_video.report.failures import FAILED
from agentic_video.report.held_out import GREEDY, HeldOutScore, write_scores
from agentic_video.training.logs.metrics import rates_since
from agentic_video.training.loop.agent_loop import FINAL_OUTPUT
from agentic_video.training.loop.outputs import (
    REWARD_KEY,
    REWARD_KEY_UNITS,
    REWARDS,
    UNTRAINED,
    extra_fields,
    key_of,
    without_signal,
)
from agentic_video.types.record import Record, write_record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Trajectory
from agentic_video.utils.errors import one_line
from agentic_video.utils.workdir import write_whole
from agentic_video.video.node_store import all_store_stats
from agentic_video.video.retrieval.node_retriever import all_retrieval_stats

Episode = dict[str, Any]


def final_extras(batch: Any) -> list[Episode]:
    """``extra_fields`` of the last output of each scored episode in a batch of verl's replay buffer."""
    extras = extra_fields(batch.keys, batch.partition_id)
    return [
        extra
        for tag, extra in zip(batch.tags, extras, strict=True)
        if not tag.get("is_padding", False) and extra[FINAL_OUTPUT] and REWARDS in extra
    ]


def record_of(episode: Mapping[str, Any], provenance: Mapping[str, Any] | None = None) -> Record:
    """An episode as a record."""
    qa, trajectory = VideoQA.from_row(episode["video_qa"]), Trajectory.from_dict(episode["trajectory"])
    return Record(qa, trajectory, episode[REWARDS], provenance or {})


def held_out_score(episode: Mapping[str, Any]) -> HeldOutScore:
    """The score of a validation's episode."""
    qa, rewards = episode["video_qa"], episode[REWARDS]
    greedy, accuracy, reward = bool(episode.get(GREEDY)), float(rewards["acc"]), float(rewards["reward"])
    return HeldOutScore(str(qa["data_source"]), greedy, qa["id"], qa["video"], accuracy, reward)


def episode_metrics(episodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over episodes of every key of their ``reward_extra_info``, as ``episode/<key>``."""
    values: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for key, value in episode[REWARDS].items():
            values[key].append(float(value))
    return {f"episode/{key}": float(np.mean(items)) for key, items in values.items()}


def _by_group(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """The episodes of each row (``video_qa``), in the order of the first ones."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode["video_qa"]["id"], []).append(episode)
    return list(groups.values())


def groups_alike(episodes: Sequence[Episode]) -> float:
    """Share of a step's groups that teach nothing: all rollouts earned the same, or fewer than two are trained on."""

    def alike(group: Sequence[Episode]) -> bool:
        members = [
            (str(number), bool(episode.get(UNTRAINED, False)), float(episode[REWARDS][REWARD_KEY]))
            for number, episode in enumerate(group)
        ]
        return without_signal(members) is not None

    groups = _by_group(episodes)
    return float(np.mean([alike(group) for group in groups])) if groups else 0.0


def sampled_reward(kept: Sequence[float], evicted: Mapping[float, int], group_size: int, surplus: int = 0) -> float:
    """Mean reward over all sampled groups, including those that aren't trained on.

    Dynamic sampling drops groups that are all right or all wrong, so the mean over the rest hides the progress. Surplus
    groups with a signal, whose rewards aren't kept, count as those that are trained on: without them the curve would
    start too low and end too high. Evicted groups are counted by the mean ``reward_key`` of their members.
    """
    like_kept = len(kept) + surplus * group_size
    total = sum(kept) / len(kept) * like_kept if kept else 0.0
    total += sum(key / REWARD_KEY_UNITS * count * group_size for key, count in evicted.items())
    return total / (like_kept + sum(evicted.values()) * group_size)


def whole_groups(episodes: Sequence[Episode], count: int, turn: int) -> list[Episode]:
    """Whole groups with at least ``count`` episodes, as few as possible, evenly chosen, and others at each turn."""
    members = _by_group(episodes)
    groups = max(0, min(len(members), math.ceil(count * len(members) / len(episodes)))) if episodes else 0
    chosen = {(turn + number * len(members) // groups) % len(members) for number in range(groups)}
    return [episode for number in sorted(chosen) for episode in members[number]]


@dataclass(frozen=True)
class EpisodeWriter:
    """Writes some of each step's groups as trajectory records, and each validation's scores, one file a step each."""

    folder: Path | None
    per_step: int
    provenance: Mapping[str, Any]

    @classmethod
    def of(cls, config: DictConfig) -> "EpisodeWriter":
        """The writer of a run's config (``agentic_video.episodes_dir`` and ``episodes_per_step``)."""
        block = config.agentic_video
        if not block.get("episodes_dir"):
            return cls(None, 0, {})
        provenance = {
            "experiment": config.trainer.experiment_name,
            "model": config.actor_rollout_ref.model.path,
        }
        return cls(Path(block.episodes_dir), block.episodes_per_step, provenance)

    def write(self, step: int, episodes: Sequence[Episode]) -> None:
        """Write the file of a step, if it has episodes; the first that can't be written is reported."""
        if self.folder is None or not episodes:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        provenance = {"source": "grpo", "step": step, **self.provenance}
        chosen = whole_groups(episodes, self.per_step, step)
        problems: list[str] = []
        with (self.folder / f"step_{step:06d}.jsonl").open("w", encoding="utf-8") as file:
            for episode in chosen:
                try:
                    write_record(file, record_of(episode, provenance))
                except (TypeError, ValueError) as error:
                    problems.append(one_line(error))
        if problems:
            missing = f"{len(problems)} of {len(chosen)} episodes are not in the episode log"
            print(f"{WARNING} step {step}: {missing}; the first: {problems[0]}", flush=True)

    def write_failures(self, step: int, failures: Sequence[Mapping[str, Any]]) -> None:
        """Report and write what made groups of a step fail."""
        if not failures:
            return
        first = {"row": "?", "error": "see log.txt", **failures[0]}
        what = f"{len(failures)} groups failed and were replaced; the first: row {first['row']}: {first['error']}"
        print(f"{WARNING} step {step}: {what}", flush=True)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(failure) for failure in failures]
            write_whole(self.folder / f"{FAILED}{step:06d}.jsonl", ["\n".join(lines) + "\n"])

    def write_validation(self, step: int, episodes: Sequence[Episode]) -> None:
        """Write the scores of a validation after a step, so that two can be compared question by question."""
        scores = [held_out_score(episode) for episode in episodes if episode[REWARDS].keys() >= {"acc", "reward"}]
        if self.folder is not None and scores:
            write_scores(self.folder, step, scores)


@contextmanager
def watched_validation(trainer: Any) -> Iterator[list[Episode]]:
    """Collect a trainer's validation episodes, which verl forgets before it returns their means."""
    loader = RememberingLoader(trainer.val_dataloader)
    watched = WatchedBuffer(trainer.replay_buffer, loader)
    trainer.replay_buffer, trainer.val_dataloader = watched, loader
    try:
        yield watched.episodes
    finally:
        trainer.replay_buffer, trainer.val_dataloader = watched.buffer, loader.loader


class RememberingLoader:
    """A validation's batches; ``batch`` is the latest, to whose rows verl adds their ``uid``."""

    def __init__(self, loader: Any):
        self.loader = loader
        self.batch: Mapping[str, Any] = {}

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for batch in self.loader:
            self.batch = batch
            yield batch


class WatchedBuffer:
    """A replay buffer during a validation, that collects its episodes; only ``sample`` is called."""

    def __init__(self, buffer: Any, loader: RememberingLoader):
        self.buffer, self._loader = buffer, loader
        self.episodes: list[Episode] = []

    def sample(self, *args: Any, partition_id: str, **kwargs: Any) -> Any:
        """See verl's; a batch all of whose episodes failed has an empty episode: verl ends at none."""
        batch, metrics = self.buffer.sample(*args, partition_id=partition_id, **kwargs)
        if batch.keys:
            self.episodes += final_extras(batch)
        else:
            batch = empty_episode(self._loader.batch, partition_id)
        return batch, metrics


def empty_episode(asked: Mapping[str, Any], partition_id: str) -> KVBatchMeta:
    """Put an episode of a batch without text, reward and ``acc``, that is a failed one, into verl's transfer queue."""
    uid, nothing = str(asked["uid"][0]), torch.zeros(1, dtype=torch.int64)
    fields = {
        "prompts": nothing,
        "responses": nothing,
        "rm_scores": nothing.float(),
        "uid": uid,
        "num_turns": 0,
        "data_source": str(asked["data_source"][0]),
        "reward_model": asked["reward_model"][0] if "reward_model" in asked else {},
        "extra_fields": {},
    }
    keys, tags = [key_of(uid, 0, 0)], [{"seq_len": 2, "prompt_len": 1, "response_len": 1, "status": "success"}]
    tq.kv_batch_put(keys=keys, partition_id=partition_id, tags=tags, fields=list_of_dict_to_tensordict([fields]))
    return KVBatchMeta(partition_id=partition_id, keys=keys, tags=tags)


def store_counters() -> dict[str, float]:
    """``frame_store/<counter>`` and ``retrieval/<counter>``: sums over all nodes since the run began."""
    total: Counter[str] = Counter()
    for name, nodes in (("frame_store", all_store_stats()), ("retrieval", all_retrieval_stats())):
        for stats in nodes:
            total.update({f"{name}/{key}": value for key, value in asdict(stats).items()})
    return {key: float(value) for key, value in total.items()}


def engine_counters(servers: Iterable[Any]) -> dict[str, float]:
    """``engine_images/<counter>`` (``ImageStats``): sums over verl's servers, given by Ray's handles, so far."""
    counting = [server for server in servers if hasattr(server, "image_stats")]
    total: Counter[str] = Counter()
    # An empty list, too, has Ray start a cluster where there is none.
    for stats in ray.get([server.image_stats.remote() for server in counting]) if counting else []:
        total.update(asdict(stats))
    return {f"engine_images/{key}": float(value) for key, value in total.items()}


class StoreMetrics:
    """The counters of all stores with their rates since the step before."""

    def __init__(self, read: Callable[[], Mapping[str, float]] = store_counters):
        self._read = read
        self._before: Mapping[str, float] = {}

    def step(self) -> dict[str, float]:
        """The counters by now, with their rates."""
        now = self._read()
        rates, self._before = rates_since(now, self._before), now
        return {**now, **rates}
