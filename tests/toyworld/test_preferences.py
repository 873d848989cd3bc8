import asyncio
from pathlib import Path

from agentic_video.toyworld.build.demonstrate import play_rows
from agentic_video.toyworld.build.preferences import DESIRABLE, MISSED_SECONDS, label_script
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.model import load_chat_format
from agentic_video.types.record import Record
from agentic_video.types.row import VideoQA
from tests.toyworld.conftest import EVERY_KIND


def test_desirable_episodes_are_right_and_undesirable_ones_have_no_evidence(
    checkpoint: Path, rows: list[VideoQA], setting: Setting
) -> None:
    chat_format, recipe = load_chat_format(checkpoint), EVERY_KIND

    def records(seed: int) -> list[Record]:
        return asyncio.run(play_rows(rows, chat_format, setting, recipe, label_script(setting), seed))

    made = records(0)
    labels = [record.provenance["label"] for record in made]
    # 40 draws: three standard deviations are 0.23
    assert abs(labels.count("desirable") / len(rows) - DESIRABLE) < 0.23
    for record, label in zip(made, labels, strict=True):
        extra, trajectory = record.qa.extra, record.trajectory
        assert (trajectory.answer == extra["answer_text"]) == (label == "desirable")
        if label == "desirable":
            assert bool(trajectory.tool_calls) == (extra["event_time"] is not None)
    failed = [record.trajectory for record, label in zip(made, labels, strict=True) if label == "undesirable"]
    assert {trajectory.tool_calls for trajectory in failed} == {0, 1}
    assert MISSED_SECONDS[0] > 1  # a look of two seconds that is so far off doesn't show the event
    assert [record.provenance for record in records(1)] != [record.provenance for record in made]
