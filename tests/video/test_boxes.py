"""Claims of an MP4 file, read without FFmpeg."""

import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from agentic_video.video.boxes import Boxes, read_boxes
from benchmarks.hostile.videos import base


def box(kind: bytes, *inner: bytes) -> bytes:
    body = b"".join(inner)
    return struct.pack(">I", 8 + len(body)) + kind + body


def numbers(*values: int) -> bytes:
    return b"".join(struct.pack(">I", value) for value in values)


def table(*inner: bytes) -> bytes:
    return box(b"moov", box(b"trak", box(b"mdia", box(b"minf", box(b"stbl", *inner)))))


def of(folder: Path, data: bytes) -> Boxes:
    (folder / "a.mp4").write_bytes(data)
    return read_boxes(str(folder / "a.mp4"))


def test_claims_are_read(tmp_path: Path) -> None:
    ftyp = box(b"ftyp", b"isom")
    assert of(tmp_path, ftyp + table(box(b"stsz", numbers(0, 1, 77)))) == Boxes(True, True, 77)
    assert of(tmp_path, ftyp + table(box(b"stts", numbers(0, 2, 30, 1, 12, 5)))) == Boxes(True, True, 42)
    # A table that says it is longer than it is
    assert of(tmp_path, ftyp + table(box(b"ctts", numbers(0, 2**31, 30, 1)))) == Boxes(True, True, 30)
    fragment = box(b"moof", box(b"traf", box(b"trun", numbers(0, 40))))
    assert of(tmp_path, ftyp + fragment * 3) == Boxes(True, False, 120)
    assert of(tmp_path, ftyp + box(b"moov", box(b"cmov", b"x" * 20))) == Boxes(True, True, 0, compressed=True)


def test_long_and_open_boxes(tmp_path: Path) -> None:
    inner = table(box(b"stsz", numbers(0, 1, 5)))
    long = struct.pack(">I4sQ", 1, b"free", 16 + 4) + b"xxxx"
    assert of(tmp_path, box(b"ftyp") + long + inner).samples == 5
    to_the_end = struct.pack(">I", 0) + inner[4:]
    assert of(tmp_path, box(b"ftyp") + to_the_end).samples == 5


def test_good_videos(tmp_path: Path) -> None:
    assert of(tmp_path, base("mp4")) == Boxes(True, True, 24)
    assert of(tmp_path, base("fragmented.mp4")) == Boxes(True, True, 24)
    assert of(tmp_path, base("mov")) == Boxes(True, True, 24)
    for name in ("mkv", "avi", "gif", "264"):
        assert of(tmp_path, base(name)) == Boxes()


@given(st.data())
def test_no_bytes_break_it(data: st.DataObject) -> None:
    from tempfile import NamedTemporaryFile

    content = bytearray(base(data.draw(st.sampled_from(["mp4", "fragmented.mp4", "mov"]))))
    for _ in range(data.draw(st.integers(0, 5))):
        at = data.draw(st.integers(0, len(content)))
        content[at : at + 4] = data.draw(st.binary(max_size=8))
    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        assert read_boxes(file.name).samples >= 0
