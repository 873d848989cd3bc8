"""Sweeps: what they change, and their picture."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentic_video.evaluation.ablations import without_tools
from agentic_video.evaluation.baseline import Baseline
from agentic_video.evaluation.sweep import Point, draw, folder_name, point, read_curves, swept
from agentic_video.systems.eva.system import Eva
from agentic_video.systems.framemind.ladder import FrameSampling
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.systems.framethinker.system import FrameThinker
from agentic_video.systems.shown import OverviewKind
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.utils.errors import SetupError


def test_sweeps_change_the_system() -> None:
    zoomer = VideoZoomer()
    assert swept(zoomer, "calls", 3) == replace(zoomer, max_turns=4)
    assert swept(zoomer, "calls", 0) == replace(zoomer, max_turns=1, prompt="direct")
    assert swept(zoomer, "frames", 8) == replace(zoomer, overview_max_frames=8)
    thinker = FrameThinker()
    assert swept(thinker, "frames", 8) == replace(thinker, overview_frames=8, long_overview_frames=8)
    assert swept(thinker, "calls", 0) == thinker.direct()
    assert swept(Baseline(4), "frames", 9) == Baseline(9) and Baseline(9).max_images == 9
    # a longer first view leaves the calls their room
    assert swept(zoomer, "frames", 96) == replace(zoomer, overview_max_frames=96, max_images=128 + 32)
    eva = Eva()
    assert swept(eva, "frames", 8) == replace(eva, max_frames=8), "no first view: the frames of one call"
    assert swept(without_tools(eva), "frames", 8) == replace(without_tools(eva), overview_frames=8)
    mind = swept(FrameMind(), "frames", 48)
    assert isinstance(mind, FrameMind)
    assert (mind.low, mind.high.frames, mind.max_images) == (FrameSampling(48, 224, 224), 48, 100)


@dataclass(frozen=True)
class NoFrames(VideoZoomer):
    """A system of somebody's own that begins without frames."""

    overview: OverviewKind = "none"


def test_a_system_that_has_no_number_of_frames() -> None:
    with pytest.raises(SetupError, match="an --out of its own"):
        swept(NoFrames(), "frames", 8)


def test_a_baseline_makes_no_calls() -> None:
    with pytest.raises(SetupError, match=r"^--sweep calls: the baseline makes no calls$"):
        swept(Baseline(4), "calls", 1)


def test_a_point_is_of_the_score_that_papers_report() -> None:
    figures = {"per_episode": {"frames": {"mean": 18.0}}, "official": {"mean": 0.75, "error": 0.1}}
    assert point(16, figures) == Point(16, 18.0, 0.75, 0.1), "a report of before"
    assert point(16, {**figures, "headline": {"mean": 0.7, "error": 0.2}}) == Point(16, 18.0, 0.7, 0.2)
    assert point(16, {**figures, "headline": {"mean": None, "error": None}}) is None


def test_curves_of_a_folder(tmp_path: Path) -> None:
    def figures(frames: float | None, accuracy: float | None) -> dict[str, object]:
        per_episode = {} if frames is None else {"frames": {"mean": frames}}
        return {"per_episode": per_episode, "official": {"mean": accuracy, "error": 0.1}}

    def settings(value: int, **changes: object) -> dict[str, object]:
        return {"data": ["d"], "benchmark": "b", "model": "m", "system": {"class": "S", "frames": value}, **changes}

    def put(curve: str, value: int, result: dict[str, object], **changes: object) -> None:
        folder = tmp_path / folder_name("frames", curve, value)
        folder.mkdir()
        (folder / "report.json").write_text(json.dumps(result))
        (folder / "eval.json").write_text(json.dumps(settings(value, **changes)))
        times.append(len(times))
        os.utime(folder / "report.json", (times[-1], times[-1]))

    times: list[int] = []
    put("agent", 16, figures(18.0, 0.75))
    put("agent", 8, figures(10.0, 0.5))
    put("agent", 24, figures(10.0, 0.5), model="another checkpoint")
    put("agent", 64, figures(10.0, 0.5), system={"class": "S", "frames": 64, "max_pixels": 9})
    put("agent", 48, figures(10.0, 0.5))  # which the sweep can't have
    put("no-tools", 16, figures(8.0, 0.75))
    put("no-tools", 8, figures(8.0, 0.25), model="base model")  # of its latest evaluation
    put("no-tools", 4, figures(4.0, 0.25), model="base model")
    put("other", 8, figures(8.0, 0.25), data=["other questions"])
    put("baseline", 8, figures(None, None))
    (tmp_path / folder_name("frames", "agent", 32)).mkdir()  # not evaluated yet
    (tmp_path / folder_name("calls", "agent", 1)).mkdir()
    assert read_curves(tmp_path, "frames", "agent", lambda value: None if value == 48 else settings(value)) == {
        "agent": [Point(8, 10.0, 0.5, 0.1), Point(16, 18.0, 0.75, 0.1)],
        "baseline": [],
        "no-tools": [Point(4, 4.0, 0.25, 0.1), Point(8, 8.0, 0.25, 0.1)],
    }
    assert point(8, figures(8.0, None)) is None


def test_the_picture_of_a_sweep_without_errors(tmp_path: Path) -> None:
    draw("calls", {"agent": [Point(0, 6.0, 0.5), Point(1, 9.0, 0.6, 0.1)]}, "mlvu_dev", tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
