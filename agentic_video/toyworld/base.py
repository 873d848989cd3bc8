"""The tiny base model: a tokenizer, and what any system needs of a model: to look up an option, and to read a frame.

It knows no system's grammar. One base serves the cold starts of all systems of its family, and answers questions about
frames that it is simply shown (EVA's witness).
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import torch

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.systems.base import EpisodeView, Message, Part
from agentic_video.systems.prompts import question_text
from agentic_video.tools.base import Video
from agentic_video.toyworld import oracles
from agentic_video.toyworld.lessons import Demonstration, Lesson, train
from agentic_video.toyworld.model import (
    FAMILIES,
    TAGS,
    ModelRecipe,
    build_model,
    build_tokenizer,
    family_of,
    image_processor,
    save_checkpoint,
)
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.toyworld.world import COLOURS, COUNTS, EVENT_SECONDS, SHAPES, TINTS, Kind, Scene, WorldRecipe, clock
from agentic_video.video.frames import Frame

OPTION_FORMAT = " {text} {letter}"
"""How the laptop profiles write an option: what follows a word is easier to look up than what stands before it."""

WORD_POOLS: Mapping[Kind, tuple[str, ...]] = {
    "colour": tuple(COLOURS),
    "order": tuple(COLOURS),
    "marker": tuple(COLOURS),
    "beside": tuple(COLOURS),
    "shape": SHAPES,
    "count": COUNTS,
    "overview": tuple(TINTS),
}
"""The words that a kind of question's options are drawn from."""


_LABELS = ("", "<frame{number}_time{time:.2f}s>", "frame {index}: ", "Frame {number} at [{clock}]: ", "<{time:.2f}s>")
"""Styles of frame labels, as one system or another writes them."""


@dataclass(frozen=True)
class BaseRecipe:
    """How the base is taught.

    Attributes:
        world: What its questions are about.
        practice_steps: Most steps of text-only practice in looking up an option's letter; it ends when that is learnt.
        practice_batch: Its sequences a step.
        reading: Number of different questions about a few frames.
        reading_steps: Steps on them.
        reading_batch: Questions a step, and as many sequences of practice from afar.
        learning_rate: Peak of both phases.
        threads: Threads of torch while training.
        seed: Of everything random.
    """

    world: WorldRecipe = field(
        default_factory=lambda: WorldRecipe(mixture=(("colour", 0.6), ("beside", 0.2), ("overview", 0.2)))
    )
    practice_steps: int = 1200
    practice_batch: int = 128
    reading: int = 4000
    reading_steps: int = 500
    reading_batch: int = 32
    learning_rate: float = 2e-3
    threads: int = 2
    seed: int = 0


def answer_text(word: str, letter: str) -> str:
    """What the base says. Naming the option's word before its letter lets a small model look the letter up."""
    return f"<think>it is {word} {letter}</think><answer>{letter}</answer>"


def witness_message(question: str, frames: Sequence[Frame]) -> Message:
    """How the base is shown frames and asked: the frames, then the question."""
    return Message("user", (*frames, "\n" + question))


def tokenizer_corpus() -> list[str]:
    """Texts that the tokenizer's merges are learnt from: what the packaged systems' episodes on the world say."""
    folder = files("agentic_video.systems.prompts")
    texts = [entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith("_short.txt")]
    texts += ["system\n", "user\n", "assistant\n", "<frame0_time12.50s>", "frame 120: ", "Frame 1 at [00:42]: "]
    texts += ["00:42 is: 420", *TAGS]
    world = WorldRecipe(mixture=tuple((kind, 1 / len(WORD_POOLS)) for kind in WORD_POOLS))
    scripts = [import_module(f"{oracles.__name__}.{module.name}").turns for module in iter_modules(oracles.__path__)]
    for scene in scenes("demonstrations", 300, 0, world):
        qa = row_of(scene, path_of(scene), "demonstrations")
        texts.append(question_text(qa, OPTION_FORMAT))
        info = asyncio.run(SceneSource({qa.video: scene}, world).aprobe(qa.video))
        view = EpisodeView(qa, Video(qa.video, info, SceneSource({}, world)))
        for turns in scripts:
            texts += turns(view, scene.event_time, scene.answer, scene.letter)
    texts += [answer_text(word, "A") for pool in WORD_POOLS.values() for word in pool]
    return texts * 2


def single_turn(
    model: Any, chat_format: ChatFormat, message: Message, said: str, stop: Sequence[str] = ()
) -> Demonstration:
    """One message and one reply, all of which carries loss.

    Args:
        stop: Texts after which an engine stops: a reply that ends with one has no end-of-turn token.
    """
    asked = chat_format.opening_ids([message])
    reply = chat_format.encode(said)
    if not (stop and said.endswith(tuple(stop))):
        reply += sorted(chat_format.eos_ids)
    trained = np.array([False] * len(asked) + [True] * len(reply))
    images = [part.image for part in message.parts if not isinstance(part, str)]
    return Demonstration.make(model, [*asked, *reply], trained, images)


def make_practice(
    model: Any, tokenizer: Any, world: WorldRecipe, count: int, seed: int, *, far: bool
) -> list[Demonstration]:
    """Text-only practice: four options, then one of their words with its letter to be found.

    The words are drawn as the mixture of questions draws them. All of the answer carries loss, the word too although
    nothing tells which it will be: learning to name one of the options is the way to learning to look its letter up.

    Args:
        far: Put more or less other text between the options and the answer, as there is in an episode. A look-up
            learnt close by fails from afar, and is hardly learnt from afar alone.
    """
    chat_format = ChatFormat(tokenizer, image_processor(family_of(model)))
    rng = np.random.default_rng([seed, 3])
    shares = np.array([share for _, share in world.mixture])
    practice = []
    for number in rng.choice(len(shares), count, p=shares / shares.sum()):
        options = [str(word) for word in rng.permutation(WORD_POOLS[world.mixture[number][0]])[:4]]
        lines = "\n".join(
            OPTION_FORMAT.format(letter=letter, text=word) for letter, word in zip("ABCD", options, strict=True)
        )
        place = int(rng.integers(4))
        filler = [
            str(rng.choice(_LABELS)).format(number=place, index=int(10 * time), time=time, clock=clock(time))
            for time in rng.uniform(0, 60, int(rng.integers(0, 11)) if far else 0)
        ]
        message = Message("user", ("\n".join((lines, *filler)),))
        practice.append(single_turn(model, chat_format, message, answer_text(options[place], "ABCD"[place])))
    return practice


def _labelled(frames: Sequence[Frame], style: int) -> list[Part]:
    """Frames, each after its label."""
    parts: list[Part] = []
    for number, frame in enumerate(frames):
        label = _LABELS[style].format(number=number, index=frame.index, time=frame.time, clock=clock(frame.time))
        parts += [label, frame]
    return parts


def make_reading(model: Any, tokenizer: Any, world: WorldRecipe, count: int, world_seed: int) -> list[Demonstration]:
    """Questions about two to seven frames, one of which shows what is asked about.

    As systems differ, so do the questions: half stand before the frames, and most frames have a label of some kind.
    """
    chat_format = ChatFormat(tokenizer, image_processor(family_of(model)))
    side = FAMILIES[family_of(model)].frame_side
    rng = np.random.default_rng([world_seed, 5])

    def times(scene: Scene) -> list[float]:
        other = rng.uniform(0, scene.seconds - 1, int(rng.integers(1, 7))).tolist()
        if scene.event_time is None:
            return sorted(other)
        return sorted([*other, scene.event_time + float(rng.uniform(-0.4, 0.4)) * EVENT_SECONDS])

    async def read(scene: Scene) -> Demonstration:
        qa = row_of(scene, path_of(scene), "demonstrations")
        frames = await SceneSource({qa.video: scene}, world).aframes_at(qa.video, times(scene), (side, side))
        question = question_text(qa, OPTION_FORMAT)
        message = witness_message(question, frames)
        if rng.random() < 0.5:
            message = Message("user", (question + "\n", *_labelled(frames, int(rng.integers(len(_LABELS))))))
        return single_turn(model, chat_format, message, answer_text(scene.answer, scene.letter))

    async def read_all() -> list[Demonstration]:
        return [await read(scene) for scene in scenes("demonstrations", count, world_seed, world)]

    return asyncio.run(read_all())


def make_base(folder: Path, model_recipe: ModelRecipe, recipe: BaseRecipe) -> None:
    """Teach a new tiny base model and save it as a checkpoint."""
    torch.set_num_threads(recipe.threads)
    started = time.monotonic()
    tokenizer = build_tokenizer(tokenizer_corpus())
    model = build_model(tokenizer, model_recipe)
    practice = make_practice(model, tokenizer, recipe.world, 20_000, recipe.seed, far=False)
    far = make_practice(model, tokenizer, recipe.world, 10_000, recipe.seed + 1, far=True)
    reading = make_reading(model, tokenizer, recipe.world, recipe.reading, recipe.seed)
    print(f"[cold start] base: vocabulary {len(tokenizer)}, {len(reading)} questions, "
          f"{time.monotonic() - started:.1f} s", flush=True)  # fmt: skip
    # Only the word can't be known; when all else is learnt, its entropy is the whole loss.
    enough = 1.03 * math.log(4) / int(practice[0].trained.sum())
    train(
        model, [Lesson("practice", practice, recipe.practice_batch)], tokenizer.pad_token_id, phase="practice",
        steps=recipe.practice_steps, learning_rate=recipe.learning_rate, seed=recipe.seed, final_rate=1.0,
        learnt=lambda loss: loss < enough,
    )  # fmt: skip
    train(
        model, [Lesson("reading", reading, recipe.reading_batch), Lesson("far practice", far, recipe.reading_batch)],
        tokenizer.pad_token_id, phase="reading", steps=recipe.reading_steps, learning_rate=recipe.learning_rate,
        seed=recipe.seed + 1, final_rate=0.3,
    )  # fmt: skip
    save_checkpoint(model, tokenizer, folder)
