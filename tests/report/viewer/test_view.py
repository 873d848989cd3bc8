"""From files to a page that can be written or served."""

from pathlib import Path

import pytest

from agentic_video.report.viewer.sources import ViewError
from agentic_video.report.viewer.view import load_view
from tests.report.viewer.records import record, write


def test_a_view_is_named_after_its_first_path(tmp_path: Path) -> None:
    run = tmp_path / "recipe-laptop" / "run-001"
    first = write(run / "episodes" / "step_000001.jsonl", record("/gone.mp4"))
    second = write(tmp_path / "more.jsonl", record("/gone.mp4", id="q2"))
    view = load_view([run])
    assert (view.title, view.default_out) == ("recipe-laptop/run-001", run.resolve() / "episodes.html")
    assert (len(view.episodes), view.videos, view.missing) == (1, 1, ("/gone.mp4",))
    both = load_view([first, second])
    assert (both.title, both.default_out) == ("episodes/step_000001.jsonl and 1 more", first.with_suffix(".html"))
    assert len(both.episodes) == 2


def test_what_can_t_be_written_or_served_is_named(tmp_path: Path) -> None:
    view = load_view([write(tmp_path / "e.jsonl", record())])
    with pytest.raises(ViewError, match="name another file with --out"):
        view.write(tmp_path / "no" / "x.html", images=0, side=96)
    with pytest.raises(ViewError, match="can't serve on port 99999"):
        view.server(99_999, 96)
    out, written = view.write(None, images=0, side=96)
    assert out == tmp_path.resolve() / "e.html" and out.stat().st_size == written.size
