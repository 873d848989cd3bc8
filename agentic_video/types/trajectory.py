"""Trajectories of episodes: plain data that rewards, metrics, exports and viewers read."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import (
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    WrapSerializer,
)

from agentic_video.types.action import Action, Answer, Calls, Illegal
from agentic_video.types.frame import Clip, ClipRef, Frame, FrameRef, RecordedClip, RecordedFrame
from agentic_video.types.message import Message, Part
from agentic_video.types.plain import as_json
from agentic_video.types.schema import Flag, Int, Natural, first_problem


class EndReason(StrEnum):
    """Reason for an episode's end."""

    ANSWER = "answer"
    TURN_LIMIT = "turn_limit"
    TOKEN_BUDGET = "token_budget"
    IMAGE_BUDGET = "image_budget"
    ILLEGAL = "illegal"
    TOOL_ERROR = "tool_error"
    ENGINE_ERROR = "engine_error"


def _kind_of_part(part: Any) -> str:
    if isinstance(part, str):
        return "<text>"
    return "<clip>" if isinstance(part, ClipRef) or (isinstance(part, Mapping) and "frames" in part) else "<frame>"


RecordedPart = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[RecordedFrame, Tag("<frame>")] | Annotated[RecordedClip, Tag("<clip>")],
    Discriminator(_kind_of_part),
]


def _kind_of_action(action: Any) -> str:
    return f"<{action.get('kind') if isinstance(action, Mapping) else type(action).__name__.lower()}>"


def _without_kind(action: Any) -> Any:
    return {key: value for key, value in action.items() if key != "kind"} if isinstance(action, Mapping) else action


def _with_kind(action: Action, plain: Callable[[Action], dict[str, Any]]) -> dict[str, Any]:
    return {"kind": type(action).__name__.lower(), **plain(action)}


_bare = BeforeValidator(_without_kind)
RecordedAction = Annotated[
    Annotated[Answer, _bare, Tag("<answer>")]
    | Annotated[Illegal, _bare, Tag("<illegal>")]
    | Annotated[Calls, _bare, Tag("<calls>")],
    Discriminator(_kind_of_action),
    WrapSerializer(_with_kind),
]
"""An action; a record has its kind among its fields."""


def _empty(value: object) -> bool:
    return not value


@dataclass(frozen=True)
class RecordedMessage:
    """A message with references instead of images and clips."""

    role: Literal["system", "user"]
    parts: tuple[RecordedPart, ...]


@dataclass(frozen=True)
class Aside:
    """A side query: the model's reply in a conversation apart from the episode's.

    Attributes:
        text: The reply up to the first stop text, with the prefix.
        num_tokens: Number of generated tokens.
        prompt_tokens: Number of tokens before them, images and the prefix included; 0 where the policy counts none.
        finished: False when the reply was cut at its token limit or before a token that only the environment may write.
        token_ids: The generated ids, in the tokens of the model that generated them; empty where the policy has none.
    """

    messages: tuple[RecordedMessage, ...]
    text: str
    num_tokens: Int
    prompt_tokens: Int = 0
    finished: Flag = True
    prefix: str = ""
    stop: tuple[str, ...] = ()
    token_ids: tuple[Natural, ...] = ()

    @property
    def reply(self) -> str:
        """The generated text, without the prefix."""
        return self.text.removeprefix(self.prefix)


@dataclass(frozen=True)
class Turn:
    """One generation and what followed it.

    Attributes:
        text: The generated text, decoded from exactly the ids that are trained on, after the prefixes of the chat
            template (``<think>``, of thinking models) and of the system (``reply_prefix``).
        action: The system's reading of the text.
        num_tokens: Number of generated tokens.
        finished: False when the engine cut the turn at its token limit.
        observation: Parts that the agent was shown next; empty when the episode ended with this turn.
        legal_calls: Number of the turn's tool calls that were carried out.
        illegal_calls: Number of those that were refused (an illegal turn counts as one).
        token_ids: The generated ids, in the tokens of the model that generated them; empty where the policy has none.
        loss_mask: False for a turn without loss in SFT (a mistake that a later turn corrects).
        asides: Side queries made for the observation.
    """

    text: str
    action: RecordedAction
    num_tokens: Int
    finished: Flag = True
    observation: tuple[RecordedPart, ...] = ()
    legal_calls: Int = 0
    illegal_calls: Int = 0
    token_ids: tuple[Natural, ...] = ()
    loss_mask: Annotated[Flag, Field(validation_alias=AliasChoices("loss_mask", "taught"), exclude_if=bool)] = True
    asides: Annotated[tuple[Aside, ...], Field(exclude_if=_empty)] = ()


@dataclass(frozen=True)
class Trajectory:
    """A finished episode, as records hold it: pydantic reads and writes its fields.

    Attributes:
        rollout_index: Number of the rollout in its group.
        opening: The messages before the first turn.
        error: The message of the error that ended it, if one did.
        num_tokens: Tokens of the whole sequence, prompt and images included; 0 where the policy counts none.
        forced: Whether the last turn was an extra one, beyond ``max_turns`` or a budget, in which the agent was told to
            answer (``System.forced_answer``; validation and evaluation only).
        asides: Side queries after the episode's end.
        notes: Plain data by name from a system's ``after``.
    """

    qa_id: str
    system: str
    opening: tuple[RecordedMessage, ...]
    turns: tuple[Turn, ...]
    end: EndReason
    error: str = ""
    rollout_index: Int = 0
    num_tokens: Int = 0
    forced: Annotated[Flag, Field(exclude_if=_empty)] = False
    asides: Annotated[tuple[Aside, ...], Field(exclude_if=_empty)] = ()
    notes: Annotated[Mapping[str, Any], Field(exclude_if=_empty)] = field(default_factory=dict)

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")  # of the parts too

    @property
    def answer(self) -> str | None:
        """The final answer; None when the episode ended without one."""
        action = self.turns[-1].action if self.turns else None
        return action.text if self.end is EndReason.ANSWER and isinstance(action, Answer) else None

    @property
    def tool_calls(self) -> int:
        """Number of tool calls that were carried out."""
        return sum(turn.legal_calls for turn in self.turns)

    @property
    def illegal_calls(self) -> int:
        """Number of requests that were refused."""
        return sum(turn.illegal_calls for turn in self.turns)

    @property
    def all_asides(self) -> tuple[Aside, ...]:
        """All asides in order, those after the end included."""
        return (*(aside for turn in self.turns for aside in turn.asides), *self.asides)

    @property
    def visuals(self) -> tuple[FrameRef | ClipRef, ...]:
        """All images and clips that were shown, in order."""
        shown = [part for message in self.opening for part in message.parts]
        shown += [part for turn in self.turns for part in turn.observation]
        return tuple(part for part in shown if not isinstance(part, str))

    @property
    def frames(self) -> tuple[FrameRef, ...]:
        """All frames that were shown, in order, those of clips included."""
        return recorded_frames(self.visuals)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings and numbers; :meth:`from_dict` reads them back."""
        return cast(dict[str, Any], _schema().dump_python(self, warnings=False))

    @classmethod
    def from_dict(cls, record: Any) -> "Trajectory":
        """The trajectory that :meth:`to_dict` wrote; a ValueError names a bad field."""
        try:
            return _schema().validate_python(record)
        except ValidationError as error:
            key, problem = first_problem(error)
            raise ValueError(f"trajectory: field {key!r} {problem}") from None


@cache
def _schema() -> TypeAdapter[Trajectory]:
    return TypeAdapter(Trajectory)


def plain_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the notes of a system's ``after`` as JSON has them; a TypeError says where something else is."""
    if not isinstance(notes, Mapping):
        raise TypeError(f"notes must be a dictionary, got {type(notes).__name__}")
    copied = as_json(notes, "notes")
    try:
        json.dumps(copied, allow_nan=False)
    except ValueError as error:
        raise TypeError(f"notes hold a number that JSON doesn't have: {error}") from None
    return dict(copied)


def record_parts(parts: Sequence[Part], video: str = "") -> tuple[RecordedPart, ...]:
    """Replace pixels with references, where there is something to refer to (see ``FrameRef.of`` for ``video``)."""
    return tuple(part if isinstance(part, str) else _reference(part, video) for part in parts)


def record_messages(messages: Sequence[Message], video: str = "") -> tuple[RecordedMessage, ...]:
    """Apply :func:`record_parts` to whole messages."""
    return tuple(RecordedMessage(message.role, record_parts(message.parts, video)) for message in messages)


def frames_by(turn: Turn) -> tuple[FrameRef, ...]:
    """All frames that a turn had shown, in order: the observation's, then those of side queries."""
    side_parts = (message.parts for aside in turn.asides for message in aside.messages)
    return (*recorded_frames(turn.observation), *(frame for parts in side_parts for frame in recorded_frames(parts)))


def recorded_frames(parts: Sequence[RecordedPart]) -> tuple[FrameRef, ...]:
    """The frames of some parts in order, those of clips included."""
    shown = (part for part in parts if not isinstance(part, str))
    return tuple(ref for part in shown for ref in (part.frames if isinstance(part, ClipRef) else (part,)))


def runs_of_size(refs: Sequence[FrameRef]) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """Yield (width, height) and the numbers of adjacent frames of one size, as a source is asked for them."""
    for size, group in groupby(refs, key=lambda ref: (ref.width, ref.height)):
        yield size, [ref.index for ref in group]


def _reference(shown: Frame | Clip, video: str) -> FrameRef | ClipRef:
    if isinstance(shown, FrameRef | ClipRef):
        return shown  # an episode that is replayed shows references
    if isinstance(shown, Clip):
        return ClipRef(tuple(FrameRef.of(frame, video) for frame in shown.frames))
    return FrameRef.of(shown, video)
