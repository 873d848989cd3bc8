"""The cold start: teaches the tiny model the grammar, to read what it is shown, and to aim, but not well.

Demonstrations are played through the same episode code as rollouts, so their ids, masks and images equal the
rollouts'. They are unfinished on purpose: in some the aim is off, in some the answer is guessed at once. What they
lack is what reinforcement learning can find; what it can't repair (grammar, reading) they teach fully.
"""

import asyncio
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from agentic_video.rollout.episode import play
from agentic_video.rollout.tokens import ChatFormat, Completion, TokenPolicy, TokenSequence
from agentic_video.systems.prompts import load_prompt
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.toyworld import oracle
from agentic_video.toyworld.laptop import LIMITS, laptop_system
from agentic_video.toyworld.model import (
    TAGS,
    ModelRecipe,
    build_model,
    build_tokenizer,
    image_processor,
    logits_at,
    patches,
    save_checkpoint,
)
from agentic_video.toyworld.questions import row_of, scenes
from agentic_video.toyworld.world import COLOURS, COUNTS, SHAPES, TINTS, Kind, Renderer, Scene, WorldRecipe
from agentic_video.video.frames import Frame, resize
from agentic_video.video.reader import VideoInfo
from agentic_video.video.sampling import nearest_indices

WORD_POOLS: Mapping[Kind, tuple[str, ...]] = {
    "colour": tuple(COLOURS),
    "order": tuple(COLOURS),
    "marker": tuple(COLOURS),
    "shape": SHAPES,
    "count": COUNTS,
    "overview": tuple(TINTS),
}
"""The words that a kind of question's options are drawn from."""


@dataclass(frozen=True)
class ColdStartRecipe:
    """How the tiny model is taught.

    Attributes:
        demonstrations: Number of different demonstrations.
        off_aim: Share of demonstrations of zooming that aim 3 to 9 seconds off. Only their call is trained on: an
            answer about frames that don't show the event would poison reading.
        direct: Share of demonstrations that guess at once.
        practice_steps: Most steps of text-only practice in looking up an option's letter, before anything else; it ends
            when that is learnt.
        practice_batch: Its sequences a step.
        kept_practice: Practice sequences a step kept on later.
        steps: Steps on demonstrations.
        batch: Demonstrations a step.
        learning_rate: Peak of both phases.
        threads: Threads of torch while training.
        seed: Of everything random.
    """

    demonstrations: int = 4500
    off_aim: float = 0.4
    direct: float = 0.06
    practice_steps: int = 1200
    practice_batch: int = 128
    kept_practice: int = 16
    steps: int = 1100
    batch: int = 32
    learning_rate: float = 2e-3
    threads: int = 2
    seed: int = 0


class SceneSource:
    """Frames of scenes, drawn when asked for: thousands of demonstrations need no encoded videos.

    Args:
        scenes: By the path that stands for them.
    """

    def __init__(self, scenes: dict[str, Scene], recipe: WorldRecipe):
        self._scenes = scenes
        self._recipe = recipe

    async def aprobe(self, path: str) -> VideoInfo:
        """Facts about the video that the scene's file would be."""
        scene, recipe = self._scenes[path], self._recipe
        return VideoInfo(
            path=path,
            fps=float(recipe.fps),
            num_frames=scene.seconds * recipe.fps,
            duration=float(scene.seconds),
            width=recipe.side,
            height=recipe.side,
            rotation=0,
            variable_frame_rate=False,
            codec="none",
            pixel_format="rgb24",
            start_time=0.0,
        )

    async def aframes(self, path: str, indices: Sequence[int], size: tuple[int, int] | None = None) -> list[Frame]:
        """Frames by number, resized to ``size`` (width, height) in pixels."""
        scene = self._scenes[path]
        renderer = Renderer(scene, self._recipe)
        width, height = size or (self._recipe.side, self._recipe.side)
        return [
            Frame(index, index / self._recipe.fps, resize(renderer.frame(index), width, height)) for index in indices
        ]

    async def aframes_at(self, path: str, times: Sequence[float], size: tuple[int, int] | None = None) -> list[Frame]:
        """Frames by time in seconds."""
        stamps = np.arange(self._scenes[path].seconds * self._recipe.fps) / self._recipe.fps
        return await self.aframes(path, nearest_indices(stamps, times), size)


class _ScriptEngine:
    """Stands in for the engine: "generates" the ids of a script."""

    def __init__(self, turns: Sequence[str], chat_format: ChatFormat):
        self._turns = iter(turns)
        self._format = chat_format

    async def generate(
        self,
        prompt_ids: Sequence[int],
        frames: Sequence[Frame],
        *,
        stop: Sequence[str],
        max_tokens: int,
        banned_ids: Collection[int],
    ) -> Completion:
        text = next(self._turns)
        ids = self._format.encode(text)
        # Like a real engine: a stop text ends the turn, otherwise the model says that it is done.
        if not text.endswith(tuple(stop)):
            ids += sorted(self._format.eos_ids)
        return Completion(tuple(ids))


@dataclass(frozen=True)
class Demonstration:
    """One episode to imitate.

    Attributes:
        ids: Token ids of the whole episode.
        trained: Which of them carry loss, bool, as long as ``ids``.
        images: All frames in order, uint8, shape (frames, 28, 28, 3).
    """

    ids: tuple[int, ...]
    trained: npt.NDArray[np.bool_]
    images: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Plan:
    """What a demonstration says, and how many of its turns carry loss."""

    turns: tuple[str, ...]
    trained_turns: int


def _plan(scene: Scene, recipe: ColdStartRecipe, rng: np.random.Generator) -> _Plan:
    right = oracle.answer_text(scene.answer, scene.letter)
    if scene.event_time is None:
        return _Plan((right,), 1)
    if rng.random() < recipe.direct:
        guess = int(rng.integers(len(scene.options)))
        return _Plan((oracle.answer_text(scene.options[guess], "ABCD"[guess]),), 1)
    second = math.floor(scene.event_time)
    if rng.random() < recipe.off_aim:
        missed = second + int(rng.integers(3, 10)) * int(rng.choice([-1, 1]))
        # Two digits, and within the video.
        missed = min(max(missed, 11), scene.seconds - 2)
        if abs(missed - second) >= 3:
            return _Plan((oracle.zoom_text(missed), right), 1)
    return _Plan((oracle.zoom_text(second), right), 2)


def make_demonstrations(
    tokenizer: Any, system: VideoZoomer, world: WorldRecipe, recipe: ColdStartRecipe, world_seed: int
) -> list[Demonstration]:
    """Play scripted episodes and keep their ids, masks and images."""
    chat_format = ChatFormat(tokenizer, image_processor())
    rng = np.random.default_rng([recipe.seed, 2])
    shown = {
        f"scene:{scene.seed}": scene for scene in scenes("demonstrations", recipe.demonstrations, world_seed, world)
    }
    source = SceneSource(shown, world)

    async def demonstrate(path: str, scene: Scene) -> Demonstration:
        plan = _plan(scene, recipe, rng)
        policy = TokenPolicy(_ScriptEngine(plan.turns, chat_format), chat_format, LIMITS, system)
        trajectory = await play(system, policy, row_of(scene, path, "demonstrations"), source)
        if trajectory.answer is None or policy.sequence is None:
            raise RuntimeError(f"a demonstration ended with {trajectory.end}: {trajectory.error}")
        return _record(policy.sequence, plan.trained_turns)

    async def demonstrate_all() -> list[Demonstration]:
        return [await demonstrate(path, scene) for path, scene in shown.items()]

    return asyncio.run(demonstrate_all())


def _record(sequence: TokenSequence, trained_turns: int) -> Demonstration:
    mask = np.array([0] * len(sequence.prompt_ids) + sequence.response_mask, dtype=np.int64)
    # The number of the turn that each generated id belongs to: it grows where the mask rises from 0 to 1.
    turn = np.cumsum(np.diff(mask, prepend=0) == 1)
    trained = (mask == 1) & (turn <= trained_turns)
    return Demonstration(tuple(sequence.ids), trained, np.stack([frame.image for frame in sequence.frames]))


def make_practice(
    tokenizer: Any, system: VideoZoomer, world: WorldRecipe, count: int, seed: int
) -> list[Demonstration]:
    """Text-only practice: four options, then one of their words with its letter to be found.

    The words are drawn as the mixture of questions draws them. All of the answer carries loss, the word too although
    nothing tells which it will be: learning to name one of the options is the way to learning to look its letter up.
    """
    chat_format = ChatFormat(tokenizer, image_processor())
    rng = np.random.default_rng([seed, 3])
    shares = np.array([share for _, share in world.mixture])
    practice = []
    for number in rng.choice(len(shares), count, p=shares / shares.sum()):
        options = [str(word) for word in rng.permutation(WORD_POOLS[world.mixture[number][0]])[:4]]
        lines = "\n".join(
            system.option_format.format(letter=letter, text=word) for letter, word in zip("ABCD", options, strict=True)
        )
        place = int(rng.integers(4))
        asked = chat_format.encode(f"<|im_start|>user\n{lines}<|im_end|>\n<|im_start|>assistant\n")
        said = chat_format.encode(oracle.answer_text(options[place], "ABCD"[place]))
        trained = np.array([False] * len(asked) + [True] * len(said))
        practice.append(Demonstration((*asked, *said), trained, np.zeros((0, 28, 28, 3), np.uint8)))
    return practice


def _batch_loss(model: Any, batch: Sequence[Demonstration], pad_id: int) -> torch.Tensor:
    length = max(len(one.ids) for one in batch)
    ids = torch.full((len(batch), length), pad_id)
    trained = torch.zeros((len(batch), length), dtype=torch.bool)
    for row, one in enumerate(batch):
        ids[row, : len(one.ids)] = torch.tensor(one.ids)
        trained[row, : len(one.ids)] = torch.from_numpy(one.trained)
    images = [image for one in batch for image in one.images]
    pixels = torch.from_numpy(patches(images)) if images else None
    logits = logits_at(model, ids, pixels, trained.roll(-1, 1))
    return F.cross_entropy(logits, ids[trained])


def train(
    model: Any,
    demonstrations: Sequence[Demonstration],
    practice: Sequence[Demonstration],
    pad_id: int,
    recipe: ColdStartRecipe,
) -> None:
    """Train in place: first practice alone, then demonstrations with some practice beside them."""
    torch.set_num_threads(recipe.threads)
    rng = np.random.default_rng([recipe.seed, 4])
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.99), weight_decay=0.0)
    model.train()

    def draw(pool: Sequence[Demonstration], count: int) -> list[Demonstration]:
        return [pool[index] for index in rng.choice(len(pool), count, replace=False)]

    def update(loss: torch.Tensor, rate: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = rate * recipe.learning_rate
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def report(phase: str, step: int, losses: list[float]) -> None:
        print(f"[cold start] {phase} {step}: loss {np.mean(losses[-25:]):.4f}, {time.monotonic() - started:.0f} s",
              flush=True)  # fmt: skip

    started = time.monotonic()
    losses: list[float] = []
    # Only the word can't be known; when all else is learnt, its entropy is the whole loss.
    learnt = 1.03 * math.log(4) / int(practice[0].trained.sum())
    for step in range(1, recipe.practice_steps + 1):
        loss = _batch_loss(model, draw(practice, recipe.practice_batch), pad_id)
        update(loss, min(1.0, step / 50))
        losses.append(loss.item())
        done = step >= 25 and np.mean(losses[-5:]) < learnt
        if step % 50 == 0 or done:
            report("practice", step, losses)
        if done:
            break
    losses = []
    for step in range(1, recipe.steps + 1):
        loss = _batch_loss(model, draw(demonstrations, recipe.batch), pad_id)
        kept = _batch_loss(model, draw(practice, recipe.kept_practice), pad_id)
        decay = 0.1 + 0.45 * (1 + math.cos(math.pi * step / recipe.steps))
        update(loss + kept, min(1.0, step / 50) * decay)
        losses.append(loss.item())
        if step % 50 == 0:
            report(f"practice {kept.item():.3f}, demonstrations", step, losses)
    model.eval()


def tokenizer_corpus(system: VideoZoomer, world: WorldRecipe) -> list[str]:
    """Texts that the tokenizer's merges are learnt from: everything that an episode's messages can say."""
    texts = [load_prompt(system.prompt), system.last_turn_notice, *TAGS]
    texts += ["system\n", "user\n", "assistant\n", "Error: the call is not valid JSON.", "<frame0_time12.50s>"]
    for scene in scenes("demonstrations", 300, 0, world):
        texts += [scene.question, *(f"{letter}. {word}" for letter, word in zip("ABCD", scene.options, strict=True))]
        texts += [oracle.answer_text(scene.answer, scene.letter), oracle.zoom_text(scene.seconds - 3)]
    texts += [oracle.answer_text(word, "A") for pool in WORD_POOLS.values() for word in pool]
    return texts * 2


def make_cold_start(
    folder: Path, world: WorldRecipe, model_recipe: ModelRecipe, recipe: ColdStartRecipe, world_seed: int
) -> None:
    """Teach a new tiny model and save it as a checkpoint."""
    started = time.monotonic()
    system = laptop_system(world.overview_frames)
    tokenizer = build_tokenizer(tokenizer_corpus(system, world))
    model = build_model(tokenizer, model_recipe)
    demonstrations = make_demonstrations(tokenizer, system, world, recipe, world_seed)
    practice = make_practice(tokenizer, system, world, 20_000, recipe.seed)
    lengths = [len(one.ids) for one in demonstrations]
    print(f"[cold start] {len(demonstrations)} demonstrations of {np.mean(lengths):.0f} tokens "
          f"(at most {max(lengths)}), vocabulary {len(tokenizer)}, {time.monotonic() - started:.1f} s",
          flush=True)  # fmt: skip
    train(model, demonstrations, practice, tokenizer.pad_token_id, recipe)
    save_checkpoint(model, tokenizer, folder)
