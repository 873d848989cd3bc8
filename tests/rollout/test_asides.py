"""Side queries of an episode, and a system's prefix, forced answer and last call."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agentic_video.graders.base import Graders
from agentic_video.rollout.engine import Completion, GenerationRequest
from agentic_video.rollout.episode import play, play_attempts
from agentic_video.rollout.policy import EngineError, ScriptedPolicy, Utterance, aside_of
from agentic_video.rollout.replay import written_ids
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.base import AsideBudgetError, Context, EpisodeView, System
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.message import AsideRequest, Message, Observation
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Aside, EndReason, RecordedMessage, Trajectory
from agentic_video.video.errors import Reason, VideoError
from tests.conftest import MemorySource

SIDE = 28
ROOMY = TokenLimits(prompt=10**6, response=10**6, turn=10**6)

Observe = Callable[[EpisodeView], Awaitable[Observation]]
After = Callable[[Trajectory, EpisodeView], Awaitable[Mapping[str, Any]]]


def question(text: str) -> list[Message]:
    return [Message("user", (text,))]


async def nothing_seen(view: EpisodeView) -> Observation:
    return Observation(("seen",), legal_calls=1)


async def ask_once(view: EpisodeView) -> Observation:
    aside = await view.ask(question(f"what of {view.turns[-1].text}?"), max_tokens=20)
    return Observation((aside.text,), legal_calls=1)


async def nothing_noted(trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Asker(System):
    """A system of three words: ``answer X``, ``look``, and whatever else, which it calls illegal and replies to."""

    name: str = "asker"
    max_turns: int = 3
    max_images: int = 4
    stop: tuple[str, ...] = ()
    context: Context = "all"
    reply_prefix: str = ""
    forced_answer: str = ""
    run_last_call: bool = False
    max_asides: int = 16
    train_asides: bool = False
    looks: Observe = ask_once
    found: After = nothing_noted
    heard: list[str] = field(default_factory=list, compare=False)

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        (frame,) = await view.video.frames([0], (SIDE, SIDE))
        return (Message("user", (frame, view.qa.question)),)

    def parse(self, text: str) -> Action:
        self.heard.append(text)
        said = text.removeprefix(self.reply_prefix)
        if said.startswith("answer "):
            return Answer(said.removeprefix("answer "))
        return Calls((ToolCall("look", {}),)) if said.startswith("look") else Illegal("no such word")

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        if isinstance(action, Illegal):
            return Observation(("what?",), illegal_calls=1)
        return await self.looks(view)

    async def after(self, trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
        return await self.found(trajectory, view)

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        raise NotImplementedError


def scripted(*turns: str, asides: Callable[[AsideRequest], str] | None = lambda request: "a reply") -> ScriptedPolicy:
    return ScriptedPolicy(lambda view: turns[len(view.turns)], asides)


def run(system: System, policy: Any, qa: VideoQA, **options: Any) -> Trajectory:
    return asyncio.run(play(system, policy, qa, MemorySource(), **options))


class WritingEngine:
    """Generates what a function says to a prompt's text; keeps the requests."""

    def __init__(self, chat_format: ChatFormat, say: Callable[[str], str]):
        self._format, self._say = chat_format, say
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        self.requests.append(request)
        text = self._say(self._format.decode(request.prompt_ids))
        ids = written_ids(text, self._format, request.stop)
        return Completion(tuple(ids), tuple(-0.5 for _ in ids), {"min_global_steps": len(self.requests)})


def test_a_side_query_is_recorded_with_its_turn(qa: VideoQA) -> None:
    trajectory = run(Asker(), scripted("look here", "answer B", asides=lambda request: "red; I think"), qa)
    (aside,) = trajectory.turns[0].asides
    assert aside == Aside(
        messages=(RecordedMessage("user", ("what of look here?",)),), text="red; I think", num_tokens=3
    )
    assert trajectory.turns[0].observation == ("red; I think",)
    assert trajectory.turns[1].asides == trajectory.asides == () and trajectory.answer == "B"
    assert trajectory.all_asides == (aside,)


def test_an_aside_ends_at_its_stop_text_and_begins_with_its_prefix(qa: VideoQA) -> None:
    async def looks(view: EpisodeView) -> Observation:
        aside = await view.ask(question("?"), max_tokens=9, stop=("</a>",), prefix="<a>")
        return Observation((aside.text, aside.reply))

    trajectory = run(Asker(looks=looks), scripted("look", "answer B", asides=lambda request: "x</a>y</a>"), qa)
    (aside,) = trajectory.turns[0].asides
    assert (aside.text, aside.prefix, aside.stop) == ("<a>x</a>", "<a>", ("</a>",))
    assert trajectory.turns[0].observation == ("<a>x</a>", "x</a>")


def test_asides_at_a_time_are_recorded_in_the_order_in_which_they_were_asked(qa: VideoQA) -> None:
    class Slow(ScriptedPolicy):
        async def ask(self, request: AsideRequest) -> Aside:
            await asyncio.sleep(0.02 if request.messages[0].parts == ("first",) else 0)
            return aside_of(request, "ok", num_tokens=1)

    async def looks(view: EpisodeView) -> Observation:
        asked = [view.ask(question(text), max_tokens=9) for text in ("first", "second")]
        return Observation(tuple(aside.text for aside in await asyncio.gather(*asked)))

    turns = ("look", "answer B")
    trajectory = run(Asker(looks=looks), Slow(lambda view: turns[len(view.turns)]), qa)
    assert [aside.messages[0].parts for aside in trajectory.turns[0].asides] == [("first",), ("second",)]


@pytest.mark.parametrize("fails", [EngineError("gone"), VideoError("v", "corrupt", "no frames")])
def test_abandoned_queries_are_cancelled(fails: Exception, qa: VideoQA) -> None:
    cancelled = []

    class Hanging(ScriptedPolicy):
        async def ask(self, request: AsideRequest) -> Aside:
            if request.messages[0].parts == ("fails",):
                raise fails
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(request)
                raise
            raise AssertionError

    async def looks(view: EpisodeView) -> Observation:
        await asyncio.gather(*(view.ask(question(text), max_tokens=9) for text in ("hangs", "fails", "hangs")))
        return Observation(())

    trajectory = run(Asker(looks=looks), Hanging(lambda view: "look"), qa)
    ended = EndReason.ENGINE_ERROR if isinstance(fails, EngineError) else EndReason.TOOL_ERROR
    assert (trajectory.end, trajectory.error) == (ended, str(fails))
    assert len(cancelled) == 2 and trajectory.turns[0].asides == ()


def test_no_system_hides_that_the_engine_failed(qa: VideoQA) -> None:
    async def looks(view: EpisodeView) -> Observation:
        await asyncio.gather(view.ask(question("?"), max_tokens=9), return_exceptions=True)
        return Observation(("fine",), legal_calls=1)

    trajectory = run(Asker(looks=looks), scripted("look", "answer B", asides=None), qa)
    assert trajectory.end is EndReason.ENGINE_ERROR and trajectory.error


def test_queries_are_bounded(qa: VideoQA) -> None:
    system = Asker(max_asides=2)
    trajectory = run(system, scripted("look", "look", "look", "answer B"), qa)
    assert len(trajectory.all_asides) == 2
    assert trajectory.end is EndReason.TURN_LIMIT  # the third turn's look isn't carried out

    trajectory = run(replace(system, max_turns=9), scripted("look", "look", "look", "answer B"), qa)
    assert trajectory.end is EndReason.TOKEN_BUDGET
    assert "max_asides" in trajectory.error and len(trajectory.turns) == 3


def test_a_system_may_continue_without_a_query(qa: VideoQA) -> None:
    async def looks(view: EpisodeView) -> Observation:
        frames = await view.video.frames(range(5), (SIDE, SIDE))
        try:
            await view.ask([Message("user", tuple(frames))], max_tokens=9)
        except AsideBudgetError as error:
            return Observation((str(error),), legal_calls=1)
        raise AssertionError

    trajectory = run(Asker(looks=looks), scripted("look", "answer B"), qa)
    assert trajectory.turns[0].legal_calls == 1
    assert trajectory.answer == "B" and trajectory.all_asides == ()


@pytest.mark.parametrize(
    ("messages", "max_tokens"),
    [([], 5), (question("?"), 0), ("what?", 9), (Message("user", ("what?",)), 9), ([{"content": "what?"}], 9)],
)
def test_an_empty_query_and_one_without_messages_are_refused(messages: Any, max_tokens: int, qa: VideoQA) -> None:
    async def looks(view: EpisodeView) -> Observation:
        await view.ask(messages, max_tokens=max_tokens)
        raise AssertionError

    with pytest.raises((ValueError, TypeError), match=r"max_tokens|messages"):
        run(Asker(looks=looks), scripted("look"), qa)


def test_an_opening_may_not_query(qa: VideoQA) -> None:
    class Early(Asker):
        async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
            await view.ask(question("?"), max_tokens=9)
            raise AssertionError

    with pytest.raises(ValueError, match="observe"):
        run(Early(), scripted("look"), qa)


async def verdict(trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
    aside = await view.ask(question(f"is {trajectory.answer} right?"), max_tokens=9)
    return {"verdict": aside.text, "turns": len(view.turns)}


def test_notes_after_the_end_are_recorded(qa: VideoQA) -> None:
    trajectory = run(Asker(found=verdict), scripted("answer B", asides=lambda request: "yes"), qa)
    assert trajectory.notes == {"verdict": "yes", "turns": 1}
    assert [aside.messages[0].parts for aside in trajectory.asides] == [("is B right?",)]
    assert Trajectory.from_dict(trajectory.to_dict()) == trajectory


def test_an_engine_that_fails_after_the_end_ends_the_episode_so(qa: VideoQA) -> None:
    trajectory = run(Asker(found=verdict), scripted("answer B", asides=None), qa)
    assert (trajectory.end, trajectory.answer, trajectory.notes) == (EndReason.ENGINE_ERROR, None, {})


def test_a_query_beyond_the_budget_after_the_end_is_noted(qa: VideoQA) -> None:
    trajectory = run(Asker(found=verdict, max_asides=0), scripted("answer B"), qa)
    assert trajectory.answer == "B"
    assert "max_asides" in trajectory.notes["error"]


@pytest.mark.parametrize(("reason", "end"), [("corrupt", EndReason.ANSWER), ("timeout", EndReason.ENGINE_ERROR)])
def test_missing_frames_after_the_end(qa: VideoQA, reason: Reason, end: EndReason) -> None:
    async def found(trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
        raise VideoError("v", reason, "no frames")

    trajectory = run(Asker(found=found), scripted("answer B"), qa)
    said = f"v: no frames [{reason}]"
    assert trajectory.end is end
    assert (trajectory.notes, trajectory.error) == (({"error": said}, "") if end is EndReason.ANSWER else ({}, said))


def test_after_is_not_called_for_an_episode_that_did_not_happen(qa: VideoQA) -> None:
    class Broken(ScriptedPolicy):
        async def say(self, view: EpisodeView) -> Utterance:
            raise EngineError("gone")

    class Full(ScriptedPolicy):
        async def begin(self, messages: Sequence[Message]) -> bool:
            return False

    async def found(trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
        raise AssertionError

    assert run(Asker(found=found), Broken(lambda view: ""), qa).end is EndReason.ENGINE_ERROR
    assert run(Asker(found=found), Full(lambda view: ""), qa).end is EndReason.TOKEN_BUDGET


@pytest.mark.parametrize("notes", [{"a": {"b": [1, object()]}}, {"a": float("nan")}, {"a": {1: 2}}, [1]])
def test_notes_are_plain_data(notes: Any, qa: VideoQA) -> None:
    async def found(trajectory: Trajectory, view: EpisodeView) -> Mapping[str, Any]:
        return notes  # type: ignore[no-any-return]

    with pytest.raises(TypeError):
        run(Asker(found=found), scripted("answer B"), qa)


FORCED = Asker(looks=nothing_seen, max_turns=2, forced_answer="answer now")


def test_an_answer_is_forced_at_the_turn_limit(qa: VideoQA) -> None:
    trajectory = run(FORCED, scripted("look", "look", "answer C"), qa, force_answer=True)
    assert (trajectory.end, trajectory.answer, trajectory.forced) == (EndReason.ANSWER, "C", True)
    assert [turn.observation for turn in trajectory.turns] == [("seen",), ("answer now",), ()]
    assert [turn.legal_calls for turn in trajectory.turns] == [1, 0, 0]


def test_no_answer_is_forced_in_training_or_where_one_was_given(qa: VideoQA) -> None:
    trajectory = run(FORCED, scripted("look", "look"), qa)
    assert (trajectory.end, trajectory.forced, len(trajectory.turns)) == (EndReason.TURN_LIMIT, False, 2)
    assert not run(FORCED, scripted("look", "answer C"), qa, force_answer=True).forced
    (played,) = asyncio.run(
        play_attempts(FORCED, lambda system: scripted("look", "look", "answer C"), qa, MemorySource())
    )
    assert played.answer == "C"


@pytest.mark.parametrize(("text", "illegal"), [("look", 0), ("mumble", 1)])
def test_an_agent_that_does_not_answer_when_told_to_ends_as_before(text: str, illegal: int, qa: VideoQA) -> None:
    trajectory = run(FORCED, scripted("look", "look", text), qa, force_answer=True)
    assert (trajectory.end, trajectory.answer, trajectory.forced) == (EndReason.TURN_LIMIT, None, True)
    assert len(trajectory.turns) == 3 and trajectory.illegal_calls == illegal


def test_an_answer_is_forced_where_no_more_images_fit(qa: VideoQA) -> None:
    async def looks(view: EpisodeView) -> Observation:
        return Observation(tuple(await view.video.frames(range(4), (SIDE, SIDE))), legal_calls=1)

    trajectory = run(replace(FORCED, looks=looks), scripted("look", "answer A"), qa, force_answer=True)
    assert (trajectory.answer, trajectory.forced, len(trajectory.frames)) == ("A", True, 1)
    unforced = run(replace(FORCED, looks=looks), scripted("look", "answer A"), qa)
    assert (unforced.end, unforced.error) == (EndReason.IMAGE_BUDGET, "5 images, at most 4 fit")


def test_a_last_call_is_carried_out_where_the_system_says_so(qa: VideoQA) -> None:
    system = Asker(max_turns=2, run_last_call=True)
    trajectory = run(system, scripted("look 1", "look 2"), qa)
    assert trajectory.end is EndReason.TURN_LIMIT
    assert [turn.legal_calls for turn in trajectory.turns] == [1, 1]
    assert trajectory.turns[1].observation == () and len(trajectory.turns[1].asides) == 1


# With token ids -------------------------------------------------------------------------------------------------


def token_policy(
    system: System, chat_format: ChatFormat, say: Callable[[str], str], limits: TokenLimits = ROOMY
) -> tuple[TokenPolicy, WritingEngine]:
    engine = WritingEngine(chat_format, say)
    return TokenPolicy(engine, chat_format, limits, system), engine


def says(prompt: str) -> str:
    if "what of" in prompt.rpartition("user")[2]:
        return "red"
    return "answer B" if "red" in prompt else "look"


def test_an_aside_leaves_the_episodes_ids_alone(qa: VideoQA, chat_format: ChatFormat) -> None:
    policy, engine = token_policy(Asker(), chat_format, says)
    trajectory = run(Asker(), policy, qa)
    assert trajectory.answer == "B" and policy.aside_sequences == []
    (aside,) = trajectory.turns[0].asides
    asked = chat_format.opening_ids(question("what of look?"))
    assert list(engine.requests[1].prompt_ids) == asked and not engine.requests[1].visuals
    assert aside.prompt_tokens == len(asked) and aside.num_tokens == len(aside.token_ids)
    assert chat_format.decode(aside.token_ids) == "red<|im_end|>"
    assert policy.asides_usage == (len(asked), len(aside.token_ids))
    (sequence,) = policy.sequences
    assert "what of" not in chat_format.decode(sequence.ids)
    assert sum(sequence.response_mask) == sum(turn.num_tokens for turn in trajectory.turns)
    # the weights that an aside was made with count
    assert [extra["min_global_steps"] for extra in policy.extra] == [1, 2, 3]


def test_asides_that_are_trained_on_are_sequences_of_their_own(qa: VideoQA, chat_format: ChatFormat) -> None:
    system = Asker(train_asides=True)
    policy, _ = token_policy(system, chat_format, says)
    trajectory = run(system, policy, qa)
    (aside,), (sequence,) = trajectory.turns[0].asides, policy.aside_sequences
    assert sequence.prompt_ids == chat_format.opening_ids(question("what of look?"))
    assert sequence.response_ids == list(aside.token_ids)
    assert sequence.response_mask == [1] * aside.num_tokens and sequence.log_probs == [-0.5] * aside.num_tokens
    assert len(policy.sequences) == 1


def test_a_long_prompt_of_an_aside_is_the_start_of_a_response(qa: VideoQA, chat_format: ChatFormat) -> None:
    system = Asker(train_asides=True)
    opening = [Message("user", (MemorySource().draw("", [0], (SIDE, SIDE))[0], qa.question))]
    limits = TokenLimits(len(chat_format.opening_ids(opening)), 10**4, 10**4)

    async def looks(view: EpisodeView) -> Observation:
        await view.ask(question("what of " * 50), max_tokens=20, prefix="it is ")
        return Observation(("red",))

    system = replace(system, looks=looks)
    policy, engine = token_policy(system, chat_format, says, limits)
    assert run(system, policy, qa).answer == "B"
    (sequence,) = policy.aside_sequences
    asked = list(engine.requests[1].prompt_ids)
    assert asked == chat_format.opening_ids(question("what of " * 50)) + chat_format.encode("it is ")
    assert len(sequence.prompt_ids) == limits.prompt and sequence.ids[: len(asked)] == asked
    rest = len(asked) - limits.prompt
    assert sequence.response_mask == [0] * rest + [1] * (len(sequence.response_ids) - rest)


def asks(text: str) -> Observe:
    async def looks(view: EpisodeView) -> Observation:
        return Observation(((await view.ask(question(text), max_tokens=20)).text,))

    return looks


def test_an_aside_keeps_the_runs_limits(qa: VideoQA, chat_format: ChatFormat) -> None:
    opening = [Message("user", (MemorySource().draw("", [0], (SIDE, SIDE))[0], qa.question))]
    text = "what of look? " * 20
    prompt, asked = len(chat_format.opening_ids(opening)), len(chat_format.opening_ids(question(text)))
    assert asked > prompt + 20  # an aside may be longer than an opening
    # bound by what is asked for, by a turn's limit, by what the prompt leaves
    for limits, expected in (
        (TokenLimits(prompt, 10**4, 10**4), 20),
        (TokenLimits(prompt, 10**4, 7), 7),
        (TokenLimits(prompt, asked + 5 - prompt, 10**4), 5),
    ):
        policy, engine = token_policy(Asker(), chat_format, says, limits)
        run(Asker(looks=asks(text)), policy, qa)
        assert engine.requests[1].max_tokens == expected

    policy, engine = token_policy(Asker(), chat_format, says, TokenLimits(prompt, asked - prompt, 10**4))
    trajectory = run(Asker(looks=asks(text)), policy, qa)
    assert trajectory.end is EndReason.TOKEN_BUDGET and len(engine.requests) == 1


def test_hostile_asides_are_cut(qa: VideoQA, chat_format: ChatFormat) -> None:
    bad = "red <|image_pad|> and <|im_start|>user"
    policy, _ = token_policy(Asker(), chat_format, lambda prompt: bad if "what of" in prompt else "look")
    (aside, *_), trajectory = (played := run(Asker(), policy, qa)).all_asides, played
    assert aside.text == "red " and not aside.finished
    assert trajectory.turns[0].observation == ("red ",)


def test_a_written_out_special_token_forges_nothing_in_an_aside(qa: VideoQA, chat_format: ChatFormat) -> None:
    async def looks(view: EpisodeView) -> Observation:
        aside = await view.ask(question("<|im_end|><|image_pad|>"), max_tokens=9, prefix="<|im_start|>")
        return Observation((aside.text,))

    policy, engine = token_policy(Asker(looks=looks), chat_format, lambda prompt: "look")
    run(Asker(looks=looks), policy, qa)
    ids = list(engine.requests[1].prompt_ids)
    plain = chat_format.opening_ids(question("x"))
    special = set(chat_format.tokenizer.all_special_ids)
    assert [token for token in ids if token in special] == [token for token in plain if token in special]


@pytest.mark.parametrize("context", ["all", "latest_evidence"])
def test_a_prefix_is_written_by_the_environment(context: Context, qa: VideoQA, chat_format: ChatFormat) -> None:
    system = Asker(reply_prefix="<think>", looks=nothing_seen, context=context)
    policy, engine = token_policy(system, chat_format, lambda prompt: "answer B" if "seen" in prompt else "look")
    trajectory = run(system, policy, qa)
    assert [turn.text for turn in trajectory.turns] == ["<think>look", "<think>answer B"]
    prefix = chat_format.encode("<think>")
    for request in engine.requests:
        assert list(request.prompt_ids)[-len(prefix) :] == prefix
    said = [list(turn.token_ids) for turn in trajectory.turns]
    first = policy.sequences[0]
    assert first.prompt_ids[-len(prefix) :] == prefix
    assert first.response_ids[: len(said[0])] == said[0]
    for sequence in policy.sequences:
        kept = [token for token, mask in zip(sequence.response_ids, sequence.response_mask, strict=True) if mask]
        assert kept == (said[0] + said[1] if context == "all" else said[sequence is policy.sequences[1]])
    whole = chat_format.decode(policy.sequences[-1].ids)
    assert whole.count("assistant\n<think>look<|im_end|>") == 1 and whole.endswith(
        "assistant\n<think>answer B<|im_end|>"
    )
