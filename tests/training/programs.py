"""Modules of these tests that run as programs of their own, and what they share."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
RESULT = "RESULT "


def result_of(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {}), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return read_result(done.stdout)


def read_result(output: str) -> Any:
    (line,) = [line for line in output.splitlines() if line.startswith(RESULT)]
    return json.loads(line.removeprefix(RESULT))


def report(result: Any) -> None:
    print(RESULT + json.dumps(result), flush=True)


def weights_digest(actor: Any) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(actor.worker.actor.engine.module.state_dict().items()):
        weight = value.full_tensor() if hasattr(value, "full_tensor") else value
        digest.update(name.encode() + weight.float().numpy().tobytes())
    return digest.hexdigest()
