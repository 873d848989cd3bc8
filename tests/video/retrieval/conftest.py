"""Files with an identity, and a tiny CLIP."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.retrieval.encoder import ClipEncoder
from tests.video.retrieval.clip_models import write_clip


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other are most of the time that so small a model takes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file to have an identity; its frames come from a source in memory."""
    file = tmp_path / "video.mp4"
    file.write_bytes(b"video")
    return str(file)


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> ClipEncoder:
    return ClipEncoder(RetrievalConfig(model=write_clip(tmp_path_factory.mktemp("clip")), device="cpu"))
