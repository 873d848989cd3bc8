"""What an episode's images are on their way from a rollout to the trainer: references, in place of float32 patches."""

import pickle
from dataclasses import dataclass

from agentic_video.types.frame import ImageRef
from agentic_video.video.store import StoreConfig

IMAGES = "video_images"
"""In an output's ``multi_modal_data``: its :class:`SequenceImages`. In its ``multi_modal_inputs``: the same, packed."""


@dataclass(frozen=True)
class SequenceImages:
    """The images of one sequence.

    Attributes:
        refs: In the order of their placeholders.
        store: How frame stores read videos, for a node that has none yet.
    """

    refs: tuple[ImageRef, ...]
    store: StoreConfig

    def pack(self) -> bytes:
        """As bytes: TransferQueue takes objects apart, and doesn't put them together again."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def unpack(cls, packed: bytes) -> "SequenceImages":
        """What :meth:`pack` made."""
        images = pickle.loads(packed)
        assert isinstance(images, cls)
        return images
