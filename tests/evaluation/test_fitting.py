"""First views that fit no budget."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.evaluation import evaluate as evaluating
from agentic_video.evaluation.fitting import FIRST_VIDEOS, FirstViews, NothingFits, remedy
from agentic_video.evaluation.results import Failure, key_of
from agentic_video.toyworld.questions import World
from agentic_video.types.action import Illegal
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory, Turn
from agentic_video.utils.errors import SetupError
from tests.evaluation.conftest import command

ROWS = [VideoQA(f"q{number}", f"v{number // 2}.mp4", "which?", "A", options=("x", "y")) for number in range(40)]
"""Two questions about each video."""
FIRST = ROWS[0 : 2 * FIRST_VIDEOS : 2]
TOKENS = "data.max_prompt_length"


def ended(qa: VideoQA, end: EndReason, turns: Sequence[Turn] = ()) -> Record:
    return Record(qa, Trajectory(qa.id, "s", (), tuple(turns), end), {"acc": 0.0})


def unfit(qa: VideoQA) -> Record:
    return ended(qa, EndReason.TOKEN_BUDGET)


def test_an_evaluation_stops_where_none_of_the_first_videos_fits() -> None:
    views = FirstViews(ROWS, [])
    for qa in FIRST[:-1]:
        views.look(unfit(qa))
    with pytest.raises(SetupError, match=TOKENS):
        views.look(unfit(FIRST[-1]))
    with pytest.raises(SetupError, match=TOKENS):
        FirstViews(ROWS, [unfit(qa) for qa in ROWS])
    FirstViews(ROWS[: 2 * FIRST_VIDEOS - 2], [unfit(qa) for qa in ROWS])  # few videos are played to their end


FITS = ended(ROWS[-1], EndReason.ANSWER)


@pytest.mark.parametrize(
    ("before", "results"),
    [
        # what doesn't fit is over before anything that is played: it counts in the order of the rows
        ([], [*map(unfit, reversed(ROWS[1:])), ended(ROWS[0], EndReason.ANSWER)]),
        # one of the first that fits, or isn't known
        *(
            ([unfit(FIRST[0])], [other, *map(unfit, [*FIRST[1:3], *FIRST[4:], *ROWS[20:]])])
            for other in (
                ended(FIRST[3], EndReason.ANSWER),
                ended(FIRST[3], EndReason.TOKEN_BUDGET, [Turn("long", Illegal("cut"), 5)]),
                Failure(key_of(FIRST[3]), "gone"),
            )
        ),
        # any other that fits, whenever it was played
        ([FITS], map(unfit, FIRST)),
        ([*map(unfit, FIRST), FITS], map(unfit, FIRST)),
        ([], [*map(unfit, FIRST[:-1]), FITS, unfit(FIRST[-1])]),
    ],
)
def test_one_view_that_fits_is_enough(before: Sequence[Record], results: Iterable[Record | Failure]) -> None:
    views = FirstViews(ROWS, before)
    for result in results:
        views.look(result)


def test_a_sweep_leaves_out_the_values_whose_first_views_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def evaluate_part(job: Any, part: Any, engine: Any) -> Any:
        if part.value > 32:
            raise NothingFits("too many")
        return part.value

    monkeypatch.setattr(evaluating, "evaluate_part", evaluate_part)

    def swept(*values: int) -> Any:
        parts: Any = [SimpleNamespace(value=value, title=f"{value} frames") for value in values]
        return evaluating.evaluate_parts(cast("Any", None), parts, cast("Any", None))

    assert swept(16, 64, 32, 128) == [16, 32]
    assert capsys.readouterr().err.count("too many") == 2
    with pytest.raises(NothingFits):
        swept(64, 128)


def test_the_remedy_names_the_keys() -> None:
    images = "agentic_video.system.max_images"
    both = remedy([EndReason.IMAGE_BUDGET, EndReason.TOKEN_BUDGET, EndReason.IMAGE_BUDGET])
    assert TOKENS in both and images in both
    assert TOKENS not in remedy([EndReason.IMAGE_BUDGET])


def test_an_evaluation_that_fits_nothing_stops_in_one_line(
    checkpoint: Path, small_world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = load_rows([small_world.heldout])[0]
    data, out = tmp_path / "rows.jsonl", tmp_path / "out"
    data.write_text("".join(json.dumps(qa.to_row()) + "\n" for qa in found))
    assert len({qa.video for qa in found}) > FIRST_VIDEOS
    small = ["--concurrency", "2", "data.max_prompt_length=16", "data.max_response_length=16"]
    for _ in range(2):  # again, it doesn't continue with the others
        assert main(command(checkpoint, data, out, *small)) == 2
        assert TOKENS in capsys.readouterr().err.strip().splitlines()[-1]
        assert not (out / "report.md").exists()
    assert FIRST_VIDEOS <= len((out / "episodes-000.jsonl").read_text().splitlines()) < len(found)

    # few videos: the report says it before anything else
    out = tmp_path / "few"
    assert main(command(checkpoint, data, out, *small, "--limit", "2")) == 0
    assert TOKENS in capsys.readouterr().out
    assert json.loads((out / "report.json").read_text())["unfit"] == {"token_budget": 2}
