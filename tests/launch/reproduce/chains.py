"""A small chain whose commands are a program of a few lines, and the folder in which it is reproduced."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agentic_video.launch.reproduce.chain import Chain, Mode, read_chain
from agentic_video.launch.reproduce.reproduction import ReproduceOptions, Reproduction
from agentic_video.launch.reproduce.state import State

PROGRAM = """
import json, pathlib, sys, time
what, *words = sys.argv[1:]
if what == "copy":
    *sources, target = words
    pathlib.Path(target).write_text("".join(pathlib.Path(one).read_text() for one in sources))
    print("copied", len(sources))
elif what == "check":
    json.loads(pathlib.Path(words[0]).read_text())
    pathlib.Path(words[1]).write_text("good")
elif what == "train":
    target = pathlib.Path(words[1], "thing-laptop", "run-001", "model")
    target.mkdir(parents=True)
    (target / "config.json").write_text(words[0])
elif what == "fail":
    print("error: the disk is full", file=sys.stderr)
    sys.exit(3)
elif what == "fail-once":
    mark = pathlib.Path(words[0])
    if not mark.exists():
        mark.write_text("")
        sys.exit(1)
    mark.with_name("done").write_text("")
elif what == "wait":
    pathlib.Path(words[0]).write_text("")
    time.sleep(60)
"""
STAGES: tuple[Mapping[str, Any], ...] = (
    {
        "name": "rows",
        "about": "rows of the data",
        "run": "agentic-video copy {data}/raw/rows.json {folder}/rows.jsonl",
        "makes": {"train": "rows.jsonl"},
    },
    {
        "name": "taught",
        "about": "a model",
        "run": "TRAIN_FILES={rows.train} agentic-video copy {rows.train} {folder}/model.bin",
        "makes": {"model": "*.bin"},
    },
    {
        "name": "judged",
        "about": "judged by a server",
        "run": "agentic-video copy {taught.model} {rows.train} {folder}/report.json",
        "makes": {"report": "report.json"},
    },
)


def write_recipe(folder: Path, *stages: Mapping[str, Any], **more: Any) -> Path:
    """A recipe that consists of a ``reproduce.yaml``; without stages with :data:`STAGES`."""
    content = {
        "paper": "VideoZoomer",
        "base": "some/model",
        "stages": [dict(item) for item in stages or STAGES],
        **more,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reproduce.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return folder


def chain_of(folder: Path, *stages: Mapping[str, Any], mode: Mode = "laptop", **more: Any) -> Chain:
    """The chain of :func:`write_recipe`."""
    return read_chain(write_recipe(folder / "recipe", *stages, **more), mode)


def reproduction(folder: Path, *stages: Mapping[str, Any], mode: Mode = "laptop", **options: Any) -> Reproduction:
    """A reproduction of a chain in a folder, whose downloads are there; with what is noted there."""
    raw = folder / "data" / "raw" / "rows.json"
    if not raw.exists():
        raw.parent.mkdir(parents=True)
        raw.write_text("[1]", encoding="utf-8")
    more = {name: options.pop(name) for name in ("toyworld", "remarks") if name in options}
    asked = ReproduceOptions(out=folder / "out", data=folder / "data", **options)
    return Reproduction(chain_of(folder, *stages, mode=mode, **more), asked, State(folder / "out"))


def actions(made: Reproduction) -> dict[str, str]:
    """What becomes of each stage."""
    return {step.stage.name: step.action for step in made.steps}
