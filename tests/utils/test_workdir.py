import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentic_video.utils.errors import SetupError
from agentic_video.utils.workdir import claim_folder, lock, open_journal, settle, whole, write_whole


def test_a_folder_belongs_to_its_settings(tmp_path: Path) -> None:
    folder, settings = tmp_path / "below" / "job", {"a": 1, "b": {"c": (1, 2)}}
    for _ in range(2):
        claim_folder(folder, settings, "job.json", "a job")
    assert json.loads((folder / "job.json").read_text()) == {"a": 1, "b": {"c": [1, 2]}}
    (folder / "journal.jsonl").write_text("one result\n")
    for key, other in (("b.c", {"a": 1, "b": {"c": [1]}}), ("d", {**settings, "d": 2})):
        with pytest.raises(SetupError) as refused:
            claim_folder(folder, other, "job.json", "a job")
        assert refused.value.key == key
    (folder / "job.json").write_text("{")
    with pytest.raises(SetupError, match=r"job\.json"):
        claim_folder(folder, settings, "job.json", "a job")


@pytest.mark.parametrize("journal", [None, "", "torn"])
def test_a_folder_without_results_takes_other_settings(tmp_path: Path, journal: str | None) -> None:
    claim_folder(tmp_path, {"model": "mistyped"}, "job.json", "a job")
    (tmp_path / "failures.jsonl").write_text('{"key": ["a"], "error": "no such model"}\n')
    if journal is not None:
        (tmp_path / "journal.jsonl").write_text(journal)
    claim_folder(tmp_path, {"model": "right"}, "job.json", "a job")
    assert json.loads((tmp_path / "job.json").read_text()) == {"model": "right"}


def test_two_processes_do_not_share_a_folder_or_a_journal(tmp_path: Path) -> None:
    claim_folder(tmp_path, {"model": "one"}, "job.json", "a job")
    journal = tmp_path / "journal.jsonl"
    with open_journal(journal, "job"):
        with pytest.raises(SetupError):
            claim_folder(tmp_path, {"model": "other"}, "job.json", "a job")
        with pytest.raises(SetupError), open_journal(journal, "job"):
            pass
    with open_journal(journal, "job"):
        pass


def test_a_lock_is_held_by_one_and_then_free(tmp_path: Path) -> None:
    busy = SetupError("busy")
    with lock(tmp_path / "new" / ".lock", busy), pytest.raises(SetupError), lock(tmp_path / "new" / ".lock", busy):
        pass
    with lock(tmp_path / "new" / ".lock"):
        pass


@pytest.mark.parametrize(
    ("found", "kept"),
    [("", ""), ("one\ntwo\n", "one\ntwo\n"), ("one\ntw", "one\n"), ("on", ""), ("one\n" + "x" * 3_000_000, "one\n")],
)
def test_what_a_kill_left_of_a_line_is_cut_off(tmp_path: Path, found: str, kept: str) -> None:
    path = tmp_path / "journal"
    path.write_text(found)
    with open_journal(path, "job") as file:
        file.write("next\n")
        settle(file)
        assert path.read_text() == kept + "next\n"


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "below" / "file"

    def breaks() -> Iterator[str]:
        yield "new"
        raise KeyboardInterrupt

    write_whole(path, ["old", " text"])
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, breaks())
    assert path.read_text() == "old text"
    assert [file.name for file in path.parent.iterdir()] == ["file"], "nor is a part of it left"


def test_a_file_that_is_written_by_its_name_is_whole_too(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with whole(path) as part:
        part.write_bytes(b"\x00\xff")
        assert not path.exists()
    with pytest.raises(KeyError), whole(path) as part:
        part.write_bytes(b"half")
        raise KeyError
    assert path.read_bytes() == b"\x00\xff" and [file.name for file in path.parent.iterdir()] == ["file"]


def test_a_file_that_several_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: claim_folder(tmp_path, {"a": number}, path.name, "a job"), range(200)))
    assert json.loads(path.read_text())["a"] in range(200)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_full_disk_names_the_file_and_leaves_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentic_video.utils.workdir.secrets.token_hex", lambda _: "0")
    path = tmp_path / "file"
    write_whole(path, ["old"])
    (tmp_path / f"file.{os.getpid()}-0.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as full:
        write_whole(path, ["new"])
    assert full.value.filename == str(path)
    assert path.read_text() == "old" and [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_written_is_named_by_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError) as refused:
        write_whole(Path("/proc/no-such-file"), ["new"])
    assert refused.value.filename == "/proc/no-such-file"
