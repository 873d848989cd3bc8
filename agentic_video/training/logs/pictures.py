"""Some episodes of a validation as pictures, in TensorBoard and Weights & Biases."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from agentic_video.report.episode_picture import choose_episodes, draw_record, plain
from agentic_video.types.record import Record
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig

logger = logging.getLogger(__name__)

KEY = "val-agentic/episodes"
STORE_BYTES = 64 << 20
SECONDS_A_VIDEO = 10.0
"""Time limit of a video's pictures."""


def log_pictures(
    records: Sequence[Record], count: int, backends: Mapping[str, Any], step: int, store: StoreConfig
) -> int:
    """Draw at most ``count`` of a validation's episodes for those of verl's loggers that show pictures.

    Failures are only logged. Return the number of pictures.
    """
    takers = {name: backends[name] for name in ("tensorboard", "wandb") if name in backends}
    if count <= 0 or not takers:
        return 0
    limit = min(store.time_limit, SECONDS_A_VIDEO)
    reader = FrameStore(StoreConfig(STORE_BYTES, time_limit=limit, workers=1, max_readers=1, backend=store.backend))
    drawn: list[tuple[Image.Image, str]] = []
    try:
        for record in choose_episodes(records, count):
            try:
                drawn.append((draw_record(record, reader), plain(record.qa.question, 100)))
            except Exception as error:
                logger.warning("no picture of episode %s: %s: %s", record.qa.id, type(error).__name__, error)
    finally:
        reader.close()
    for name, backend in takers.items():
        try:
            _send(name, backend, drawn, step)
        except Exception as error:
            logger.warning("no pictures in %s: %s: %s", name, type(error).__name__, error)
    return len(drawn)


def _send(name: str, backend: Any, drawn: Sequence[tuple[Image.Image, str]], step: int) -> None:
    if name == "tensorboard":  # the writer of the run's scalars, so that all of a run is in one file
        for number, (picture, _) in enumerate(drawn, 1):
            backend.writer.add_image(f"{KEY}/{number}", np.asarray(picture), step, dataformats="HWC")
    elif drawn:
        import wandb

        pictures = [wandb.Image(picture, caption=caption, file_type="jpg") for picture, caption in drawn]
        backend.log(data={KEY: pictures}, step=step)
