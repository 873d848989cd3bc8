import errno
import pickle

import av
import av.error
import pytest

from agentic_video.video.errors import Reason, VideoError, raise_video_error


def test_errors_pickle() -> None:
    error = pickle.loads(pickle.dumps(VideoError("a.mp4", "corrupt", "replace it")))
    assert (error.path, error.reason, str(error)) == ("a.mp4", "corrupt", "a.mp4: replace it [corrupt]")


def test_a_bare_copy_holds_nothing_of_where_it_was_raised() -> None:
    try:
        raise_video_error("a.mp4", FileNotFoundError())
    except VideoError as error:
        bare = error.bare()
        assert error.__traceback__ is not None and error.__cause__ is not None
    assert bare.__traceback__ is None and bare.__cause__ is None and bare.__context__ is None
    assert (bare.path, bare.reason) == ("a.mp4", "missing")


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (FileNotFoundError(), "missing", "no such file"),
        (NotADirectoryError(), "missing", "no such file"),
        (PermissionError(), "unreadable", "permission denied"),
        (OSError(errno.EIO, "input/output error"), "machine", "check the disk"),
        (OSError(errno.EMFILE, "too many open files"), "machine", "ulimit -n"),
        (OSError(errno.ENFILE, "too many open files"), "machine", "fs.file-max"),
        (OSError(errno.ENOMEM, "cannot allocate memory"), "machine", "no memory left"),
        (av.error.MemoryError(errno.ENOMEM, "cannot allocate memory"), "machine", "no memory left"),
        (av.error.ExitError(0, "exit"), "timeout", "takes too long"),
        (MemoryError(), "machine", "no memory left"),
        (av.error.DecoderNotFoundError(0, "none"), "unsupported", "re-encode it as H.264"),
        (av.error.PatchWelcomeError(0, "none"), "unsupported", "re-encode it as H.264"),
        (av.error.InvalidDataError(0, "noise"), "corrupt", "not a readable video"),
        (ValueError("noise"), "corrupt", "not a readable video"),
    ],
)
def test_what_went_wrong_is_told_apart(error: Exception, reason: Reason, message: str) -> None:
    with pytest.raises(VideoError, match=message) as caught:
        raise_video_error("a.mp4", error)
    assert (caught.value.path, caught.value.reason, caught.value.__cause__) == ("a.mp4", reason, error)
