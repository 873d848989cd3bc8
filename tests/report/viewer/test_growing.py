"""Files that others add lines to while they are read."""

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from agentic_video.report.viewer.growing import GrowingFile, signature


def add(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def new_lines(file: GrowingFile) -> list[tuple[int, bytes]]:
    return list(file.lines() or [])


def test_lines_are_given_once_and_counted_from_the_beginning(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\n')
    file = GrowingFile(path)
    assert new_lines(file) == [(1, b'{"a": 1}\n'), (3, b'{"a": 2}\n')]
    assert file.lines() is None
    add(path, '{"a": 3}\n')
    assert new_lines(file) == [(4, b'{"a": 3}\n')] and not file.restarted


def test_half_a_line_is_left_for_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text('{"a": 1}\n{"a"')
    file = GrowingFile(path)
    assert new_lines(file) == [(1, b'{"a": 1}\n')] and file.unfinished
    add(path, ": 2")
    assert new_lines(file) == [] and file.unfinished
    add(path, '}\n{"a": 3}\n')
    assert new_lines(file) == [(2, b'{"a": 2}\n'), (3, b'{"a": 3}\n')] and not file.unfinished


def test_a_whole_object_at_the_end_needs_no_line_break(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text('{"a": 1}')
    file = GrowingFile(path)
    assert new_lines(file) == [(1, b'{"a": 1}')] and not file.unfinished
    add(path, '\n{"a": 2}\n')
    assert new_lines(file) == [(2, b'{"a": 2}\n')]


def test_a_file_that_was_written_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    file = GrowingFile(path)
    new_lines(file)
    path.write_text('{"b": 1}\n{"b": 2}\n{"b": 3}\n')
    assert [line for line, _ in new_lines(file)] == [1, 2, 3] and file.restarted and file.generation == 1
    path.write_text('{"c": 1}\n')  # shorter
    assert new_lines(file) == [(1, b'{"c": 1}\n')] and file.restarted and file.generation == 2
    add(path, '{"c": 2}\n')
    assert new_lines(file) == [(2, b'{"c": 2}\n')] and not file.restarted


def test_a_file_that_isn_t_there_has_no_signature(tmp_path: Path) -> None:
    assert signature(tmp_path / "none") is None


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(), max_size=2), max_size=6), st.data())
def test_however_a_file_grows_its_lines_are_the_same(objects: list[dict[str, int]], data: st.DataObject) -> None:
    whole = "".join(json.dumps(one) + "\n" for one in objects).encode()
    with TemporaryDirectory() as folder:
        path = Path(folder, "e.jsonl")
        path.touch()
        file, found, done = GrowingFile(path), [], 0
        while done < len(whole):
            size = data.draw(st.integers(1, len(whole) - done))
            with path.open("ab") as growing:
                growing.write(whole[done : done + size])
            done += size
            os.utime(path, ns=(done, done))  # a file system's clock may be too coarse to tell the writes apart
            found += new_lines(file)
    assert [json.loads(line) for _, line in found] == objects
    assert [number for number, _ in found] == list(range(1, len(objects) + 1))
