"""Trajectories of episodes: plain data that rewards, metrics, exports and viewers read."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any

from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Clip, ClipRef, Crop, Frame, FrameRef
from agentic_video.types.message import Message, Part
from agentic_video.types.plain import as_json


class EndReason(StrEnum):
    """Reason for an episode's end."""

    ANSWER = "answer"
    TURN_LIMIT = "turn_limit"
    TOKEN_BUDGET = "token_budget"
    IMAGE_BUDGET = "image_budget"
    ILLEGAL = "illegal"
    TOOL_ERROR = "tool_error"
    ENGINE_ERROR = "engine_error"


RecordedPart = str | FrameRef | ClipRef


@dataclass(frozen=True)
class RecordedMessage:
    """A message with references instead of images and clips."""

    role: str
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
    num_tokens: int
    prompt_tokens: int = 0
    finished: bool = True
    prefix: str = ""
    stop: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()

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
    action: Action
    num_tokens: int
    finished: bool = True
    observation: tuple[RecordedPart, ...] = ()
    legal_calls: int = 0
    illegal_calls: int = 0
    token_ids: tuple[int, ...] = ()
    loss_mask: bool = True
    asides: tuple[Aside, ...] = ()


@dataclass(frozen=True)
class Trajectory:
    """A finished episode.

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
    rollout_index: int = 0
    num_tokens: int = 0
    forced: bool = False
    asides: tuple[Aside, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

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
        # Not dataclasses.asdict: it copies each token id and each number, on an event loop that has others to serve.
        record = {**vars(self), "opening": _plain_messages(self.opening), "turns": tuple(map(_plain_turn, self.turns))}
        record |= {
            "end": self.end.value,
            "asides": tuple(map(_plain_aside, self.asides)),
            "notes": deepcopy(self.notes),
        }
        return {key: value for key, value in record.items() if value or key not in _LEFT_OUT}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Trajectory":
        """The trajectory that :meth:`to_dict` wrote."""
        turns = tuple(
            Turn(
                **{
                    **turn,
                    "action": _action(turn["action"]),
                    "observation": _parts(turn["observation"]),
                    "token_ids": tuple(turn.get("token_ids", ())),
                    "asides": tuple(map(_aside, turn.get("asides", ()))),
                }
            )
            for turn in record["turns"]
        )
        asides = tuple(map(_aside, record.get("asides", ())))
        opening = _messages(record["opening"])
        return cls(**{**record, "opening": opening, "turns": turns, "end": EndReason(record["end"]), "asides": asides})


_LEFT_OUT = ("forced", "asides", "notes")
"""Fields of few systems, which aren't written where they are empty."""


def _plain_parts(parts: Sequence[RecordedPart]) -> tuple[str | dict[str, Any], ...]:
    def plain(part: RecordedPart) -> str | dict[str, Any]:
        if isinstance(part, ClipRef):
            return {"frames": tuple(map(_plain_frame, part.frames))}
        return part if isinstance(part, str) else _plain_frame(part)

    return tuple(map(plain, parts))


def _plain_frame(frame: FrameRef) -> dict[str, Any]:
    plain = {key: value for key, value in vars(frame).items() if key not in ("made", "picture")}
    if frame.made:
        plain["made"] = frame.made
    if frame.picture is not None:
        plain["picture"] = b64encode(frame.picture).decode("ascii")
    if frame.crop is None:
        del plain["crop"]
    else:
        plain["crop"] = dict(vars(frame.crop))
    return plain


def _plain_turn(turn: Turn) -> dict[str, Any]:
    action: dict[str, Any] = {"kind": type(turn.action).__name__.lower()}
    if isinstance(turn.action, Calls):
        action["calls"] = tuple(
            {"name": call.name, "arguments": deepcopy(call.arguments)} for call in turn.action.calls
        )
    else:
        action |= vars(turn.action)
    record = {**vars(turn), "action": action, "observation": _plain_parts(turn.observation)}
    if turn.loss_mask:
        del record["loss_mask"]
    if turn.asides:
        record["asides"] = tuple(map(_plain_aside, turn.asides))
    else:
        del record["asides"]
    return record


def _plain_messages(messages: Sequence[RecordedMessage]) -> tuple[dict[str, Any], ...]:
    return tuple({"role": message.role, "parts": _plain_parts(message.parts)} for message in messages)


def _plain_aside(aside: Aside) -> dict[str, Any]:
    return {**vars(aside), "messages": _plain_messages(aside.messages)}


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


def _messages(raw: Sequence[Mapping[str, Any]]) -> tuple[RecordedMessage, ...]:
    return tuple(RecordedMessage(message["role"], _parts(message["parts"])) for message in raw)


def _aside(raw: Mapping[str, Any]) -> Aside:
    lists = {key: tuple(raw.get(key, ())) for key in ("stop", "token_ids")}
    return Aside(**{**raw, **lists, "messages": _messages(raw["messages"])})


def _parts(raw: Sequence[Any]) -> tuple[RecordedPart, ...]:
    return tuple(part if isinstance(part, str) else _part(part) for part in raw)


def _part(raw: Mapping[str, Any]) -> FrameRef | ClipRef:
    return ClipRef(tuple(map(_read_frame, raw["frames"]))) if "frames" in raw else _read_frame(raw)


def _read_frame(raw: Mapping[str, Any]) -> FrameRef:
    fields = dict(raw)
    if "crop" in raw:
        fields["crop"] = Crop(**{**raw["crop"], "box": tuple(raw["crop"]["box"])})
    if "picture" in raw:
        fields["picture"] = b64decode(raw["picture"])
    return FrameRef(**fields)


def _action(raw: Mapping[str, Any]) -> Action:
    match raw["kind"]:
        case "answer":
            return Answer(raw["text"])
        case "illegal":
            return Illegal(raw["reason"])
        case "calls":
            return Calls(tuple(ToolCall(call["name"], call["arguments"]) for call in raw["calls"]))
        case kind:
            raise ValueError(f"unknown kind of action {kind!r}")
