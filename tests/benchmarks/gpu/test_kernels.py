import struct
from pathlib import Path

import pytest

from agentic_video.utils.errors import SetupError
from benchmarks.gpu.kernels import MAGIC, blank, main


def entry(kind: int, capability: int, payload: bytes) -> bytes:
    """An image with a header of 64 bytes."""
    head = bytearray(64)
    struct.pack_into("<HHIQ", head, 0, kind, 0x101, 64, len(payload))
    struct.pack_into("<I", head, 28, capability)
    return bytes(head) + payload


def container(*images: bytes) -> bytes:
    body = b"".join(images)
    return struct.pack("<IHHQ", MAGIC, 1, 16, len(body)) + body


def library(kernels: bytes) -> bytes:
    """A 64-bit ELF file with code, kernels and the sections' names."""
    names = b"\0.text\0.nv_fatbin\0.names\0"
    parts = [b"", b"code code", kernels, names]
    labels = [b"", b".text", b".nv_fatbin", b".names"]
    offsets, at = [], 64
    for part in parts:
        offsets.append(at)
        at += len(part)
    head = bytearray(64)
    head[:5] = b"\x7fELF\x02"
    struct.pack_into("<Q", head, 40, at)
    struct.pack_into("<HHH", head, 58, 64, len(parts), 3)
    table = b"".join(
        struct.pack(
            "<IIQQQQ", names.index(b"\0" + label + b"\0") + 1 if label else 0, 1, 0, 0, offset, len(part)
        ).ljust(64, b"\0")
        for part, label, offset in zip(parts, labels, offsets, strict=True)
    )
    return bytes(head) + b"".join(parts) + table


def test_only_machine_code_of_the_named_gpu_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a100, h100, ptx = entry(2, 80, b"a" * 24), entry(2, 90, b"h" * 32), entry(1, 90, b"p" * 8)
    before = library(container(a100, h100) + bytes(8) + container(ptx))
    file = tmp_path / "site" / "one.abi3.so"
    file.parent.mkdir()
    file.write_bytes(before)
    (tmp_path / "site" / "script.so").write_text("no library")
    assert main([str(tmp_path / "site"), "--capability", "90"]) == 0
    assert "0.0 MB of kernels kept" in capsys.readouterr().out
    assert file.read_bytes() == before.replace(b"a" * 24, bytes(24)).replace(b"p" * 8, bytes(8))
    assert (tmp_path / "site" / "script.so").read_text() == "no library"
    # a second time there is nothing else to do
    assert blank(file, 90) == (32, 32)
    assert b"h" * 32 in file.read_bytes()


def test_a_folder_without_libraries_is_said(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no libraries"):
        main([str(tmp_path), "--capability", "90"])
