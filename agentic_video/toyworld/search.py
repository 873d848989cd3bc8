"""Questions whose event must be searched: an agent that can't search well, and how well one searches.

No question of the kinds ``search`` and ``span`` says when its event is; frames elsewhere point towards it. A
demonstration looks at random, names what it sees, and mostly gives up after one look: where to look, what arrows mean
and that a second look pays is left to GRPO."""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agentic_video.systems.base import EpisodeView
from agentic_video.toyworld.oracles import Turns
from agentic_video.toyworld.world import (
    EARLIER,
    HOMES,
    INTERVAL_KINDS,
    LATER,
    PARTNERS,
    SIGNPOST,
    STRETCH,
    STRETCHES,
    Scene,
    Share,
    span_of,
    way,
)
from agentic_video.types.row import windows_text
from agentic_video.types.trajectory import Trajectory, Turn, frames_by

GUESS = "guess"
"""End of the thought before a guess."""


@dataclass(frozen=True)
class SearchRecipe:
    """Demonstrations of searching.

    Attributes:
        second_look: Share that looks again after a miss; the others guess.
        reads: Share that teaches to read: the first look hits, the second does, or both miss, equally often. Only the
            answer is trained on, so that they don't show where to look, or how often.
        opening: The first turn looks at the signpost, for systems that show nothing before it.
    """

    second_look: Share = 0.4
    reads: Share = 0.4
    opening: bool = False


@dataclass(frozen=True)
class Search:
    """Texts of a demonstration, and whether only the last is trained on."""

    turns: tuple[str, ...]
    only_answer: bool


def middle(stretch: int) -> int:
    """The second that demonstrations look at in a stretch: its tens name the stretch."""
    return stretch * STRETCH + STRETCH // 2


def demonstrate_search(
    view: EpisodeView, scene: Scene, turns: Turns, recipe: SearchRecipe, rng: np.random.Generator
) -> Search:
    """A demonstration that looks at random."""
    reads = bool(rng.random() < recipe.reads)
    hit = int(rng.integers(3)) if reads else None  # which look hits; after the second none does
    looks = 2 if (hit != 0 if reads else rng.random() < recipe.second_look) else 1
    event = scene.aim // STRETCH if scene.aim is not None else None
    said: list[str] = []
    if recipe.opening:
        said += turns(view, middle(SIGNPOST), scene.answer, scene.letter)[:-1]
    second, unseen = middle(SIGNPOST), list(STRETCHES)
    for number in range(looks):
        if reads:
            stretch = event if number == hit else int(rng.choice([other for other in unseen if other != event]))
        else:
            stretch = int(rng.choice(unseen))
        assert stretch is not None
        unseen.remove(stretch)
        said += turns(view, middle(stretch), scene.answer, scene.letter, seen=_sign(second, scene))[:-1]
        second = middle(stretch)
        if _sign(second, scene) == scene.sign:
            said += turns(view, None, scene.answer, scene.letter, seen=scene.sign)[-1:]
            return Search(tuple(said), reads)
    guess, letter = guess_of(scene)
    said += turns(view, None, guess, letter, seen=f"{_sign(second, scene)} {GUESS}")[-1:]
    return Search(tuple(said), reads)


def guess_of(scene: Scene) -> tuple[str, str]:
    """The answer that the background hints at, and its letter if there are options."""
    if scene.kind in INTERVAL_KINDS:
        return windows_text([span_of(HOMES[scene.tint], scene.seconds)]), ""
    guess = PARTNERS[scene.tint]
    return guess, "ABCD"[scene.options.index(guess)]


def practise_looks(view: EpisodeView, scene: Scene, turns: Turns, rng: np.random.Generator) -> tuple[str, ...]:
    """Two random looks, each after a random sign: how a thought's second is written in a call, and that no place
    is looked at twice (VideoBrain pays nothing for that)."""
    said: list[str] = []
    for stretch in rng.choice(STRETCHES, size=2, replace=False):
        sign = str(rng.choice([LATER, EARLIER]))
        said += turns(view, middle(int(stretch)), scene.answer, scene.letter, seen=sign)[:-1]
    return tuple(said)


def fits(stretch: int, seen: int, sign: str) -> bool:
    """True if the event may be in a stretch, by the sign of a frame in another."""
    return stretch > seen if sign == LATER else stretch < seen


def _sign(second: float, scene: Scene) -> str:
    """Sign of the frame at a second: the arrow, or the event."""
    assert scene.event_time is not None
    return way(second, scene.event_time) or scene.sign


@dataclass(frozen=True)
class SearchFigures:
    """Figures of the looks of one episode; a look may show several stretches.

    Attributes:
        looks: Looks that showed frames, without those at the signpost alone.
        missed_first: There was a first look, and it missed.
        first_follows: The first look showed only stretches where the signpost points; None without a look.
        second_follows: The second look, after a miss, showed only new stretches where the event may still be by the
            arrows seen; None without such a look.
    """

    looks: int
    missed_first: bool
    first_follows: bool | None
    second_follows: bool | None
    found: bool


def search_figures(trajectory: Trajectory, event_time: float) -> SearchFigures:
    """Figures of an episode on a question of the kind ``search`` or ``span``."""
    event = int(event_time // STRETCH)
    looks = [places for turn in trajectory.turns if (places := _places(turn) - {SIGNPOST})]
    follows: list[bool] = []
    seen = {SIGNPOST}
    for places in looks[:2]:
        new = places - seen
        arrows = [(before, LATER if before < event else EARLIER) for before in seen]
        follows.append(bool(new) and all(fits(place, *arrow) for place in new for arrow in arrows))
        if event in places:
            break
        seen |= places
    return SearchFigures(
        looks=len(looks),
        missed_first=bool(looks) and event not in looks[0],
        first_follows=follows[0] if follows else None,
        second_follows=follows[1] if len(follows) > 1 else None,
        found=any(event in places for places in looks),
    )


def signs_named(trajectory: Trajectory, event_time: float) -> list[tuple[Literal["first frames", "looks"], bool]]:
    """Place of each arrow that a thought names, and whether it points so."""
    named: list[tuple[Literal["first frames", "looks"], bool]] = []
    seen = frozenset({SIGNPOST})
    for turn in trajectory.turns:
        if said := _SIGN.search(turn.text):
            true = any(said[0] == way(place * STRETCH, event_time) for place in seen)
            named.append(("first frames" if seen == {SIGNPOST} else "looks", true))
        seen = _places(turn) or seen
    return named


_SIGN = re.compile(f"{LATER}|{EARLIER}")


def _places(turn: Turn) -> frozenset[int]:
    """Stretches that the frames of a turn's look lie in."""
    return frozenset(int(frame.time // STRETCH) for frame in frames_by(turn))
