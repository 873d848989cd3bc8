"""The tiny base model: a tokenizer, and a model that finds and reads a frame but knows no system's grammar.

One base serves the cold starts of all systems of its family, except those with words of their own, and EVA's verifier.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from agentic_video.families.registry import family_of
from agentic_video.rollout.tokens import ChatFormat
from agentic_video.systems.base import EpisodeView
from agentic_video.systems.prompts import packaged_prompts, question_text
from agentic_video.systems.registry import TOY_VOCABULARY, system_module
from agentic_video.tools.base import Video
from agentic_video.toyworld.build.imitation import Demonstration, DemonstrationSet, train
from agentic_video.toyworld.model import (
    TAGS,
    ModelRecipe,
    build_model,
    build_tokenizer,
    chat_format_of,
    save_checkpoint,
)
from agentic_video.toyworld.oracles import CustomVocabulary, Turns
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.toyworld.search import SearchRecipe, demonstrate_search
from agentic_video.toyworld.world import COLOURS, COUNTS, SHAPES, TINTS, Kind, Scene, WorldRecipe, kinds_of
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Part, visuals_of
from agentic_video.types.row import VideoQA
from agentic_video.utils.units import clock
from agentic_video.video.source import FrameRequest

OPTION_FORMAT = "{letter}. {text}"

WORD_POOLS: Mapping[Kind, tuple[str, ...]] = {
    "colour": tuple(COLOURS),
    "order": tuple(COLOURS),
    "marker": tuple(COLOURS),
    "beside": tuple(COLOURS),
    "shape": SHAPES,
    "count": COUNTS,
    "overview": tuple(TINTS),
}
"""Words that the options of each kind of question are drawn from; ``search`` uses the colours."""

_LABELS = ("", "<frame{number}_time{time:.2f}s>", "frame {index}: ", "Frame {number} at [{clock}]: ", "<{time:.2f}s>")
"""Styles of frame labels of the systems."""


@dataclass(frozen=True)
class BaseRecipe:
    """Training of the base model.

    Attributes:
        reading: Number of different questions about a few frames.
        reading_steps: Steps on them.
    """

    world: WorldRecipe = field(
        default_factory=lambda: WorldRecipe(mixture=(("colour", 0.6), ("beside", 0.2), ("overview", 0.2)))
    )
    reading: PositiveInt = 2000
    reading_steps: NonNegativeInt = 200
    reading_batch: PositiveInt = 32
    learning_rate: PositiveFloat = 3e-3
    threads: PositiveInt = 1
    seed: NonNegativeInt = 0


def answer_text(word: str) -> str:
    """The base model's reply. It names the option: looking up a letter is the hardest task for so small a model."""
    return f"<think>it is {word}</think><answer>{word}</answer>"


def verifier_message(question: str, frames: Sequence[Frame]) -> Message:
    """Message to the base model as a verifier: the frames, then the question."""
    return Message("user", (*frames, "\n" + question))


def tokenizer_corpus(searched: bool = False, own: CustomVocabulary | None = None) -> list[str]:
    """Texts that the tokenizer's merges are learnt from: episodes of the systems in ``TOY_VOCABULARY``.

    Args:
        searched: Add questions of the kind ``search``.
        own: Words of one more system.
    """
    prompts = packaged_prompts().items()
    texts = [
        text.replace("{names}", "uniform_sample or clip_sample")  # as VideoBrain fills it in
        for name, text in prompts
        if name.startswith(TOY_VOCABULARY) and name.endswith("_short")
    ]
    texts += ["system\n", "user\n", "assistant\n", "<frame0_time12.50s>", "frame 120: ", "Frame 1 at [00:42]: "]
    texts += ["00:42 is: 420", *TAGS]
    world = WorldRecipe(mixture=tuple((kind, 1 / len(WORD_POOLS)) for kind in WORD_POOLS))
    scripts: list[Turns] = [system_module(name, "oracle").turns for name in TOY_VOCABULARY]
    if own:
        texts += [*own.tags, own.prompt]
        scripts.append(own.turns)
    for scene in scenes("demonstrations", 300, 0, world):
        qa = row_of(scene, path_of(scene), "demonstrations")
        texts.append(question_text(qa, OPTION_FORMAT))
        view = _view(qa, scene, world)
        for turns in scripts:
            texts += turns(view, scene.event_time, scene.answer, scene.letter)
    texts += [answer_text(word) for pool in WORD_POOLS.values() for word in pool]
    if searched:
        texts += search_texts(scripts)
    return texts * 2


def search_texts(scripts: Sequence[Turns]) -> list[str]:
    """Texts of oracles on questions of the kind ``search``."""
    world, rng = WorldRecipe(mixture=(("search", 1.0),)), np.random.default_rng(0)
    texts = []
    for scene in scenes("demonstrations", 100, 0, world):
        qa = row_of(scene, path_of(scene), "demonstrations")
        view = _view(qa, scene, world)
        texts.append(question_text(qa, OPTION_FORMAT))
        for turns in scripts:
            texts += demonstrate_search(view, scene, turns, SearchRecipe(), rng).turns
    return texts


def _view(qa: VideoQA, scene: Scene, world: WorldRecipe) -> EpisodeView:
    """An episode on a scene before its first turn, without frames."""
    info = SceneSource({qa.video: scene}, world).facts(qa.video)
    return EpisodeView(qa, Video(qa.video, info, SceneSource({}, world)))


def single_turn(
    model: Any, chat_format: ChatFormat, message: Message, said: str, stop: Sequence[str] = (), prefix: str = ""
) -> Demonstration:
    """A message and a reply; the whole reply carries loss.

    Args:
        stop: Texts after which an engine stops: a reply that ends with one has no end-of-turn token.
        prefix: Start of the reply, without loss.
    """
    asked = chat_format.opening_ids([message]) + chat_format.prefix_ids(prefix)
    reply = chat_format.encode(said)
    if not (stop and said.endswith(tuple(stop))):
        reply.append(chat_format.end_id)
    trained = np.array([False] * len(asked) + [True] * len(reply))
    return Demonstration.make(model, [*asked, *reply], trained, visuals_of(message.parts))


def _labelled(frames: Sequence[Frame], style: int) -> list[Part]:
    """Frames, each after its label."""
    parts: list[Part] = []
    for number, frame in enumerate(frames):
        label = _LABELS[style].format(number=number, index=frame.index, time=frame.time, clock=clock(frame.time))
        parts += [label, frame]
    return parts


def make_reading(model: Any, tokenizer: Any, world: WorldRecipe, count: int, world_seed: int) -> list[Demonstration]:
    """Questions about two to seven frames, one of which shows the event.

    Half stand before the frames, and most frames have a label of some style, since systems differ in both."""
    chat_format = chat_format_of(model, tokenizer)
    side = family_of(model).tiny.frame_side
    rng = np.random.default_rng([world_seed, 5])

    def times(scene: Scene) -> list[float]:
        other = rng.uniform(0, scene.seconds - 1, int(rng.integers(1, 7))).tolist()
        if scene.event_time is None:
            return sorted(other)
        return sorted([*other, scene.event_time + float(rng.uniform(-0.4, 0.4)) * scene.event_seconds])

    async def read(scene: Scene) -> Demonstration:
        qa = row_of(scene, path_of(scene), "demonstrations")
        request = FrameRequest(qa.video, times=times(scene), size=(side, side))
        frames = (await SceneSource({qa.video: scene}, world).serve(request)).frames
        question = question_text(qa, OPTION_FORMAT)
        message = verifier_message(question, frames)
        if rng.random() < 0.5:
            message = Message("user", (question + "\n", *_labelled(frames, int(rng.integers(len(_LABELS))))))
        return single_turn(model, chat_format, message, answer_text(scene.answer))

    async def read_all() -> list[Demonstration]:
        return [await read(scene) for scene in scenes("demonstrations", count, world_seed, world)]

    return asyncio.run(read_all())


def make_base(folder: Path, model_recipe: ModelRecipe, recipe: BaseRecipe, own: CustomVocabulary | None = None) -> None:
    """Train a new tiny base model and save it as a checkpoint."""
    torch.set_num_threads(recipe.threads)
    started = time.monotonic()
    corpus, tags = tokenizer_corpus("search" in kinds_of(recipe.world), own), own.tags if own else ()
    tokenizer = build_tokenizer(corpus, tags, model_recipe.family)
    model = build_model(tokenizer, model_recipe)
    reading = make_reading(model, tokenizer, recipe.world, recipe.reading, recipe.seed)
    seconds = time.monotonic() - started
    print(
        f"[cold start] base: vocabulary {len(tokenizer)}, {len(reading)} questions, {seconds:.1f} s",
        flush=True,
    )
    train(
        model,
        [DemonstrationSet(reading, recipe.reading_batch)],
        tokenizer.pad_token_id,
        phase="reading",
        steps=recipe.reading_steps,
        learning_rate=recipe.learning_rate,
        seed=recipe.seed,
        final_rate=0.3,
    )
    save_checkpoint(model, tokenizer, folder)
