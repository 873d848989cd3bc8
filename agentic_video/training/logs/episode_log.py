"""Figures and records of finished episodes: verl's ``extra_fields`` of scored outputs (``VideoAgentLoop``)."""

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
from agentic_video.video.node_store import all_store_stats
from agentic_video.video.retrieval.node_retriever import all_retrieval_stats

Episode = dict[str, Any]


def final_extras(batch: Any) -> list[Episode]:
    """``extra_fields`` of a batch's scored episodes, one each: of an episode with several outputs, the last one's.

    Args:
        batch: What verl's replay buffer samples: keys of the transfer queue, with tags.
    """
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
    """What a validation's episode earned."""
    qa, rewards = episode["video_qa"], episode[REWARDS]
    return HeldOutScore(
        data_source=str(qa["data_source"]),
        greedy=bool(episode.get(GREEDY)),
        question=qa["id"],
        video=qa["video"],
        accuracy=float(rewards["acc"]),
        reward=float(rewards["reward"]),
    )


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
    """Share of the groups that teach nothing: all of their rollouts earned the same, or fewer than two are trained on.

    Args:
        episodes: Of a step, with their row (``video_qa``); those of one row are a group.
    """
    alike = [
        without_signal(
            [
                (str(number), bool(one.get(UNTRAINED, False)), float(one[REWARDS][REWARD_KEY]))
                for number, one in enumerate(members)
            ]
        )
        is not None
        for members in _by_group(episodes)
    ]
    return float(np.mean(alike)) if alike else 0.0


def sampled_reward(kept: Sequence[float], evicted: Mapping[float, int], group_size: int, surplus: int = 0) -> float:
    """Mean reward over all groups that were sampled, those that aren't trained on included.

    Dynamic sampling drops the groups that are all right or all wrong, so the mean over the rest hides what was learnt;
    and those with a signal that it has too many of, whose rewards nobody keeps: they count as the ones that are trained
    on do, of which they are as good as drawn. Without them the curve would begin too low and end too high.

    Args:
        kept: Rewards of the episodes that are trained on.
        evicted: Number of evicted groups by the mean ``reward_key`` (units of 1e-4) of their members.
        group_size: Episodes a group.
        surplus: Number of groups with a signal that were dropped as there were too many.
    """
    like_kept = len(kept) + surplus * group_size
    total = sum(kept) / len(kept) * like_kept if kept else 0.0
    total += sum(key / REWARD_KEY_UNITS * count * group_size for key, count in evicted.items())
    return total / (like_kept + sum(evicted.values()) * group_size)


def whole_groups(episodes: Sequence[Episode], count: int, turn: int) -> list[Episode]:
    """As few whole groups as hold ``count`` episodes, evenly chosen.

    Args:
        episodes: Episodes with their row (``video_qa``); those of one row are a group.
        count: How many are asked for; 0 or less: none.
        turn: Steps go round through the groups, so that it isn't always the first that is chosen.
    """
    members = _by_group(episodes)
    wanted = max(0, min(len(members), math.ceil(count * len(members) / len(episodes)))) if episodes else 0
    chosen = {(turn + number * len(members) // wanted) % len(members) for number in range(wanted)}
    return [episode for number in sorted(chosen) for episode in members[number]]


@dataclass(frozen=True)
class EpisodeWriter:
    """Writes some of each step's groups as trajectory records, and what each validation's episodes earned, one file a
    step each.

    Attributes:
        folder: Where the files go; None: nothing is written.
        per_step: How many episodes of a step are asked for; whole groups are written.
        provenance: What each record says about the run, beside its step.
    """

    folder: Path | None
    per_step: int
    provenance: Mapping[str, Any]

    @classmethod
    def of(cls, config: DictConfig) -> "EpisodeWriter":
        """The writer that a run's config asks for (``agentic_video.episodes_dir`` and ``episodes_per_step``)."""
        block = config.agentic_video
        if not block.get("episodes_dir"):
            return cls(None, 0, {})
        provenance = {
            "experiment": config.trainer.experiment_name,
            "model": config.actor_rollout_ref.model.path,
        }
        return cls(Path(block.episodes_dir), block.episodes_per_step, provenance)

    def write(self, step: int, episodes: Sequence[Episode]) -> None:
        """Write the file of one step; none where there are no episodes.

        An episode that can't be written is left out, which is said: the training goes on.

        Args:
            step: Number of the step.
            episodes: All episodes of the step.
        """
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
            left_out = f"{len(problems)} of {len(chosen)} episodes are not in the episode log"
            print(f"{WARNING} step {step}: {left_out}; the first: {problems[0]}", flush=True)

    def write_validation(self, step: int, episodes: Sequence[Episode]) -> None:
        """Write the scores of one validation, so that two can be compared question by question.

        Args:
            step: After which it was.
            episodes: All of its episodes; those of a reward that doesn't tell accuracy and reward have no score.
        """
        scores = [held_out_score(one) for one in episodes if one[REWARDS].keys() >= {"acc", "reward"}]
        if self.folder is not None and scores:
            write_scores(self.folder, step, scores)


@contextmanager
def watched_validation(trainer: Any) -> Iterator[list[Episode]]:
    """Keep the episodes of a validation, which verl forgets before it returns their means.

    Args:
        trainer: Has verl's ``replay_buffer`` and ``val_dataloader``, for which others stand in meanwhile.

    Yields:
        The episodes so far; complete when the validation is over.
    """
    asked = Asked(trainer.val_dataloader)
    watched = WatchedBuffer(trainer.replay_buffer, asked)
    trainer.replay_buffer, trainer.val_dataloader = watched, asked
    try:
        yield watched.episodes
    finally:
        trainer.replay_buffer, trainer.val_dataloader = watched.buffer, asked.loader


class Asked:
    """A validation's batches, the last of which is remembered.

    Args:
        loader: verl's batches of rows.

    Attributes:
        loader: The same.
        batch: The one that is being played; verl adds each row's ``uid``.
    """

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
    """A replay buffer during a validation, that keeps what the episodes left behind.

    Args:
        buffer: The replay buffer; all that a validation asks of it is to sample.
        asked: What is sampled.

    Attributes:
        episodes: The episodes so far.
    """

    def __init__(self, buffer: Any, asked: Asked):
        self.buffer = buffer
        self.episodes: list[Episode] = []
        self._asked = asked

    def sample(self, *args: Any, partition_id: str, **kwargs: Any) -> Any:
        """As the buffer's own. Of a batch all of whose episodes failed, an empty one: verl ends at none."""
        batch, metrics = self.buffer.sample(*args, partition_id=partition_id, **kwargs)
        if batch.keys:
            self.episodes += final_extras(batch)
        else:
            batch = empty_episode(self._asked.batch, partition_id)
        return batch, metrics


def empty_episode(asked: Mapping[str, Any], partition_id: str) -> KVBatchMeta:
    """Put an episode that says nothing and earns nothing into verl's transfer queue.

    It has no ``acc``, so that it counts as what it stands for: an episode that failed.

    Args:
        asked: The rows that were played, with their ``uid``.
        partition_id: Which part of the queue.

    Returns:
        What a replay buffer samples.
    """
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
    """Counters of the frame stores and of the retrievers of all nodes, added up since the run began.

    Returns:
        ``frame_store/<counter>`` and ``retrieval/<counter>``.
    """
    total: Counter[str] = Counter()
    for name, nodes in (("frame_store", all_store_stats()), ("retrieval", all_retrieval_stats())):
        for stats in nodes:
            total.update({f"{name}/{key}": value for key, value in asdict(stats).items()})
    return {key: float(value) for key, value in total.items()}


def engine_counters(servers: Iterable[Any]) -> dict[str, float]:
    """What the LLM servers were given to look at, added up since the run began.

    Args:
        servers: Ray's handles of verl's servers; those that count nothing are left out.

    Returns:
        ``engine_images/<counter>`` (:class:`agentic_video.training.engines.vllm_images.ImageStats`).
    """
    counting = [server for server in servers if hasattr(server, "image_stats")]
    total: Counter[str] = Counter()
    # An empty list, too, has Ray start a cluster where there is none.
    for stats in ray.get([server.image_stats.remote() for server in counting]) if counting else []:
        total.update(asdict(stats))
    return {f"engine_images/{key}": float(value) for key, value in total.items()}


class StoreMetrics:
    """The counters of all stores with their rates since the step before.

    Args:
        read: Reads the counters.
    """

    def __init__(self, read: Callable[[], Mapping[str, float]] = store_counters):
        self._read = read
        self._before: Mapping[str, float] = {}

    def step(self) -> dict[str, float]:
        """The counters by now, with :func:`~agentic_video.training.logs.metrics.rates_since` the step before."""
        now = self._read()
        rates, self._before = rates_since(now, self._before), now
        return {**now, **rates}
