"""Made-up episodes as token ids: frames of noise, random words, and masks like those of a rollout."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from agentic_video.rollout.tokens import ChatFormat


@dataclass(frozen=True)
class Turn:
    """Observation of a turn, and the length of the reply."""

    images: int  # frames
    words: int  # tokens of text
    says: int  # tokens that the model says


@dataclass
class Episode:
    """An episode as token ids."""

    prompt: list[int] = field(default_factory=list)  # ids up to the first reply
    response: list[int] = field(default_factory=list)  # ids from there
    mask: list[int] = field(default_factory=list)  # 1 on what the model said, one entry for each of ``response``
    # the frames in order, RGB, each (height, width, 3)
    images: list[npt.NDArray[np.uint8]] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        """Prompt and response."""
        return self.prompt + self.response


def noise(count: int, size: tuple[int, int], seed: int = 0) -> list[npt.NDArray[np.uint8]]:
    """Frames of noise of a width and height in pixels, each different."""
    generator = np.random.default_rng(seed)
    width, height = size
    return [generator.integers(0, 256, (height, width, 3), dtype=np.uint8) for _ in range(count)]


def plan(tokens: int, images: int, image_tokens: int, turns: int = 3, prompt_share: float = 0.5) -> list[Turn]:
    """Turns of an episode of so many tokens and frames.

    The first view has half of the frames, further turns share the others; a quarter of the text is the model's.
    """
    text = tokens - images * image_tokens
    if text < 8 * turns:
        raise ValueError(f"{images} frames of {image_tokens} tokens leave {text} of {tokens} tokens for {turns} turns")
    first = round(images * prompt_share)
    shown = [first] + [(images - first) // (turns - 1)] * (turns - 1) if turns > 1 else [images]
    shown[-1] += images - sum(shown)
    said = max(1, text // 4 // turns)
    words = (text - said * turns) // turns
    result = [Turn(count, words, said) for count in shown]
    left = text - turns * (words + said)
    return [Turn(result[0].images, words + left, said), *result[1:]]


def picture_tokens(chat_format: ChatFormat, size: tuple[int, int]) -> int:
    """Tokens of a frame of a (width, height) in pixels, with a word before and after it."""
    return len(chat_format.image_ids(*size)[1]) + 2


def make_sequence(turns: Sequence[Turn], chat_format: ChatFormat, size: tuple[int, int], seed: int = 0) -> Episode:
    """An episode of random plain tokens and frames."""
    tokenizer, picture = chat_format.tokenizer, chat_format.image_ids(*size)[1]
    barred = {*tokenizer.all_special_ids, *chat_format.visual_token_ids}
    plain = [token for token in range(min(len(tokenizer), 256)) if token not in barred]
    generator = np.random.default_rng(seed)

    def words(count: int) -> list[int]:
        return [plain[token] for token in generator.integers(0, len(plain), count)]

    made = Episode(images=noise(sum(turn.images for turn in turns), size, seed))
    for number, turn in enumerate(turns):
        shown = words(turn.words)
        for _ in range(turn.images):
            before, after = words(2)
            shown += [before, *picture, after]
        said = words(turn.says)
        if number:
            made.response += shown
            made.mask += [0] * len(shown)
        else:
            made.prompt = shown
        made.response += said
        made.mask += [1] * len(said)
    return made
