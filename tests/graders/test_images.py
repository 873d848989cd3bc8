"""Frames as an endpoint takes them."""

import numpy as np
import pytest

from agentic_video.graders.images import ImageFormat, data_url
from agentic_video.types.frame import Frame
from tests.graders.pictures import picture

NOISE = np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)


@pytest.mark.parametrize("image_format", ["png", "jpeg"])
def test_a_frame_becomes_a_data_url_of_its_size(image_format: ImageFormat) -> None:
    url = data_url(Frame(0, 0.0, NOISE), image_format, 90)
    assert url.startswith(f"data:image/{image_format};base64,")
    assert picture(url).shape == (64, 48, 3)


def test_png_is_exact_and_quality_makes_jpeg_smaller() -> None:
    frame = Frame(0, 0.0, NOISE)
    assert (picture(data_url(frame, "png", 1)) == NOISE).all()
    assert len(data_url(frame, "jpeg", 10)) < len(data_url(frame, "jpeg", 90)) / 2


def test_an_even_colour_survives_jpeg() -> None:
    grey = Frame(0, 0.0, np.full((28, 56, 3), 100, np.uint8))
    assert np.abs(picture(data_url(grey, "jpeg", 90)).astype(int) - 100).max() <= 1


def test_read_only_frames_of_another_process_are_encoded() -> None:
    image = np.zeros((4, 4, 3), np.uint8)
    image.flags.writeable = False
    assert picture(data_url(Frame(0, 0.0, image[:, ::-1]), "png", 90)).shape == (4, 4, 3)
