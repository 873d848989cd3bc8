"""Blank the kernels of other GPUs in compiled libraries, so that a folder of packages is small to carry over.

    python benchmarks/gpu/kernels.py site --capability 90

vLLM's and flash-attn's libraries hold each kernel for half a dozen GPUs. What is blanked stays in its place as zeros,
which any compressor makes vanish; the libraries load as before. Only on GPUs of the given compute capability do they
work after that.
"""

import argparse
import mmap
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from agentic_video.utils.errors import SetupError  # noqa: E402
from benchmarks.gpu.machine import run_script  # noqa: E402

SECTIONS = (".nv_fatbin", "__nv_relfatbin")
MAGIC = 0xBA55ED50
"""First word of a container; it holds the images of one source file, each an entry for one GPU."""
MACHINE_CODE = 2
"""Kind of an entry; 1 is PTX, which the driver compiles for newer GPUs."""


def sections(data: "mmap.mmap | bytes") -> list[tuple[int, int]]:
    """Offset and size of the sections of a 64-bit ELF file that hold kernels; none where it isn't one."""
    if data[:5] != b"\x7fELF\x02" or len(data) < 64:
        return []
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQ", data, table + number * size) for number in range(count)]
    if not rows:
        return []
    names = data[rows[names_at][4] : rows[names_at][4] + rows[names_at][5]]

    def name(row: tuple[int, ...]) -> str:
        return names[row[0] : names.index(b"\0", row[0])].decode()

    return [(row[4], row[5]) for row in rows if name(row) in SECTIONS]


def entries(data: "mmap.mmap | bytes", begin: int, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Kind, compute capability (90 is 9.0), offset and bytes of each image in a section."""
    at, end = begin, begin + size
    while at + 16 <= end:
        magic, _, head, length = struct.unpack_from("<IHHQ", data, at)
        if magic != MAGIC or not head:
            at += 8  # what fills up to the next container
            continue
        entry, at = at + head, at + head + length
        while entry < at:
            kind, _, head, length = struct.unpack_from("<HHIQ", data, entry)
            if not head:
                return
            (capability,) = struct.unpack_from("<I", data, entry + 28)
            yield kind, capability, entry + head, length
            entry += head + length


def blank(file: Path, capability: int) -> tuple[int, int]:
    """Blank what isn't machine code for a compute capability.

    Returns:
        Bytes of kernels that were kept and that were blanked.
    """
    kept = blanked = 0
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as data:
        for begin, size in sections(data):
            for kind, made_for, offset, length in entries(data, begin, size):
                if kind == MACHINE_CODE and made_for == capability:
                    kept += length
                else:
                    blanked += length
                    data[offset : offset + length] = bytes(length)
    return kept, blanked


def main(words: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of installed packages; its libraries are changed")
    parser.add_argument("--capability", type=int, required=True, help="of the GPU: 80 for A100, 90 for H100 and H200")
    arguments = parser.parse_args(words)
    files = [one for one in sorted(arguments.folder.rglob("*.so*")) if one.is_file() and one.stat().st_size]
    if not files:
        raise SetupError(f"{arguments.folder}: no libraries in it")
    for file in files:
        kept, blanked = blank(file, arguments.capability)
        if kept or blanked:
            print(f"{file.name}: {kept / 1e6:.1f} MB of kernels kept, {blanked / 1e6:.1f} MB blanked")
    return 0


if __name__ == "__main__":
    run_script(main)
