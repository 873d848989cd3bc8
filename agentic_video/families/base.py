"""The protocol of a family of models, and the sizes of pictures that a model's processor keeps.

No other room names a ``model_type``: it asks :func:`agentic_video.families.registry.family_of`. A family is one
subclass of :class:`ModelFamily` in a file of its own, listed in the registry. Nothing heavy is imported at the top of
these files: verl and vLLM load the registry in each of their processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from agentic_video.families.shapes import ActivationBytes, TextShape, VisionShape
from agentic_video.types.frame import ClipRef, FrameRef, ImageRef, VideoRef
from agentic_video.types.message import Visual
from agentic_video.utils.errors import SetupError
from agentic_video.utils.seam import Seam

if TYPE_CHECKING:
    import torch

    from agentic_video.families.tiny import TinyModels

Shown = Visual | ImageRef | VideoRef | FrameRef | ClipRef
"""An image or a clip, with or without its pixels."""
Encode = Callable[[str], list[int]]
"""Token ids of a text, nothing added."""
FIXED_POINT_STEPS = 16
"""A size that the processor still changes after so many steps has no kept size nearby."""


class ProcessorError(ValueError):
    """A processor whose rules can't be read, or that keeps no size of a picture."""


class UnplannedError(SetupError):
    """The planner is asked about a family that tells it nothing."""


class UnkeptSizeError(ValueError):
    """A picture that the processor would resize."""


class ClipLike(Protocol):
    """A clip, with or without its pixels."""

    @property
    def width(self) -> int:
        """Pixels of each frame."""
        ...

    @property
    def height(self) -> int:
        """Pixels of each frame."""
        ...

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of each frame."""
        ...


def clip_frames(shown: object) -> int:
    """Count the frames of a clip, with or without its pixels; 0 for an image."""
    times = getattr(shown, "times", None)
    return 0 if times is None else len(times)


def expanded(ids: Sequence[int], short: Sequence[Sequence[int]], whole: Sequence[Sequence[int]]) -> list[int]:
    """Replace each of some pieces of a prompt, in the order in which they stand there; ValueError if one is missing."""
    found: list[int] = []
    at = 0
    for piece, (start, end) in zip(whole, spans(ids, short), strict=True):
        found += [*ids[at:start], *piece]
        at = end
    return [*found, *ids[at:]]


def spans(ids: Sequence[int], pieces: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Start and end of each of some pieces of a prompt, in order; ValueError if one is missing."""
    at = 0
    for piece in pieces:
        wanted = list(piece)
        try:
            at = ids.index(wanted[0], at)
            while list(ids[at : at + len(wanted)]) != wanted:
                at = ids.index(wanted[0], at + 1)
        except ValueError:
            raise ValueError(
                f"an image's or a clip's {len(wanted)} tokens aren't in the prompt where they should be"
            ) from None
        yield at, at + len(wanted)
        at += len(wanted)


class ProcessorRules(ABC):
    """Sizes that a model's processors keep. In its methods ``frames`` is the length of a clip, 0 for an image.

    Rollouts, the trainer, the launcher and the planner all use them. Frames leave the store at a size that the
    processor keeps, so that neither the engine's processor nor the trainer's has anything to resize: they would do it
    differently (uint8 on a CPU, float on a GPU).
    """

    takes_clips: bool

    @property
    @abstractmethod
    def side(self) -> int:
        """Pixels along a side of a visual token."""

    @property
    @abstractmethod
    def most_image_tokens(self) -> int:
        """Placeholders of the largest image."""

    def most_clip_tokens(self, model_len: int) -> int:
        """Placeholders of the largest clip for which vLLM reserves room, where a sequence has ``model_len`` ids."""
        return 0

    @abstractmethod
    def resized(self, width: int, height: int, frames: int = 0) -> tuple[int, int]:
        """(width, height) that the processor makes of a picture.

        Raises:
            ProcessorError: The model takes no clips.
            ValueError: The processor refuses the sides.
        """

    @abstractmethod
    def tokens(self, width: int, height: int, frames: int = 0) -> int:
        """Placeholders of an image or a clip."""

    def kept(self, width: int, height: int, frames: int = 0) -> tuple[int, int]:
        """(width, height) nearest to a picture's that the processor keeps; raises as :meth:`resized`, too."""
        size = width, height
        for _ in range(FIXED_POINT_STEPS):
            again = self.resized(*size, frames)
            if again == size:
                return size
            size = again
        raise ProcessorError(
            f"the processor keeps no size of a {width}x{height} picture: its bounds ({self}) are too close to each "
            "other"
        )

    def require_kept(self, width: int, height: int, frames: int = 0) -> None:
        """Raise UnkeptSizeError if the processor would resize a picture."""
        size = self.resized(width, height, frames)
        if size != (width, height):
            kind = f"a frame of a clip of {frames}" if frames else "an image"
            raise UnkeptSizeError(
                f"{kind} of {width}x{height} pixels would become {size[0]}x{size[1]} in the model's processor: engine "
                "and trainer would resize it differently; show it at that size"
            )


def kept_tensors(
    rules: ProcessorRules, images: Mapping[str, np.ndarray], clips: Mapping[str, Any], device: Any
) -> "list[torch.Tensor]":
    """Images as tensors (3, height, width) on a device, for a family without clips.

    Raises:
        UnkeptSizeError: The processor would resize one.
        ProcessorError: There are clips.
    """
    import torch

    for image in images.values():
        rules.require_kept(image.shape[1], image.shape[0])
    for frames in clips.values():
        rules.resized(0, 0, len(frames))
    return [torch.tensor(image, device=device).permute(2, 0, 1) for image in images.values()]


class ModelFamily(ABC):
    """A family of models: how it writes pictures and turns as ids, where tokens are, how frames become pixel values.

    A ``processor`` is the checkpoint's Hugging Face processor, with its ``config`` where verl or
    :func:`agentic_video.families.registry.load_processor` loaded it. Of pictures, "sizes" are the model's inputs that
    follow from sizes and times, "pixels" those that need the frames; each picture has a dictionary of tensors, whatever
    their names are.
    """

    model_types: ClassVar[tuple[str, ...]]
    """``model_type`` in ``config.json``."""
    processor_classes: ClassVar[tuple[str, ...]] = ()
    """Classes of processors by which the family is known where there is no config."""
    example: ClassVar[str] = ""
    """A published checkpoint whose processor equals all others of the family."""
    image_token: ClassVar[str]
    """Placeholder of one visual token of an image, and what a template writes for an image."""
    image_ends: ClassVar[tuple[str, str]] = ("", "")
    """Text that the engine writes around an image's placeholders."""
    video_token: ClassVar[str] = ""
    """The same of a clip; empty for a family without clips."""
    tower: ClassVar[str] = "visual"
    """Name of the vision tower's module."""
    merger: ClassVar[str] = "merger"
    """Part of the names of modules, in the tower or beside it, that make visual tokens of patches."""
    fused: ClassVar[bool] = False
    """verl's fused forward of the family takes its pictures; the one for all other models drops them."""
    tower_layer: ClassVar[str]
    """A linear layer in the tower, as Hugging Face names it."""
    preloaded: ClassVar[tuple[str, ...]] = ()
    """Modules that take long to import: transformers' and vLLM's of the model."""
    seams: ClassVar[tuple[Seam, ...]] = ()
    """Patches that the family needs in verl's processes; ``vllm_seams`` in vLLM's."""
    vllm_seams: ClassVar[tuple[Seam, ...]] = ()

    # sizes that the processor keeps

    @abstractmethod
    def rules(self, processor: Any) -> ProcessorRules:
        """Rules of a loaded processor.

        Raises:
            ProcessorError: It isn't one of the family.
        """

    @abstractmethod
    def rules_in(self, folder: Path) -> ProcessorRules:
        """Rules in a checkpoint's files, which are read as transformers reads them.

        Raises:
            ProcessorError: A file is missing, or can't be a processor's; the message names it.
        """

    # ids

    def end_ids(self, tokenizer: Any, processor: Any) -> frozenset[int]:
        """Ids that end a reply: those of the tokenizer, of the config and of ``generation_config.json``."""
        from transformers import GenerationConfig

        config = getattr(processor, "config", None)
        holders = [tokenizer, config, getattr(config, "text_config", None)]
        if folder := getattr(config, "name_or_path", ""):
            with suppress(OSError, ValueError):
                holders.append(GenerationConfig.from_pretrained(folder))
        held = (getattr(holder, "eos_token_id", None) for holder in holders)
        ids = {token for ids in held for token in (ids if isinstance(ids, list | tuple) else [ids])}
        return frozenset(token for token in ids if type(token) is int and 0 <= token < len(tokenizer))

    def image_ids(self, encode: Encode, rules: ProcessorRules, width: int, height: int) -> tuple[list[int], list[int]]:
        """Ids that a template writes and the engine is sent for an image, and what the engine makes of them."""
        token, (before, after) = encode(self.image_token), map(encode, self.image_ends)
        return token, [*before, *token * rules.tokens(width, height), *after]

    def one_placeholder(self, encode: Encode, ids: Sequence[int]) -> list[int]:
        """A prompt with one placeholder for each run of them, an image's ends left out: what vLLM is sent."""
        (token,), (before, after) = encode(self.image_token), map(encode, self.image_ends)
        tokens = [token, *encode(self.video_token)]
        short = [one for at, one in enumerate(ids) if not (at and one == ids[at - 1] and one in tokens)]
        count = short.count(token)
        return expanded(short, [[*before, token, *after]] * count, [[token]] * count)

    def clip_runs(self, times: Sequence[float]) -> int:
        """Number of runs of placeholders in a clip."""
        return 1

    def clip_ids(
        self,
        encode: Encode,
        rules: ProcessorRules,
        run: Callable[[int], list[int]],
        times: Sequence[float],
        tokens: int,
    ) -> list[int]:
        """Ids that the engine makes of a clip.

        Args:
            rules: Of the model's processor.
            run: Ids of so many placeholders, with what the chat template writes around them.
            tokens: Placeholders of the whole clip.
        """
        return run(tokens)

    # tensors

    def sizes(self, processor: Any, shown: Sequence[Shown]) -> "dict[str, torch.Tensor]":
        """Inputs of the model that follow from the sizes of images and clips, given in their placeholders' order.

        Raises:
            UnkeptSizeError: The processor would resize one.
        """
        rules = self.rules(processor)
        for visual in shown:
            rules.require_kept(visual.width, visual.height, clip_frames(visual))
        return {}

    @abstractmethod
    def pixels(
        self,
        processor: Any,
        images: Mapping[str, np.ndarray],
        clips: Mapping[str, Sequence[np.ndarray] | np.ndarray],
        device: Any = "cpu",
    ) -> "dict[str, dict[str, torch.Tensor]]":
        """Float32 inputs of each image and each clip by its key, as the model's processors make them, on a device.

        Images, and the frames of clips, are RGB uint8 arrays of shape (height, width, 3).

        Raises:
            UnkeptSizeError: The processor has resized one.
        """

    def joined(self, pieces: "Sequence[Mapping[str, torch.Tensor]]") -> "dict[str, torch.Tensor]":
        """Pixels of a sequence from those of its images and clips, in the order of their placeholders."""
        import torch

        names = dict.fromkeys(name for piece in pieces for name in piece)
        return {name: torch.cat([piece[name] for piece in pieces if name in piece]) for name in names}

    def positions(self, processor: Any, ids: "torch.Tensor", sizes: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """Positions of a sequence's ids (tokens,), of shape (4, tokens), or (tokens,) where a token has one.

        ``sizes`` are those of :meth:`sizes`.
        """
        import torch

        return torch.arange(len(ids))

    def token_inputs(self, processor: Any, ids: "torch.Tensor") -> "dict[str, torch.Tensor]":
        """Further inputs of the model that follow from ids (rows, tokens)."""
        return {}

    def in_one_pass(
        self, processor: Any, ids: "torch.Tensor", inputs: Mapping[str, Any]
    ) -> "tuple[torch.Tensor, Mapping[str, Any]]":
        """Ids (tokens,) and inputs of a sequence for which the vision tower runs once.

        Under FSDP all ranks must run it equally often, whatever their micro-batches hold.
        """
        return ids, inputs

    def prepare_vllm(self) -> None:  # noqa: B027 (most families need nothing)
        """Mend vLLM's model in this process, before an engine is made."""

    # the planner, which refuses a family without these

    activations: ClassVar[ActivationBytes]

    def _unplanned(self) -> UnplannedError:
        return UnplannedError(f"the family {self.model_types[0]} tells the planner nothing of its models' sizes")

    def published_rules(self, facts: Any) -> ProcessorRules:
        """Rules of a published checkpoint, of its facts in ``families/published_checkpoints.yaml``."""
        raise self._unplanned()

    def text_shape(self, config: Mapping[str, Any]) -> TextShape:
        """Shape of the language model in a ``config.json``; KeyError names what is missing."""
        text = {**config, **config.get("text_config", {})}  # older files have the text's keys at the top
        heads = text["num_attention_heads"]
        return TextShape(
            hidden=text["hidden_size"],
            layers=text["num_hidden_layers"],
            heads=heads,
            kv_heads=text["num_key_value_heads"],
            head_dim=text.get("head_dim") or text["hidden_size"] // heads,
            intermediate=text["intermediate_size"],
            vocab=text["vocab_size"],
            tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        )

    def vision_shape(self, config: Mapping[str, Any]) -> VisionShape:
        """Shape of the vision tower in a ``config.json``; KeyError names what is missing."""
        raise self._unplanned()

    def layer_parameters(self, text: TextShape) -> int:
        """Parameters of a decoder layer, the largest where they differ."""
        raise self._unplanned()

    def decoder_parameters(self, text: TextShape) -> int:
        """Parameters of all decoder layers."""
        return text.layers * self.layer_parameters(text)

    def adapter_ends(self, text: TextShape) -> int:
        """Inputs and outputs of all linear layers of the decoder."""
        queries, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
        mlp = 3 * (text.hidden + text.intermediate)
        return text.layers * (2 * (text.hidden + queries) + 2 * (text.hidden + keys) + mlp)

    def block_parameters(self, vision: VisionShape) -> int:
        """Parameters of a block of the vision tower."""
        raise self._unplanned()

    def tower_parameters(self, vision: VisionShape, out: int) -> int:
        """Parameters of the vision tower, its mergers to tokens of ``out`` numbers included."""
        raise self._unplanned()

    # the toy world

    @property
    @abstractmethod
    def tiny(self) -> "TinyModels":
        """Its tiny models."""
