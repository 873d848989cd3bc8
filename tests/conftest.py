"""Fixtures shared by the whole suite."""

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from transformers import Qwen2VLImageProcessor

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.model import build_tokenizer
from agentic_video.types.frame import Frame, Origin, image_key
from agentic_video.types.row import VideoQA
from agentic_video.utils.host import count_gpus
from agentic_video.video.errors import VideoError
from agentic_video.video.index import VideoInfo
from agentic_video.video.source import DrawnSource
from tests.families.processors import processor_of
from tests.faulty_server import serve  # noqa: F401  (a fixture)
from tests.utils.machines import machine  # noqa: F401  (a fixture)

REPOSITORY = Path(__file__).resolve().parents[1]
for example in ("custom_tool", "custom_reward", "custom_family"):  # as their run.sh does
    sys.path.insert(0, str(REPOSITORY / "examples" / example))

if not count_gpus():
    os.environ.setdefault("VERL_PLATFORM", "cpu")  # before anything imports verl


def pytest_collection() -> None:
    """What imports and collection make stays: to search it again and again for garbage would take seconds."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave out of later searches for garbage what is there now: millions of objects, for as long as tests run."""
    gc.enable()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that need a GPU skip themselves where there is none."""
    if item.get_closest_marker("gpu") and not count_gpus():
        pytest.skip("no GPU")


class MemorySource(DrawnSource):
    """Grey frames, 10 frames a second, without a file; counts the requested frames."""

    keyframe_interval = 50

    def __init__(self, duration: float = 60.0, fps: float = 10.0, size: tuple[int, int] = (64, 64), fail: bool = False):
        self.info = VideoInfo(
            path="memory",
            fps=fps,
            num_frames=int(duration * fps),
            duration=duration,
            width=size[0],
            height=size[1],
            rotation=0,
            variable_frame_rate=False,
            codec="none",
            pixel_format="rgb24",
            start_time=0.0,
        )
        self.fail_frames = fail
        self.requested = 0

    def facts(self, path: str) -> VideoInfo:
        return self.info

    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        if self.fail_frames:
            raise VideoError(path, "corrupt", "made to fail")
        self.requested += len(indices)
        width, height = size or (self.info.width, self.info.height)
        images = [np.full((height, width, 3), index % 256, np.uint8) for index in indices]
        return [
            Frame.stored(index, index / self.info.fps, image, Origin(path, index, size), image_key(image))
            for index, image in zip(indices, images, strict=True)
        ]


class FlatSource(MemorySource):
    """The same of black frames that take no memory, however many and large they are."""

    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        width, height = size or (self.info.width, self.info.height)
        black = np.broadcast_to(np.zeros(1, np.uint8), (height, width, 3))
        key = f"black {width} x {height}"
        return [Frame.stored(index, index / self.info.fps, black, Origin(path, index, size), key) for index in indices]


@pytest.fixture
def source() -> MemorySource:
    return MemorySource()


@pytest.fixture
def qa() -> VideoQA:
    return VideoQA(
        id="q1",
        video="memory",
        question="What colour flashes at 42 s?",
        answer="B",
        options=("red", "green", "blue", "grey"),
        data_source="test",
    )


@pytest.fixture(scope="session")
def chat_format() -> ChatFormat:
    """A real tokenizer with Qwen2.5-VL's special tokens, small, and the real image processor."""
    text = Path(__file__).read_text(encoding="utf-8")
    processor = Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352)
    return ChatFormat(build_tokenizer([text]), processor_of(processor))


settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")
