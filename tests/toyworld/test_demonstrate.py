from pathlib import Path

from agentic_video.toyworld.build.demonstrate import write_demonstrations
from agentic_video.toyworld.build.preferences import write_preferences
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.questions import World, build_world
from agentic_video.types.record import read_records
from agentic_video.types.trajectory import FrameRef
from tests.toyworld.conftest import EVERY_KIND


def test_every_question_is_answered_right_after_looking(
    tmp_path: Path, checkpoint: Path, small_world: World, setting: Setting
) -> None:
    write_demonstrations(tmp_path, small_world, checkpoint, setting, EVERY_KIND)
    written = {split: list(read_records(tmp_path / f"{split}.jsonl")) for split in ("train", "heldout")}
    assert {split: len(records) for split, records in written.items()} == {"train": 4, "heldout": 40}
    for record in (*written["train"], *written["heldout"]):
        extra, turns = record.qa.extra, record.trajectory.turns
        assert record.trajectory.answer == extra["answer_text"]
        assert record.provenance == {"source": "oracle"}
        looked = [part for turn in turns for part in turn.observation if isinstance(part, FrameRef)]
        assert bool(looked) == (extra["event_time"] is not None)
        assert all(turn.token_ids for turn in turns)
    # as in training, groups of eight
    assert [record.trajectory.rollout_index for record in written["heldout"][:10]] == [*range(8), 0, 1]


def test_records_may_be_moved_with_their_world(tmp_path: Path, checkpoint: Path, setting: Setting) -> None:
    cache, link = tmp_path / "disk" / "cache", tmp_path / "home" / "deeper" / "cache"
    cache.mkdir(parents=True)
    link.parent.mkdir(parents=True)
    link.symlink_to(cache)
    world = build_world(link / "world-1", train=2, heldout=2, seed=3, recipe=EVERY_KIND)
    (link / ".records-1").mkdir()
    arguments = (world, checkpoint, setting, EVERY_KIND)
    write_demonstrations(link / ".records-1", *arguments)
    (link / ".records-1").rename(link / "records-1")
    (link / "preferences-1").mkdir()
    write_preferences(link / "preferences-1", *arguments)
    moved = cache.rename(tmp_path / "elsewhere")
    for name in ("records-1", "preferences-1"):
        videos = [record.qa.video for record in read_records(moved / name / "train.jsonl")]
        assert [Path(video).parent for video in videos] == [moved / "world-1" / "videos" / "train"] * 2
        assert all(Path(video).is_file() for video in videos)
