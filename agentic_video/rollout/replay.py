"""Rebuilding an episode's token ids from its record, turn by turn, with the rollout's own code.

The record holds everything that the agent was shown, so neither the system's tools nor the video are needed. Frames
stay references; their pixels are fetched for training.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from agentic_video.families.base import ProcessorRules, clip_frames
from agentic_video.rollout.chat_template import KWARGS_KEY, without_beginning
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.policy import EngineError, cut_at_stop
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy, TokenSequence
from agentic_video.systems.base import AsideBudgetError, EpisodeView, System
from agentic_video.tools.base import Video
from agentic_video.types.message import AsideRequest, Message, Part
from agentic_video.types.row import VideoQA
from agentic_video.types.text import is_unicode
from agentic_video.types.trajectory import (
    Aside,
    ClipRef,
    FrameRef,
    RecordedMessage,
    RecordedPart,
    Trajectory,
    Turn,
    recorded_frames,
)


class ReplayError(ValueError):
    """An episode that can't be rebuilt."""


@dataclass(frozen=True)
class ReplayedSequence:
    """One sequence of the engine, its images and clips as references."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    """1 for each generated id of a turn with loss, 0 for every other."""
    visuals: tuple[FrameRef | ClipRef, ...]
    """In the order of their placeholders."""
    turns: tuple[tuple[int, int, int], ...] = ()
    """Number in the episode of each turn in it, and its begin and end in ``ids``, forced beginning included."""
    aside: tuple[int, int] | None = None
    """Begin and end of the reply, if it is a side query's sequence."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The whole sequence."""
        return self.prompt_ids + self.response_ids

    @property
    def replies(self) -> tuple[tuple[int, int], ...]:
        """Begin and end in ``ids`` of all replies, turns or a side query."""
        turns = tuple((start, end) for _, start, end in self.turns)
        return turns if self.aside is None else (*turns, self.aside)

    @property
    def loss_mask(self) -> tuple[int, ...]:
        """1 for each trained id; as long as ``ids``."""
        return (0,) * len(self.prompt_ids) + self.response_mask


class ScriptEngine:
    """Stands for the engine: "generates" given ids, turn by turn."""

    def __init__(self, turns: Sequence[Sequence[int]]):
        self._turns = iter(turns)

    async def generate(self, request: GenerationRequest) -> Completion:
        return Completion(tuple(next(self._turns)))


def written_ids(text: str, chat_format: ChatFormat, stop: Sequence[str], end: int | None = None) -> list[int]:
    """Ids of a written turn, ended as an engine would: by the first stop text, or else by ``end`` (the template's)."""
    ids = chat_format.encode(cut_at_stop(text, stop))
    ended = any(ending in text for ending in stop) or (ids and ids[-1] in chat_format.eos_ids - chat_format.end_markup)
    return ids if ended else [*ids, chat_format.end_id if end is None else end]


def turn_ids(
    said: Turn | Aside, chat_format: ChatFormat, stop: Sequence[str], prefix: str = "", end: int | None = None
) -> list[int]:
    """Ids of a recorded turn or side query after ``prefix``, or the closest thing to them.

    Recorded ids are used if this tokenizer reads them as the recorded text, up to its first stop text. Otherwise
    (another model's turn, or a record without ids) the text is encoded: into the same text, but maybe other tokens, and
    a turn that was cut at its limit ends there.
    """
    rest = without_beginning(said.text, prefix)
    text = said.text if rest is None else rest
    if said.token_ids and max(said.token_ids) < len(chat_format.tokenizer):
        ids = chat_format.ids_until_stop(said.token_ids, stop)
        if cut_at_stop(chat_format.said(ids), stop) == cut_at_stop(text, stop):
            return ids
    return written_ids(text, chat_format, stop, end) if said.finished else chat_format.encode(text)


async def replay(
    trajectory: Trajectory, qa: VideoQA, system: System, chat_format: ChatFormat, limits: TokenLimits
) -> tuple[ReplayedSequence, ...]:
    """Rebuild an episode's sequences: one, or one for each turn if the system forgets earlier images.

    Trained side queries come first; those of turns without loss are left out. ReplayError: the episode was played with
    another system, is empty, or breaks a budget.
    """
    if trajectory.system != system.name:
        raise ReplayError(f"it was played with system {trajectory.system!r}, not {system.name!r}")
    _check_texts(trajectory)
    prefix, begun = chat_format.beginning(system.reply_prefix), chat_format.beginning_tokens(system.reply_prefix)
    for number, turn in enumerate(trajectory.turns, start=1):
        _check_beginning(f"turn {number}", turn.text, prefix, chat_format)
    ends = chat_format.turn_ends(len(trajectory.turns), system.observation_role)
    said = [
        (turn, turn_ids(turn, chat_format, system.stop, prefix, end))
        for turn, end in zip(trajectory.turns, ends, strict=False)
    ]
    spoken = [(turn, ids) for turn, ids in said if ids]
    if not spoken or any(not ids for _, ids in said[:-1]):
        raise ReplayError("a turn is empty")
    for number, (_, ids) in enumerate(spoken, start=1):
        if not chat_format.end_markup.isdisjoint(ids[:-1]):
            raise ReplayError(f"turn {number} writes out the token that ends a turn")
    asides = await _replay_asides(trajectory, system, chat_format, limits) if system.train_asides else []
    policy = TokenPolicy(ScriptEngine([ids for _, ids in spoken]), chat_format, limits, system)
    view = EpisodeView(qa, cast(Video, None))  # a script looks at nothing
    if not await policy.begin(_messages(trajectory.opening, chat_format.rules)):
        raise ReplayError(f"the opening doesn't fit {limits.prompt} tokens (data.max_prompt_length)")
    places: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for number, (turn, ids) in enumerate(spoken, start=1):
        current = policy.sequence
        assert current is not None
        start = len(current.response_ids)
        try:
            utterance = await policy.say(view)
        except EngineError as error:
            raise ReplayError(f"turn {number}: {error}") from error
        if utterance.num_tokens < len(ids):
            if utterance.forbidden:
                raise ReplayError(f"turn {number} holds a token that only the environment may write")
            raise ReplayError(
                f"turn {number} has {len(ids)} tokens: too many for the turn ({limits.turn}, "
                f"agentic_video.max_turn_tokens) or for what is left of the response ({limits.response}, "
                "data.max_response_length)"
            )
        if not turn.loss_mask:
            current.response_mask[start:] = [0] * len(ids)
        if number < len(said) and not await policy.show(_shown(turn.observation, chat_format.rules)):
            raise ReplayError(
                f"the observation after turn {number} doesn't fit {limits.response} tokens (data.max_response_length)"
            )
        begin, end = len(current.prompt_ids) + start, len(ids)
        if number < len(said) and policy.sequence is current:
            end -= chat_format.replaced_ids(ids, system.observation_role)
        places[id(current)].append((number - 1, begin - begun, begin + end))
    found = [_replayed(sequence, aside=span) for sequence, span in asides]
    found += [_replayed(sequence, tuple(places[id(sequence)])) for sequence in policy.sequences]
    for sequence in found:
        _check_recorded(sequence)
    return tuple(found)


def _check_recorded(sequence: ReplayedSequence) -> None:
    """Check that what the model saw is still available."""
    for ref in recorded_frames(sequence.visuals):
        if ref.unrecorded:
            raise ReplayError(
                f"a tool made a picture of frame {ref.index} at {ref.time:.2f} s, and the record doesn't hold it: the "
                "raw frame isn't what the model saw"
            )


def _replayed(
    sequence: TokenSequence, turns: tuple[tuple[int, int, int], ...] = (), aside: tuple[int, int] | None = None
) -> ReplayedSequence:
    return ReplayedSequence(
        tuple(sequence.prompt_ids),
        tuple(sequence.response_ids),
        tuple(sequence.response_mask),
        tuple(cast(FrameRef | ClipRef, shown) for shown in sequence.visuals),
        turns,
        aside,
    )


async def _replay_asides(
    trajectory: Trajectory, system: System, chat_format: ChatFormat, limits: TokenLimits
) -> list[tuple[TokenSequence, tuple[int, int]]]:
    """Sequences of the trained side queries, and the span of each reply, its prefix included."""
    asides = [aside for turn in trajectory.turns if turn.loss_mask for aside in turn.asides] + [*trajectory.asides]
    for number, aside in enumerate(asides, start=1):
        _check_beginning(f"side query {number}", aside.text, chat_format.beginning(aside.prefix), chat_format)
    found = ((aside, turn_ids(aside, chat_format, aside.stop, chat_format.beginning(aside.prefix))) for aside in asides)
    said = [(aside, ids) for aside, ids in found if ids]
    policy = TokenPolicy(ScriptEngine([ids for _, ids in said]), chat_format, limits, system)
    for number, (aside, ids) in enumerate(said, start=1):
        if not chat_format.end_markup.isdisjoint(ids[:-1]):
            raise ReplayError(f"side query {number} writes out the token that ends a reply")
        request = AsideRequest(_messages(aside.messages, chat_format.rules), limits.turn, aside.stop, aside.prefix)
        try:
            again = await policy.ask(request)
        except (EngineError, AsideBudgetError) as error:
            raise ReplayError(f"side query {number}: {error}") from error
        if again.num_tokens < len(ids):
            raise ReplayError(
                f"side query {number} has {len(ids)} tokens: too many for a turn ({limits.turn}, "
                "agentic_video.max_turn_tokens) or for what is left of prompt and response, or one of them is a token "
                "that only the environment may write"
            )
    lengths = [chat_format.beginning_tokens(aside.prefix) + len(ids) for aside, ids in said]
    pairs = zip(policy.aside_sequences, lengths, strict=True)
    return [(sequence, (len(sequence) - length, len(sequence))) for sequence, length in pairs]


def _check_beginning(where: str, text: str, beginning: str, chat_format: ChatFormat) -> None:
    """Check that a recorded reply begins as this model's replies do."""
    if without_beginning(text, beginning) is not None:
        return
    why = "as the system has all turns begin"
    if start := chat_format.reply_start:
        why = f"and the model's chat template begins each reply with {start!r}; {KWARGS_KEY} may turn that off"
    raise ReplayError(f"{where} doesn't begin with {beginning!r}, {why}")


def _messages(recorded: Sequence[RecordedMessage], rules: ProcessorRules) -> tuple[Message, ...]:
    return tuple(Message(cast(Any, message.role), _shown(message.parts, rules)) for message in recorded)


def _check_texts(trajectory: Trajectory) -> None:
    texts = [("the opening", part) for message in trajectory.opening for part in message.parts]
    for number, turn in enumerate(trajectory.turns, start=1):
        texts += [(f"turn {number}", turn.text)]
        texts += [(f"the observation after turn {number}", part) for part in turn.observation]
    for number, aside in enumerate(trajectory.all_asides, start=1):
        texts += [(f"side query {number}", text) for text in (aside.text, aside.prefix)]
        texts += [(f"side query {number}", part) for message in aside.messages for part in message.parts]
    for where, text in texts:
        if isinstance(text, str) and not is_unicode(text):
            raise ReplayError(f"{where} holds half of a surrogate pair, which is no text")


def _shown(parts: Sequence[RecordedPart], rules: ProcessorRules) -> tuple[Part, ...]:
    # A prompt is built from sizes and times, which a reference has: no pixels are needed.
    return cast(tuple[Part, ...], tuple(_kept(part, rules) for part in parts))


def _kept(part: RecordedPart, rules: ProcessorRules) -> RecordedPart:
    """Resize a recorded picture to the model's processor: another model's may have had another size."""
    if isinstance(part, str):
        return part
    width, height = rules.kept(part.width, part.height, clip_frames(part))
    if isinstance(part, ClipRef):
        return ClipRef(tuple(replace(frame, width=width, height=height) for frame in part.frames))
    return replace(part, width=width, height=height)
