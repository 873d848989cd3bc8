"""Pictures and figures through verl's own Tracking: real TensorBoard files, a real offline run of Weights & Biases."""

import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from verl.utils.tracking import Tracking

from agentic_video.training.logs import pictures
from agentic_video.training.logs.pictures import log_pictures
from agentic_video.types.record import Record
from agentic_video.video.store_config import StoreConfig
from tests.report.test_episode_picture import QA, record
from tests.types.test_trajectory import FULL

RECORDS = [record(name="one"), record(name="two"), record(name="three")]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folders = {"DIR": "wandb", "CACHE_DIR": "c", "CONFIG_DIR": "d", "DATA_DIR": "e", "ARTIFACT_DIR": "f"}
    for name, folder in folders.items():
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / folder))
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "tensorboard"))
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "metrics.jsonl"))
    yield tmp_path


def test_backends_that_can_show_them_get_pictures(offline: Path) -> None:
    tracking = Tracking("project", "run", ["console", "tensorboard", "file", "wandb"], config={"trainer": {}})
    for step in (0, 10):
        assert log_pictures(RECORDS, 2, tracking.logger, step, StoreConfig()) == 2
        tracking.log({"val-agentic/toy/accuracy": 0.5}, step)
    tracking.finish()

    events = EventAccumulator(str(offline / "tensorboard"), size_guidance={"images": 0})
    events.Reload()
    assert events.Tags()["scalars"] == ["val-agentic/toy/accuracy"]
    assert sorted(events.Tags()["images"]) == ["val-agentic/episodes/1", "val-agentic/episodes/2"]
    images = events.Images("val-agentic/episodes/1")
    assert [image.step for image in images] == [0, 10]
    assert images[0].width == 960 and images[0].encoded_image_string.startswith(b"\x89PNG")

    (run,) = (offline / "wandb").glob("wandb/offline-run-*")
    files = list(run.rglob("episodes_*.jpg"))
    assert files
    for file in files:
        with Image.open(file) as picture:
            assert picture.format == "JPEG" and picture.width == 960


@pytest.mark.parametrize(("count", "backends"), [(0, {"tensorboard": None}), (3, {"console": None, "file": None})])
def test_nothing_is_drawn_without_a_backend(
    count: int, backends: dict[str, None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "draw_record", lambda *arguments: pytest.fail("drawn"))
    assert log_pictures(RECORDS, count, backends, 1, StoreConfig()) == 0


def test_a_bad_episode_costs_only_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = pictures.draw_record

    def failing(record: Record, store: Any) -> Image.Image:
        if record.qa.id == "two":
            raise MemoryError("too much")
        return draw(record, store)

    monkeypatch.setattr(pictures, "draw_record", failing)
    tags: list[str] = []
    writer = SimpleNamespace(add_image=lambda tag, *arguments, **options: tags.append(tag))
    backends = {"tensorboard": SimpleNamespace(writer=writer)}
    assert log_pictures(RECORDS, 3, backends, 1, StoreConfig()) == 2
    assert tags == ["val-agentic/episodes/1", "val-agentic/episodes/2"]


def test_a_backend_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        log_pictures([Record(QA, FULL)], 1, {"tensorboard": SimpleNamespace()}, 1, StoreConfig())
    assert "tensorboard" in caplog.text
