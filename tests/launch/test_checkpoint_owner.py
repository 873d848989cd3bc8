import json
from pathlib import Path

import pytest

from agentic_video.launch.run_folder import OWNER_FILE, check_owner, forget_other_rows, owner_identity, sign
from agentic_video.utils.checkpoints import TRACKER
from agentic_video.utils.errors import SetupError

FIRST = ["optim.lr=1e-5", "MODEL_PATH=/models/base", "world=2x8"]
SECOND = ["optim.lr=2e-5", "MODEL_PATH=/models/base", "world=2x8"]


def with_checkpoint(folder: Path, step: int = 40) -> Path:
    (folder / TRACKER).write_text(str(step))
    return folder


def test_a_run_resumes_from_its_own_checkpoints_until_it_has_finished(tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "checkpoints"
    check_owner(str(folder), FIRST, "auto")  # nothing is there yet
    sign(str(folder), FIRST, finished=False)
    check_owner(str(with_checkpoint(folder)), FIRST, "auto")
    sign(str(folder), FIRST, finished=True)
    with pytest.raises(SetupError, match=r"holds checkpoints of this run, which has finished: name another folder"):
        check_owner(str(folder), FIRST, "auto")


def test_another_run_s_checkpoints_are_refused_with_what_differs_and_the_ways_out(tmp_path: Path) -> None:
    sign(str(tmp_path), FIRST, finished=False)
    check_owner(str(tmp_path), SECOND, "auto")  # signed, but without a checkpoint: nothing to go on from
    with_checkpoint(tmp_path)
    with pytest.raises(SetupError) as refused:
        check_owner(str(tmp_path), SECOND, "auto")
    for part in (str(tmp_path), "theirs: optim.lr=1e-5", "optim.lr=2e-5", "trainer.resume_mode=disable", OWNER_FILE):
        assert part in str(refused.value)
    with pytest.raises(SetupError, match=r"another order"):
        check_owner(str(tmp_path), FIRST[::-1], "auto")
    # each of the remedies
    check_owner(str(tmp_path / "other"), SECOND, "auto")
    check_owner(str(tmp_path), SECOND, "disable")
    (tmp_path / OWNER_FILE).unlink()
    check_owner(str(tmp_path), SECOND, "auto")


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", '{"owner": 5, "found": "", "finished": false}', "[" * 100_000]
)
def test_a_signature_that_reports_nothing_stops_no_one(text: str, tmp_path: Path) -> None:
    (with_checkpoint(tmp_path) / OWNER_FILE).write_text(text)
    check_owner(str(tmp_path), FIRST, "auto")


def test_a_run_s_own_folder_needs_no_signature_and_one_out_of_reach_gets_none(tmp_path: Path) -> None:
    sign("", FIRST, finished=False)
    check_owner("", FIRST, "auto")
    (tmp_path / "file").write_text("")
    sign(str(tmp_path / "file" / "checkpoints"), FIRST, finished=False)
    sign(str(tmp_path / "here"), FIRST, finished=True)
    assert json.loads((tmp_path / "here" / OWNER_FILE).read_text()) == {
        "owner": FIRST,
        "found": "",
        "finished": True,
    }


def test_a_run_s_own_folder_is_not_the_current_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign(str(tmp_path), FIRST, finished=False)
    monkeypatch.chdir(with_checkpoint(tmp_path))
    check_owner("", SECOND, "auto")


def test_who_wrote_no_checkpoint_owns_none(tmp_path: Path) -> None:
    with_checkpoint(tmp_path, 100)  # put there on purpose, to go on from
    sign(str(tmp_path), FIRST, finished=False)  # and out of memory before the next one
    check_owner(str(tmp_path), SECOND, "auto")
    sign(str(tmp_path), SECOND, finished=False)
    with_checkpoint(tmp_path, 110)
    sign(str(tmp_path), SECOND, finished=False)  # interrupted, and started again
    check_owner(str(tmp_path), SECOND, "auto")
    with pytest.raises(SetupError, match="another run"):
        check_owner(str(tmp_path), FIRST, "auto")


def test_an_owner_is_a_stage_of_a_recipe_however_it_resumes() -> None:
    owner = owner_identity("eva-sft-cluster", FIRST)
    assert owner == ["eva-sft-cluster", *FIRST] != owner_identity("eva-rft-cluster", FIRST)
    assert owner_identity("eva-sft-cluster", [*FIRST, "trainer.resume_mode=disable"]) == owner
    assert owner_identity("eva-sft-cluster", ["++trainer.resume_mode=disable", *FIRST]) == owner


def test_checkpoints_of_other_rows_of_the_same_name_are_refused_unless_they_are_to_be_gone_on_from(
    tmp_path: Path,
) -> None:
    rows = "content of TRAIN_FILES="
    sign(str(tmp_path), [*FIRST, f"{rows}0a"], finished=False)
    with_checkpoint(tmp_path)
    check_owner(str(tmp_path), [*FIRST, f"{rows}0a"], "auto")
    check_owner(str(tmp_path), FIRST, "auto")  # of another machine, which can't read them
    for changed in ("refuse", "new"):
        with pytest.raises(SetupError, match="content of TRAIN_FILES has changed"):
            check_owner(str(tmp_path), [*FIRST, f"{rows}0b"], "auto", changed)  # type: ignore[arg-type]
    check_owner(str(tmp_path), [*FIRST, f"{rows}0b"], "auto", "continue")
    state = tmp_path / "global_step_40" / "data.pt"
    state.parent.mkdir()
    state.write_bytes(b"row 12 is next")
    forget_other_rows(str(tmp_path), [*FIRST, f"{rows}0a"])
    assert state.is_file()
    forget_other_rows(str(tmp_path), [*FIRST, f"{rows}0b"])
    assert not state.exists()
    with pytest.raises(SetupError, match="another run"):
        check_owner(str(tmp_path), [*SECOND, f"{rows}0b"], "auto", "continue")
