import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agentic_video.toyworld.build.gate import (
    GateError,
    GateLimits,
    GateReport,
    SampledEpisode,
    check,
    measure,
    play_all,
    summarize,
)
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.model import load_checkpoint
from agentic_video.toyworld.questions import World
from agentic_video.types.action import Answer, Calls
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import Aside, EndReason, FrameRef, RecordedMessage, Trajectory, Turn
from agentic_video.video.store import FrameStore


def test_the_gate_refuses_an_untrained_model(checkpoint: Path, small_world: World, setting: Setting) -> None:
    with pytest.raises(GateError, match=r"grammar 0\.\d+, needed >= 0\.8 \(more cold_start\.steps.*perception"):
        check(checkpoint, small_world.heldout, setting)


def test_figures_of_an_untrained_model(checkpoint: Path, small_world: World, setting: Setting) -> None:
    report = measure(checkpoint, small_world.heldout, setting, questions=8, samples=2)
    assert isinstance(report, GateReport)
    assert report.episodes == 16
    assert 0 <= report.answered <= 0.5
    assert sum(report.ends.values()) == pytest.approx(1.0)
    # A guess is right one time in four, and well formed: 0.9 / 4 + 0.1
    assert report.guess_reward == pytest.approx(0.325)
    assert "16 sampled episodes" in str(report)


def test_a_busy_machine_changes_no_figure(checkpoint: Path, rows: list[VideoQA], setting: Setting) -> None:
    """Who asks first draws the same tokens as who asks last."""
    model, tokenizer = load_checkpoint(checkpoint)
    source = FrameStore()

    def said(questions: list[VideoQA]) -> dict[str, list[str]]:
        played = asyncio.run(play_all(model, tokenizer, setting, questions, source, samples=2, seed=1))
        texts: dict[str, list[str]] = {}
        for one in played:
            texts.setdefault(one.qa.id, []).append("".join(turn.text for turn in one.trajectory.turns))
        return texts

    forwards = said(rows[:3])
    assert said(rows[2::-1]) == forwards
    assert len({text for texts in forwards.values() for text in texts}) == 6


@pytest.mark.slow
def test_too_good_is_told_apart(checkpoint: Path, small_world: World, setting: Setting) -> None:
    for limits, too_good in ((GateLimits(max_accuracy=-1.0), True), (GateLimits(), False)):
        with pytest.raises(GateError) as caught:
            check(checkpoint, small_world.heldout, setting, limits)
        assert caught.value.too_good is too_good


def test_figures_by_hand(rows: list[VideoQA]) -> None:
    needing = next(qa for qa in rows if qa.extra["event_time"] is not None)
    plain = next(qa for qa in rows if qa.extra["event_time"] is None)

    def played(qa: VideoQA, acc: float) -> SampledEpisode:
        end = EndReason.ILLEGAL if acc == 0 else EndReason.ANSWER
        return SampledEpisode(qa, Trajectory(qa.id, "x", (), (), end), acc, acc, acc == 1)

    report = summarize([played(needing, 1.0), played(needing, 0.5), played(plain, 0.0), played(plain, 1.0)], 0.25)
    assert (report.episodes, report.accuracy, report.well_formed) == (4, 0.5, 0.5)
    assert (report.zoom_rate, report.saw_event, report.perception, report.zoom_reward) == (0, 0, 0, 0)
    assert report.by_kind == {needing.extra["kind"]: 0.5, "overview": 0.5}
    assert (report.ends[EndReason.ANSWER], report.guess_reward) == (0.75, 0.25)
    assert f"{needing.extra['kind']} 0.50" in str(report) and "read" not in str(report)


def test_who_cannot_tell_arrows_apart_is_refused(
    rows: list[VideoQA], setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first frames' arrows three of four are named truly, of a look's the only one."""
    needing = next(qa for qa in rows if qa.extra["event_time"] is not None)
    qa = replace(needing, extra={**needing.extra, "kind": "search", "event_time": 15.0})
    shown = tuple(FrameRef(0, time, 28, 28) for time in (25.0, 25.5))

    def played(*signs: str) -> SampledEpisode:
        turns = tuple(Turn(f"<think>{sign}25</think>", Calls(()), 1, observation=shown) for sign in signs)
        return SampledEpisode(qa, Trajectory(qa.id, "x", (), turns, EndReason.ANSWER), 1.0, 1.0, True)

    report = summarize([played("earlier", "earlier"), played("earlier"), played("later"), played("earlier")], 0.25)
    assert report.signs == {"first frames": 0.75, "looks": 1.0}
    assert "arrows of first frames named truly 0.750, arrows of looks named truly 1.000" in str(report)
    monkeypatch.setattr("agentic_video.toyworld.build.gate.measure", lambda *_: report)
    with pytest.raises(GateError, match=r"arrows of first frames named truly 0\.750, needed >= 0\.85 \(more") as caught:
        check(Path(), Path(), setting)
    assert "arrows of looks named truly 1.000, needed" not in str(caught.value)
    assert summarize([replace(played("later"), qa=needing)], 0.25).signs == {}


def test_a_frame_shown_to_a_sub_agent_was_seen(rows: list[VideoQA]) -> None:
    qa = next(qa for qa in rows if qa.extra["event_time"] is not None)
    inside = FrameRef(0, qa.extra["event_time"], 28, 28)
    outside = replace(inside, time=qa.extra["event_time"] + qa.extra["event_seconds"])

    def saw(*, asked: FrameRef | None = None, shown: FrameRef | None = None) -> bool:
        asides = (Aside((RecordedMessage("user", (asked, "Where?")),), "here", 1),) if asked else ()
        turn = Turn("", Answer("A"), 1, observation=(shown,) if shown else (), asides=asides)
        return SampledEpisode(qa, Trajectory(qa.id, "x", (), (turn,), EndReason.ANSWER), 1.0, 1.0, True).saw_event

    assert saw(asked=inside) and saw(shown=inside) and saw(asked=inside, shown=outside)
    assert not saw(asked=outside) and not saw(shown=outside) and not saw()
