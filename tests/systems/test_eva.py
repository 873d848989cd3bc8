"""EVA: its grammar, its reward (w_acc r_acc + w_fmt r_fmt), its self-verification, its episodes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from agentic_video.graders.base import Graders
from agentic_video.graders.endpoint import EndpointError
from agentic_video.graders.verifier import VerifierError
from agentic_video.rollout.episode import play
from agentic_video.rollout.replay import ScriptEngine
from agentic_video.rollout.tokens import ChatFormat, TokenLimits, TokenPolicy
from agentic_video.systems.eva.grammar import parse_turn, shown_seconds
from agentic_video.systems.eva.reward import MAX_ROUGE_CHARS, EvaWeights, eva_score, format_ok, rouge_mean, rouge_words
from agentic_video.systems.eva.system import Eva
from agentic_video.systems.eva.verification import last_retrieval, verify_choice
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, FrameRef, RecordedMessage, Trajectory, Turn
from tests.conftest import MemorySource
from tests.growth import assert_linear
from tests.systems.played import ended, refs, run
from tests.tools.test_base import Slides


def call(start: object = 41, end: object = 43, nframes: object = 4, resize: object = 1) -> str:
    arguments = f'{{"start_time": {start}, "end_time": {end}, "nframes": {nframes}, "resize": {resize}}}'
    return f'<tool_call>{{"tool": "frame_select", "arguments": {arguments}}}</tool_call>'


LOOK = "<think>near 42</think>" + call()
REPLY = "<think>seen</think><answer>B</answer>"
SMALL = Eva(min_pixels=784, max_pixels=784, max_tokens=16, max_frames=16, max_images=48, csv=False)


@pytest.mark.parametrize(("duration", "told"), [(60.0, 59), (60.5, 60), (61.4, 60), (1.2, 1), (0.1, 1)])
def test_length_is_half_a_second_less_in_whole_seconds(duration: float, told: int) -> None:
    assert shown_seconds(duration) == told


ONE = ToolCall("frame_select", {"start_time": 41, "end_time": 43, "nframes": 4, "resize": 1})


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (LOOK, Calls((ONE,))),
        (call().replace("arguments", "parameters"), Calls((ONE,))),
        (call() + "\nand\n" + call(), Calls((ONE, ONE))),
        (call().replace("</tool_call>", call()[11:]), Calls((ONE, ONE))),  # two objects between two tags
        (LOOK + " now I wait for the frames", Calls((ONE,))),
        (REPLY, Answer("B")),
        (LOOK + REPLY, Answer("B")),  # an answer counts before calls
        (call() + "<answer>B</answer>", Answer("B")),
        ("<answer>A</answer> no, <answer>B</answer>", Answer("A")),  # the first one
        ("<think>is it <answer>A</answer>?</think><answer>B</answer>", Answer("B")),  # a thought is no answer
        (f"<think>shall I {call(1, 2)}</think>{call()}", Calls((ONE,))),  # and no call
        (call() + "<answer> </answer>", Calls((ONE,))),  # an empty answer is none
        ("<answer>it is\nred</answer>", Answer("it is\nred")),
    ],
)
def test_reading_a_turn(text: str, action: Action) -> None:
    assert parse_turn(text) == action


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<answer>B",
        "<think><answer>B</answer>",
        "<think><answer>B</answer></think>",
        "<answer></answer>",
        "<think>a</think><answer></answer><answer>B</answer>",  # the first one counts
        call()[:-12],
        call() + "<tool_call>{}",
        "<tool_call></tool_call>",
        call(start="[1]"),
    ],
)
def test_what_is_no_turn(text: str) -> None:
    assert isinstance(parse_turn(text), Illegal)


CALL = '<tool_call>{"tool": "frame_select", "arguments": {"start_time": 1, "end_time": 3, "nframes": 2}}</tool_call>'
CALLS = Calls((ToolCall("frame_select", {"start_time": 1, "end_time": 3, "nframes": 2}),))
EARLY = (FrameRef(10, 1.0, 28, 28), FrameRef(30, 3.0, 28, 28))
LATE = (FrameRef(410, 41.0, 56, 28), FrameRef(430, 43.0, 28, 28), FrameRef(420, 42.0, 28, 28))


def look(refs: Sequence[FrameRef] = EARLY, text: str = "<think>plan</think>" + CALL) -> Turn:
    return Turn(text, CALLS, 9, observation=("<tool_response>", *refs, "</tool_response>"), legal_calls=1)


def refused(text: str = "<think>plan</think>" + CALL) -> Turn:
    return Turn(text, CALLS, 9, observation=("<tool_response>Error</tool_response>",), illegal_calls=1)


def replied(answer: str = "B", text: str = "") -> Turn:
    return Turn(text or f"<think>seen</think><answer>{answer}</answer>", Answer(answer), 9)


class FakeVerifier:
    def __init__(self, says: str | Exception):
        self.says = says
        self.asked: list[tuple[str, list[Frame]]] = []

    async def ask(self, prompt: str, frames: Sequence[Frame]) -> str:
        self.asked.append((prompt, list(frames)))
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


def earned(trajectory: Trajectory, qa: VideoQA, verifier: FakeVerifier | None, system: Eva | None = None) -> float:
    graders = Graders(verifier=verifier, source=MemorySource())  # type: ignore[arg-type]
    return asyncio.run((system or Eva()).score(trajectory, qa, graders)).reward


# the gold answer is B
@pytest.mark.parametrize(
    ("answer", "retrieved", "says", "reward", "asked"),
    [
        ("B", True, "B", 1.0, True),  # both right
        ("B", True, "A", 0.05, True),  # the frames don't show it: no credit, so only the format reward
        ("A", True, "B", 0.05, False),  # wrong after a call
        ("A", True, "A", 0.05, False),  # a verifier that is wrong in the same way doesn't help
        ("B", False, "B", 0.0, False),  # an answer without a retrieval earns nothing
        ("A", False, "A", 0.0, False),
        # without self-verification the agent's own answer counts
        ("B", True, None, 1.0, False),
        ("A", True, None, 0.05, False),
        ("B", False, None, 1.0, False),
        ("A", False, None, 0.0, False),
    ],
)
def test_truth_table_of_self_verification(
    qa: VideoQA, answer: str, retrieved: bool, says: str | None, reward: float, asked: bool
) -> None:
    trajectory = ended(*([look()] if retrieved else []), replied(answer))
    verifier = FakeVerifier(says or "")
    assert earned(trajectory, qa, verifier, Eva(csv=says is not None)) == pytest.approx(reward)
    assert bool(verifier.asked) == asked


@pytest.mark.parametrize(
    ("trajectory", "acc", "credited", "reward"),
    [
        (ended(look(), replied()), 1.0, 1.0, 1.0),
        (ended(look(), look(), look(), look(), look(), replied()), 1.0, 1.0, 1.0),  # five calls earn no more than one
        (ended(look(), replied()), 1.0, 0.0, 0.05),  # right, not verified
        (ended(look(), replied("A")), 0.0, 0.0, 0.05),
        (ended(look(), look(), replied("A")), 0.0, 0.0, 0.05),
        (ended(replied("A")), 0.0, 0.0, 0.0),  # wrong without a call
        (ended(refused(), replied("A")), 0.0, 0.0, 0.0),  # a refused call is no call
        (ended(refused(), look(), replied("A")), 0.0, 0.0, 0.05),
        (ended(look(), look(), end=EndReason.TURN_LIMIT), 0.0, 0.0, 0.0),  # no answer
        (ended(look(), end=EndReason.TOKEN_BUDGET), 0.0, 0.0, 0.0),
        (ended(look(), Turn("", Illegal("x"), 0), end=EndReason.ILLEGAL), 0.0, 0.0, 0.0),
        (ended(end=EndReason.ENGINE_ERROR), 0.0, 0.0, 0.0),
        (ended(look(), replied("red")), 0.4, 0.4, 0.4),  # open ended: a fraction, and no format reward
        (ended(look(), replied("red")), 0.0, 0.0, 0.05),
        (ended(replied("red")), 0.4, 0.4, 0.4),
        (ended(look(), replied("A", "<answer>A</answer>")), 0.0, 0.0, 0.05),  # thoughts aren't paid for
    ],
)
def test_worked_cases(trajectory: Trajectory, acc: float, credited: float, reward: float) -> None:
    result = eva_score(trajectory, acc, credited, EvaWeights())
    assert result.reward == pytest.approx(reward)
    assert sum(result.terms.values()) == result.reward
    assert (set(result.terms), result.acc) == ({"acc", "format"}, acc)


@pytest.mark.parametrize(
    ("answer", "reference", "mean"),
    [
        ("a red car", "a red car", 1.0),
        ("A RED car!", "a red car", 1.0),  # case and punctuation don't count
        ("a red cars", "a red car", 1.0),  # nor do endings
        # unigrams 3/4 and 3/3: 6/7; bigrams 2/3 and 2/2: 4/5; longest common run as the unigrams
        ("a red car drives", "a red car", (6 / 7 + 4 / 5 + 6 / 7) / 3),
        # all words, no pair of neighbours in order; the longest common subsequence is one word
        ("car red a", "a red car", (1.0 + 0.0 + 1 / 3) / 3),
        ("red", "red", 2 / 3),  # one word has no bigram
        ("blue", "a red car", 0.0),
        ("", "a red car", 0.0),
        ("\u7ea2", "a red car", 0.0),
        (
            "\u7eff\u8272\u7684\u676f\u5b50\u3002",
            "\u7eff\u8272\u7684\u676f\u5b50",
            1.0,
        ),  # Chinese: each character is a word
        # unigrams 2 of 2 and of 3: 4/5; no pair of neighbours; the longest common subsequence as the unigrams
        ("\u7eff\u676f", "\u7eff\u8272\u676f", (4 / 5 + 0.0 + 4 / 5) / 3),
        (
            "\u0437\u0435\u043b\u0451\u043d\u0430\u044f \u0447\u0430\u0448\u043a\u0430",
            "\u0417\u0435\u043b\u0451\u043d\u0430\u044f \u0447\u0430\u0448\u043a\u0430!",
            1.0,
        ),
        ("un caf\u00e9 noir", "un cafe\u0301 noir", 1.0),  # written in two ways
    ],
)
def test_rouge_by_hand(answer: str, reference: str, mean: float) -> None:
    assert rouge_mean(answer, reference) == pytest.approx(mean)


@given(st.text(st.characters(max_codepoint=127), max_size=200), st.text(st.characters(max_codepoint=127), max_size=200))
def test_rouge_of_ascii_is_the_package_s_own(answer: str, reference: str) -> None:
    own = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True).score(reference, answer)
    assert rouge_mean(answer, reference) == sum(kind.fmeasure for kind in own.values()) / 3


def test_words_of_every_script() -> None:
    assert rouge_words("The cat's 2.5 x_y") == ["the", "cat", "s", "2", "5", "x", "y"]
    assert rouge_words("\u7ea2\u8272 car2\u7ea2") == ["\u7ea2", "\u8272", "car2", "\u7ea2"]
    assert rouge_words("\u0e01\u0e34\u0e19") == ["\u0e01\u0e34", "\u0e19"], "a Thai vowel sign stays with its letter"
    assert rouge_words("\u0939\u093f\u0928\u094d\u0926\u0940 \u092d\u093e\u0937\u093e") == [
        "\u0939\u093f\u0928\u094d\u0926\u0940",
        "\u092d\u093e\u0937\u093e",
    ]
    assert rouge_words("\ufdfa" * 1_000)[:1] and len(rouge_words("\u7ea2" * 10**4)) == 500
    assert rouge_words(" .,\x00") == []


def test_no_more_than_a_thousand_characters_are_compared() -> None:
    # ROUGE-L's time is by the product of the lengths: of what is behind, only cutting it off costs anything
    answer, reference = ("a b " * 250)[:MAX_ROUGE_CHARS], ("b a " * 250)[:MAX_ROUGE_CHARS]
    mean = rouge_mean(answer, reference)
    assert 0 < mean < 1
    assert rouge_mean(answer + "a b " * 10**6, reference + "b a " * 10**6) == mean
    assert_linear(lambda times: rouge_mean("a b " * times, "b a " * times), 250, 4_000, growth=16.0)


def test_open_ended_answers_need_no_grader() -> None:
    qa = VideoQA(id="o", video="v", question="What is it?", answer="a red car", answer_type="open_ended")
    assert earned(ended(look(), replied("a red car")), qa, None) == pytest.approx(1.0)
    assert earned(ended(replied("a red car")), qa, None) == pytest.approx(1.0)
    assert earned(ended(look(), replied("blue")), qa, None) == pytest.approx(0.05)
    assert earned(ended(look(), end=EndReason.TURN_LIMIT), qa, None) == 0.0


@pytest.mark.parametrize(
    ("trajectory", "ok"),
    [
        (ended(look(), replied()), True),
        (ended(replied()), True),
        (ended(look(), replied("B", "<answer>B</answer>")), False),  # no think
        (ended(look(), replied("B", "<think>a</think><answer>B</answer><answer>A</answer>")), False),
        (ended(look(), replied("B", "<think>a</think><answer>B</answer> indeed")), False),
        (ended(look(), replied("B", f"<think>a</think>{CALL}<answer>B</answer>")), False),
        (ended(look(EARLY, CALL), replied()), False),
        (ended(look(EARLY, "<think><answer>B</answer></think>" + CALL), replied()), False),
        (ended(refused(), replied()), False),
        (ended(look(EARLY, f"<think>a</think>{CALL}\n{CALL}"), replied()), True),  # several calls
        (ended(look(), end=EndReason.TURN_LIMIT), False),
    ],
)
def test_format_is_logged(trajectory: Trajectory, ok: bool) -> None:
    assert format_ok(trajectory) is ok


def test_the_verifier_sees_the_last_frames_as_the_agent_did(qa: VideoQA) -> None:
    verifier = FakeVerifier("(B)")
    assert earned(ended(look(EARLY), look(LATE), refused(), replied()), qa, verifier) == 1.0
    ((prompt, frames),) = verifier.asked
    assert [(frame.index, frame.width, frame.height) for frame in frames] == [
        (410, 56, 28),
        (430, 28, 28),
        (420, 28, 28),
    ]
    assert "What colour flashes at 42 s?\n(A) red\n(B) green\n(C) blue\n(D) grey" in prompt


def test_overview_frames_are_no_retrieval(qa: VideoQA) -> None:
    trajectory = Trajectory("q", "eva", (RecordedMessage("user", EARLY),), (replied(),), EndReason.ANSWER)
    verifier = FakeVerifier("B")
    assert earned(trajectory, qa, verifier) == 0.0
    assert not verifier.asked and last_retrieval(trajectory) == ()


@pytest.mark.parametrize("says", ["", "A, B, C or D", "I cannot tell", "A", "AB", "B" * 10**6, "{" * 10**5])
def test_a_verifier_that_names_no_single_option_verifies_nothing(qa: VideoQA, says: str) -> None:
    assert earned(ended(look(), replied()), qa, FakeVerifier(says)) == pytest.approx(0.05)


def test_a_verifier_that_fails_is_not_a_wrong_answer(qa: VideoQA) -> None:
    with pytest.raises(EndpointError):
        earned(ended(look(), replied()), qa, FakeVerifier(VerifierError("away")))
    with pytest.raises(EndpointError, match="needs a verifier"):
        earned(ended(look(), replied()), qa, None)


def test_frames_that_cannot_be_had_again_are_not_a_wrong_answer(qa: VideoQA) -> None:
    graders = Graders(verifier=FakeVerifier("B"), source=MemorySource(fail=True))  # type: ignore[arg-type]
    with pytest.raises(EndpointError, match="no frames for the verifier"):
        asyncio.run(verify_choice(ended(look(), replied()), qa, "?", graders, "robust"))


def test_another_overview_can_be_chosen(qa: VideoQA, source: MemorySource) -> None:
    system = replace(SMALL, overview="uniform", overview_frames=6)
    trajectory = run(system, qa, source, REPLY)
    # 600 frames at 10 a second: numbers 0, 119.8, 239.6, 359.4, 479.2, 599
    assert [frame.index for frame in trajectory.frames] == [0, 120, 240, 359, 479, 599]
    assert trajectory.opening[1].parts[2] == "\nFrame 1 at [00:12]: "


def test_frames_are_where_and_as_large_as_asked(qa: VideoQA) -> None:
    source = MemorySource(60.0, size=(1280, 720))
    trajectory = run(Eva(csv=False), qa, source, "<think>x</think>" + call(resize=0.5), REPLY)
    assert [ref.time for ref in refs(trajectory)] == [41.0, 41.7, 42.3, 43.0]
    # 640 x 360 to the nearest multiples of 28
    assert {(ref.width, ref.height) for ref in refs(trajectory)} == {(644, 364)}


@pytest.mark.parametrize(("start", "end", "count"), [(0, 10, 11), (60, 60.4, 5), (7.2, 7.8, 1)])
def test_no_more_frames_than_a_video_of_variable_rate_has_there(
    qa: VideoQA, start: float, end: float, count: int
) -> None:
    # by the average of 5.5 a second there would be 56, 3 and 4; between 7 and 8 s there is no frame, and one is shown
    trajectory = run(SMALL, qa, Slides(), "<think>x</think>" + call(start, end, 16), REPLY)
    assert len(refs(trajectory)) == count


def test_several_calls_are_carried_out_in_order_and_numbered_through(qa: VideoQA, source: MemorySource) -> None:
    both = "<think>x</think>" + call(10, 11, 2) + "\n" + call(5, 7, 1)
    trajectory = run(SMALL, qa, source, both, REPLY)
    assert [ref.time for ref in refs(trajectory)] == [10.0, 11.0, 6.0]
    assert "\nFrame 2 at [00:06]: " in trajectory.turns[0].observation
    assert (trajectory.turns[0].legal_calls, trajectory.turns[0].illegal_calls) == (2, 0)


def test_a_refused_call_next_to_a_legal_call_is_reported(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, "<think>x</think>" + call(nframes=0) + call(nframes=1), REPLY)
    assert trajectory.end is EndReason.ANSWER
    assert (trajectory.tool_calls, trajectory.illegal_calls) == (1, 1)
    assert "Error: call 1: nframes must be a whole number" in str(trajectory.turns[0].observation[-1])


@pytest.mark.parametrize("text", ["<tool_call>{</tool_call>", call(nframes=0), call(70, 80), "I don't know."])
def test_a_turn_that_asks_for_nothing_legal_ends_the_episode(qa: VideoQA, source: MemorySource, text: str) -> None:
    trajectory = run(SMALL, qa, source, text, REPLY)
    assert (trajectory.end, trajectory.illegal_calls, source.requested) == (EndReason.ILLEGAL, 1, 0)


def test_or_an_empty_window_shows_the_whole_video(qa: VideoQA, source: MemorySource) -> None:
    system = replace(SMALL, empty_window="whole_video")
    for window in ((70, 80), (43, 41), (41, 41)):
        trajectory = run(system, qa, source, "<think>x</think>" + call(*window, 3), REPLY)
        assert (trajectory.end, trajectory.illegal_calls) == (EndReason.ANSWER, 0)
        # the last of 600 frames is at 59.9 s
        assert [ref.time for ref in refs(trajectory)] == pytest.approx([0.0, 30.0, 59.9])


def test_or_the_agent_is_told(qa: VideoQA, source: MemorySource) -> None:
    system = replace(SMALL, end_on_refusal=False)
    trajectory = run(system, qa, source, "<tool_call>{</tool_call>", call(nframes=0), REPLY)
    assert trajectory.end is EndReason.ANSWER
    assert [turn.illegal_calls for turn in trajectory.turns] == [1, 1, 0]
    assert "Error: the call is not valid JSON." in str(trajectory.turns[0].observation[-1])
    assert "Error: call 1: nframes" in str(trajectory.turns[1].observation[-1])
    assert run(system, qa, source, "I don't know.", REPLY).end is EndReason.ILLEGAL


def test_calls_that_together_ask_for_too_many_decode_nothing(qa: VideoQA, source: MemorySource) -> None:
    trajectory = run(SMALL, qa, source, "<think>x</think>" + 4 * call(0, 50, 16))
    assert (trajectory.end, trajectory.error) == (EndReason.IMAGE_BUDGET, "64 images, at most 48 fit")
    assert (trajectory.turns[0].legal_calls, source.requested) == (4, 0)


def test_turns_end_with_the_end_of_turn_token(qa: VideoQA, source: MemorySource, chat_format: ChatFormat) -> None:
    # no text ends a turn, as it may hold several calls
    engine = ScriptEngine([[*chat_format.encode(text), chat_format.end_id] for text in (LOOK + call(1, 2, 1), REPLY)])
    policy = TokenPolicy(engine, chat_format, TokenLimits(10**6, 10**6, 10**6), SMALL)
    trajectory = asyncio.run(play(SMALL, policy, qa, source))
    assert [turn.finished for turn in trajectory.turns] == [True, True]
    assert [turn.text for turn in trajectory.turns] == [LOOK + call(1, 2, 1), REPLY]
    assert (trajectory.end, trajectory.tool_calls) == (EndReason.ANSWER, 2)
    assert policy.sequence is not None
    shown = chat_format.decode(policy.sequence.response_ids)
    assert shown.count("<|im_end|>") == 3  # of both turns and of the reply; none twice
