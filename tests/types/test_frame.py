import numpy as np

from agentic_video.types.frame import Frame


def test_sizes_are_the_pictures() -> None:
    frame = Frame(3, 0.3, np.zeros((28, 56, 3), np.uint8))
    assert (frame.width, frame.height) == (56, 28)


def test_frames_are_told_apart_by_identity() -> None:
    # comparing pixels would be slow, and ambiguous for arrays
    picture = np.zeros((2, 2, 3), np.uint8)
    one, other = Frame(0, 0.0, picture), Frame(0, 0.0, picture)
    assert one == one and one != other and len({one, other}) == 2
