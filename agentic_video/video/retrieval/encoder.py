"""Models that embed frames and texts; importing this loads no model library."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from agentic_video.video.retrieval.config import RetrievalConfig
from agentic_video.video.sizes import resize

TOKENIZER_WORDS = 2**16
"""Most words that a tokenizer of open_clip may remember."""


class Encoder(Protocol):
    """Embeds pictures and texts so that a scalar product compares them, called from one thread at a time."""

    identity: str
    """Changes whenever the embeddings of frames do."""

    def frame_size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) in pixels in which frames of a video of this size are wanted."""
        ...

    def images(self, images: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """Embed RGB pictures, each (height, width, 3): rows of length 1, shape (len(images), dim)."""
        ...

    def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts: rows of length 1, shape (len(texts), dim)."""
        ...


class ClipEncoder:
    """A model of open_clip; an Encoder. On a GPU it computes in bfloat16.

    Raises:
        ValueError: No model is named, or open_clip doesn't know it.
        RuntimeError: Its weights are not available.
    """

    def __init__(self, config: RetrievalConfig) -> None:
        import open_clip
        import torch

        if not config.model:
            raise ValueError("no retrieval model is named: set agentic_video.retrieval.model")
        # Refuses a model without weights, which other constructors would fill at random.
        network, transform = open_clip.create_model_from_pretrained(
            config.model, config.pretrained or None, device="cpu"
        )
        # Between the two are a crop or padding, if any, and what turns PIL's pictures into tensors.
        self._resize, *self._crop, _, _, self._normalize = transform.transforms
        self._tokenizer = open_clip.get_tokenizer(config.model)
        self._device = torch.device(_device(config.device))
        self.dtype = torch.bfloat16 if self._device.type == "cuda" else torch.float32
        self.identity = _digest(network, transform, self.dtype)
        self._network = network.eval().requires_grad_(False).to(self._device)
        self._sizes: LRUCache[tuple[int, int], tuple[int, int]] = LRUCache(1024)

    def frame_size(self, width: int, height: int) -> tuple[int, int]:
        """Size to which the model's own transform resizes a picture, before it crops or pads."""
        from PIL import Image

        size = self._sizes.get((width, height))
        if size is None:
            # Asking the transform itself leaves it nothing to resize in frames of that size.
            resized = self._resize(Image.new("L", (width, height)))
            size = (resized.width, resized.height)
            self._sizes[width, height] = size
        return size

    def images(self, images: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.float32]:
        """See :meth:`Encoder.images`."""
        pixels = self.pixels(images)
        with self.computing():
            return _rows(self._network.encode_image(pixels))

    def pixels(self, images: Sequence[npt.NDArray[np.uint8]]) -> Any:
        """Prepare pictures as the model's own transform does, which takes them one by one; shape (n, 3, side, side)."""
        import torch

        cropped = []
        for image in images:
            # Frame stores resize already, with torch's filter.
            picture = torch.tensor(resize(image, *self.frame_size(image.shape[1], image.shape[0]))).permute(2, 0, 1)
            for crop in self._crop:
                picture = crop(picture)
            cropped.append(picture)
        return self._normalize(torch.stack(cropped).to(self._device).float() / 255)

    def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """See :meth:`Encoder.texts`; texts are cut to the text tower's context."""
        known = getattr(self._tokenizer, "cache", None)
        if known is not None and len(known) > TOKENIZER_WORDS:
            # open_clip's own tokenizer remembers every word; only special tokens are their own pieces.
            self._tokenizer.cache = {word: pieces for word, pieces in known.items() if word == pieces}
        tokens = self._tokenizer(list(texts)).to(self._device)
        with self.computing():
            return _rows(self._network.encode_text(tokens))

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Compute in the encoder's precision, without gradients."""
        import torch

        half = torch.autocast(self._device.type, self.dtype, enabled=self.dtype != torch.float32)
        with torch.inference_mode(), half:
            yield


def hub_name(config: RetrievalConfig) -> str:
    """Name on the hub of a model's weights, empty if they are elsewhere; ValueError for an unknown model."""
    schema, _, name = config.model.partition(":")
    if schema == "hf-hub":
        return name
    if schema == "local-dir":
        if not os.path.isdir(name):
            raise ValueError(f"no such folder: {name}")
        return ""
    from open_clip.pretrained import get_pretrained_cfg

    weights = get_pretrained_cfg(config.model.replace("/", "-"), config.pretrained)
    if not weights and not os.path.isfile(config.pretrained):
        raise ValueError(f"open_clip has none of that name with pretrained={config.pretrained}, nor is that a file")
    return "" if "file" in weights else os.path.dirname(weights.get("hf_hub", ""))


def _rows(features: Any) -> npt.NDArray[np.float32]:
    from torch.nn.functional import normalize

    rows: npt.NDArray[np.float32] = normalize(features.float(), dim=-1).cpu().numpy()
    if not np.isfinite(rows).all():
        raise RuntimeError("the retrieval model gives embeddings that are not finite: its weights are damaged")
    return rows


def _digest(network: Any, transform: Any, dtype: Any) -> str:
    import torch

    precision = "" if dtype == torch.float32 else str(dtype)
    digest = hashlib.sha256(f"{network!r}{transform!r}{precision}".encode())
    for name, tensor in network.state_dict().items():
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _device(name: str) -> str:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and torch.cuda.is_available():
        # The first GPU holds extra data of verl's first rank.
        name = f"cuda:{torch.cuda.device_count() - 1}"
    return name
