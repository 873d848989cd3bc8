"""The command in this process, against a real server and with the tiny model's engine."""

import argparse
import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.commands.eval import baseline_of, fit_limits
from agentic_video.evaluation.backends.vllm import one_placeholder
from agentic_video.evaluation.baseline import Baseline
from agentic_video.evaluation.model import choose_engine, served_model
from agentic_video.evaluation.sweep import Point, draw, read_values, swept
from agentic_video.rollout.tokens import TokenLimits
from agentic_video.systems.eva.system import Eva
from agentic_video.systems.framemind.ladder import FrameSampling
from agentic_video.systems.framemind.system import FrameMind
from agentic_video.systems.framethinker.system import FrameThinker
from agentic_video.systems.overview import OverviewKind
from agentic_video.systems.videobrain.system import VideoBrain
from agentic_video.systems.videozoomer.system import VideoZoomer
from agentic_video.toyworld.questions import World
from agentic_video.toyworld.serve import serving
from agentic_video.types.record import load_records
from agentic_video.utils.errors import SetupError
from tests.evaluation.conftest import RECIPES


@pytest.fixture(scope="module")
def served(checkpoint: Path) -> Iterator[str]:
    """The tiny model behind a real server, in a thread of its own."""
    ready, found, loop = threading.Event(), [], asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with serving(checkpoint) as url:
            found.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(120)
    yield found[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)


def evaluate(model: str, world: World, out: Path | None, *more: str) -> int:
    words = ["eval", "--recipe", str(RECIPES / "videozoomer"), "--model", model, "--data", str(world.heldout)]
    words += ["--out", str(out)] if out else []
    return main([*words, "--profile", "laptop", "--limit", "6", *more])


def test_a_server_and_the_baseline(served: str, small_world: World, tmp_path: Path) -> None:
    assert evaluate(served, small_world, tmp_path / "agent") == 0
    records, problems = load_records([tmp_path / "agent" / "episodes-000.jsonl"])
    assert len(records) == 6 and not problems
    assert all(record.rewards["prompt_tokens"] > 0 and record.rewards["completion_tokens"] > 0 for record in records)
    assert all(record.provenance["engine"] == "chat" and record.provenance["model"] == "toyworld" for record in records)
    assert evaluate(served, small_world, tmp_path / "baseline", "--baseline", "4") == 0
    result = json.loads((tmp_path / "baseline" / "report.json").read_text())
    assert result["per_episode"]["frames"]["mean"] == 4
    assert result["distribution"]["turns"] == {"1": 6}


def test_sweeps_and_no_tools(
    checkpoint: Path, small_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path / "runs"))
    assert evaluate(str(checkpoint), small_world, None, "--no-tools") == 0
    (report,) = (tmp_path / "runs").glob("videozoomer-eval/*/no-tools/report.json")
    result = json.loads(report.read_text())
    assert result["distribution"] == {"turns": {"1": 6}, "tool_calls": {"0": 6}}
    out = tmp_path / "sweep"
    assert evaluate(str(checkpoint), small_world, out, "--sweep", "frames", "2,4") == 0
    assert evaluate(str(checkpoint), small_world, out, "--baseline", "1", "--sweep", "frames", "2,4") == 0
    for curve in ("agent", "baseline"):
        frames = [json.loads((out / f"frames-{curve}-{value:03d}" / "report.json").read_text()) for value in (2, 4)]
        assert [one["per_episode"]["frames"]["min"] for one in frames] == [2, 4], curve
    assert (out / "sweep-frames.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("where", ["in process", "server"])
def test_a_sampled_evaluation_gives_the_same_episodes_in_any_order(
    where: str, served: str, checkpoint: Path, small_world: World, tmp_path: Path
) -> None:
    model = served if where == "server" else str(checkpoint)
    said = []
    for name, more in (("all", ("--concurrency", "6")), ("each", ("--concurrency", "1")), ("other", ("--seed", "1"))):
        assert evaluate(model, small_world, tmp_path / name, "--temperature", "1", *more) == 0
        records, _ = load_records([tmp_path / name / "episodes-000.jsonl"])
        said.append({record.qa.id: [turn.text for turn in record.trajectory.turns] for record in records})
    assert said[0] == said[1] != said[2]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--sweep", "frames", "8,x"], "expected whole numbers"),
        (["--sweep", "turns", "1"], "frames and calls"),
        (["--baseline", "0"], "at least 1 frame"),
        (["--baseline", "2", "--sweep", "calls", "1"], "makes no calls"),
        (["agentic_video.system.no_such_key=1"], "no_such_key"),
        (["stray"], "not a Hydra override"),
        (["--concurrency", "0"], "at least 1"),
        (["--engine", "chat"], "needs the address"),
    ],
)
def test_bad_input_is_named(
    checkpoint: Path, small_world: World, tmp_path: Path, capsys: Any, more: Sequence[str], message: str
) -> None:
    assert evaluate(str(checkpoint), small_world, tmp_path, *more) == 2
    assert message in capsys.readouterr().err


def test_what_a_recipe_takes_from_the_environment_is_named(
    small_world: World, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUDGE_BASE_URL", raising=False)
    words = ["eval", "--recipe", str(RECIPES / "videobrain"), "--model", "http://127.0.0.1:9/v1", "--model-name", "m"]
    words += ["--data", str(small_world.heldout), "--out", str(tmp_path)]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "JUDGE_BASE_URL" in said and "agentic_video.judge.base_url=..." in said
    encoder = "agentic_video.retrieval.model=no-such-encoder"
    words += ["agentic_video.judge.base_url=", "agentic_video.judge.model=", "agentic_video.system.answer_match=robust"]
    assert main([*words, encoder]) == 2
    assert encoder in capsys.readouterr().err
    # the baseline needs no encoder: it gets as far as the server, which isn't there
    assert main([*words, encoder, "--baseline", "2", "--limit", "1", "--out", str(tmp_path / "baseline")]) == 1
    assert "1 questions could not be played" in capsys.readouterr().out


def test_choosing_an_engine(tmp_path: Path) -> None:
    assert choose_engine("http://host:8000/v1", "auto", 0) == "chat"
    assert choose_engine("owner/name", "auto", 0) == "vllm"
    (tmp_path / "model.safetensors").write_bytes(b"small")
    assert choose_engine(str(tmp_path), "auto", 0) == "toy"
    assert choose_engine(str(tmp_path), "auto", 1) == "vllm"
    assert choose_engine(str(tmp_path), "vllm", 0) == "vllm"
    (tmp_path / "shards").mkdir()
    with pytest.raises(SetupError, match="model_merger"):
        choose_engine(str(tmp_path / "shards"), "auto", 0)
    with pytest.raises(SetupError, match="is an address"):
        choose_engine("http://host/v1", "vllm", 0)
    with pytest.raises(SetupError, match="--model-name"):
        served_model("http://127.0.0.1:9/v1", None, timeout=2)


def test_one_placeholder_an_image() -> None:
    assert one_placeholder([9, 9, 1, 9, 2, 2, 9, 9, 9], 9) == [9, 1, 9, 2, 2, 9]
    assert one_placeholder([], 9) == []


def test_sweeps_change_the_system() -> None:
    assert read_values("calls", "4,0,2,2") == [0, 2, 4]
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
    assert swept(eva.direct(), "frames", 8) == replace(eva.direct(), overview_frames=8)
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


def test_without_tools_every_system_sees_frames_and_has_one_turn() -> None:
    for system in (VideoZoomer(), FrameThinker(), FrameMind(), VideoBrain(), Eva()):
        direct = system.direct()
        assert direct.max_turns == 1
        assert getattr(direct, "overview") != "none"  # noqa: B009
    assert FrameThinker().direct().prompt == "framethinker_direct"


def test_budgets_of_a_single_turn_hold_many_frames() -> None:
    limits = TokenLimits(prompt=8_000, response=8_000, turn=4_000)
    assert fit_limits(VideoZoomer(), limits) == limits
    assert fit_limits(Baseline(4), limits) == TokenLimits(prompt=13_952, response=2_048, turn=2_048)


def test_the_baseline_beside_a_system() -> None:
    baseline = baseline_of(VideoBrain(), 32, tiny=False)
    assert isinstance(baseline, Baseline)
    assert (baseline.frames, baseline.size_factor, baseline.max_pixels) == (32, 32, 100_352)
    assert baseline.max_images == 32
    assert baseline_of(VideoBrain(), 2, tiny=True).max_pixels == 1_024  # type: ignore[attr-defined]


def test_the_picture_of_a_sweep_without_errors(tmp_path: Path) -> None:
    draw("calls", {"agent": [Point(0, 6.0, 0.5), Point(1, 9.0, 0.6, 0.1)]}, "mlvu_dev", tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_the_options_are_named_once() -> None:
    from agentic_video.commands.eval import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    known, rest = parser.parse_known_args(["--system", "eva", "a=1", "--data", "x", "b=2", "--data", "y"])
    assert rest == ["a=1", "b=2"] and known.data == [Path("x"), Path("y")]
