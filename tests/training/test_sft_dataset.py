"""SFT samples against the rollout's own: the same episode, once through verl's worker and once from its record."""

import asyncio
import json
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from omegaconf import DictConfig
from verl.utils import hf_processor, hf_tokenizer

from agentic_video.config.settings import episode_limits, settings_of
from agentic_video.datasets.rows import load_rows
from agentic_video.rollout.chat_template import KWARGS_KEY
from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ScriptEngine, replay
from agentic_video.rollout.tokens import ChatFormat, TokenPolicy, TokenSequence
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.tools.base import Video
from agentic_video.toyworld.build.demonstrate import write_demonstrations
from agentic_video.toyworld.build.scripted import ScriptedTokens, Setting
from agentic_video.toyworld.oracles import asides_of, turns_of
from agentic_video.toyworld.questions import build_world
from agentic_video.toyworld.scenes import SceneSource
from agentic_video.toyworld.world import WorldRecipe, make_scene
from agentic_video.training.inputs.model_inputs import with_patches_of_raw
from agentic_video.training.inputs.spans import HIDDEN
from agentic_video.training.sft_kto.datasets import KtoDataset, TrajectoryDataset, by_ranks
from agentic_video.types.action import Calls, Illegal
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation
from agentic_video.types.record import Record, read_records
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import ClipRef, Trajectory
from agentic_video.video.errors import VideoError
from agentic_video.video.sizes import crop
from agentic_video.video.store import FrameStore
from tests.config.configs import SYSTEMS, composed
from tests.rollout.chat_templates import template
from tests.share import a_few
from tests.training.records import ROOMY, Write, equal_inputs
from tests.training.workers import make_worker, trained_inputs

WORLD = WorldRecipe(mixture=(("colour", 0.5), ("beside", 0.5)))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[VideoQA]:
    world = build_world(tmp_path_factory.mktemp("world"), train=6, heldout=1, seed=5, recipe=WORLD)
    return load_rows([world.train])[0]


@dataclass(frozen=True)
class Setup:
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

    @property
    def eos(self) -> int:
        return self.chat_format.end_id

    def dataset(self, path: Path) -> TrajectoryDataset:
        return TrajectoryDataset(str(path), self.tokenizer, self.config.data, self.processor)


SetupOf = Callable[..., Setup]


@pytest.fixture
def setup_of(checkpoints: dict[str, Path]) -> SetupOf:
    def make(name: str = "videozoomer", *overrides: str) -> Setup:
        files = ["data.train_files=none", "model.path=none"]
        config = composed(name, "sft_laptop", *files, *ROOMY, *overrides)
        checkpoint = checkpoints["qwen3_vl" if name in ("videobrain", "paravt") else "qwen2_5_vl"]
        return Setup(config, hf_tokenizer(str(checkpoint)), hf_processor(str(checkpoint)), checkpoint)

    return make


@pytest.fixture(
    params=a_few(
        [(name, shown) for name in SYSTEMS for shown in ("images", "video")],
        {("videozoomer", "images"), ("framemind", "images"), ("paravt", "video"), ("eva", "video")}.__contains__,
    ),
    ids="-".join,
)
def setup(request: pytest.FixtureRequest, setup_of: SetupOf) -> Setup:
    name, frames_as = request.param
    return setup_of(name, f"agentic_video.system.frames_as={frames_as}")


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


CheckSamples = Callable[[Setup, Path, Sequence[TokenSequence]], None]


@pytest.fixture
def equal_rollouts(monkeypatch: pytest.MonkeyPatch) -> CheckSamples:
    """Compares the samples of a file, all usable, with what verl's worker makes of rollouts' sequences."""

    def compare(setup: Setup, path: Path, sequences: Sequence[TokenSequence]) -> None:
        worker, dataset = make_worker(monkeypatch, setup.checkpoint), setup.dataset(path)
        assert dataset.problems == [] and len(dataset) == len(sequences)
        for number, sequence in enumerate(sequences):
            sample = dataset[number]
            assert sample["input_ids"].tolist() == sequence.ids
            assert sample["loss_mask"].tolist() == [0] * len(sequence.prompt_ids) + sequence.response_mask
            positions, inputs = trained_inputs(worker, sequence.ids, sequence.visuals)
            assert torch.equal(sample["position_ids"], positions) and positions.shape == (4, len(sequence.ids))
            assert equal_inputs(with_patches_of_raw(worker.processor, sample["multi_modal_inputs"]), inputs)

    return compare


def test_samples_equal_the_rollouts(
    setup: Setup, rows: list[VideoQA], written: Write, equal_rollouts: CheckSamples
) -> None:
    records, sequences = [], []
    for number, qa in enumerate(rows[:3]):
        turns = [spelled(setup.chat_format, text) for text in oracle_turns(setup, qa)]
        turns[-1].append(setup.eos)
        trajectory, policy = rollout(setup, qa, turns, number)
        assert trajectory.answer is not None and trajectory.frames
        clips = any(isinstance(shown, ClipRef) for shown in trajectory.visuals)
        assert clips == (setup.system.frames_as == "video")
        records.append(Record(qa, trajectory))
        sequences += sequences_of(setup, policy)
    several = setup.system.name == "framemind" or setup.system.train_asides
    assert len(sequences) > len(records) if several else len(sequences) == len(records)
    equal_rollouts(setup, written(*records), sequences)


@pytest.mark.parametrize("kind", [TrajectoryDataset, KtoDataset])
def test_records_are_learnt_with_the_run_s_variables(
    kind: type[TrajectoryDataset], setup_of: SetupOf, rows: list[VideoQA], written: Write
) -> None:
    setup = setup_of("videozoomer", f"+{KWARGS_KEY}.enable_thinking=false")
    answer = [*setup.chat_format.encode("<think>b</think><answer>B</answer>"), setup.eos]
    record = Record(rows[0], rollout(setup, rows[0], [answer])[0], provenance={"label": "desirable"})
    path = written(record, replace(record, qa=replace(rows[0], id="other"), provenance={"label": "rejected"}))
    setup.processor.chat_template = template()
    prompts = []
    for data in (setup.config.data, setup_of("videozoomer").config.data):
        sample = kind(str(path), setup.tokenizer, data, setup.processor)[0]
        prompts.append(setup.chat_format.decode(sample["input_ids"][: int(sample["loss_mask"].argmax())].tolist()))
    assert prompts[0].endswith("<think>\n\n</think>\n\n") and prompts[1].endswith("assistant\n<think>\n")


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


CROPPER = f"agentic_video.system._target_={__name__}.Cropper"


def test_asides_prefixes_and_crops_are_learnt_as_they_were_played(
    setup_of: SetupOf, rows: list[VideoQA], written: Write, equal_rollouts: CheckSamples
) -> None:
    setup = setup_of("videozoomer", CROPPER)
    look = 'look</think><video_zoom>{"segment": [1, 2], "fps": 1}</video_zoom>'
    first, *ended = (setup.chat_format.encode(text) for text in (look, " red", "seen</think><answer>B</answer>"))
    trajectory, policy = rollout(setup, rows[0], [first, *([*ids, setup.eos] for ids in ended)])
    assert trajectory.answer == "B" and len(policy.aside_sequences) == 1
    assert any(ref.crop for ref in trajectory.frames)
    path = written(Record(rows[0], trajectory))
    equal_rollouts(setup, path, [*policy.aside_sequences, *policy.sequences])


class Drawer(VideoZoomer):
    """Shows one picture that is drawn from a zoom's frames: their strip, with a bar on top."""

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        found = await super().observe(action, view)
        assert found is not None and found.frames
        strip = np.concatenate([frame.image for frame in found.frames], axis=1)
        strip[:4] = (255, 0, 255)
        return replace(found, parts=("strip:", Frame(found.frames[0].index, found.frames[0].time, strip)))


def test_what_a_tool_drew_is_learnt_as_it_was_seen(
    setup_of: SetupOf, rows: list[VideoQA], written: Write, equal_rollouts: CheckSamples
) -> None:
    setup, qa = setup_of("videozoomer", f"agentic_video.system._target_={__name__}.Drawer"), rows[0]
    look = '<think>look</think><video_zoom>{"segment": [1, 2], "fps": 1}</video_zoom>'
    first, last = (setup.chat_format.encode(text) for text in (look, "<think>seen</think><answer>B</answer>"))
    trajectory, policy = rollout(setup, qa, [first, [*last, setup.eos]])
    [drawn] = [ref for ref in trajectory.frames if ref.made]
    assert trajectory.answer == "B"
    equal_rollouts(setup, written(Record(qa, trajectory)), policy.sequences)

    seen = trajectory.turns[0]
    bare = tuple(replace(part, picture=None) if part is drawn else part for part in seen.observation)
    lost = replace(trajectory, turns=(replace(seen, observation=bare), *trajectory.turns[1:]))  # type: ignore[arg-type]
    both = setup.dataset(written(Record(qa, trajectory), Record(qa, lost)))
    assert len(both) == 1 and len(both.problems) == 1
    assert qa.id in both.problems[0] and f"frame {drawn.index} " in both.problems[0]


def test_without_recorded_ids_the_text_is_encoded(
    setup: Setup, rows: list[VideoQA], written: Write, equal_rollouts: CheckSamples
) -> None:
    turns = [setup.chat_format.encode(text) for text in oracle_turns(setup, rows[0])]
    # A call ends with a stop text where the system has one; FrameThinker's answer is an action, and does too.
    stopped = [bool(setup.system.stop)] * (len(turns) - 1) + [setup.system.name == "framethinker"]
    turns = [ids if stop else [*ids, setup.eos] for ids, stop in zip(turns, stopped, strict=True)]
    trajectory, policy = rollout(setup, rows[0], turns)
    bare = replace(trajectory, turns=tuple(replace(turn, token_ids=()) for turn in trajectory.turns))
    equal_rollouts(setup, written(Record(rows[0], bare)), sequences_of(setup, policy))


def test_ids_of_another_tokenizer_are_not_used(rows: list[VideoQA], setup_of: SetupOf) -> None:
    setup = setup_of()
    record, turns = answered(setup, rows[0])
    limits = episode_limits(setup.config.data, settings_of(setup.config))
    for foreign in (7, 10**6):
        spoilt = tuple(replace(turn, token_ids=(foreign,)) for turn in record.trajectory.turns)
        other = replace(record.trajectory, turns=spoilt)
        (sequence,) = asyncio.run(replay(other, rows[0], setup.system, setup.chat_format, limits))
        said = [token for token, mask in zip(sequence.response_ids, sequence.response_mask, strict=True) if mask]
        assert said == [*turns[0], *turns[1]]


def test_a_turn_that_was_cut_stays_cut(
    rows: list[VideoQA], setup_of: SetupOf, written: Write, equal_rollouts: CheckSamples
) -> None:
    setup = setup_of("videozoomer", "agentic_video.max_turn_tokens=20")
    turns = [spelled(setup.chat_format, "<think>I could go on about this for ever and")]
    trajectory, policy = rollout(setup, rows[0], turns)
    assert trajectory.end == "token_budget" and not trajectory.turns[0].finished
    assert sum(policy.sequences[0].response_mask) == 20
    equal_rollouts(setup, written(Record(rows[0], trajectory)), policy.sequences)


def answered(setup: Setup, qa: VideoQA) -> tuple[Record, list[list[int]]]:
    turns = [setup.chat_format.encode(text) for text in oracle_turns(setup, qa)]
    turns[-1].append(setup.eos)
    return Record(qa, rollout(setup, qa, turns)[0]), turns


def test_records_that_cannot_be_used_are_reported(
    rows: list[VideoQA], setup_of: SetupOf, written: Write, tmp_path: Path
) -> None:
    setup = setup_of()
    good, _ = answered(setup, rows[0])
    turns = good.trajectory.turns

    def played(**changes: Any) -> Record:
        return replace(good, trajectory=replace(good.trajectory, **changes))

    def with_turn(text: str) -> Record:
        return played(turns=(replace(turns[0], text=text, token_ids=()), *turns[1:]))

    spoilt = {
        "system 'eva', not 'videozoomer'": played(system="eva"),
        "turn": played(turns=()),
        "gone.mp4": replace(good, qa=replace(good.qa, video=str(tmp_path / "gone.mp4"))),
        "turn 1": with_turn("<think>a</think><|image_pad|>"),
        "turn 1 ": with_turn("<think>a</think><|im_end|>more</video_zoom>"),
        "data.max_response_length": with_turn("word " * 6000 + "</video_zoom>"),
        " turn 1 ": with_turn("half \ud83c</video_zoom>"),
    }
    dataset = setup.dataset(written(*spoilt.values(), good, more="{}\n"))
    assert len(dataset) == 1
    for named, problem in zip((*spoilt, "line 9"), dataset.problems, strict=True):
        assert named in problem
    small = setup_of("videozoomer", "data.max_prompt_length=10")
    with pytest.raises(ValueError, match=r"data\.max_prompt_length"):
        small.dataset(written(good))


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
    rows: list[VideoQA], setup_of: SetupOf, written: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setup, broken = setup_of(), tmp_path / "broken.mp4"
    broken.write_bytes(b"not a video")
    good, _ = answered(setup, rows[0])
    dataset = setup.dataset(written(replace(good, qa=replace(good.qa, video=str(broken))), good))
    with caplog.at_level("WARNING"):
        for _ in range(2):
            assert torch.equal(dataset[0]["input_ids"], dataset[1]["input_ids"])
    assert len([line for line in caplog.messages if "broken.mp4" in line]) == 1


def test_another_file_of_the_same_name_is_noticed(rows: list[VideoQA], setup_of: SetupOf, written: Write) -> None:
    setup = setup_of()
    path = written(answered(setup, rows[0])[0])
    raw = json.loads(path.read_text())
    frame = next(part for part in raw["trajectory"]["opening"][-1]["parts"] if isinstance(part, dict))
    frame["time"] += 0.5
    path.write_text(json.dumps(raw))
    with pytest.raises(VideoError) as caught:
        setup.dataset(path)[0]
    assert caught.value.reason == "out_of_range"


def test_the_oracles_demonstrations_are_records(tmp_path: Path, setup: Setup) -> None:
    world = build_world(tmp_path, train=4, heldout=2, seed=6, recipe=WORLD)
    limits = episode_limits(setup.config.data, settings_of(setup.config))
    setting = Setting(setup.system, limits, turns_of(setup.system))
    write_demonstrations(tmp_path, world, setup.checkpoint, setting, WORLD)
    records = list(read_records(tmp_path / "train.jsonl"))
    assert len(records) == 4
    assert all(record.trajectory.answer is not None and record.trajectory.turns[0].token_ids for record in records)
    assert len(list(read_records(tmp_path / "heldout.jsonl"))) == 2
    assert len(setup.dataset(tmp_path / "train.jsonl")) >= 4


def learnt(setup: Setup, sample: dict[str, Any]) -> list[str]:
    ids, mask = sample["input_ids"].tolist(), sample["loss_mask"].tolist()
    runs = groupby(zip(ids, mask, strict=True), key=itemgetter(1))
    return [setup.chat_format.decode([token for token, _ in run]) for flag, run in runs if flag]


@pytest.mark.parametrize(
    ("rule", "tags", "kept"),
    [
        *(("all", "", [0, 1]), ("last", "", [1]), ("last_2", "", [0, 1]), ("row", "", [0])),
        ("last", "answer", ["<answer>"]),  # the answer with its tags, and the token that ends the turn
    ],
)
def test_loss_by_turn_and_tag(
    rule: str, tags: str, kept: list[Any], rows: list[VideoQA], setup_of: SetupOf, written: Write
) -> None:
    options = (f"agentic_video.sft.loss_turns={rule}", f"agentic_video.sft.loss_tags=[{tags}]")
    setup = setup_of("videozoomer", *options)
    record, turns = answered(setup, replace(rows[0], extra={**rows[0].extra, "loss_turns": [1]}))
    texts = [setup.chat_format.decode(ids) for ids in turns]
    expected = [texts[1][texts[1].index(item) :] if isinstance(item, str) else texts[item] for item in kept]
    assert learnt(setup, setup.dataset(written(record))[0]) == expected


def test_a_record_without_the_numbers_of_its_turns_is_left_out(
    rows: list[VideoQA], setup_of: SetupOf, written: Write
) -> None:
    setup = setup_of("videozoomer", "agentic_video.sft.loss_turns=row")
    record, _ = answered(setup, rows[0])
    named = replace(record, qa=replace(rows[0], extra={**rows[0].extra, "loss_turns": [2]}))
    dataset = setup.dataset(written(record, named))
    assert len(dataset) == 1 and len(dataset.problems) == 1
    assert "extra_info.loss_turns" in dataset.problems[0]


def cropped(setup: Setup, qa: VideoQA) -> Record:
    """An episode of :class:`Cropper`; each token is a character."""
    look = 'look</think><video_zoom>{"segment": [1, 2], "fps": 1}</video_zoom>'
    ended = (" <answer>red</answer>, I think", "seen</think><answer>B</answer>")
    turns = [spelled(setup.chat_format, look), *([*spelled(setup.chat_format, text), setup.eos] for text in ended)]
    return Record(qa, rollout(setup, qa, turns)[0])


@pytest.mark.parametrize(
    ("tags", "of_aside", "of_turns"),
    [
        ("answer", ["<answer>red</answer>", "<|im_end|>"], ["<answer>B</answer><|im_end|>"]),
        ("think", ["<|im_end|>"], ["look</think>", "seen</think>", "<|im_end|>"]),
    ],
)
def test_tags_of_asides_and_tags_that_a_prefix_opens(
    tags: str, of_aside: list[str], of_turns: list[str], rows: list[VideoQA], setup_of: SetupOf, written: Write
) -> None:
    setup = setup_of("videozoomer", CROPPER, f"agentic_video.sft.loss_tags=[{tags}]")
    dataset = setup.dataset(written(cropped(setup, rows[0])))
    assert [learnt(setup, dataset[number]) for number in range(len(dataset))] == [of_aside, of_turns]


def hiding(tag: str) -> tuple[str, str]:
    return f"agentic_video.sft.hidden=[[{tag},last,opening]]", "agentic_video.sft.hidden_probability=0.1"


def test_a_tag_that_a_prefix_opens_can_be_hidden_from(rows: list[VideoQA], setup_of: SetupOf, written: Write) -> None:
    setup = setup_of("videozoomer", CROPPER, *hiding("think"))
    dataset = setup.dataset(written(cropped(setup, rows[0])))
    aside, episode = (dataset[number] for number in range(len(dataset)))
    assert aside["multi_modal_inputs"][HIDDEN].tolist() == []
    (query,) = {(start, end) for start, end, _, _ in episode["multi_modal_inputs"][HIDDEN].tolist()}
    assert setup.chat_format.decode(episode["input_ids"].tolist()[slice(*query)]) == "seen"


def test_a_sample_says_what_is_hidden(rows: list[VideoQA], setup_of: SetupOf, written: Write) -> None:
    setup = setup_of("videozoomer", *hiding("answer"))
    record, _ = answered(setup, rows[0])
    sample = setup.dataset(written(record))[0]
    ids, spans = sample["input_ids"].tolist(), sample["multi_modal_inputs"][HIDDEN].tolist()
    assert record.trajectory.answer is not None and spans
    first = sample["loss_mask"].argmax()
    placeholders = {number for number in range(int(first)) if ids[number] == setup.processor.image_token_id}
    assert {key for _, _, start, end in spans for key in range(start, end)} == placeholders
    (query,) = {(start, end) for start, end, _, _ in spans}
    assert setup.chat_format.decode(ids[slice(*query)]) == record.trajectory.answer
