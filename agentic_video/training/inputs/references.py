"""References to an episode's images and clips, which travel from a rollout to the trainer."""

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from agentic_video.types.frame import ImageRef, VideoRef
from agentic_video.video.store_config import StoreConfig

IMAGES = "video_images"
"""In an output's ``multi_modal_data``: its :class:`SequenceImages`. In its ``multi_modal_inputs``: the same, packed."""


@dataclass(frozen=True)
class SequenceImages:
    """A sequence's images and clips in the order of their placeholders; ``store`` is for a node that has none yet."""

    refs: tuple[ImageRef | VideoRef, ...]
    store: StoreConfig

    @property
    def images(self) -> tuple[ImageRef, ...]:
        """All images, those of clips included."""
        return image_refs(self.refs)

    def pack(self) -> bytes:
        """Pickle it: TransferQueue takes objects apart, and doesn't put them together again."""
        return pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)

    @classmethod
    def unpack(cls, packed: bytes) -> "SequenceImages":
        """Undo :meth:`pack`."""
        images: SequenceImages = pickle.loads(packed)
        return images


def image_refs(refs: Sequence[ImageRef | VideoRef]) -> tuple[ImageRef, ...]:
    """All images of references, those of clips included."""
    return tuple(image for ref in refs for image in (ref.frames if isinstance(ref, VideoRef) else (ref,)))
