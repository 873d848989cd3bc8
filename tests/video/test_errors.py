import errno
import math
import pickle
import time

import av
import av.error
import pytest

from agentic_video.video.errors import Deadline, Reason, VideoError, raise_video_error


def test_errors_pickle() -> None:
    error = pickle.loads(pickle.dumps(VideoError("a.mp4", "corrupt", "replace it")))
    assert (error.path, error.reason, str(error)) == ("a.mp4", "corrupt", "a.mp4: replace it [corrupt]")


def test_a_bare_copy_has_no_traceback() -> None:
    try:
        raise_video_error("a.mp4", FileNotFoundError())
    except VideoError as error:
        bare = error.bare()
        assert error.__traceback__ is not None and error.__cause__ is not None
    assert bare.__traceback__ is None and bare.__cause__ is None and bare.__context__ is None
    assert (bare.path, bare.reason) == ("a.mp4", "missing")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(), "missing"),
        (NotADirectoryError(), "missing"),
        (PermissionError(), "unreadable"),
        (OSError(errno.EIO, "input/output error"), "machine"),
        (OSError(errno.EMFILE, "too many open files"), "machine"),
        (OSError(errno.ENOMEM, "cannot allocate memory"), "machine"),
        (av.error.MemoryError(errno.ENOMEM, "cannot allocate memory"), "machine"),
        (av.error.ExitError(0, "exit"), "timeout"),
        (MemoryError(), "machine"),
        (av.error.DecoderNotFoundError(0, "none"), "unsupported"),
        (av.error.PatchWelcomeError(0, "none"), "unsupported"),
        (av.error.InvalidDataError(0, "noise"), "corrupt"),
        (ValueError("noise"), "corrupt"),
    ],
)
def test_errors_are_classified(error: Exception, reason: Reason) -> None:
    with pytest.raises(VideoError) as caught:
        raise_video_error("a.mp4", error)
    assert (caught.value.path, caught.value.reason, caught.value.__cause__) == ("a.mp4", reason, error)


def test_a_deadline_is_a_timeout_once_it_has_passed() -> None:
    for limit in (None, math.inf, 1e9):
        Deadline("a.mp4", limit).check()
    deadline = Deadline("a.mp4", 1e-6)
    time.sleep(1e-5)
    with pytest.raises(VideoError) as caught:
        deadline.check()
    assert (caught.value.path, caught.value.reason) == ("a.mp4", "timeout")
