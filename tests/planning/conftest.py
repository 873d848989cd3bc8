import pytest

from agentic_video.planning.job import RunSpec
from tests.config.configs import set_environment
from tests.planning.plans import plan


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@pytest.fixture(scope="module")
def job() -> RunSpec:
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch)
        return plan("videozoomer", 16).job
