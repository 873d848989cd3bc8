"""Frame embeddings, kept in memory and in a folder with a file for each video and model.

Processes of several nodes may share the folder, also on a network disk: files are replaced as a whole, and damaged or
missing ones are made again.
"""

import contextlib
import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from agentic_video.video.cache import BoundedCache, VideoIdentity
from agentic_video.video.retrieval.config import RetrievalConfig

Embedding = npt.NDArray[np.float32]
"""Of one frame or text: shape (dim,), length 1."""

logger = logging.getLogger(__name__)

_SWEEP_SECONDS = 60.0
"""Between two looks at a folder that seems to have room: other processes fill it too."""

_SWEEP_TO = 0.9
"""Share of its bound that a full folder is reduced to, so that not every write has to look again."""


class EmbeddingCache:
    """Frame embeddings of one model: ``memory`` for one thread, :meth:`load` and :meth:`save` for another."""

    def __init__(self, config: RetrievalConfig, model: str) -> None:
        self._model = model
        self.memory: BoundedCache[tuple[VideoIdentity, int], Embedding] = BoundedCache(
            config.max_bytes, lambda row: row.nbytes
        )
        self._folder = Path(config.cache_dir).expanduser() if config.cache_dir else None
        self._folder_bytes = config.cache_bytes
        # Upper bound of the folder's bytes, as far as this process knows.
        self._folder_total = 0
        self._swept = -np.inf
        self.disk_errors = 0
        """Files that could not be read or written."""

    @property
    def on_disk(self) -> bool:
        """Return True if there is a folder."""
        return self._folder is not None

    def load(self, video: VideoIdentity, indices: Iterable[int]) -> dict[int, Embedding]:
        """Load those embeddings that a video's file holds; a damaged file holds none."""
        file = self._file(video)
        if file is None:
            return {}
        stored = self._read(file)
        if stored:
            with contextlib.suppress(OSError):  # evicted meanwhile
                os.utime(file)
        return {index: stored[index] for index in indices if index in stored}

    def save(self, video: VideoIdentity, rows: Mapping[int, Embedding]) -> None:
        """Add embeddings to a video's file; failures are counted."""
        file = self._file(video)
        if file is None or not rows:
            return
        merged = {**self._read(file), **rows}
        indices = sorted(merged)
        partial = file.with_name(f"{file.stem}.{uuid.uuid4().hex}.tmp")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as stream:
                np.savez(stream, indices=np.array(indices), rows=np.stack([merged[index] for index in indices]))
            size = partial.stat().st_size
            if size > self._folder_bytes:
                partial.unlink()
                return
            self._folder_total += size
            os.replace(partial, file)
            self._sweep()
        except OSError as error:
            self._failed(f"can't write to {file.parent}: {error}")
            with contextlib.suppress(OSError):
                partial.unlink()

    def _file(self, video: VideoIdentity) -> Path | None:
        if self._folder is None:
            return None
        # Without the inode: it may differ between nodes that share the folder.
        name = json.dumps([self._model, video.path, video.mtime_ns, video.size])
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()}.npz"

    def _read(self, file: Path) -> dict[int, Embedding]:
        try:
            with np.load(file, allow_pickle=False) as content:
                indices, rows = content["indices"], content["rows"]
            if indices.dtype != np.int64 or rows.dtype != np.float32 or rows.shape[:1] != indices.shape:
                raise ValueError(f"holds {indices.dtype}{indices.shape} and {rows.dtype}{rows.shape}")
            if rows.ndim != 2 or not (np.abs(np.linalg.norm(rows, axis=1) - 1) < 0.01).all():
                raise ValueError("holds rows that are no embeddings")
        except FileNotFoundError:
            return {}
        except Exception as error:  # a damaged archive can raise nearly anything
            self._failed(f"{file} is damaged and will be replaced: {error}")
            return {}
        return {int(index): row for index, row in zip(indices, rows, strict=True)}

    def _failed(self, message: str) -> None:
        if not self.disk_errors:
            logger.warning("cache of frame embeddings: %s (further ones are only counted)", message)
        self.disk_errors += 1

    def _sweep(self) -> None:
        """Reduce a folder beyond its bound, oldest files first; looks only now and then while there is room."""
        assert self._folder is not None
        now = time.monotonic()
        if now - self._swept < _SWEEP_SECONDS and self._folder_total <= self._folder_bytes:
            return
        files = []
        for file in self._folder.iterdir():
            if file.suffix in (".npz", ".tmp"):
                with contextlib.suppress(FileNotFoundError):  # another process sweeps too
                    status = file.stat()
                    files.append((status.st_mtime_ns, status.st_size, file))
        total = sum(size for _, size, _ in files)
        if total > self._folder_bytes:
            for _, size, file in sorted(files):
                if total <= _SWEEP_TO * self._folder_bytes:
                    break
                file.unlink(missing_ok=True)
                total -= size
        self._folder_total, self._swept = total, now
