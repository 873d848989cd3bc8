"""Each check of Cognitive Consistency Verification, alone: what fails it and what passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.systems.framethinker.consistency import ConsistencyRules, failed_checks
from agentic_video.systems.framethinker.grammar import read_steps, split_turn
from agentic_video.types.action import Answer, Calls, ToolCall
from agentic_video.types.trajectory import EndReason, FrameRef, RecordedMessage, Trajectory, Turn
from tests.growth import assert_linear

NONE = ConsistencyRules(redundancy=False, logical_flow=False, fidelity=False, width=False)
REDUNDANCY = ConsistencyRules(logical_flow=False, fidelity=False, width=False)
LOGICAL_FLOW = ConsistencyRules(redundancy=False, fidelity=False, width=False)
FIDELITY = ConsistencyRules(redundancy=False, logical_flow=False, width=False)
WIDTH = ConsistencyRules(redundancy=False, logical_flow=False, fidelity=False)
ALL = ConsistencyRules()
# 600 frames at 10 a second; the overview's last frame is the video's
OVERVIEW = (RecordedMessage("user", tuple(FrameRef(index, index / 10, 28, 28) for index in (0, 200, 400, 599))),)


def look(start: int, end: int, thought: str | None = None, shown: tuple[int, ...] | None = None) -> Turn:
    thought = f"between {start} and {end}" if thought is None else thought
    shown = (start + 1, end - 1) if shown is None else shown
    text = f"<think>{thought}</think><action>choose frames between {start} and {end}</action>"
    frames = tuple(FrameRef(index, index / 10, 28, 28) for index in shown)
    call = ToolCall("choose_frames", {"start": start, "end": end})
    return Turn(text, Calls((call,)), 9, observation=frames, legal_calls=int(bool(shown)))


def lookup(clock: str, number: int | None) -> Turn:
    text = f"<think>when is {clock}</think><action>get frame number at time {clock}</action>"
    said = () if number is None else (f"The frame at {clock} is: {number}",)
    call = ToolCall("frame_number", {"time": clock})
    return Turn(text, Calls((call,)), 9, observation=said, legal_calls=int(bool(said)))


def reply() -> Turn:
    return Turn("<think>seen</think><action>output answer: B</action>", Answer("B"), 9)


def episode(*turns: Turn, end: EndReason = EndReason.ANSWER) -> Trajectory:
    return Trajectory("q", "framethinker", OVERVIEW, turns, end)


@pytest.mark.parametrize(
    ("turns", "fails"),
    [
        ((look(100, 200), reply()), False),
        ((look(100, 200), look(100, 200), reply()), True),  # the same pair
        ((look(100, 200), look(300, 400), look(100, 200), reply()), True),  # also with another look in between
        ((look(100, 200), look(101, 199), reply()), True),  # one frame inside an earlier one
        ((look(101, 199), look(100, 200), reply()), False),  # one frame outside isn't
        ((look(100, 200), look(102, 198), reply()), False),  # two frames inside aren't
        ((look(100, 200), look(101, 200), reply()), False),  # one end only isn't
        ((look(100, 200), look(140, 160), reply()), False),  # a refinement
        ((look(0, 599), reply()), True),  # the whole video
        ((look(0, 5000), reply()), True),  # the whole video and more
        ((look(0, 598), reply()), False),
        ((look(1, 599), reply()), False),
        ((look(500, 700, shown=(501, 599)), look(500, 900, shown=(501, 599)), reply()), True),  # both are clipped
        ((lookup("00:22", 220), lookup("00:22", 220), reply()), True),  # the same time
        ((lookup("01:15", 750), look(700, 800), lookup("00:75", 750), reply()), True),  # in another writing
        ((lookup("00:22", 220), lookup("00:23", 230), reply()), False),
        ((look(100, 200), lookup("00:10", 100), look(50, 150), reply()), False),
    ],
)
def test_redundancy(turns: tuple[Turn, ...], fails: bool) -> None:
    assert failed_checks(read_steps(episode(*turns)), REDUNDANCY) == (("redundancy",) if fails else ())


@pytest.mark.parametrize(
    ("turns", "fails"),
    [
        ((lookup("00:42", 420), look(410, 430), reply()), False),
        ((lookup("00:42", 420), look(420, 440), reply()), False),  # the ends belong to it
        ((lookup("00:42", 420), look(400, 420), reply()), False),
        ((lookup("00:42", 420), look(421, 440), reply()), True),
        ((lookup("00:34", 815), look(565, 645), reply()), True),  # the paper's example (Figure 17)
        ((lookup("00:42", 420), reply()), True),  # looked up and never used
        ((lookup("00:42", 420), look(410, 430), look(100, 200), reply()), False),  # only the look straight after
        ((lookup("00:42", 420), lookup("00:50", 500), look(490, 510), reply()), False),  # the later one is used
        ((lookup("00:42", 420), lookup("00:50", 500), look(410, 430), reply()), True),
        ((look(100, 200), reply()), False),
        ((reply(),), False),
        ((lookup("00:42", 420),), False),  # so far, so good
        ((lookup("00:42", None), look(100, 200)), False),  # nothing came back
    ],
)
def test_logical_flow(turns: tuple[Turn, ...], fails: bool) -> None:
    assert failed_checks(read_steps(episode(*turns)), LOGICAL_FLOW) == (("logical_flow",) if fails else ())


@pytest.mark.parametrize(
    ("thought", "fails"),
    [
        ("between 410 and 430", False),
        ("2 people at 5, so between 410 and 430", False),  # the last two count
        ("between 410 and 430, about 00:42", False),  # a clock time doesn't
        ("00:42, between 410 and 1:02:03 430", False),
        ("between 410 and 430, 3 of them", True),
        ("between 430 and 410", True),
        ("between 400 and 430", True),
        ("near frame 420", True),  # one number
        ("look closer", True),
        ("", True),
        ("at 410:430", True),
        ("410.5 and 430", True),  # 5 and 430
        ("between 0410 and 00430", False),
        ("between 410 and " + "9" * 10_000, True),
        ("410 and ٤٣٠", True),
        ("从410到430帧", False),  # a Chinese character is no part of a word
    ],
)
def test_fidelity(thought: str, fails: bool) -> None:
    trajectory = episode(look(410, 430, thought), reply())
    assert failed_checks(read_steps(trajectory), FIDELITY) == (("fidelity",) if fails else ())


def test_fidelity_of_the_papers_example() -> None:
    # Figure 18: the thought finds frame 4974, the action goes elsewhere
    trajectory = episode(look(1400, 1500, "the event is near frame 4974"), reply())
    assert failed_checks(read_steps(trajectory), FIDELITY) == ("fidelity",)


def test_fidelity_reads_the_thought_before_the_action_only() -> None:
    text = "<think>a 410 430</think><think>b 1 2</think><action>choose frames between 410 and 430</action>"
    turn = Turn(text, Calls((ToolCall("choose_frames", {"start": 410, "end": 430}),)), 9)
    assert failed_checks(read_steps(episode(turn)), FIDELITY) == ("fidelity",)
    inside = "<think>x</think><action>choose frames between 410 and 430</action><think>410 430</think>"
    assert failed_checks(read_steps(episode(Turn(inside, turn.action, 9))), FIDELITY) == ("fidelity",)


@pytest.mark.parametrize(
    ("start", "end", "width", "shown", "fails"),
    [
        (100, 108, 8, 8, True),
        (100, 109, 8, 8, False),
        (100, 110, 8, 12, False),  # 8 even where 12 are sampled
        (100, 110, "sampled", 12, True),
        (100, 112, "sampled", 12, True),
        (100, 113, "sampled", 12, False),
        (100, 105, "sampled", 4, False),
        (100, 105, 8, 4, True),
        (200, 100, 8, 0, True),
        (200, 100, "sampled", 0, False),  # never carried out: nothing is known
    ],
)
def test_width(start: int, end: int, width: object, shown: int, fails: bool) -> None:
    rules = ConsistencyRules(redundancy=False, logical_flow=False, fidelity=False, min_width=width)  # type: ignore[arg-type]
    trajectory = episode(look(start, end, shown=tuple(range(shown))), reply())
    assert failed_checks(read_steps(trajectory), rules) == (("width",) if fails else ())


def test_all_failures_are_reported_in_order() -> None:
    turns = (look(100, 104, "here"), look(100, 104, "here"), lookup("00:42", 420), reply())
    assert failed_checks(read_steps(episode(*turns)), ALL) == ("redundancy", "logical_flow", "fidelity", "width")
    assert failed_checks(read_steps(episode(*turns)), NONE) == ()


def test_a_sound_episode_passes_whatever_its_end() -> None:
    turns = (lookup("00:42", 420), look(410, 430), look(415, 425), reply())
    assert failed_checks(read_steps(episode(*turns)), ALL) == ()
    assert failed_checks(read_steps(episode(*turns[:2], end=EndReason.TURN_LIMIT)), ALL) == ()
    assert failed_checks(read_steps(episode(end=EndReason.ENGINE_ERROR)), ALL) == ()


def test_without_overview_no_pair_is_the_whole_video() -> None:
    trajectory = Trajectory("q", "framethinker", (), (look(0, 599), reply()), EndReason.ANSWER)
    assert failed_checks(read_steps(trajectory), REDUNDANCY) == ()


def test_a_failure_is_never_mended() -> None:
    turns = (lookup("00:42", 420), look(100, 200), look(410, 430), reply())
    verdicts = [bool(failed_checks(read_steps(episode(*turns[:count])), ALL)) for count in range(5)]
    assert verdicts == [False, False, True, True, True]


def test_numbers_that_lookups_returned() -> None:
    assert read_steps(episode(lookup("00:00", 0), lookup("00:42", 420), lookup("00:43", None))).returned_numbers == (
        0,
        420,
    )


@pytest.mark.parametrize(
    "piece", ["<think>", "</think>", "<action>", "</action>", "1", "1:", "1 ", ":1", "<think>1</think>"]
)
def test_time_is_linear(piece: str) -> None:
    def judge(thought: str) -> None:
        split_turn(thought)
        failed_checks(read_steps(episode(look(410, 430, thought), reply())), ALL)

    small, large = (piece * (length // len(piece)) for length in (20_000, 160_000))
    assert_linear(judge, small, large)


@given(st.text(max_size=60), st.integers(0, 10**9), st.integers(0, 10**9))
def test_any_thought_is_judged(thought: str, start: int, end: int) -> None:
    assert set(failed_checks(read_steps(episode(look(start, end, thought), reply())), ALL)) <= {
        "redundancy",
        "fidelity",
        "width",
    }
