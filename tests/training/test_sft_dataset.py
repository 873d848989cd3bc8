"""SFT samples against the rollout's own: the same episode, once through verl's worker and once from its record."""

import asyncio
import json
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from omegaconf import DictConfig
from verl.utils import hf_processor, hf_tokenizer
from verl.utils.dataset.dataset_utils import DatasetPadMode, SFTTensorCollator

from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ScriptEngine, replay
from agentic_video.rollout.tokens import ChatFormat, TokenPolicy, TokenSequence
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.tools.base import Video
from agentic_video.toyworld.base import tokenizer_corpus
from agentic_video.toyworld.demonstrate import write_demonstrations
from agentic_video.toyworld.model import FamilyName, ModelRecipe, build_model, build_tokenizer, save_checkpoint
from agentic_video.toyworld.oracles import asides_of, turns_of
from agentic_video.toyworld.questions import build_world
from agentic_video.toyworld.scenes import SceneSource
from agentic_video.toyworld.scripted import ScriptedTokens
from agentic_video.toyworld.world import WorldRecipe, make_scene
from agentic_video.training.inputs.model_inputs import with_patches_of_raw
from agentic_video.training.inputs.spans import HIDDEN
from agentic_video.training.loop.agent_loop_manager import VideoAgentLoopWorker
from agentic_video.training.sft_kto.datasets import TrajectoryDataset, by_ranks
from agentic_video.types.action import Calls, Illegal
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation
from agentic_video.types.record import Record, read_records, write_record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, Trajectory
from agentic_video.video.sizes import crop
from agentic_video.video.store import FrameStore
from tests.config.configs import SYSTEMS, composed
from tests.share import a_few
from tests.training.workers import make_worker, trained_inputs

WORLD = WorldRecipe(mixture=(("colour", 0.5), ("beside", 0.5)))
ROOMY = ("data.max_prompt_length=3000", "data.max_response_length=6000", "agentic_video.max_turn_tokens=0")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[VideoQA]:
    world = build_world(tmp_path_factory.mktemp("world"), train=6, heldout=1, seed=5, recipe=WORLD)
    return load_rows([world.train])[0]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[FamilyName, Path]:
    tokenizer, found = build_tokenizer(tokenizer_corpus()), {}
    families: tuple[FamilyName, ...] = ("qwen2_5_vl", "qwen3_vl")
    for family in families:
        found[family] = tmp_path_factory.mktemp(family)
        save_checkpoint(build_model(tokenizer, ModelRecipe(family=family)), tokenizer, found[family])
    return found


@dataclass(frozen=True)
class Setup:
    """A system's laptop config with a checkpoint of its family."""

    config: DictConfig
    tokenizer: Any
    processor: Any
    checkpoint: Path

    @property
    def system(self) -> Any:
        return settings_of(self.config).system

    @property
    def chat_format(self) -> ChatFormat:
        return ChatFormat.of(self.processor, self.tokenizer)

    def dataset(self, path: Path) -> TrajectoryDataset:
        return TrajectoryDataset(str(path), self.tokenizer, self.config.data, self.processor)


def setup_of(name: str, checkpoints: dict[FamilyName, Path], *overrides: str) -> Setup:
    files = ["data.train_files=none", "model.path=none"]
    config = composed(name, "sft_laptop", *files, *ROOMY, *overrides)
    checkpoint = checkpoints["qwen3_vl" if name in ("videobrain", "paravt") else "qwen2_5_vl"]
    return Setup(config, hf_tokenizer(str(checkpoint)), hf_processor(str(checkpoint)), checkpoint)


@pytest.fixture(
    params=a_few(
        [(name, shown) for name in SYSTEMS for shown in ("images", "video")],
        lambda one: one in (("videozoomer", "images"), ("framemind", "images"), ("paravt", "video"), ("eva", "video")),
    ),
    ids="-".join,
)
def setup(request: pytest.FixtureRequest, checkpoints: dict[FamilyName, Path]) -> Setup:
    name, frames_as = request.param
    return setup_of(name, checkpoints, f"agentic_video.system.frames_as={frames_as}")


def oracle_turns(setup: Setup, qa: VideoQA) -> tuple[str, ...]:
    scene = make_scene(qa.extra["seed"], WORLD)
    assert scene.event_time is not None
    view = EpisodeView(qa, asyncio.run(Video.open(qa.video, FrameStore())))
    return turns_of(setup.system)(view, int(scene.event_time), scene.answer, scene.letter)


def spelled(chat_format: ChatFormat, text: str) -> list[int]:
    """Ids that no tokenizer would choose: one for each character. Whoever encodes the text again differs."""
    return [token for character in text for token in chat_format.encode(character)]


def rollout(
    setup: Setup, qa: VideoQA, turns: Sequence[Sequence[int]], number: int = 0
) -> tuple[Trajectory, TokenPolicy]:
    system = setup.system
    limits = episode_limits(setup.config.data, settings_of(setup.config))
    policy = TokenPolicy(ScriptEngine(turns), setup.chat_format, limits, system)
    if system.name in ("paravt", "timesearch"):  # their oracles answer what they ask beside an episode
        policy = ScriptedTokens(turns, setup.chat_format, limits, system, qa, asides_of(turns_of(system)))
    finder = SceneSource({qa.video: make_scene(qa.extra["seed"], WORLD)}, WORLD)
    trajectory = asyncio.run(play(system, policy, qa, FrameStore(), finder, rollout_index=number))
    return trajectory, policy


def sequences_of(setup: Setup, policy: TokenPolicy) -> list[TokenSequence]:
    """The sequences that a record of the policy's episode gives samples of."""
    return [*(policy.aside_sequences if setup.system.train_asides else []), *policy.sequences]


def written(tmp_path: Path, *records: Record) -> Path:
    path = tmp_path / "records.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            write_record(file, record)
    return path


EqualsRollout = Callable[[dict[str, Any], TokenSequence, Setup], None]


@pytest.fixture
def equals_rollout(monkeypatch: pytest.MonkeyPatch) -> EqualsRollout:
    """Compares a sample with what verl's worker makes of a rollout's sequence."""
    workers: dict[Path, VideoAgentLoopWorker] = {}

    def compare(sample: dict[str, Any], sequence: TokenSequence, setup: Setup) -> None:
        if setup.checkpoint not in workers:
            workers[setup.checkpoint] = make_worker(monkeypatch, setup.checkpoint)
        assert_equals_rollout(sample, sequence, workers[setup.checkpoint])

    return compare


def assert_equals_rollout(sample: dict[str, Any], sequence: TokenSequence, worker: VideoAgentLoopWorker) -> None:
    ids = torch.tensor(sequence.ids)
    assert torch.equal(sample["input_ids"], ids)
    assert sample["loss_mask"].tolist() == [0] * len(sequence.prompt_ids) + sequence.response_mask
    positions, inputs = trained_inputs(worker, sequence.ids, sequence.visuals)
    assert torch.equal(sample["position_ids"], positions) and positions.shape == (4, len(ids))
    given = with_patches_of_raw(worker.processor, sample["multi_modal_inputs"])
    assert set(given) == set(inputs)
    for name, value in inputs.items():
        assert torch.equal(given[name], value), name


def test_samples_equal_the_rollouts(
    setup: Setup, rows: list[VideoQA], tmp_path: Path, equals_rollout: EqualsRollout
) -> None:
    chat_format, records, sequences = setup.chat_format, [], []
    for number, qa in enumerate(rows[:3]):
        turns = [spelled(chat_format, text) for text in oracle_turns(setup, qa)]
        turns[-1].append(min(chat_format.eos_ids))
        trajectory, policy = rollout(setup, qa, turns, number)
        assert trajectory.answer is not None and trajectory.frames
        clips = any(isinstance(shown, ClipRef) for shown in trajectory.visuals)
        assert clips == (setup.system.frames_as == "video")
        records.append(Record(qa, trajectory))
        sequences += sequences_of(setup, policy)
    dataset = setup.dataset(written(tmp_path, *records))
    assert dataset.problems == []
    assert len(dataset) == len(sequences)
    several = setup.system.name == "framemind" or setup.system.train_asides
    assert len(dataset) > len(records) if several else len(dataset) == len(records)
    for number, sequence in enumerate(sequences):
        equals_rollout(dataset[number], sequence, setup)


@dataclass(frozen=True)
class Cropper(VideoZoomer):
    """Begins each reply; shows regions of a zoom's frames, and has one described beside the episode."""

    reply_prefix: str = "<think>"
    train_asides: bool = True

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        found = await super().observe(action, view)
        assert found is not None and found.frames
        cut = [crop(item, (0, 0, item.width // 2, item.height), (item.width, item.height)) for item in found.frames]
        await view.ask([Message("user", (cut[0], "What is this?"))], max_tokens=40, prefix="It is")
        return replace(found, parts=("Left half:", *cut, "whole:", *found.frames))


def test_asides_prefixes_and_crops_are_learnt_as_they_were_played(
    checkpoints: dict[FamilyName, Path], rows: list[VideoQA], tmp_path: Path, equals_rollout: EqualsRollout
) -> None:
    setup = setup_of("videozoomer", checkpoints, f"agentic_video.system._target_={__name__}.Cropper")
    chat_format, qa, eos = setup.chat_format, rows[0], min(ChatFormat.of(setup.processor, setup.tokenizer).eos_ids)
    first, last = (
        'look</think><video_zoom>{"segment": [1, 2], "fps": 1}</video_zoom>',
        "seen</think><answer>B</answer>",
    )
    turns = [chat_format.encode(first), [*chat_format.encode(" red"), eos], [*chat_format.encode(last), eos]]
    trajectory, policy = rollout(setup, qa, turns)
    assert trajectory.answer == "B" and len(policy.aside_sequences) == 1
    assert any(ref.crop for ref in trajectory.frames)
    dataset = setup.dataset(written(tmp_path, Record(qa, trajectory)))
    assert dataset.problems == [] and len(dataset) == 2
    for number, sequence in enumerate([*policy.aside_sequences, *policy.sequences]):
        equals_rollout(dataset[number], sequence, setup)


class Drawer(VideoZoomer):
    """Shows one picture that is drawn from a zoom's frames: their strip, with a bar on top."""

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        found = await super().observe(action, view)
        assert found is not None and found.frames
        strip = np.concatenate([frame.image for frame in found.frames], axis=1)
        strip[:4] = (255, 0, 255)
        return replace(found, parts=("strip:", Frame(found.frames[0].index, found.frames[0].time, strip)))


def test_what_a_tool_drew_is_learnt_as_it_was_seen(
    checkpoints: dict[FamilyName, Path], rows: list[VideoQA], tmp_path: Path, equals_rollout: EqualsRollout
) -> None:
    setup = setup_of("videozoomer", checkpoints, f"agentic_video.system._target_={__name__}.Drawer")
    chat_format, qa, eos = setup.chat_format, rows[0], min(ChatFormat.of(setup.processor, setup.tokenizer).eos_ids)
    look = '<think>look</think><video_zoom>{"segment": [1, 2], "fps": 1}</video_zoom>'
    turns = [chat_format.encode(look), [*chat_format.encode("<think>seen</think><answer>B</answer>"), eos]]
    trajectory, policy = rollout(setup, qa, turns)
    [drawn] = [ref for ref in trajectory.frames if ref.made]
    assert trajectory.answer == "B"
    dataset = setup.dataset(written(tmp_path, Record(qa, trajectory)))
    assert dataset.problems == [] and len(dataset) == 1
    equals_rollout(dataset[0], policy.sequences[0], setup)

    seen = trajectory.turns[0]
    bare = tuple(replace(part, picture=None) if part is drawn else part for part in seen.observation)
    lost = replace(trajectory, turns=(replace(seen, observation=bare), *trajectory.turns[1:]))  # type: ignore[arg-type]
    both = setup.dataset(written(tmp_path, Record(qa, trajectory), Record(qa, lost)))
    assert len(both) == 1 and len(both.problems) == 1
    assert qa.id in both.problems[0] and f"frame {drawn.index} " in both.problems[0]


def test_without_recorded_ids_the_text_is_encoded(
    setup: Setup, rows: list[VideoQA], tmp_path: Path, equals_rollout: EqualsRollout
) -> None:
    chat_format, qa = setup.chat_format, rows[0]
    turns = [chat_format.encode(text) for text in oracle_turns(setup, qa)]
    # A call ends with a stop text where the system has one; FrameThinker's answer is an action, and does too.
    stopped = [bool(setup.system.stop)] * (len(turns) - 1) + [setup.system.name == "framethinker"]
    turns = [ids if stop else [*ids, min(chat_format.eos_ids)] for ids, stop in zip(turns, stopped, strict=True)]
    trajectory, policy = rollout(setup, qa, turns)
    bare = replace(trajectory, turns=tuple(replace(turn, token_ids=()) for turn in trajectory.turns))
    dataset = setup.dataset(written(tmp_path, Record(qa, bare)))
    for number, sequence in enumerate(sequences_of(setup, policy)):
        equals_rollout(dataset[number], sequence, setup)


def test_ids_of_another_tokenizer_are_not_used(rows: list[VideoQA], checkpoints: dict[FamilyName, Path]) -> None:
    setup, qa = setup_of("videozoomer", checkpoints), rows[0]
    turns = [setup.chat_format.encode(text) for text in oracle_turns(setup, qa)]
    turns[-1].append(min(setup.chat_format.eos_ids))
    limits = episode_limits(setup.config.data, settings_of(setup.config))
    trajectory, _ = rollout(setup, qa, turns)
    for foreign in (7, 10**6):
        other = replace(trajectory, turns=tuple(replace(turn, token_ids=(foreign,)) for turn in trajectory.turns))
        (sequence,) = asyncio.run(replay(other, qa, setup.system, setup.chat_format, limits))
        said = [token for token, mask in zip(sequence.response_ids, sequence.response_mask, strict=True) if mask]
        assert said == [*turns[0], *turns[1]]


def test_a_turn_that_was_cut_stays_cut(
    rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path, equals_rollout: EqualsRollout
) -> None:
    setup = setup_of("videozoomer", checkpoints, "agentic_video.max_turn_tokens=20")
    turns = [spelled(setup.chat_format, "<think>I could go on about this for ever and")]
    trajectory, policy = rollout(setup, rows[0], turns)
    assert trajectory.end == "token_budget" and not trajectory.turns[0].finished
    dataset = setup.dataset(written(tmp_path, Record(rows[0], trajectory)))
    equals_rollout(dataset[0], policy.sequences[0], setup)
    assert int(dataset[0]["loss_mask"].sum()) == 20


def answered(setup: Setup, qa: VideoQA) -> Record:
    turns = [setup.chat_format.encode(text) for text in oracle_turns(setup, qa)]
    turns[-1].append(min(setup.chat_format.eos_ids))
    return Record(qa, rollout(setup, qa, turns)[0])


def test_records_that_cannot_be_used_are_reported(
    rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path
) -> None:
    setup = setup_of("videozoomer", checkpoints)
    good = answered(setup, rows[0])
    turns = good.trajectory.turns

    def with_turn(text: str) -> Record:
        spoilt = (replace(turns[0], text=text, token_ids=()), *turns[1:])
        return replace(good, trajectory=replace(good.trajectory, turns=spoilt))

    path = written(
        tmp_path,
        replace(good, trajectory=replace(good.trajectory, system="eva")),
        replace(good, trajectory=replace(good.trajectory, turns=())),
        replace(good, qa=replace(good.qa, video=str(tmp_path / "gone.mp4"))),
        with_turn("<think>a</think><|image_pad|>"),
        with_turn("<think>a</think><|im_end|>more</video_zoom>"),
        with_turn("word " * 6000 + "</video_zoom>"),
        with_turn("half \ud83c</video_zoom>"),
        good,
    )
    with path.open("a", encoding="utf-8") as file:
        file.write("{}\n")
    dataset = setup.dataset(path)
    assert len(dataset) == 1
    expected = (
        "played with system 'eva', not 'videozoomer'",
        "turn",
        "gone.mp4: no such file",
        "turn 1 holds a token that only the environment may write",
        "turn 1 writes out the token that ends a turn",
        "data.max_response_length",
        "turn 1 holds half of a surrogate pair",
        "line 9: field 'version' is missing",
    )
    for message, problem in zip(expected, dataset.problems, strict=True):
        assert message in problem
    small = setup_of("videozoomer", checkpoints, "data.max_prompt_length=10")
    with pytest.raises(ValueError, match=r"no usable record .*data\.max_prompt_length"):
        small.dataset(written(tmp_path, good))


def _one_rank(rank: int, meeting: str, found: Any) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    done: list[int] = []
    found.put((rank, by_ranks(range(5), lambda item: done.append(item) or -item), done))  # type: ignore[func-returns-value]
    dist.destroy_process_group()


def test_ranks_share_the_look_at_the_records(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    found: Any = context.Queue()
    ranks = [context.Process(target=_one_rank, args=(rank, str(tmp_path / "meeting"), found)) for rank in range(2)]
    for item in ranks:
        item.start()
    results = sorted(found.get(timeout=60) for _ in ranks)
    for item in ranks:
        item.join()
    assert results == [(0, [0, -1, -2, -3, -4], [0, 2, 4]), (1, [0, -1, -2, -3, -4], [1, 3])]


def test_a_video_that_fails_later_is_replaced_by_the_next_sample(
    rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setup = setup_of("videozoomer", checkpoints)
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"not a video")
    good = answered(setup, rows[0])
    bad = replace(good, qa=replace(good.qa, video=str(broken)))
    dataset = setup.dataset(written(tmp_path, bad, good))
    with caplog.at_level("WARNING"):
        for _ in range(2):
            assert torch.equal(dataset[0]["input_ids"], dataset[1]["input_ids"])
    assert len([line for line in caplog.messages if "broken.mp4" in line]) == 1


def test_another_file_of_the_same_name_is_noticed(
    rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path
) -> None:
    setup = setup_of("videozoomer", checkpoints)
    path = written(tmp_path, answered(setup, rows[0]))
    raw = json.loads(path.read_text())
    frame = next(part for part in raw["trajectory"]["opening"][-1]["parts"] if isinstance(part, dict))
    frame["time"] += 0.5
    path.write_text(json.dumps(raw))
    with pytest.raises(Exception, match="isn't the file that was watched"):
        setup.dataset(path)[0]


def test_samples_fit_verls_collator(rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path) -> None:
    setup = setup_of("framemind", checkpoints)
    dataset = setup.dataset(written(tmp_path, *(answered(setup, qa) for qa in rows[:2])))
    samples = [dataset[number] for number in range(len(dataset))]
    batch = SFTTensorCollator(DatasetPadMode.NO_PADDING)(samples)
    lengths = [len(sample["input_ids"]) for sample in samples]
    assert len(set(lengths)) > 1
    assert batch["input_ids"].offsets().diff().tolist() == lengths
    assert [tuple(row.shape) for row in batch["position_ids"].unbind()] == [(4, length) for length in lengths]


def test_the_oracles_demonstrations_are_records(
    tmp_path: Path, checkpoints: dict[FamilyName, Path], setup: Setup
) -> None:
    world = build_world(tmp_path, train=4, heldout=2, seed=6, recipe=WORLD)
    limits = episode_limits(setup.config.data, settings_of(setup.config))
    base = checkpoints["qwen3_vl" if setup.system.name in ("videobrain", "paravt") else "qwen2_5_vl"]
    write_demonstrations(tmp_path, world, base, setup.system, limits, turns_of(setup.system), WORLD)
    records = list(read_records(tmp_path / "train.jsonl"))
    assert len(records) == 4
    assert all(record.trajectory.answer is not None and record.trajectory.turns[0].token_ids for record in records)
    assert len(list(read_records(tmp_path / "heldout.jsonl"))) == 2
    assert len(setup.dataset(tmp_path / "train.jsonl")) >= 4


def learnt(setup: Setup, record: Record, tmp_path: Path) -> list[str]:
    """The texts that a record's only sequence has loss on, one for each run."""
    dataset = setup.dataset(written(tmp_path, record))
    (sample,) = [dataset[number] for number in range(len(dataset))]
    return learnt_of(setup, sample)


def learnt_of(setup: Setup, sample: dict[str, Any]) -> list[str]:
    """The same of a sample."""
    ids, mask = sample["input_ids"].tolist(), sample["loss_mask"].tolist()
    pieces: list[list[int]] = []
    for number, flag in enumerate(mask):
        if flag and (number == 0 or not mask[number - 1]):
            pieces.append([])
        if flag:
            pieces[-1].append(ids[number])
    return [setup.chat_format.decode(piece) for piece in pieces]


def zoomed(setup: Setup, qa: VideoQA) -> tuple[Record, list[str]]:
    """An oracle's episode, and the texts of its turns."""
    turns = [setup.chat_format.encode(text) for text in oracle_turns(setup, qa)]
    turns[-1].append(min(setup.chat_format.eos_ids))
    trajectory, _ = rollout(setup, qa, turns)
    return Record(qa, trajectory), [setup.chat_format.decode(ids) for ids in turns]


@pytest.mark.parametrize(("rule", "kept"), [("all", [0, 1]), ("last", [1]), ("last_2", [0, 1]), ("row", [0])])
def test_loss_by_turn(
    rule: str, kept: list[int], rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path
) -> None:
    setup = setup_of("videozoomer", checkpoints, f"agentic_video.sft.loss_turns={rule}")
    qa = replace(rows[0], extra={**rows[0].extra, "loss_turns": [1]})
    record, texts = zoomed(setup, qa)
    assert learnt(setup, record, tmp_path) == [texts[number] for number in kept]


def test_a_record_without_the_numbers_of_its_turns_is_left_out(
    rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path
) -> None:
    setup = setup_of("videozoomer", checkpoints, "agentic_video.sft.loss_turns=row")
    record, _ = zoomed(setup, rows[0])
    named = replace(record, qa=replace(rows[0], extra={**rows[0].extra, "loss_turns": [2]}))
    dataset = setup.dataset(written(tmp_path, record, named))
    assert len(dataset) == 1
    (problem,) = dataset.problems
    assert "extra_info.loss_turns must list numbers of turns, from 1 to 2; it is None" in problem


def test_loss_by_tag_within_the_last_turn(
    rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path
) -> None:
    options = ("agentic_video.sft.loss_turns=last", "agentic_video.sft.loss_tags=[answer]")
    setup = setup_of("videozoomer", checkpoints, *options)
    record, texts = zoomed(setup, rows[0])
    (text,) = learnt(setup, record, tmp_path)
    # the answer with its tags, and the token that ends the turn
    assert texts[1].endswith(text) and text.startswith("<answer>") and text.count("<") > 2


def cropped(setup: Setup, qa: VideoQA) -> Record:
    """An episode of :class:`Cropper`; each token is a character."""
    chat_format, eos = setup.chat_format, min(setup.chat_format.eos_ids)
    first = 'look</think><video_zoom>{"segment": [1, 2], "fps": 1}</video_zoom>'
    aside, last = " <answer>red</answer>, I think", "seen</think><answer>B</answer>"
    turns = [spelled(chat_format, first), *([*spelled(chat_format, text), eos] for text in (aside, last))]
    return Record(qa, rollout(setup, qa, turns)[0])


@pytest.mark.parametrize(
    ("tags", "of_aside", "of_turns"),
    [
        ("answer", ["<answer>red</answer>", "<|im_end|>"], ["<answer>B</answer><|im_end|>"]),
        ("think", ["<|im_end|>"], ["look</think>", "seen</think>", "<|im_end|>"]),
    ],
)
def test_tags_of_asides_and_tags_that_a_prefix_opens(
    tags: str,
    of_aside: list[str],
    of_turns: list[str],
    rows: list[VideoQA],
    checkpoints: dict[FamilyName, Path],
    tmp_path: Path,
) -> None:
    target = f"agentic_video.system._target_={__name__}.Cropper"
    setup = setup_of("videozoomer", checkpoints, target, f"agentic_video.sft.loss_tags=[{tags}]")
    dataset = setup.dataset(written(tmp_path, cropped(setup, rows[0])))
    assert [learnt_of(setup, dataset[number]) for number in range(len(dataset))] == [of_aside, of_turns]


def test_a_tag_that_a_prefix_opens_can_be_hidden_from(
    rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path
) -> None:
    target = f"agentic_video.system._target_={__name__}.Cropper"
    options = ("agentic_video.sft.hidden=[[think,last,opening]]", "agentic_video.sft.hidden_probability=0.1")
    setup = setup_of("videozoomer", checkpoints, target, *options)
    dataset = setup.dataset(written(tmp_path, cropped(setup, rows[0])))
    aside, episode = (dataset[number] for number in range(len(dataset)))
    assert aside["multi_modal_inputs"][HIDDEN].tolist() == []
    (query,) = {(start, end) for start, end, _, _ in episode["multi_modal_inputs"][HIDDEN].tolist()}
    assert setup.chat_format.decode(episode["input_ids"].tolist()[slice(*query)]) == "seen"


def test_a_sample_says_what_is_hidden(rows: list[VideoQA], checkpoints: dict[FamilyName, Path], tmp_path: Path) -> None:
    options = ("agentic_video.sft.hidden=[[answer,last,opening]]", "agentic_video.sft.hidden_probability=0.1")
    setup = setup_of("videozoomer", checkpoints, *options)
    record, _ = zoomed(setup, rows[0])
    sample = setup.dataset(written(tmp_path, record))[0]
    ids, spans = sample["input_ids"].tolist(), sample["multi_modal_inputs"][HIDDEN].tolist()
    assert record.trajectory.answer is not None and spans
    first = sample["loss_mask"].argmax()
    placeholders = {number for number in range(int(first)) if ids[number] == setup.processor.image_token_id}
    assert {key for _, _, start, end in spans for key in range(start, end)} == placeholders
    (query,) = {(start, end) for start, end, _, _ in spans}
    assert setup.chat_format.decode(ids[slice(*query)]) == record.trajectory.answer
