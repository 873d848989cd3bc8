"""The contract of all nine systems: parsing, constants, ablations, grades, demonstrations, needs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentic_video.systems
from agentic_video.config.typed import ConfigError, dataclass_from
from agentic_video.evaluation.ablations import with_calls, with_frames, without_tools
from agentic_video.graders.base import Graders
from agentic_video.synthesis.verify import demonstration_fault, demonstration_score, taught_by_team
from agentic_video.systems.base import EpisodeView, System
from agentic_video.systems.eva import Eva
from agentic_video.systems.framemind import FrameMind, FrameSampling
from agentic_video.systems.framethinker import FrameThinker, GuardRules
from agentic_video.systems.longvt import LongVT
from agentic_video.systems.needs import check_needs, judged
from agentic_video.systems.paravt import ParaVT
from agentic_video.systems.registry import METHODS, SYSTEMS, system_class, system_module
from agentic_video.systems.shown import shows_clips
from agentic_video.systems.timesearch import TimeSearch
from agentic_video.systems.videobrain import VideoBrain
from agentic_video.systems.videoo3 import CropTokens, VideoO3
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.types.action import Action, Answer, Calls, Illegal, ToolCall
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Observation
from agentic_video.types.row import RowError, VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import EndReason, FrameRef, RecordedMessage, Trajectory, Turn
from agentic_video.utils.errors import SetupError
from tests.conftest import MemorySource
from tests.hostile_cases import CASES, QA, Case
from tests.systems.played import FixedJudge, ended, run, told

ALL: tuple[System, ...] = tuple(system_class(name)() for name in SYSTEMS)
every_system = pytest.mark.parametrize("system", ALL, ids=lambda system: system.name)
TAGS = ("think", "thinking", "tool_call", "tool_code", "video_zoom", "grounding", "action", "answer", "turn_sum")
PIECES = st.one_of(
    st.text(max_size=20),
    st.sampled_from([f"<{close}{tag}>" for tag in TAGS for close in ("", "/")]),
    st.sampled_from(['{"name": "crop_video", "arguments": {}}', "output answer:", "[[[[[", '{"a":', "1e999", "NaN"]),
)


@dataclass(frozen=True)
class Plain(System):
    """The least that a system must have."""

    name: str = "plain"
    max_turns: int = 2
    max_images: int = 3
    stop: tuple[str, ...] = ()

    async def opening(self, view: EpisodeView) -> tuple[Message, ...]:
        return (Message("user", (view.qa.question,)),)

    def parse(self, text: str) -> Action:
        return Answer(text)

    async def observe(self, action: Calls | Illegal, view: EpisodeView) -> Observation | None:
        return None

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        acc = await self.grade(trajectory, qa, graders)
        return Score(acc, acc, 1.0, {"acc": acc})


def answered(text: str, *earlier: Turn, said: str = "") -> Trajectory:
    return ended(*earlier, Turn(said or text, Answer(text), 1))


def grade(system: System, text: str, qa: VideoQA, graders: Graders = Graders()) -> float:  # noqa: B008
    return asyncio.run(system.grade(answered(text), qa, graders))


@every_system
@given(pieces=st.lists(PIECES, max_size=8))
def test_parsing_never_raises(system: System, pieces: list[str]) -> None:
    action = system.parse("".join(pieces))
    assert isinstance(action, Calls | Answer | Illegal)
    if isinstance(action, Answer):
        assert isinstance(action.text, str)


@every_system
def test_a_turn_without_any_block_is_illegal_and_ends_the_episode(system: System, qa: VideoQA) -> None:
    if isinstance(system, ParaVT):
        system = replace(system, answer_fallback=False)
    action = system.parse("nothing")
    assert isinstance(action, Illegal)
    source = MemorySource()
    from agentic_video.tools.base import Video

    view = EpisodeView(qa, Video("memory", source.info, source), (Turn("nothing", action, 1),))
    assert asyncio.run(system.observe(action, view)) is None


CROP = '{"name": "crop_video", "arguments": %s}'
SEEK = '{"name": "seek_video_frames", "arguments": %s}'
FRAME_AT = '{"name": "FrameAt", "arguments": %s}'
REFUSED = [
    ("videozoomer", "{segment: 1}", "not valid JSON"),
    ("framemind", FRAME_AT % '{"t": 3}' + " " * 3000, "longer than 2000"),
    ("framemind", FRAME_AT % '{"t": NaN}', "NaN is not a number"),
    ("videobrain", '{"name": "zoom", "arguments": {}}', "no such tool"),
    ("longvt", CROP % '{"start_time": 41}', "crop_video needs end_time"),
    (
        "longvt",
        CROP % '{"start_time": 50, "end_time": 61}',
        "end_time lies outside the video, which lasts 60.00 seconds",
    ),
    ("longvt", CROP % '{"start_time": "1", "end_time": 4}', "start_time must be a number"),
    ("timesearch", '{"name": "look", "arguments": {"query": "a"}}', "there is no such tool, only seek_video_frames"),
    ("timesearch", SEEK % '{"start_time": 20, "end_time": 10}', "start_time is after end_time"),
    ("timesearch", SEEK % '{"query": "a cup"}', "there is no retrieval model"),
    ("timesearch", "{query: a}", "inside <tool_call> and </tool_call>"),  # the hint
    ("videoo3", '{"temporal_segment": [5, 5.5], "sampling_strategy": "fine"}', "must last 1 s"),
    ("videoo3", "{}", "temporal_segment is missing"),
]


def scripted(system: System, *texts: str) -> Trajectory:
    return run(system, QA, MemorySource(), *texts, asides=lambda request: "B")


@pytest.mark.parametrize(("name", "body", "reason"), REFUSED)
def test_a_refused_call_is_told_and_may_be_corrected(name: str, body: str, reason: str) -> None:
    case = CASES[name]
    trajectory = scripted(case.system, case.request(body), case.call, case.answer.format("B"))
    assert reason in told(trajectory)
    assert (trajectory.turns[0].illegal_calls, trajectory.turns[1].illegal_calls) == (1, 0)
    assert (trajectory.end, trajectory.answer) == (EndReason.ANSWER, "B")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_last_turn_must_answer(case: Case) -> None:
    system = case.system
    looks = scripted(system, *[case.call] * system.max_turns)
    assert (looks.end, len(looks.turns)) == (EndReason.TURN_LIMIT, system.max_turns)
    carried_out = [bool(turn.legal_calls) for turn in looks.turns]
    assert carried_out == [True] * (system.max_turns - 1) + [system.run_last_call]
    last = scripted(system, *[case.call] * (system.max_turns - 1), case.answer.format("B"))
    assert last.answer == "B"


# Registry and constants


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_name_gives_the_class_and_the_modules_of_a_system(name: str) -> None:
    found = system_class(name)
    assert issubclass(found, System)
    assert (found.__name__, found().name) == (SYSTEMS[name], name)
    for module in ("grammar", "oracle", "reward", "system"):
        assert system_module(name, module).__name__ == f"agentic_video.systems.{name}.{module}"


def test_every_system_with_a_folder_is_registered() -> None:
    [root] = agentic_video.systems.__path__
    assert set(SYSTEMS) == {file.parent.name for file in Path(root).glob("*/system.py")}
    assert set(METHODS.values()) <= set(SYSTEMS)
    with pytest.raises(KeyError):
        system_class("base")
    with pytest.raises(ModuleNotFoundError):
        system_module("videozoomer", "verification")


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_unknown_words_are_refused_where_a_config_is_read(name: str) -> None:
    cls = system_class(name)
    words = [key for key, hint in get_type_hints(cls).items() if get_origin(hint) is Literal]
    keys = set(words) & {field.name for field in fields(cls)}
    assert {"overview", "frames_as"} <= keys
    for key in sorted(keys):
        with pytest.raises((ValueError, SetupError), match=key):
            dataclass_from(cls, {key: "bogus"}, "agentic_video.system")


@pytest.mark.parametrize(
    ("cls", "wrong"),
    [
        (VideoZoomer, {"overview_fps": 0.0}),
        (LongVT, {"overview_fps": -1.0}),
        (ParaVT, {"overview_fps": float("inf")}),
        (TimeSearch, {"overview_fps": float("nan")}),
        (FrameThinker, {"look_frames": 0}),
        (FrameMind, {"overview": "rate"}),
        (FrameMind, {"group_size": 0}),
        (FrameMind, {"low": {"frames": 0, "height": 28, "width": 28}}),
        (FrameThinker, {"ccv": {"min_width": -1}}),
        (FrameMind, {"max_images": 50}),  # the text's limit doesn't hold the paper's own view of 64 frames
        (FrameMind, {"clip_min_frames": 21}),
        (FrameMind, {"clip_fps": 0.0}),
        (VideoBrain, {"uniform_sample": False, "clip_sample": False}),
        (Eva, {"max_tokens": 1}),
        (Eva, {"max_calls": 0}),
        (Eva, {"max_pixels": 100}),
        (LongVT, {"max_calls": 0}),
        (LongVT, {"crop_max_frames": 0}),
        (LongVT, {"crop_fps": 0.0}),
        (ParaVT, {"overview_least": 65}),
        (ParaVT, {"overview_least": 0}),
        (ParaVT, {"max_calls": 0}),
        (ParaVT, {"crop_max_frames": 0}),
        (VideoO3, {"crop_min_frames": 1}),
        (VideoO3, {"crop_max_frames": 2}),
        (VideoO3, {"crop_fps": 0.0}),
        (VideoO3, {"overview_tokens": 0}),
        (VideoO3, {"frame_max_tokens": 0}),
        (CropTokens, {"coarse": 0}),
        (GuardRules, {"attempts": 0}),
        (TimeSearch, {"seek_frames": 0}),
        (TimeSearch, {"pool_max_frames": 5_000}),
    ],
)
def test_impossible_constants_are_refused(cls: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        dataclass_from(cls, wrong, "agentic_video.system")


@every_system
def test_frames_are_shown_as_images_or_as_clips(system: System) -> None:
    assert shows_clips(system) == isinstance(system, VideoO3 | TimeSearch)
    assert shows_clips(replace(system, frames_as="video"))  # type: ignore[type-var, call-arg]
    assert not shows_clips(replace(system, frames_as="images"))  # type: ignore[type-var, call-arg]
    assert not shows_clips(Plain())


LABELS = [
    # images at 12.5 and 13.333 s, and both as one clip
    ("videozoomer", "<frame0_time12.50s>", "<frame1_time13.33s>", "<frame0_time12.50s><frame1_time13.33s>"),
    ("framethinker", "frame 375: ", "\nframe 400: ", "frame 375 to frame 400: "),
    ("framemind", "<12.50s>", "<13.33s>", "<12.50s to 13.33s>"),
    ("videobrain", "\nframe 375: ", "\nframe 400: ", "\nframe 375 to frame 400: "),
    ("timesearch", "12.5s", "13.3s", ""),
    ("paravt", "<12.5 seconds>", "<13.3 seconds>", "<12.5 to 13.3 seconds>"),
]


@pytest.mark.parametrize(("name", "one", "two", "both"), LABELS)
def test_frames_follow_their_labels(name: str, one: str, two: str, both: str) -> None:
    labelled = system_module(name, "grammar").labelled
    first, second = (Frame(index, index / 30, np.zeros((2, 2, 3), np.uint8)) for index in (375, 400))
    assert labelled([first, second]) == (one, first, two, second)
    assert labelled([]) == ()
    *label, clip = labelled([first, second], "video")
    assert clip.frames == (first, second) and "".join(label) == both
    assert labelled([first], "video") == (one, first), "a single frame is no video"


def test_labels_of_eva_paravt_and_timesearch() -> None:
    first, second = (Frame(index, index / 30, np.zeros((2, 2, 3), np.uint8)) for index in (375, 3750))
    # EVA: in whole seconds of the times that were asked for
    eva = system_module("eva", "grammar").labelled
    assert eva([first, second], [12.4, 124.99])[::2] == ("Frame 0 at [00:12]: ", "\nFrame 1 at [02:04]: ")
    assert eva([first, second], [12.4, 124.99], "video", start=3)[0] == "\nFrame 3 at [00:12] to frame 4 at [02:04]: "
    assert system_module("paravt", "grammar").labelled([first], labels=False) == (first,)
    assert system_module("timesearch", "grammar").times_text([first, second]) == "12.5s, 125.0s"


def test_images_leave_a_message_and_texts_stay() -> None:
    picture = Frame(0, 0.0, np.zeros((2, 2, 3), np.uint8))
    assert Plain().drop_images(("a", picture, "b", picture)) == ("a", "b")


# Ablations


@pytest.mark.parametrize(
    ("system", "count", "changes"),
    [
        (VideoZoomer(), 128, {"overview_max_frames": 128, "max_images": 192}),  # 64 more than 64
        (VideoZoomer(), 32, {"overview_max_frames": 32}),  # fewer leave the room as it is
        (FrameThinker(), 64, {"overview_frames": 64, "long_overview_frames": 64, "max_images": 180}),  # 52 more than 12
        (
            FrameMind(),
            128,
            {"low": FrameSampling(128, 224, 224), "high": FrameSampling(128, 448, 448), "max_images": 164},
        ),
        (FrameMind(), 16, {"low": FrameSampling(16, 224, 224), "high": FrameSampling(16, 448, 448)}),
        (VideoBrain(), 32, {"overview_frames": 32, "max_images": 144}),  # 16 more than 16
        (Eva(), 64, {"max_frames": 64}),  # no overview: the most of one call
        (Eva(overview="uniform"), 64, {"overview_frames": 64, "max_images": 544}),  # 32 more than 32
        (VideoO3(), 64, {"overview_max_frames": 64}),
        (LongVT(), 513, {"overview_max_frames": 513, "max_images": 1_153}),
        (ParaVT(), 65, {"overview_frames": 65, "overview_least": 65, "max_images": 305}),
        (TimeSearch(), 1024, {"overview_max_frames": 1024, "max_images": 1080}),  # 256 more than 768
    ],
)
def test_another_number_of_frames(system: Any, count: int, changes: dict[str, Any]) -> None:
    assert with_frames(system, count) == replace(system, **changes)


@pytest.mark.parametrize("system", [VideoZoomer(overview="none"), ParaVT(overview="none"), Plain()])
def test_a_system_without_a_number_of_frames_refuses_the_sweep(system: System) -> None:
    with pytest.raises(ValueError):
        with_frames(system, 8)


@every_system
@pytest.mark.parametrize("count", [0, 1, 7])
def test_another_number_of_calls(system: System, count: int) -> None:
    changed = with_calls(system, count)
    calls = {"max_calls": count + 1} if isinstance(system, LongVT) else {}
    wanted = replace(system, max_turns=count + 1, **calls) if count else without_tools(system)  # type: ignore[type-var]
    assert changed == wanted


@pytest.mark.parametrize(
    ("system", "changes"),
    [
        (VideoZoomer(), {"prompt": "direct"}),
        (VideoZoomer(overview="none"), {"prompt": "direct", "overview": "uniform"}),
        (FrameThinker(), {"prompt": "framethinker_direct"}),
        (FrameThinker(guard=GuardRules(prompt="x")), {"prompt": "x"}),
        (FrameMind(), {"prompt": "direct"}),
        (VideoBrain(), {"prompt": "direct"}),
        (Eva(), {"prompt": "direct", "overview": "uniform"}),
        (Eva(overview="rate"), {"prompt": "direct"}),
        (TimeSearch(), {"prompt": "direct", "tools_prompt": ""}),
        (TimeSearch(overview="none"), {"prompt": "direct", "tools_prompt": "", "overview": "uniform"}),
        (LongVT(), {"prompt": "direct", "task_prompt": "longvt_question", "video_path": "none"}),
        (ParaVT(), {"prompt": "direct"}),
        (VideoO3(), {"prompt": "direct"}),
    ],
)
def test_the_direct_answer(system: Any, changes: dict[str, Any]) -> None:
    assert without_tools(system) == replace(system, max_turns=1, **changes)


# Demonstrations

LOOK = Turn(
    "<think>near 4</think><action>choose frames between 100 and 200</action>",
    Calls((ToolCall("choose_frames", {"start": 100, "end": 200}),)),
    9,
    observation=(FrameRef(101, 10.1, 28, 28),),
    legal_calls=1,
)
SELECT = Turn(
    "<think>a</think><tool_call>{}</tool_call>",
    Calls((ToolCall("frame_select", {}),)),
    9,
    observation=(FrameRef(10, 1.0, 28, 28),),
    legal_calls=1,
)
OVERVIEW = (RecordedMessage("user", (FrameRef(10, 1.0, 28, 28), "Which?")),)
THOUGHT = "<think>seen</think><answer>B</answer>"


def demonstrated(system: System, trajectory: Trajectory, qa: VideoQA) -> Score:
    return asyncio.run(demonstration_score(system, trajectory, qa, Graders()))


@pytest.mark.parametrize(
    ("system", "said", "reward"),
    [
        (VideoZoomer(), THOUGHT, 1.0),  # 0.9 + 0.1
        (FrameThinker(), "<think>seen</think><action>output answer: B</action>", 1.0),
        (FrameMind(), THOUGHT, 1.0),
        (VideoBrain(answer_match="robust"), "<thinking>seen</thinking><answer>B</answer>", 1.55),  # 0.05 + 1 + 0.5
        (Eva(), THOUGHT, 1.0),
        (LongVT(), THOUGHT, 2.0),  # 1 + 1; the row has no window
        (VideoO3(), THOUGHT, 2.0),  # 1 + 1; the row names no class
        (TimeSearch(), THOUGHT, 1.5),  # 1 + 0.5: no policy verifies it
    ],
    ids=lambda value: value.name if isinstance(value, System) else "",
)
def test_the_score_of_a_demonstration(qa: VideoQA, system: System, said: str, reward: float) -> None:
    score = demonstrated(system, answered("B", said=said), replace(qa, windows=()))
    assert (score.reward, score.acc, score.format) == (pytest.approx(reward), 1.0, 1.0)


def test_only_training_needs_a_row_s_class(qa: VideoQA) -> None:
    system = VideoBrain(answer_match="robust")
    trajectory = answered("B", said="<thinking>a</thinking><answer>B</answer>")
    with pytest.raises(RowError):
        asyncio.run(system.score(trajectory, qa, Graders()))
    assert demonstrated(system, trajectory, qa).reward == pytest.approx(1.55)
    # a class that is there counts: an active question answered without tools has no behaviour term
    assert demonstrated(system, trajectory, replace(qa, extra={"class": "active"})).reward == pytest.approx(1.05)


@pytest.mark.parametrize(
    ("system", "trajectory", "fault"),
    [
        (VideoZoomer(), answered("B"), None),
        (Eva(), answered("B"), "answered without a look"),
        (Eva(), answered("B", SELECT), None),
        (Eva(), replace(answered("B"), opening=OVERVIEW), None),  # an overview is a look, too
        (FrameThinker(), answered("B"), None),
        (FrameThinker(), answered("B", LOOK), "inconsistent: fidelity"),  # the thought names another stretch
        (FrameThinker(), answered("B", LOOK, LOOK), "inconsistent: redundancy"),  # the first of two
        (VideoBrain(), answered("B", said="<thinking>a</thinking><answer>B</answer>"), None),
        (VideoBrain(), answered("B"), "blocks out of order"),
        (VideoBrain(), answered("B", said="<answer>B</answer>"), "thoughts don't equal calls and answers"),
    ],
)
def test_faults_of_right_episodes(system: System, trajectory: Trajectory, fault: str | None) -> None:
    assert demonstration_fault(system, trajectory) == fault


@every_system
def test_a_team_teaches_eva_alone(system: System) -> None:
    assert taught_by_team(system) == isinstance(system, Eva)


# Grades and needs


@pytest.mark.parametrize(
    ("system", "grades"),
    [
        # of the answers B, "B.", green, "B or not", "A"
        (VideoZoomer(), (1, 1, 0, 0, 0)),  # one_letter
        (VideoZoomer(answer_match="last_letter"), (1, 1, 0, 0, 0)),
        (FrameThinker(), (1, 1, 1, 0, 0)),  # robust
        (FrameThinker(answer_match="exact"), (1, 0, 0, 1, 0)),  # the first word
        (FrameMind(), (1, 0, 0, 0, 0)),  # exact
        (VideoBrain(answer_match="strict"), (1, 1, 0, 0, 0)),
        (Eva(), (1, 1, 1, 0, 0)),  # robust
        (LongVT(), (1, 1, 1, 0, 0)),
        (ParaVT(), (1, 1, 1, 0, 0)),
        (TimeSearch(), (1, 1, 0, 1, 0)),  # leading_letter
        (Plain(), (1, 1, 1, 0, 0)),
    ],
)
def test_choices_are_graded_by_the_system_s_rule(qa: VideoQA, system: System, grades: Sequence[int]) -> None:
    assert [grade(system, text, qa) for text in ("B", "B.", "green", "B or not", "A")] == list(grades)
    unanswered = Trajectory("q", "any", (), (), EndReason.ENGINE_ERROR)
    assert asyncio.run(system.grade(unanswered, qa, Graders())) == 0.0


@every_system
def test_a_subclass_s_grade_reaches_the_reward(system: System, qa: VideoQA) -> None:
    async def quarter(self: System, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> float:
        return 0.25

    lenient: System = type("Lenient", (type(system),), {"grade": quarter})()
    row = replace(qa, extra={**qa.extra, "class": "adaptive"})
    trajectory = answered("B", said="<thinking>green</thinking><answer>B</answer>")  # past VideoBrain's gate
    assert asyncio.run(lenient.score(trajectory, row, Graders())).acc == 0.25


@every_system
def test_open_ended_answers_are_graded_by_a_judge_or_by_words(system: System) -> None:
    qa = VideoQA(id="o", video="v", question="What?", answer="red", answer_type="open_ended")
    # EVA: ROUGE-1 and ROUGE-L: precision 1/3, recall 1, F1 1/2; no bigram: (1/2 + 0 + 1/2) / 3. ParaVT: without the
    # article one word of two, F1 = 2 / 3
    grades = {"videobrain": 0.7, "eva": 1 / 3, "longvt": 0.5, "paravt": 2 / 3}
    graders = Graders(judge=FixedJudge({"binary": 1.0, "half": 0.5, "unit": 0.7}))
    assert grade(system, "a red car", qa, graders) == pytest.approx(grades.get(system.name, 1.0))


@every_system
def test_intervals_are_graded_by_their_overlap_without_a_judge(system: System) -> None:
    qa = VideoQA("w", "v", "When?", "12 - 22", answer_type="interval", windows=((12.0, 22.0),))
    assert grade(system, "12 - 22", qa) == 1.0
    assert grade(system, "from 10 s to 20 s", qa) == pytest.approx(2 / 3)  # 8 of 12 seconds
    assert grade(system, "at the end", qa) == 0.0


def refusal(system: System, qa: VideoQA, *, demonstrations: bool = False) -> str:
    """The refusal of a row without graders; empty where it needs none."""
    try:
        check_needs("rows", [qa], system, {"judge", "verifier"}, demonstrations=demonstrations)
    except SetupError as error:
        return error.key or "row"
    return ""


JUDGE, VERIFIER = "agentic_video.judge.base_url", "agentic_video.verifier.base_url"


@pytest.mark.parametrize(
    ("system", "open_ended", "training", "demonstration"),
    [
        (VideoZoomer(), True, JUDGE, JUDGE),
        (VideoZoomer(), False, "", ""),
        (ParaVT(), True, "", ""),
        (ParaVT(open_match="judge"), True, JUDGE, JUDGE),
        (Eva(), True, "", ""),
        (Eva(), False, VERIFIER, ""),  # no policy to verify a demonstration yet
        (VideoBrain(), False, "row", JUDGE),  # a demonstration needs no class
        (VideoBrain(answer_match="robust"), False, "row", ""),
        (VideoBrain(answer_match="robust", unclassed="none"), True, JUDGE, JUDGE),
        (Plain(), True, JUDGE, JUDGE),
    ],
)
def test_graders_that_a_row_needs(
    system: System, open_ended: bool, training: str, demonstration: str, qa: VideoQA
) -> None:
    row = replace(qa, answer_type="open_ended", answer="red", options=()) if open_ended else qa
    assert refusal(system, row) == training
    assert refusal(system, row, demonstrations=True) == demonstration
    assert bool(judged(system, row)) == (demonstration == JUDGE)
