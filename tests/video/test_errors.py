import pickle

from agentic_video.video.errors import VideoError


def test_errors_pickle() -> None:
    error = pickle.loads(pickle.dumps(VideoError("a.mp4", "corrupt", "replace it")))
    assert (error.path, error.reason, str(error)) == ("a.mp4", "corrupt", "a.mp4: replace it [corrupt]")
