"""Scenes as videos that are drawn on demand: thousands of demonstrations need no encoded files."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from agentic_video.toyworld.world import Renderer, Scene, WorldRecipe
from agentic_video.types.frame import Frame, Origin, image_key
from agentic_video.video.index import VideoInfo
from agentic_video.video.sizes import resize
from agentic_video.video.source import DrawnSource


def path_of(scene: Scene) -> str:
    """The path that stands for a scene."""
    return f"scene:{scene.seed}"


class SceneSource(DrawnSource):
    """Frames of scenes (by their path), and their similarity to the name of a colour."""

    def __init__(self, scenes: Mapping[str, Scene], recipe: WorldRecipe):
        self._scenes = scenes
        self._recipe = recipe

    def facts(self, path: str) -> VideoInfo:
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

    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        """Frames by number, resized to ``size`` (width, height) in pixels."""
        scene = self._scenes[path]
        renderer = Renderer(scene, self._recipe)
        width, height = size or (self._recipe.side, self._recipe.side)
        frames = []
        for index in indices:
            image = resize(renderer.frame(index), width, height)
            origin = Origin(path, index, size)  # the scene's video has it
            frames.append(Frame.stored(index, index / self._recipe.fps, image, origin, image_key(image)))
        return frames

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        """1 for a frame that shows the colour that the prompt names, else 0."""
        return [float(any(colour in prompt for colour in self._colours(path, index))) for index in indices]

    async def acompare(
        self, path: str, indices: Sequence[int], prompt: str
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """:meth:`asimilarities`, and for each two frames 1 if they show the same colours (or none), else 0."""
        shown = [self._colours(path, index) for index in indices]
        alike = [[float(colours == others) for others in shown] for colours in shown]
        relevance = await self.asimilarities(path, indices, prompt)
        return np.array(relevance, np.float32), np.array(alike, np.float32).reshape(len(shown), len(shown))

    def _colours(self, path: str, index: int) -> frozenset[str]:
        """The colours of what flashes in a frame."""
        scene, time = self._scenes[path], index / self._recipe.fps
        flashes = (flash for flash in scene.flashes if flash.start <= time < flash.end)
        return frozenset(figure.colour for flash in flashes for figure in flash.figures)
