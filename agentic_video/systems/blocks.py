"""Turns that are made of tagged blocks: ``<think>..</think>``, ``<answer>..</answer>`` and so on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentic_video.types.action import Answer, Illegal


@dataclass(frozen=True)
class Block:
    """One closed block: the tag's name and the text inside."""

    tag: str
    body: str


@dataclass(frozen=True)
class Blocks:
    """A text as blocks.

    Attributes:
        blocks: The closed blocks in order; what stands inside one is never a block of its own.
        clean: Whether the text is nothing but these blocks and white space: no other text, no tag without its
            counterpart, no tag inside a block.
    """

    blocks: tuple[Block, ...]
    clean: bool

    def bodies(self, tag: str) -> list[str]:
        """The texts inside the blocks of a tag."""
        return [block.body for block in self.blocks if block.tag == tag]


def read_blocks(text: str, tags: Sequence[str]) -> Blocks:
    """Split a text into closed blocks of some tags, in linear time whatever the text.

    A block reaches from an opening tag to the next closing one of its name; an unclosed tag opens nothing.
    """
    any_tag = re.compile(rf"<(/?)({'|'.join(map(re.escape, tags))})>")
    last_close = {tag: text.rfind(f"</{tag}>") for tag in tags}
    blocks: list[Block] = []
    clean, position = True, 0
    while found := any_tag.search(text, position):
        closing, tag = found[1], found[2]
        if closing or last_close[tag] < found.end():
            clean = False
            position = found.end()
            continue
        clean = clean and not text[position : found.start()].strip()
        # Each search succeeds and what it passes over is never read again.
        end = text.index(f"</{tag}>", found.end())
        body = text[found.end() : end]
        clean = clean and any_tag.search(body) is None
        blocks.append(Block(tag, body))
        position = end + len(tag) + 3
    return Blocks(tuple(blocks), clean and not text[position:].strip())


def answer_or_all(reply: str) -> str:
    """The answer of a reply without a grammar: the text of its last answer tag, else all of it."""
    answer = last_block(reply, "answer")
    return reply if answer is None else answer


def answer_in_tags(text: str) -> Answer | Illegal:
    """Read a turn without a call: the text of its last answer tag."""
    answer = last_block(text, "answer")
    return Illegal("neither a call nor an answer") if answer is None else Answer(answer.strip())


def last_block(text: str, tag: str) -> str | None:
    """The text between the last opening tag of a name and the closing one that follows; None without either."""
    opened = f"<{tag}>"
    start = text.rfind(opened)
    end = text.find(f"</{tag}>", start) if start >= 0 else -1
    return text[start + len(opened) : end] if end >= 0 else None
