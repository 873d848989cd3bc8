"""The turn loop: ends of episodes, their records, and the views of a system and a policy."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agentic_video.graders.base import Graders
from agentic_video.rollout.episode import play, play_attempts
from agentic_video.rollout.policy import EngineError, Policy, ScriptedPolicy, Utterance
from agentic_video.systems.base import Context, EpisodeView, System
from agentic_video.tools.base import ToolError
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation, Part
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, FrameRef, RecordedMessage, Trajectory, Turn
from agentic_video.utils.errors import PluginTypeError
from agentic_video.video.errors import Reason, VideoError
from tests.conftest import MemorySource

SIDE = 28


@dataclass(frozen=True)
class Watcher(System):
    """A system of three words: ``answer X``, ``look I J ...`` (frame numbers), ``mumble``, which it replies to.

    Any other text ends the episode, and so does a look at nothing.
    """

    name: str = "watcher"
    max_turns: int = 3
    max_images: int = 4
    stop: tuple[str, ...] = ()
    context: Context = "all"
    first: int = 1
    seen: list[EpisodeView] = field(default_factory=list, compare=False)
    again: int = 0

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        frames = await view.video.frames(range(self.first), (SIDE, SIDE))
        return (Message("system", ("watch",)), Message("user", (view.qa.question, *frames)))

    def parse(self, text: str) -> Action:
        word, _, rest = text.partition(" ")
        if word == "answer":
            return Answer(rest)
        if word == "look":
            return Calls((ToolCall("look", {"frames": [int(number) for number in rest.rstrip(";").split()]}),))
        return Illegal("no such word")

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        self.seen.append(view)
        if isinstance(action, Illegal):
            return Observation(("what?",), illegal_calls=1) if view.turns[-1].text == "mumble" else None
        numbers = action.calls[0].arguments["frames"]
        if not numbers:
            return None
        return Observation(("seen:", *await view.video.frames(numbers, (SIDE, SIDE))), legal_calls=1)

    def retry(self, attempts: Sequence[Trajectory]) -> System | None:
        if attempts[-1].answer is not None or len(attempts) > self.again:
            return None
        return replace(self, max_turns=1)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        raise NotImplementedError


class Talker(ScriptedPolicy):
    """Plays given turns, keeps what it is shown, and refuses parts that don't fit."""

    def __init__(
        self, *turns: str | Utterance | Exception, fits: Callable[[Sequence[Part]], bool] = lambda parts: True
    ):
        self.turns = iter(turns)
        self.fits = fits
        self.begun: list[Message] = []
        self.shown: list[tuple[Part, ...]] = []
        self.views: list[EpisodeView] = []

    async def begin(self, messages: Sequence[Message]) -> bool:
        self.begun = list(messages)
        return self.fits(messages[-1].parts)

    async def say(self, view: EpisodeView) -> Utterance:
        self.views.append(view)
        turn = next(self.turns)
        if isinstance(turn, Exception):
            raise turn
        return Utterance(turn, num_tokens=len(turn)) if isinstance(turn, str) else turn

    async def show(self, parts: Sequence[Part]) -> bool:
        self.shown.append(tuple(parts))
        return self.fits(parts)

    @property
    def num_tokens(self) -> int:
        return 100 * len(self.views)


def ref(index: int) -> FrameRef:
    # ten frames a second
    return FrameRef(index, index / 10, SIDE, SIDE)


def looks(*indices: int) -> Calls:
    return Calls((ToolCall("look", {"frames": list(indices)}),))


def run(
    policy: Policy, qa: VideoQA, system: Watcher | None = None, source: MemorySource | None = None, **options: Any
) -> Trajectory:
    return asyncio.run(play(system or Watcher(), policy, qa, source or MemorySource(), **options))


def test_text_after_a_stop_text_is_not_read(qa: VideoQA) -> None:
    system = Watcher(stop=(";",))
    trajectory = run(Talker("look 5;.", "look 7;answer A", "answer B"), qa, system)
    assert [turn.text for turn in trajectory.turns] == ["look 5;", "look 7;", "answer B"]
    assert [turn.action for turn in trajectory.turns] == [looks(5), looks(7), Answer("B")]


def test_a_whole_episode_is_recorded(qa: VideoQA) -> None:
    trajectory = run(Talker("look 5 7", "mumble", "answer B"), qa, rollout_index=3)
    assert trajectory == Trajectory(
        qa_id="q1",
        system="watcher",
        opening=(
            RecordedMessage("system", ("watch",)),
            RecordedMessage("user", ("What colour flashes at 42 s?", ref(0))),
        ),
        turns=(
            Turn("look 5 7", looks(5, 7), 8, observation=("seen:", ref(5), ref(7)), legal_calls=1),
            Turn("mumble", Illegal("no such word"), 6, observation=("what?",), illegal_calls=1),
            Turn("answer B", Answer("B"), 8),
        ),
        end=EndReason.ANSWER,
        rollout_index=3,
        num_tokens=300,
    )
    assert (trajectory.answer, trajectory.tool_calls, trajectory.illegal_calls) == ("B", 1, 1)


def test_ids_and_whether_a_turn_was_cut_are_recorded(qa: VideoQA) -> None:
    cut = Utterance("look 5", 2, finished=False, token_ids=(8, 9))
    trajectory = run(Talker(cut, Utterance("answer B", 1, token_ids=(4,))), qa)
    assert [turn.token_ids for turn in trajectory.turns] == [(8, 9), (4,)]
    assert [turn.finished for turn in trajectory.turns] == [False, True]
    # a call that is whole is carried out, though the turn was cut after it
    assert trajectory.end is EndReason.ANSWER and trajectory.tool_calls == 1


def test_each_turn_sees_the_finished_ones(qa: VideoQA) -> None:
    system, policy = Watcher(), Talker("look 5", "mumble", "answer B")
    trajectory = run(policy, qa, system, rollout_index=2)
    # the policy: all turns before its own, with what followed them
    assert [view.turns for view in policy.views] == [(), trajectory.turns[:1], trajectory.turns[:2]]
    # the system: also the turn that it reacts to, which nothing followed yet
    assert [len(view.turns) for view in system.seen] == [1, 2]
    assert [view.turns[-1].text for view in system.seen] == ["look 5", "mumble"]
    assert [view.turns[-1].observation for view in system.seen] == [(), ()]
    assert system.seen[1].turns[:1] == trajectory.turns[:1]
    for view in [*policy.views, *system.seen]:
        assert (view.qa, view.rollout_index, view.video.info.num_frames) == (qa, 2, 600)


def test_a_call_in_the_last_turn_is_not_carried_out(qa: VideoQA) -> None:
    source = MemorySource()
    trajectory = run(Talker("look 5", "look 6", "look 7"), qa, source=source)
    assert (trajectory.end, trajectory.answer) == (EndReason.TURN_LIMIT, None)
    assert [turn.legal_calls for turn in trajectory.turns] == [1, 1, 0]
    assert trajectory.turns[2].observation == ()
    assert source.requested == 3  # the opening's and two looks


def test_an_illegal_last_turn_counts_and_is_not_replied_to(qa: VideoQA) -> None:
    policy = Talker("mumble", "mumble", "mumble")
    trajectory = run(policy, qa)
    assert trajectory.end is EndReason.TURN_LIMIT
    assert trajectory.illegal_calls == 3
    assert len(policy.shown) == 2 and trajectory.turns[2].observation == ()


@pytest.mark.parametrize(
    ("text", "error"), [("gibberish", "no such word"), ("look", "illegal call")], ids=["no call", "a bad call"]
)
def test_a_call_without_observation_ends_the_episode(text: str, error: str, qa: VideoQA) -> None:
    trajectory = run(Talker("look 5", text), qa)
    assert (trajectory.end, trajectory.error) == (EndReason.ILLEGAL, error)
    assert [turn.illegal_calls for turn in trajectory.turns] == [0, 1]


def test_a_forbidden_token_ends_the_episode(qa: VideoQA) -> None:
    system = Watcher()
    trajectory = run(Talker(Utterance("answer B", 2, forbidden=True)), qa, system)
    assert (trajectory.end, trajectory.answer) == (EndReason.ILLEGAL, None)
    assert trajectory.turns == (Turn("answer B", Illegal(trajectory.error), 2, illegal_calls=1),)
    assert system.seen == []


def test_a_turn_cut_before_any_call_ends_the_episode(qa: VideoQA) -> None:
    system = Watcher()
    trajectory = run(Talker(Utterance("mumble", 1, finished=False)), qa, system)
    assert trajectory.end is EndReason.TOKEN_BUDGET
    assert trajectory.illegal_calls == 1 and system.seen == []


def test_an_opening_beyond_the_token_budget(qa: VideoQA) -> None:
    trajectory = run(Talker(fits=lambda parts: False), qa)
    assert (trajectory.end, trajectory.turns) == (EndReason.TOKEN_BUDGET, ())
    assert len(trajectory.opening) == 2


def test_an_observation_beyond_the_token_budget_is_not_recorded(qa: VideoQA) -> None:
    trajectory = run(Talker("look 5", "look 6 7", fits=lambda parts: len(parts) < 3), qa)
    assert trajectory.end is EndReason.TOKEN_BUDGET
    assert [turn.observation for turn in trajectory.turns] == [("seen:", ref(5)), ()]
    # it was carried out all the same
    assert [turn.legal_calls for turn in trajectory.turns] == [1, 1]


def test_an_opening_beyond_the_image_budget_is_not_played(qa: VideoQA) -> None:
    policy = Talker()
    trajectory = run(policy, qa, Watcher(first=5))
    assert trajectory.end is EndReason.IMAGE_BUDGET
    assert policy.begun == [] and trajectory.turns == ()
    assert run(Talker("answer B"), qa, Watcher(first=4)).answer == "B"


@pytest.mark.parametrize(("context", "end"), [("all", EndReason.IMAGE_BUDGET), ("latest_evidence", EndReason.ANSWER)])
def test_images_that_left_the_context_take_no_room(context: Context, end: EndReason, qa: VideoQA) -> None:
    # 1 + 2 + 2 images, of which 4 fit at a time
    policy = Talker("look 1 2", "look 3 4", "answer B")
    trajectory = run(policy, qa, Watcher(context=context))
    assert trajectory.end is end
    assert len(policy.shown) == (1 if context == "all" else 2)
    assert len(trajectory.frames) == (3 if context == "all" else 5)


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("corrupt", EndReason.TOOL_ERROR),
        # transient errors are not the agent's fault
        ("timeout", EndReason.ENGINE_ERROR),
        ("machine", EndReason.ENGINE_ERROR),
        ("changed", EndReason.ENGINE_ERROR),
    ],
)
def test_missing_frames_end_the_episode(qa: VideoQA, reason: Reason, end: EndReason) -> None:
    class Slow(MemorySource):
        def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
            if self.fail_frames:
                raise VideoError(path, reason, "check the disk")
            return super().draw(path, indices, size)

    source = Slow()

    def script(view: EpisodeView) -> str:
        source.fail_frames = bool(view.turns)
        return "look 5"

    trajectory = run(ScriptedPolicy(script), qa, source=source)
    assert (trajectory.end, trajectory.error) == (end, f"memory: check the disk [{reason}]")
    assert [turn.legal_calls for turn in trajectory.turns] == [1, 0] and trajectory.illegal_calls == 0


def test_a_video_without_an_overview_is_no_episode(qa: VideoQA) -> None:
    with pytest.raises(VideoError, match="made to fail"):
        run(Talker("answer B"), qa, source=MemorySource(fail=True))


def test_an_engine_that_fails_ends_the_episode(qa: VideoQA) -> None:
    trajectory = run(Talker("look 5", EngineError("out of memory")), qa)
    assert (trajectory.end, trajectory.error) == (EndReason.ENGINE_ERROR, "out of memory")
    assert len(trajectory.turns) == 1 and trajectory.turns[0].observation == ("seen:", ref(5))


def test_a_bug_is_no_end_of_an_episode(qa: VideoQA) -> None:
    with pytest.raises(KeyError):
        run(Talker(KeyError("a bug")), qa)


def attempts(system: Watcher, qa: VideoQA, *policies: Talker) -> tuple[list[System], tuple[Trajectory, ...]]:
    """The systems that policies were made for, and what they played."""
    systems: list[System] = []

    def make(current: System) -> Policy:
        systems.append(current)
        return policies[len(systems) - 1]

    played = asyncio.run(play_attempts(system, make, qa, MemorySource(), rollout_index=4))
    return systems, played


def test_attempts_continue_as_long_as_the_system_retries(qa: VideoQA) -> None:
    system = Watcher(again=2)
    systems, played = attempts(system, qa, Talker("look 5", "gibberish"), Talker("look 6"), Talker("answer C"))
    assert [attempt.end for attempt in played] == [EndReason.ILLEGAL, EndReason.TURN_LIMIT, EndReason.ANSWER]
    assert [attempt.answer for attempt in played] == [None, None, "C"]
    # each attempt is played with the system that the retry returned, and begins afresh
    assert systems == [system, replace(system, max_turns=1), replace(system, max_turns=1)]
    assert [len(attempt.turns) for attempt in played] == [2, 1, 1]
    assert {attempt.rollout_index for attempt in played} == {4}


@pytest.mark.parametrize(
    ("method", "returned"),
    [
        ("opening", Message("user", ("look",))),
        ("opening", ("look",)),
        ("opening", None),
        ("observe", ("seen",)),
        ("observe", False),
        ("parse", "look 1"),
        ("parse", None),
    ],
)
def test_a_method_that_returns_a_wrong_type_is_named(qa: VideoQA, method: str, returned: Any) -> None:
    async def later(*arguments: object) -> Any:
        return returned

    def now(*arguments: object) -> Any:
        return returned

    careless = type("Careless", (Watcher,), {method: now if method == "parse" else later})
    with pytest.raises(PluginTypeError, match=rf"^Careless\.{method} "):
        asyncio.run(play(careless(), Talker("look 1"), qa, MemorySource()))


class Strict(Watcher):
    """Refuses a call by a ToolError."""

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        if isinstance(action, Illegal):
            return Observation((f"refused: {action.reason}",), illegal_calls=1)
        if action.calls[0].arguments["frames"] == [9]:
            raise ToolError("look earlier")
        return await super().observe(action, view)


def test_a_call_that_a_tool_refuses_by_an_error_is_answered_as_an_illegal_one(qa: VideoQA) -> None:
    trajectory = asyncio.run(play(Strict(), Talker("look 9", "look 1", "answer B"), qa, MemorySource()))
    refused, looked, _ = trajectory.turns
    assert refused.action == looks(9) and refused.observation == ("refused: look earlier",)
    assert (refused.legal_calls, refused.illegal_calls, looked.legal_calls) == (0, 1, 1)
    assert trajectory.answer == "B"


def test_an_error_of_a_tool_in_answer_to_an_illegal_call_is_a_bug(qa: VideoQA) -> None:
    class Careless(Watcher):
        async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
            raise ToolError("never")

    with pytest.raises(ToolError, match="never"):
        asyncio.run(play(Careless(), Talker("look 9"), qa, MemorySource()))
