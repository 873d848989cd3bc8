"""Command line: ``python -m benchmarks.hostile.run videos --seed 0 --count 10000 --out videos.jsonl``.

Each line of the file is a part of the work; the same command continues after the last one. The totals are printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.hostile import videos

KINDS = ("videos", "outputs", "soak")
"""Modules of this folder, imported when run: their imports would count as a child's memory."""


def main(arguments: list[str] | None = None) -> int:
    """Run one of them."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["child"]:
        videos.child(words[1])
        return 0
    parser = argparse.ArgumentParser(prog="benchmarks.hostile.run", description=__doc__)
    parser.add_argument("what", choices=KINDS, help="corrupted files, what a model says, or episodes")
    parser.add_argument("--seed", type=int, default=0, help="of the files or texts")
    parser.add_argument("--count", type=int, default=1_000, help="files, outputs of each system, or episodes")
    parser.add_argument("--out", type=Path, required=True, help="json lines; is gone on with")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no part after so long")
    options = parser.parse_args(words)
    parts = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    if any(part["seed"] != options.seed or part["what"] != options.what for part in parts):
        parser.error(f"{options.out} is of another seed or kind; name another file")
    end = time.monotonic() + options.seconds
    module: Any = import_module(f"benchmarks.hostile.{options.what}")
    with options.out.open("a") as file:
        for part in module.parts(options.seed, options.count, parts):
            parts.append({"what": options.what, "seed": options.seed, **part})
            file.write(json.dumps(parts[-1]) + "\n")
            file.flush()
            if time.monotonic() > end:
                break
    print(json.dumps(module.summary(parts), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
