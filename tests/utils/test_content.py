"""Digests of what a run reads."""

from pathlib import Path

import pytest

from agentic_video.utils.content import checkpoint_digest, files_digest


def test_files_are_told_apart_by_their_bytes_and_their_order(tmp_path: Path) -> None:
    one, other, copy = (tmp_path / name for name in ("one", "other", "copy"))
    one.write_bytes(b"rows")
    other.write_bytes(b"more rows")
    copy.write_bytes(b"rows")
    assert files_digest([one]) == files_digest([copy]) != files_digest([other])
    assert files_digest([one, other]) != files_digest([other, one])
    assert files_digest([tmp_path / "nowhere"]) == ""


@pytest.mark.parametrize("place", [0, 5_000_000, 9_999_999])
def test_a_checkpoint_is_told_by_its_config_and_its_weights(tmp_path: Path, place: int) -> None:
    """The middle of ten million bytes lies in a sample: each of the sixteen is 64 KiB long, every 662,298 bytes."""
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    data = bytearray(10**7)
    weights.write_bytes(data)
    before = checkpoint_digest(tmp_path)
    (tmp_path / "README.md").write_text("not read by anybody")
    assert before and checkpoint_digest(tmp_path) == before
    data[place - place % 662_298 if 0 < place < 9_999_999 else place] = 1
    weights.write_bytes(data)
    assert checkpoint_digest(tmp_path) != before
    data[:] = bytes(10**7)
    weights.write_bytes(data)
    assert checkpoint_digest(tmp_path) == before
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert checkpoint_digest(tmp_path) != before


def test_a_folder_without_a_checkpoint_has_no_digest(tmp_path: Path) -> None:
    assert checkpoint_digest(tmp_path) == checkpoint_digest("Org/name-on-the-hub") == ""
