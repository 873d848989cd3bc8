"""What an episode's images are on their way from a rollout to the trainer: references, in place of float32 patches."""

from dataclasses import dataclass

from agentic_video.types.frame import ImageRef
from agentic_video.video.store import StoreConfig

IMAGES = "video_images"
"""In an output's ``multi_modal_data``, and in its sequence's ``multi_modal_inputs``: its :class:`SequenceImages`."""


@dataclass(frozen=True)
class SequenceImages:
    """The images of one sequence.

    Attributes:
        refs: In the order of their placeholders.
        store: How frame stores read videos, for a node that has none yet.
    """

    refs: tuple[ImageRef, ...]
    store: StoreConfig
