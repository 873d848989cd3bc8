"""Pictures and figures through verl's own Tracking: real TensorBoard files, a real offline run of Weights & Biases."""

import json
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from verl.utils.tracking import Tracking

from agentic_video.training.logs import pictures
from agentic_video.training.logs.pictures import log_pictures
from agentic_video.types.record import Record
from agentic_video.video.store_config import StoreConfig
from tests.report.test_episode_picture import QA, record
from tests.types.test_trajectory import FULL

FIGURES = {"val-agentic/toy/accuracy": 0.5, "val-agentic/toy/active/end_answer": 1.0}
BLOCK = 1 << 15
RECORDS = [record(name="one"), record(name="two"), record(name="three")]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which Weights & Biases works without a network."""
    folders = {"DIR": "wandb", "CACHE_DIR": "c", "CONFIG_DIR": "d", "DATA_DIR": "e", "ARTIFACT_DIR": "f"}
    for name, folder in folders.items():
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / folder))
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "tensorboard"))
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "metrics.jsonl"))
    yield tmp_path


def tensorboard(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"images": 0})
    events.Reload()
    return events


def wandb_rows(run: Path) -> list[dict[str, Any]]:
    """What an offline run's file holds, by step: records in LevelDB's log format behind a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, record = run.read_bytes(), 7, b""
    rows = []
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:  # no header fits what is left of a block
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole one, or the last piece of one
            entry = wandb_internal_pb2.Record.FromString(record)
            if entry.WhichOneof("record_type") == "history":
                items = entry.history.item
                rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
            record = b""
    return rows


def test_every_backend_gets_figures_and_those_that_can_get_pictures(
    offline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracking = Tracking("project", "run", ["console", "tensorboard", "file", "wandb"], config={"trainer": {}})
    for step in (0, 10):
        assert log_pictures(RECORDS, 2, tracking.logger, step, StoreConfig()) == 2
        tracking.log(FIGURES, step)
    tracking.finish()

    events = tensorboard(offline / "tensorboard")
    assert set(FIGURES) <= set(events.Tags()["scalars"])
    assert sorted(events.Tags()["images"]) == ["val-agentic/episodes/1", "val-agentic/episodes/2"]
    images = events.Images("val-agentic/episodes/1")
    assert [image.step for image in images] == [0, 10]
    assert images[0].width == 960 and images[0].encoded_image_string.startswith(b"\x89PNG")

    lines = [json.loads(line) for line in (offline / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"step": step, "data": FIGURES} for step in (0, 10)]
    assert "step:10 - val-agentic/toy/accuracy:0.5 - val-agentic/toy/active/end_answer:1.0" in capsys.readouterr().out

    run = next((offline / "wandb").glob("wandb/offline-run-*"))
    rows = wandb_rows(next(run.glob("*.wandb")))
    assert [row["_step"] for row in rows] == [0, 10]
    for row in rows:
        assert {key: row[key] for key in FIGURES} == FIGURES
        key = "val-agentic/episodes"
        assert (row[f"{key}/count"], row[f"{key}/captions"]) == (2, ["What?", "What?"])
        for name in row[f"{key}/filenames"]:
            with Image.open(run / "files" / name) as picture:
                assert picture.format == "JPEG" and picture.width == 960


@pytest.mark.parametrize(("count", "backends"), [(0, {"tensorboard": None}), (3, {"console": None, "file": None})])
def test_nothing_is_drawn_without_a_backend(
    count: int, backends: dict[str, None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "draw_record", lambda *arguments: pytest.fail("drawn"))
    assert log_pictures(RECORDS, count, backends, 1, StoreConfig()) == 0


class Writer:
    def __init__(self) -> None:
        self.tags: list[str] = []
        self.writer = self

    def add_image(self, tag: str, *arguments: Any, **options: Any) -> None:
        self.tags.append(tag)


class Broken:
    @property
    def writer(self) -> Any:
        raise OSError("disk full")


def test_a_bad_episode_costs_only_its_picture(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    draw = pictures.draw_record

    def failing(one: Record, store: Any) -> Image.Image:
        if one.qa.id == "two":
            raise MemoryError("too much")
        return draw(one, store)

    monkeypatch.setattr(pictures, "draw_record", failing)
    writer = Writer()
    with caplog.at_level(logging.WARNING):
        assert log_pictures(RECORDS, 3, {"tensorboard": writer}, 1, StoreConfig()) == 2
    assert writer.tags == ["val-agentic/episodes/1", "val-agentic/episodes/2"]
    assert "no picture of episode two: MemoryError: too much" in caplog.text


def test_a_backend_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_pictures([Record(QA, FULL)], 1, {"tensorboard": Broken()}, 1, StoreConfig())
    assert "no pictures in tensorboard: OSError: disk full" in caplog.text
