"""Digests of a run's inputs, by which a resumed run knows that they are the same."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 20
_SAMPLES, _SAMPLE_BYTES = 16, 1 << 16
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_SMALL = (
    "config.json",
    "*.index.json",
    "adapter_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "processor_config.json",
    "chat_template*",
)


def files_digest(files: Iterable[str | Path]) -> str:
    """Digest of files' bytes, in their order; empty where one of them can't be read here."""
    digest = hashlib.blake2b(digest_size=10)
    try:
        for path in files:
            with open(path, "rb") as file:
                own = hashlib.blake2b(digest_size=20)
                while chunk := file.read(_CHUNK):
                    own.update(chunk)
            digest.update(own.digest())
    except (OSError, ValueError):
        return ""
    return digest.hexdigest()


def checkpoint_digest(folder: str | Path) -> str:
    """Digest of a checkpoint in Hugging Face's format; empty where there is none here.

    Weights count by name, size and samples, their beginning and end among them: 100 GB take less than a second.
    """
    path = Path(folder).expanduser()
    digest = hashlib.blake2b(digest_size=10)
    try:
        if not (path / "config.json").is_file():
            return ""
        for file in sorted({file for pattern in _SMALL for file in path.glob(pattern) if file.is_file()}):
            digest.update(repr((file.name, hashlib.blake2b(file.read_bytes(), digest_size=20).hexdigest())).encode())
        for file in sorted({file for pattern in _WEIGHTS for file in path.glob(pattern) if file.is_file()}):
            with file.open("rb") as weights:
                digest.update(repr((file.name, *_samples(weights, file.stat().st_size))).encode())
    except (OSError, ValueError):
        return ""
    return digest.hexdigest()


def _samples(file: BinaryIO, size: int) -> tuple[int, str]:
    """A file's size, and a digest of evenly spread samples."""
    digest = hashlib.blake2b(digest_size=20)
    for number in range(_SAMPLES):
        file.seek(max(0, size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
        digest.update(file.read(_SAMPLE_BYTES))
    return size, digest.hexdigest()
