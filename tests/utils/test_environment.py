import os
from pathlib import Path

import pytest
import torch

from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV, cache_folder, output_folder, spawn_engines
from agentic_video.utils.errors import SetupError


def test_outputs_go_where_the_variable_says_else_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert output_folder({"OUTPUT_DIR": "/elsewhere"}) == Path("/elsewhere")
    assert output_folder({"OUTPUT_DIR": "below"}) == tmp_path / "below"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert output_folder({"OUTPUT_DIR": "~/runs"}) == tmp_path / "runs"
    assert output_folder({}) == output_folder({"OUTPUT_DIR": ""}) == tmp_path / "outputs"
    with pytest.raises(SetupError, match=r"^/a\$\{b: a config can't hold a path with \$\{; set OUTPUT_DIR to another$"):
        output_folder({"OUTPUT_DIR": "/a${b"})


def test_the_cache_is_at_home_unless_the_variable_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder({"XDG_CACHE_HOME": "/caches"}) == Path("/caches/agentic_video/toyworld")
    home = Path("/home/somebody/.cache/agentic_video/toyworld")
    assert cache_folder({}) == cache_folder({"XDG_CACHE_HOME": ""}) == home


def test_no_variable_is_said_twice() -> None:
    assert not set(COMMON_ENV) & set(LAPTOP_ENV)


@pytest.mark.parametrize(
    ("cuda", "said", "wanted"), [("13.0", None, "spawn"), ("13.0", "fork", "fork"), (None, None, None)]
)
def test_engines_are_forked_only_where_torch_has_no_cuda(
    cuda: str | None, said: str | None, wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "VLLM_WORKER_MULTIPROC_METHOD"
    monkeypatch.setenv(variable, said or "")
    if said is None:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    spawn_engines()
    assert os.environ.get(variable) == wanted
