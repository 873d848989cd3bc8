"""An episode as one picture, for the logs of a run."""

import base64
import hashlib
import io
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, zip_longest
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from agentic_video.report.viewer.pictures import FrameStrip, made_pictures, make_strip, picture_key
from agentic_video.types.record import Record
from agentic_video.types.trajectory import ClipRef, FrameRef, RecordedPart, recorded_frames
from agentic_video.video.store import FrameStore

WIDTH = 960
MAX_HEIGHT = 4096
"""Pixels; the rest is cut off."""
THUMB = 110
"""Longest side of a frame in pixels."""
MAX_FRAMES = 16
"""Frames of the opening, and of each turn, that are drawn: evenly chosen ones where there are more."""
MAX_TURNS = 8
"""Turns that are drawn: the first ones and the last."""
MAX_CHARS = 500
"""Of each text."""
MAX_OPTIONS = 10

_MARGIN = 12
_CELL = 117
_FONT_SIZE = 14
_LINE = 18
_BLACK, _GREY, _BLUE, _GREEN, _RED = "#111111", "#666666", "#1f4e8c", "#1a7f37", "#b42318"
_EMPTY = "#d9d9d9"


def choose_episodes(records: Sequence[Record], count: int) -> list[Record]:
    """Choose a validation's episodes to draw: the same questions each time, data sources in turn.

    Of a question's rollouts the one with the lowest number is taken.
    """
    first: dict[tuple[str, str], Record] = {}
    for record in records:
        key = (record.qa.data_source, record.qa.id)
        if key not in first or record.trajectory.rollout_index < first[key].trajectory.rollout_index:
            first[key] = record
    # By a hash, as neighbouring ids are often of one video or one kind.
    by_source: dict[str, list[Record]] = defaultdict(list)
    for source, name in sorted(first, key=lambda key: hashlib.blake2b(key[1].encode("utf-8", "replace")).digest()):
        by_source[source].append(first[source, name])
    rounds = zip_longest(*(by_source[source] for source in sorted(by_source)))
    return [record for record in chain.from_iterable(rounds) if record is not None][:count]


def draw_record(record: Record, store: FrameStore) -> Image.Image:
    """Draw a record with frames decoded from its video; boxes stand for missing frames."""
    shown = [ref for parts in _shown(record) for ref in thin(_refs(parts), MAX_FRAMES)]
    strip = make_strip(store, record.qa.video, [picture_key(ref) for ref in shown], THUMB)
    return draw_episode(record, replace(strip, pictures={**strip.pictures, **made_pictures(shown, THUMB)}))


def draw_episode(record: Record, strip: FrameStrip) -> Image.Image:
    """Draw a record with given pictures, :data:`WIDTH` pixels wide and at most :data:`MAX_HEIGHT` high."""
    qa, trajectory, rewards = record.qa, record.trajectory, record.rewards
    sheet = _Canvas()
    right = rewards.get("acc", 0.0) >= 0.5
    sheet.text(
        f"{'right' if right else 'wrong'}, reward {rewards.get('reward', 0.0):.2f}, end: {trajectory.end.value}, "
        f"calls {trajectory.tool_calls}, refused {trajectory.illegal_calls}, frames {len(trajectory.frames)}",
        _GREEN if right else _RED,
    )
    terms = {name.removeprefix("term_"): value for name, value in rewards.items() if name.startswith("term_")}
    if terms:
        sheet.text("reward: " + ", ".join(f"{name} {value:.2f}" for name, value in terms.items()), _GREY)
    question_class = qa.extra.get("class")
    sheet.text(", ".join(str(name) for name in (qa.data_source, question_class, qa.id) if name), _GREY)
    sheet.text(f"Question: {qa.question}")
    for number, option in enumerate(qa.options[:MAX_OPTIONS]):
        sheet.text(f"{chr(65 + number)}. {option}")
    if len(qa.options) > MAX_OPTIONS:
        sheet.text(f"and {len(qa.options) - MAX_OPTIONS} more", _GREY)
    sheet.text(f"Right answer: {qa.answer}", _GREEN)
    given = trajectory.answer
    sheet.text("Given answer: " + ("none" if given is None else given), _GREEN if right else _RED)
    if trajectory.error:
        sheet.text(f"Ended: {trajectory.error}", _RED)
    if strip.error:
        sheet.text(f"Pictures: {strip.error}", _RED)

    opening, *observations = _shown(record)
    sheet.rule()
    sheet.text(_count("overview", opening), _GREY)
    sheet.frames(opening, strip)
    turns = list(zip(trajectory.turns, observations, strict=True))
    left_out = max(0, len(turns) - MAX_TURNS)
    for number, (turn, observation) in enumerate(turns, 1):
        if MAX_TURNS - 1 < number <= MAX_TURNS - 1 + left_out:
            if number == MAX_TURNS:
                sheet.rule()
                sheet.text(f"{left_out} turns left out", _GREY)
            continue
        sheet.rule()
        sheet.text(f"Turn {number}: {turn.text}", _BLUE)
        if _refs(observation):
            sheet.text(_count("shown", observation), _GREY)
            sheet.frames(observation, strip)
        elif observation:
            sheet.text("shown: " + "".join(part for part in observation if isinstance(part, str)), _GREY)
    return sheet.finished()


def plain(text: str, limit: int = MAX_CHARS) -> str:
    """One line of printable characters: white space becomes single spaces, other characters (control characters, marks
    that turn the direction, halves of surrogate pairs) a replacement character."""
    # One line of a text that is far too long is enough to read.
    line = " ".join(text[: 4 * limit].split())
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line[:limit])
    return shown + (" ..." if len(line) > limit or len(text) > 4 * limit else "")


def wrap(text: str, width: int, font: ImageFont.FreeTypeFont) -> list[str]:
    """The lines of a text that are at most ``width`` pixels wide; a longer word is broken."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if font.getlength(longer) <= width:
            line = longer
            continue
        if line:
            lines.append(line)
        while font.getlength(word) > width:
            lengths = [math.ceil(font.getlength(word[: end + 1])) for end in range(len(word))]
            fits = max(1, bisect_right(lengths, width))
            lines.append(word[:fits])
            word = word[fits:]
        line = word
    return [*lines, line] if line else lines


def thin(refs: Sequence[FrameRef], most: int) -> list[FrameRef]:
    """Evenly chosen frames, the first and the last among them, where there are more than ``most`` (at least 2)."""
    if len(refs) <= most:
        return list(refs)
    return [refs[number * (len(refs) - 1) // (most - 1)] for number in range(most)]


def _shown(record: Record) -> list[tuple[RecordedPart, ...]]:
    """Parts shown in the opening and in each turn."""
    opening = tuple(part for message in record.trajectory.opening for part in message.parts)
    return [opening, *(turn.observation for turn in record.trajectory.turns)]


def _refs(parts: Sequence[RecordedPart]) -> list[FrameRef]:
    return list(recorded_frames(parts))


def _count(what: str, parts: Sequence[RecordedPart]) -> str:
    total = len(_refs(parts))
    clips = sum(isinstance(part, ClipRef) for part in parts)
    as_video = f" (in {clips} {'clips' if clips > 1 else 'clip'})" if clips else ""
    return f"{what}: {total} frames{as_video}" + (f", {MAX_FRAMES} of them here" if total > MAX_FRAMES else "")


@lru_cache(maxsize=1)
def _font() -> ImageFont.FreeTypeFont:
    import matplotlib

    # matplotlib brings a font that has more than Latin letters.
    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(str(file), _FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)


class _Canvas:
    """A picture that is written from top to bottom."""

    def __init__(self) -> None:
        self._image = Image.new("RGB", (WIDTH, MAX_HEIGHT), "white")
        self._draw = ImageDraw.Draw(self._image)
        self._y = _MARGIN

    def text(self, text: str, colour: str = _BLACK) -> None:
        for line in wrap(plain(text), WIDTH - 2 * _MARGIN, _font()):
            self._draw.text((_MARGIN, self._y), line, fill=colour, font=_font())
            self._y += _LINE

    def rule(self) -> None:
        self._y += 4
        self._draw.line((_MARGIN, self._y, WIDTH - _MARGIN, self._y), fill=_EMPTY)
        self._y += 4

    def frames(self, parts: Sequence[RecordedPart], strip: FrameStrip) -> None:
        refs = thin(_refs(parts), MAX_FRAMES)
        columns = (WIDTH - 2 * _MARGIN) // _CELL
        for start in range(0, len(refs), columns):
            tallest = 0
            for column, ref in enumerate(refs[start : start + columns]):
                corner = (_MARGIN + column * _CELL, self._y)
                tallest = max(tallest, self._frame(corner, ref, strip.pictures))
            self._y += tallest + _LINE + 4

    def _frame(self, corner: tuple[int, int], ref: FrameRef, pictures: Mapping[int | str, str]) -> int:
        key = picture_key(ref)
        if key in pictures:
            picture = Image.open(io.BytesIO(base64.b64decode(pictures[key])))
            self._image.paste(picture, corner)
            height = picture.height
        else:
            height = THUMB * 9 // 16
            self._draw.rectangle((*corner, corner[0] + THUMB, corner[1] + height), fill=_EMPTY)
        words = "not recorded" if ref.unrecorded else f"{ref.time:.2f} s"
        self._draw.text((corner[0], corner[1] + height), plain(words, 14), fill=_GREY, font=_font())
        return height

    def finished(self) -> Image.Image:
        return self._image.crop((0, 0, WIDTH, min(MAX_HEIGHT, self._y + _MARGIN)))
