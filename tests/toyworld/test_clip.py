"""The tiny CLIP really finds the frames that a text describes, in encoded videos that it never saw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentic_video.tools.base import Video
from agentic_video.toyworld.build.clip import (
    CONCEPTS,
    CONTEXT,
    MARK,
    ClipRecipe,
    build_tokenizer,
    make_clip,
    make_frames,
)
from agentic_video.toyworld.questions import scenes
from agentic_video.toyworld.world import COLOURS, TINTS, Kind, Renderer, Scene, WorldRecipe, make_scene, write_video
from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.encoder import ClipEncoder
from agentic_video.video.retrieval.retriever import FrameRetriever
from agentic_video.video.sizes import resize
from agentic_video.video.store import FrameStore

WORLD = WorldRecipe()
SCENES = 40


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip")
    make_clip(folder, WORLD, seed=0)
    return folder


@pytest.fixture(scope="module")
def config(clip_folder: Path) -> RetrievalConfig:
    return RetrievalConfig(model=f"local-dir:{clip_folder}", device="cpu", wait_ms=1.0)


@pytest.fixture(scope="module")
def encoder(config: RetrievalConfig) -> ClipEncoder:
    return ClipEncoder(config)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Scene]:
    folder = tmp_path_factory.mktemp("videos")
    made = {folder / f"{scene.seed}.mp4": scene for scene in of_kind("beside", SCENES)}
    for path, scene in made.items():
        write_video(scene, path, WORLD)
    return made


def of_kind(kind: Kind, count: int) -> list[Scene]:
    return list(scenes("heldout", count, 0, replace(WORLD, mixture=((kind, 1.0),))))


def candidates(scene: Scene, count: int) -> list[int]:
    """128 over the whole video, or 32 over the 24 s around the event: in both, some lie within the event."""
    frames = scene.seconds * WORLD.fps
    if count == 128:
        return [int(index) for index in np.linspace(0, frames - 1, count)]
    assert scene.event_time is not None
    middle = np.clip(scene.event_time, 12, scene.seconds - 12)
    first = round((middle - 12) * WORLD.fps)
    return [int(index) for index in np.linspace(first, first + 24 * WORLD.fps - 1, count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "prompt"), [(128, "{}"), (32, "{}"), (32, "find the moment when a {} flash is on screen")]
)
def test_the_best_four_hold_the_event(
    count: int, prompt: str, encoder: ClipEncoder, config: RetrievalConfig, videos: dict[Path, Scene]
) -> None:
    async def hits() -> int:
        store = FrameStore()
        retriever = FrameRetriever(store, encoder, config)
        found = 0
        for path, scene in videos.items():
            video = await Video.open(str(path), store, retriever)
            best = await video.best_matches(prompt.format(scene.beside), candidates(scene, count), 4)
            [flash] = scene.flashes
            found += any(flash.start <= index / WORLD.fps < flash.end for index in best)
        return found

    found = asyncio.run(hits())
    print(f"[clip] found {found} of {len(videos)} with {count} candidates, prompt {prompt!r}")
    assert found >= 0.9 * len(videos)


def pictures(made: Sequence[Scene], moment: Callable[[Scene], float]) -> list[np.ndarray]:
    return [resize(Renderer(scene, WORLD).frame(round(moment(scene) * WORLD.fps)), 28, 28) for scene in made]


@pytest.mark.slow
def test_backgrounds_are_found_by_their_tint(encoder: ClipEncoder) -> None:
    made = of_kind("overview", 60)
    frames = encoder.images(pictures(made, lambda scene: scene.seconds / 2))
    texts = encoder.texts([f"{tint} background" for tint in TINTS])
    named = [list(TINTS)[place] for place in (frames @ texts.T).argmax(1)]
    assert np.mean([tint == scene.tint for tint, scene in zip(named, made, strict=True)]) >= 0.9


@pytest.mark.slow
def test_of_all_colours_the_two_that_show_come_first(encoder: ClipEncoder) -> None:
    made = of_kind("beside", 60)
    frames = encoder.images(pictures(made, lambda scene: scene.event_time or 0.0))
    order = (frames @ encoder.texts(list(COLOURS)).T).argsort(1)[:, ::-1]
    first = [{list(COLOURS)[place] for place in places[:2]} for places in order]
    assert np.mean([two == {scene.beside, scene.answer} for two, scene in zip(first, made, strict=True)]) >= 0.9


@pytest.mark.slow
def test_open_clip_loads_the_folder(clip_folder: Path) -> None:
    import open_clip
    import torch
    from PIL import Image

    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{clip_folder}")
    assert type(model) is open_clip.CLIP
    tokens = open_clip.get_tokenizer(f"local-dir:{clip_folder}")(["a red flash", "red " * 1000])
    assert tokens.shape == (2, CONTEXT)
    with torch.inference_mode():
        images = model.eval().encode_image(transform(Image.new("RGB", (56, 56), COLOURS["red"]))[None])
        assert images.shape == model.encode_text(tokens)[:1].shape
    assert sum(file.stat().st_size for file in clip_folder.iterdir()) < 2**20


def test_a_clip_follows_from_its_seed(tmp_path: Path) -> None:
    recipe = ClipRecipe(frames=60, steps=3)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_clip(tmp_path / name, WORLD, seed, recipe)
    weights = [(tmp_path / name / "open_clip_model.safetensors").read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]
    config = json.loads((tmp_path / "a" / "open_clip_config.json").read_text())
    assert config["model_cfg"]["text_cfg"]["vocab_size"] == len(build_tokenizer())


def test_training_frames_hold_what_they_say() -> None:
    world = replace(WORLD, mixture=(("marker", 0.5), ("order", 0.5)))
    shown, holds = make_frames(world, 0, 300)
    assert shown.shape == (300, 28, 28, 3) and holds.shape == (300, len(CONCEPTS))
    tints = holds[:, [CONCEPTS.index(tint) for tint in TINTS]]
    assert (tints.sum(1) == 1).all()
    colours = holds[:, : len(COLOURS)].sum(1)
    assert set(colours) == {0, 1, 2}  # nothing, a flash, a pair
    marked = holds[:, CONCEPTS.index(MARK)] == 1
    assert marked.any() and (shown[marked, :10].mean((1, 2, 3)) < 30).all()
    for place, colour in enumerate(COLOURS.values()):
        close = (np.abs(shown.astype(int) - colour).max(-1) < 30).mean((1, 2))
        assert (close[holds[:, place] == 1] > 0.05).all() and (close[holds[:, place] == 0] < 0.05).all()


def test_beside_shows_both_colours_side_by_side() -> None:
    for scene in of_kind("beside", 80):
        assert scene.beside and scene.question == f"What colour shows beside {scene.beside}?"
        assert scene.beside not in scene.options and scene.answer in scene.options and len(set(scene.options)) == 4
        assert scene.event_time is not None
        # Nothing shows a second before, and both colours fill much of the picture in the middle of the event.
        for second, share in ((scene.event_time, 0.25), (scene.event_time - 1, 0.0)):
            picture = Renderer(scene, WORLD).frame(round(second * WORLD.fps))
            for colour in (scene.beside, scene.answer):
                covered = (picture == COLOURS[colour]).all(-1)
                assert (covered.mean() > share) if share else not covered.any()
                columns = covered.any(0).nonzero()[0]
                assert not share or np.ptp(columns) + 1 == len(columns) <= 28
    sides = [scene.flashes[0].figures[0].colour == scene.beside for scene in of_kind("beside", 80)]
    assert 20 < sum(sides) < 60


def test_other_kinds_name_no_colour() -> None:
    recipe = replace(WORLD, mixture=(("colour", 0.5), ("order", 0.5)))
    assert all(make_scene(seed, recipe).beside is None for seed in range(20))
