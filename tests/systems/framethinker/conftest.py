"""The question that FrameThinker's tests share."""

from dataclasses import replace

import pytest

from agentic_video.types.row import VideoQA


@pytest.fixture
def asked(qa: VideoQA) -> VideoQA:
    """A question that holds a clock time."""
    return replace(qa, question="What colour flashes at 00:42?")
