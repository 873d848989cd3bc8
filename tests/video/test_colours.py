"""RGB of tagged colours by the matrix and the range that a file names."""

from pathlib import Path

import av
import numpy as np
import pytest
from av.video.reformatter import ColorRange, Colorspace

from agentic_video.video.open import open_video

FLAT = {"BT.601": (0.299, 0.114), "BT.709": (0.2126, 0.0722), "BT.2020": (0.2627, 0.0593)}
"""Shares of red and blue in luma (ITU-R BT.601, BT.709, BT.2020); green has the rest."""
TAGS = {"BT.601": Colorspace.SMPTE170M, "BT.709": Colorspace.ITU709, "BT.2020": 9}
GREEN, RED, BLUE, GREY = (40, 200, 40), (200, 40, 40), (40, 40, 200), (128, 128, 128)


def ycbcr(colour: tuple[int, int, int], matrix: str, full: bool) -> tuple[int, int, int]:
    """The 8-bit Y, Cb and Cr of a colour, by the definition of each standard."""
    red, green, blue = (value / 255 for value in colour)
    of_red, of_blue = FLAT[matrix]
    luma = of_red * red + (1 - of_red - of_blue) * green + of_blue * blue
    blueness, redness = (blue - luma) / (2 - 2 * of_blue), (red - luma) / (2 - 2 * of_red)
    if full:
        return round(255 * luma), round(128 + 255 * blueness), round(128 + 255 * redness)
    return round(16 + 219 * luma), round(128 + 224 * blueness), round(128 + 224 * redness)


def test_the_definition_by_hand() -> None:
    """BT.709, limited: Y = 16 + 219 (0.2126 x 40 + 0.7152 x 200 + 0.0722 x 40) / 255 = 148.63; Cb and Cr likewise."""
    assert ycbcr(GREEN, "BT.709", full=False) == (149, 74, 64)
    assert ycbcr(GREEN, "BT.601", full=False) == (131, 81, 69)
    assert ycbcr(GREY, "BT.2020", full=True) == (128, 128, 128)


@pytest.mark.parametrize("depth", [8, 10])
@pytest.mark.parametrize("full", [False, True], ids=["limited", "full"])
@pytest.mark.parametrize("matrix", list(FLAT))
def test_each_matrix_and_range_gives_the_colours_back(matrix: str, full: bool, depth: int, tmp_path: Path) -> None:
    """Four fields, each of one colour; BT.709 by the matrix of BT.601 would make of green 200 a 227."""
    path = tmp_path / "colours.mp4"
    fields = [GREEN, RED, BLUE, GREY]
    scale = 1 << (depth - 8)
    kind = np.uint8 if depth == 8 else np.uint16
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=5, options={"qp": "0", "preset": "ultrafast"})
        stream.width, stream.height = 128, 32
        stream.pix_fmt = "yuv444p" if depth == 8 else "yuv444p10le"
        stream.codec_context.colorspace = int(TAGS[matrix])
        stream.codec_context.color_range = int(ColorRange.JPEG if full else ColorRange.MPEG)
        planes = np.zeros((3, 32, 128), kind)
        for column, colour in enumerate(fields):
            for plane, value in enumerate(ycbcr(colour, matrix, full)):
                planes[plane, :, 32 * column : 32 * column + 32] = value * scale
        for number in range(3):
            frame = av.VideoFrame(128, 32, stream.pix_fmt)
            for plane, values in zip(frame.planes, planes, strict=True):
                plane.update(np.pad(values, ((0, 0), (0, plane.line_size // kind().itemsize - 128))).tobytes())
            frame.pts = number
            frame.colorspace, frame.color_range = int(TAGS[matrix]), int(ColorRange.JPEG if full else ColorRange.MPEG)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with open_video(path) as reader:
        [image] = reader.read([1])
    for column, colour in enumerate(fields):
        shown = image[8:24, 32 * column + 8 : 32 * column + 24].reshape(-1, 3)
        assert np.abs(shown.astype(int) - colour).max() <= 3, (colour, shown[0])
