"""The session's test videos, and a Ray of one node."""

import time
from collections.abc import Callable, Iterator

import av
import pytest

from tests.video.video_files import SPECS, make


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Make the named file once and returns its path; skips when its encoder is missing."""
    folder = tmp_path_factory.mktemp("videos")

    def get(name: str) -> str:
        spec = SPECS[name]
        path = folder / f"{name}.{spec.suffix}"
        if not path.exists():
            try:
                av.codec.Codec(spec.codec, "w")
            except av.codec.codec.UnknownCodecError:
                pytest.skip(f"this build of FFmpeg has no encoder {spec.codec}")
            make(path, spec)
        return str(path)

    return get


@pytest.fixture
def local_ray() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
    yield
    ray.shutdown()


def kill_actor(prefix: str) -> None:
    """Kill the one actor of the running Ray whose name begins so, and wait until Ray knows that it is gone."""
    import ray

    [name] = [name for name in ray.util.list_named_actors() if name.startswith(prefix)]
    ray.kill(ray.get_actor(name))
    while name in ray.util.list_named_actors():
        time.sleep(0.05)
