"""What an episode leaves behind: plain data that rewards, metrics, exports and viewers read."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Clip, Frame, OneSize
from agentic_video.types.message import Message, Part


class EndReason(StrEnum):
    """Why an episode ended."""

    ANSWER = "answer"
    TURN_LIMIT = "turn_limit"
    TOKEN_BUDGET = "token_budget"
    IMAGE_BUDGET = "image_budget"
    ILLEGAL = "illegal"
    TOOL_ERROR = "tool_error"
    ENGINE_ERROR = "engine_error"


@dataclass(frozen=True)
class FrameRef:
    """A shown frame without its pixels: number in the video, time in seconds, shown size in pixels."""

    index: int
    time: float
    width: int
    height: int


@dataclass(frozen=True)
class ClipRef(OneSize):
    """A shown clip without its pixels.

    Attributes:
        frames: Of one size, in order of time.
    """

    frames: tuple[FrameRef, ...]

    @property
    def times(self) -> tuple[float, ...]:
        """The frames' times in seconds."""
        return tuple(frame.time for frame in self.frames)


RecordedPart = str | FrameRef | ClipRef


@dataclass(frozen=True)
class RecordedMessage:
    """A message of the opening, with references in place of images and clips."""

    role: str
    parts: tuple[RecordedPart, ...]


@dataclass(frozen=True)
class Turn:
    """One generation and what followed it.

    Attributes:
        text: What the model said, decoded from exactly the ids that are trained on.
        action: What the system read in it.
        num_tokens: Number of generated tokens.
        finished: False when the engine cut the turn at its token limit.
        observation: What the agent was shown next; empty when the episode ended with this turn.
        legal_calls: How many of the turn's tool calls were carried out.
        illegal_calls: How many were refused (an illegal turn counts as one).
        token_ids: The generated ids, in the tokens of the model that said it; empty where the policy has none.
        loss_mask: False for a turn that a learner of this episode is shown but takes no loss on (a mistake that a later
            turn corrects).
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


@dataclass(frozen=True)
class Trajectory:
    """A finished episode.

    Attributes:
        system: Name of the system that was played.
        rollout_index: Number of the rollout in its group.
        opening: The messages before the first turn.
        end: Why the episode ended.
        error: The message of the error that ended it, if one did.
        num_tokens: Tokens of the whole sequence, prompt and images included; 0 where the policy counts none.
    """

    qa_id: str
    system: str
    opening: tuple[RecordedMessage, ...]
    turns: tuple[Turn, ...]
    end: EndReason
    error: str = ""
    rollout_index: int = 0
    num_tokens: int = 0

    @property
    def answer(self) -> str | None:
        """The final answer, or None when the episode ended without one."""
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
        opening = tuple({"role": message.role, "parts": _plain_parts(message.parts)} for message in self.opening)
        return {**vars(self), "opening": opening, "turns": tuple(map(_plain_turn, self.turns)), "end": self.end.value}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Trajectory":
        """The trajectory that :meth:`to_dict` wrote."""
        opening = tuple(RecordedMessage(m["role"], _parts(m["parts"])) for m in record["opening"])
        turns = tuple(
            Turn(
                **{
                    **turn,
                    "action": _action(turn["action"]),
                    "observation": _parts(turn["observation"]),
                    "token_ids": tuple(turn.get("token_ids", ())),
                }
            )
            for turn in record["turns"]
        )
        return cls(**{**record, "opening": opening, "turns": turns, "end": EndReason(record["end"])})


def _plain_parts(parts: Sequence[RecordedPart]) -> tuple[str | dict[str, Any], ...]:
    def plain(part: RecordedPart) -> str | dict[str, Any]:
        if isinstance(part, ClipRef):
            return {"frames": tuple(dict(vars(frame)) for frame in part.frames)}
        return part if isinstance(part, str) else dict(vars(part))

    return tuple(map(plain, parts))


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
    return record


def record_parts(parts: Sequence[Part]) -> tuple[RecordedPart, ...]:
    """References in place of pixels."""
    return tuple(part if isinstance(part, str) else _reference(part) for part in parts)


def record_messages(messages: Sequence[Message]) -> tuple[RecordedMessage, ...]:
    """References in place of pixels, for whole messages."""
    return tuple(RecordedMessage(message.role, record_parts(message.parts)) for message in messages)


def recorded_frames(parts: Sequence[RecordedPart]) -> tuple[FrameRef, ...]:
    """The frames of some parts in order, those of clips included."""
    shown = (part for part in parts if not isinstance(part, str))
    return tuple(ref for part in shown for ref in (part.frames if isinstance(part, ClipRef) else (part,)))


def _reference(shown: Frame | Clip) -> FrameRef | ClipRef:
    if isinstance(shown, Clip):
        return ClipRef(tuple(FrameRef(one.index, one.time, one.width, one.height) for one in shown.frames))
    return FrameRef(shown.index, shown.time, shown.width, shown.height)


def _parts(raw: Sequence[Any]) -> tuple[RecordedPart, ...]:
    return tuple(part if isinstance(part, str) else _part(part) for part in raw)


def _part(raw: Mapping[str, Any]) -> FrameRef | ClipRef:
    return ClipRef(tuple(FrameRef(**one) for one in raw["frames"])) if "frames" in raw else FrameRef(**raw)


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
