from pathlib import Path

import pytest

from agentic_video.report.viewer.episodes import Grouping
from agentic_video.report.viewer.sources import ViewError, find_sources, load_episodes, locate_video, read_grouping

CONFIG = "actor_rollout_ref: {rollout: {n: 8}}\nalgorithm: {norm_adv_by_std_in_grpo: false}\n"


def test_files_that_hold_records_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "episodes").mkdir()
    (tmp_path / "episodes" / "step_000001.jsonl").write_text('\n{"trajectory": {}}\n')
    (tmp_path / "episodes" / "damaged.jsonl").write_text('{"trajectory": {')
    (tmp_path / "metrics-001.jsonl").write_text('{"step": 1}\n')
    (tmp_path / "empty.jsonl").touch()
    found = find_sources(tmp_path)
    assert [(one.path.name, one.set_name) for one in found] == [
        ("damaged.jsonl", "episodes"),
        ("step_000001.jsonl", "episodes"),
    ]
    assert find_sources(tmp_path / "metrics-001.jsonl")[0].set_name == "metrics"
    with pytest.raises(ViewError, match="neither a folder nor a file"):
        find_sources(tmp_path / "none")


@pytest.mark.parametrize("below", ["", "episodes", "episodes/step_1.jsonl"])
def test_the_run_s_config_is_found_from_any_of_its_paths(tmp_path: Path, below: str) -> None:
    (tmp_path / "hydra" / ".hydra").mkdir(parents=True)
    (tmp_path / "hydra" / ".hydra" / "config.yaml").write_text(CONFIG)
    assert read_grouping(tmp_path / below) == Grouping(8, False)


@pytest.mark.parametrize("text", ["", "a: [", "actor_rollout_ref: 3", "- x"])
def test_a_config_that_says_nothing_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "hydra" / ".hydra").mkdir(parents=True)
    (tmp_path / "hydra" / ".hydra" / "config.yaml").write_text(text)
    assert read_grouping(tmp_path) is None


def test_a_video_is_found_by_the_longest_tail_of_its_path(tmp_path: Path) -> None:
    for name in ("a/clip.mp4", "clip.mp4"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    record = tmp_path / "run" / "step_1.jsonl"
    assert locate_video("/gone/a/clip.mp4", record, tmp_path) == str(tmp_path / "a/clip.mp4")
    assert locate_video("/gone/b/clip.mp4", record, tmp_path) == str(tmp_path / "clip.mp4")
    assert locate_video("../clip.mp4", record, None) == str(tmp_path / "run/../clip.mp4")
    assert locate_video("bad\0name", record, tmp_path) == str(record.parent / "bad\0name")


def test_nothing_to_view_is_said_with_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"trajectory": 1}\n')
    with pytest.raises(ViewError, match=r"no episode in .*; the first problem: .*x\.jsonl line 1"):
        load_episodes([tmp_path])
