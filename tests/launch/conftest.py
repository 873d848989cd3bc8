import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def nodes_folder() -> Iterator[Path]:
    """Where Ray's nodes write: their sockets' paths are at most 107 bytes long, which leaves pytest's own no room."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Path(folder)
