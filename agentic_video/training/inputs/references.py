"""An episode's images and clips on their way from a rollout to the trainer: references, in place of float32 patches."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from agentic_video.types.frame import ImageRef, VideoRef
from agentic_video.video.store_config import StoreConfig

IMAGES = "video_images"
"""In an output's ``multi_modal_data``: its :class:`SequenceImages`. In its ``multi_modal_inputs``: the same, packed."""


@dataclass(frozen=True)
class SequenceImages:
    """The images and clips of one sequence.

    Attributes:
        refs: In the order of their placeholders.
        store: How frame stores read videos, for a node that has none yet.
    """

    refs: tuple[ImageRef | VideoRef, ...]
    store: StoreConfig

    @property
    def images(self) -> tuple[ImageRef, ...]:
        """All images whose pixels are wanted, those of clips included."""
        return image_refs(self.refs)

    def pack(self) -> bytes:
        """As bytes: TransferQueue takes objects apart, and doesn't put them together again."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def unpack(cls, packed: bytes) -> "SequenceImages":
        """What :meth:`pack` made."""
        images = pickle.loads(packed)
        assert isinstance(images, cls)
        return images


def image_refs(refs: Sequence[ImageRef | VideoRef]) -> tuple[ImageRef, ...]:
    """The images of some references, those of clips included."""
    return tuple(image for ref in refs for image in (ref.frames if isinstance(ref, VideoRef) else (ref,)))
