import zipfile
from pathlib import Path

import pytest

from agentic_video.utils.checkpoints import TRACKER, DamagedCheckpoint, damage, newest_whole, saved_before

KINDS = ("model", "optim", "extra_state")


def archive(file: Path) -> None:
    """A file as torch.save writes it: an uncompressed zip archive."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as zipped:
        zipped.writestr("archive/data.pkl", bytes(1000))


def checkpoint(folder: Path, step: int, below: str = "actor", ranks: int = 1, loader: str = "data.pt") -> Path:
    made = folder / f"global_step_{step}"
    for kind in KINDS:
        for rank in range(ranks):
            archive(made / below / f"{kind}_world_size_{ranks}_rank_{rank}.pt")
    if loader:
        archive(made / loader)
    return made


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(("below", "loader"), [("actor", "data.pt"), (".", "data_0.pt")])
def test_what_the_tracker_names(tmp_path: Path, below: str, loader: str) -> None:
    for step in (9, 10, 11):
        checkpoint(tmp_path, step, below, ranks=2, loader=loader)
    (tmp_path / TRACKER).write_text("10\n")  # 11 was being written
    assert newest_whole(tmp_path) == (tmp_path / "global_step_10", "")


def test_a_checkpoint_of_ones_own_needs_no_state_of_the_loader(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, 3, loader="")
    (tmp_path / TRACKER).write_text("3")
    assert newest_whole(tmp_path) == (made, "")


@pytest.mark.parametrize(
    "name", ["actor/model_world_size_1_rank_0.pt", "actor/extra_state_world_size_1_rank_0.pt", "data.pt"]
)
def test_one_that_is_cut_short_is_passed_over(tmp_path: Path, name: str) -> None:
    older, newer = checkpoint(tmp_path, 4), checkpoint(tmp_path, 5)
    cut(newer / name)
    (tmp_path / TRACKER).write_text("5")
    assert newest_whole(tmp_path) == (older, f"{newer}: {name} is cut short")


@pytest.mark.parametrize("tracker", ["", "\0\0", "5 6", "-1", "²"])
def test_a_tracker_that_names_no_step(tmp_path: Path, tracker: str) -> None:
    for step in (2, 10):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 11, loader="")  # was being written
    (tmp_path / TRACKER).write_text(tracker)
    problem = f"{tmp_path}/{TRACKER} names no step; {tmp_path}/global_step_11: data.pt is missing"
    assert newest_whole(tmp_path) == (tmp_path / "global_step_10", problem)


def test_a_step_that_was_removed(tmp_path: Path) -> None:
    older = checkpoint(tmp_path, 4)
    (tmp_path / TRACKER).write_text("5")
    assert newest_whole(tmp_path) == (older, f"{tmp_path}/global_step_5 is missing")


def test_what_verl_leaves_of_old_ones_is_not_told(tmp_path: Path) -> None:
    archive(tmp_path / "global_step_1" / "data.pt")
    newer = checkpoint(tmp_path, 2)
    cut(newer / "actor" / "optim_world_size_1_rank_0.pt")
    (tmp_path / TRACKER).write_text("2")
    with pytest.raises(DamagedCheckpoint) as raised:
        newest_whole(tmp_path)
    assert str(raised.value) == f"{newer}: actor/optim_world_size_1_rank_0.pt is cut short"


def test_nothing_was_written_yet(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)  # was being written
    assert newest_whole(tmp_path) == (None, "")
    assert newest_whole(tmp_path / "none") == (None, "")


def test_what_a_checkpoint_lacks(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, 1, ranks=3)
    assert damage(made) == ""
    (made / "actor" / "optim_world_size_3_rank_1.pt").unlink()
    assert damage(made) == "optim_world_size_3_rank_1.pt is missing"
    for file in made.rglob("model_*"):
        file.unlink()
    assert damage(made) == "it has no weights"


@pytest.mark.parametrize("below", ["", "actor"])
def test_checkpoints_before_one(tmp_path: Path, below: str) -> None:
    for number in (4, 8, 12, 16, 100):
        (tmp_path / f"global_step_{number}" / below).mkdir(parents=True)
        if number != 8:  # removed before, but for the loader's state
            (tmp_path / f"global_step_{number}" / below / "model_world_size_1_rank_0.pt").touch()
    found = saved_before(tmp_path / "global_step_16" / below)
    assert found == [tmp_path / f"global_step_{number}" / below for number in (4, 12, 16)]
    assert saved_before(tmp_path / "weights") == []
