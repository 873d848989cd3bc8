import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.synthesis.enhance import example_text, examples_for, find_videos, questions_of
from agentic_video.toyworld.questions import World
from agentic_video.utils.errors import SetupError
from tests.faulty_server import FaultyServer, Reply, Serve
from tests.synthesis.made import CHOICE, OPEN
from tests.toyworld.conftest import recipe, small_world

__all__ = ["recipe", "small_world"]


def test_every_video_gets_its_own_examples_each_time_the_same() -> None:
    failures = [replace(OPEN, id=f"f{number}") for number in range(20)]
    first = examples_for("a.mp4", failures, 4, seed=0)
    assert first == examples_for("a.mp4", failures, 4, seed=0) and len(first) == 4
    assert first != examples_for("b.mp4", failures, 4, seed=0) and first != examples_for("a.mp4", failures, 4, seed=1)
    assert len(examples_for("a.mp4", failures[:2], 4, seed=0)) == 2


def test_examples_are_quoted_and_cut() -> None:
    mined = {"accuracy": 0.0, "episodes": 1, "answers": ['"}]}' + "x" * 2_000]}
    timed = replace(OPEN, answer="4 - 8", answer_type="interval", windows=((4.0, 8.0),))
    shown = json.loads(example_text([replace(OPEN, extra={"mined": mined}), CHOICE, timed]))["examples"]
    assert shown[2]["right_answer"] == "4 - 8"
    assert shown[0]["right_answer"] == "a red cup" and len(shown[0]["assistant_answered"][0]) == 600
    assert shown[1] == {
        "question": "What colour is the ball?\nA. red\nB. green",
        "right_answer": "green",
        "assistant_answered": [],
    }


def test_paths_of_rows_are_absolute_where_they_lead_and_where_they_do_not(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    row = {"data_source": "mine", "question": "Who?", "answer": "she", "answer_type": "open_ended"}
    given = [
        {**row, "id": "1", "video": "round/a.mp4", "extra_info": {"subtitles": "said/a.srt"}},
        {**row, "id": "2", "video": "b.mp4"},
    ]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in given))
    looped, there = questions_of([rows])
    assert (looped.video, looped.extra["subtitles"]) == (f"{tmp_path}/round/a.mp4", f"{tmp_path}/said/a.srt")
    assert there.video == f"{tmp_path}/b.mp4"


# the command, with a real server, real videos and a real process


@pytest.fixture
def made(tmp_path: Path, small_world: World) -> Path:
    """A folder with six new videos, failures about a seventh, and a training set that knows one question."""
    sources = sorted({qa.video for qa in load_rows([small_world.heldout])[0]})[:7]
    videos = tmp_path / "videos" / "deep"
    videos.mkdir(parents=True)
    for number, source in enumerate(sources[:6]):
        (videos / f"v{number}.mp4").symlink_to(source)
    rows = {
        "mined.jsonl": [replace(OPEN, id=f"f{n}", video=sources[6], question=f"Hard question {n}?") for n in range(6)],
        "train.jsonl": [replace(OPEN, id="known", video="gone.mp4", question="What is known already?")],
    }
    for name, questions in rows.items():
        lines = [json.dumps(qa.to_row()) for qa in questions]
        (tmp_path / name).write_text("\n".join([*lines, '{"id": "broken"}', '{"id": "cut']))
    return tmp_path


def says(body: dict[str, Any], request: int) -> Reply:
    """Three questions of which one is new, made of what it was shown, so that it says the same at every start."""
    content = body["messages"][1]["content"]
    images = [part for part in content if part["type"] == "image_url"]
    name = format(sum(map(ord, json.dumps(images))) % 100_003, "x")
    offers = [
        {"question": f"Where is thing {name}?", "answer": "on the table"},
        {"question": f"Where is thing {name} ?", "answer": "under the table"},
        {"question": "What is known already?", "answer": "this"},
    ]
    return Reply("<think>I look</think>\n```json\n" + json.dumps(offers) + "\n```")


def command(made: Path, out: str, server: FaultyServer, *more: str) -> list[str]:
    rows = ["--failures", str(made / "mined.jsonl"), "--existing", str(made / "train.jsonl")]
    teacher = ["--teacher", server.url, "--teacher-name", "t", "--frames", "4"]
    return ["enhance", *rows, "--videos", str(made / "videos"), *teacher, "--out", str(made / out), *more]


def test_new_questions_become_rows(made: Path, serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(says)
    assert main(command(made, "out", server)) == 0
    rows, problems = load_rows([made / "out" / "rows.jsonl"], "probe")
    assert not problems and len(rows) == 6 == len({row.id for row in rows}) == len({row.video for row in rows})
    assert {(row.answer, row.answer_type, row.data_source) for row in rows} == {
        ("on the table", "open_ended", "eva-enhanced")
    }
    assert rows[0].extra["teacher"] == "t" and len(rows[0].extra["examples"]) == 4
    report = json.loads((made / "out" / "report.json").read_text())
    assert report["question left out: asked before"] == 12 and report["questions"] == 6
    told = capsys.readouterr().err
    assert all(f"{made / 'mined.jsonl'} line {number}: " in told for number in (7, 8))
    body = server.bodies[0]
    assert [part["type"] for part in body["messages"][1]["content"]] == ["text", "image_url"] * 4 + ["text"]
    assert "Hard question" in body["messages"][1]["content"][-1]["text"]
    # the next round knows what this one wrote
    again = command(made, "next", server, "--existing", str(made / "out" / "rows.jsonl"))
    assert main(again) == 2


def test_garbage_is_counted_and_dropped(made: Path, serve: Serve) -> None:
    def hostile(body: dict[str, Any], request: int) -> Reply:
        replies = ["I can't", "[" * 5_000, '[{"question": "</tool_call>?", "answer": "x"}]', "[]", "null", "[1, null]"]
        return Reply(replies[request])

    server = serve(hostile)
    assert main(command(made, "out", server, "--concurrency", "1")) == 1
    report = json.loads((made / "out" / "report.json").read_text())
    assert report["rejected"] == {"reply is no JSON array": 3} and report["failed"] == 0
    assert report["question left out: markup"] == 1
    assert report["question left out: not an object with question and answer"] == 2
    assert (made / "out" / "rows.jsonl").read_text() == ""
    assert len(server.bodies) == 6, "garbage isn't asked for again"


def test_another_video_of_the_same_name_is_asked_about(made: Path, serve: Serve) -> None:
    server = serve(says)
    first, second = sorted((made / "videos/deep").iterdir())[:2]
    for month, source in (("may", first), ("june", second)):
        (made / month).mkdir()
        shutil.copy(source, made / month / "0000.mp4")
    arguments = command(made, "out", server)
    for number, month in enumerate(("may", "june", "may"), start=1):
        arguments[arguments.index("--videos") + 1] = str(made / month)
        assert main(arguments) == 0
        assert len(server.bodies) == min(number, 2)
        (row,) = load_rows([made / "out" / "rows.jsonl"])[0]
        assert row.video == str(made / month / "0000.mp4")


def test_videos_are_found_in_folders_and_lists(made: Path) -> None:
    listed = made / "list.txt"
    listed.write_text("videos/deep/v1.mp4\n\nvideos/deep/v0.mp4\n")
    folder, missing = find_videos([made / "videos"])
    assert [name for name, _ in folder] == [f"deep/v{number}.mp4" for number in range(6)] and missing == []
    assert find_videos([listed])[0] == [("videos/deep/v1.mp4", folder[1][1]), ("videos/deep/v0.mp4", folder[0][1])]
    assert find_videos([made / "videos", listed])[0] == folder
    links = made / "links"
    links.mkdir()
    (links / "disk").symlink_to(made / "videos")
    assert find_videos([links])[0] == [(f"disk/{name}", path) for name, path in folder]
    # two files of one name would be one item of the job
    other = made / "other" / "deep"
    other.mkdir(parents=True)
    (other / "v3.mp4").write_bytes((made / "videos" / "deep" / "v0.mp4").read_bytes())
    with pytest.raises(SetupError) as caught:
        find_videos([made / "videos", made / "other"])
    assert caught.value.key == "--videos"


def test_a_list_of_another_machine_s_making(made: Path) -> None:
    """A byte order mark, remarks, a name that begins like one, and a file that isn't there."""
    shutil.copy(made / "videos/deep/v0.mp4", made / "#7.mp4")
    listed = made / "list.txt"
    listed.write_text("\ufeffvideos/deep/v1.mp4\r\n# the rest of May\r\n#7.mp4\r\ngone/v9.mp4\r\n", encoding="utf-8")
    found, missing = find_videos([listed])
    assert [name for name, _ in found] == ["videos/deep/v1.mp4", "#7.mp4"]
    assert missing == [f"{listed} line 4: no such file: gone/v9.mp4"]
    listed.write_text("gone/v9.mp4\n")
    with pytest.raises(SetupError, match=r"list\.txt line 1"):
        find_videos([listed])
    other = made / "film.vob"
    other.write_bytes(b"\x00\xff\xba")
    with pytest.raises(SetupError, match=r"film\.vob"):
        find_videos([other])
    assert find_videos([other.rename(made / "film.mpg")]) == ([("film.mpg", made / "film.mpg")], [])


def test_videos_that_go_away_cost_themselves_only(made: Path, serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    listed, server = made / "list.txt", serve(says)
    listed.write_text("".join(f"videos/deep/v{number}.mp4\n" for number in range(6)))
    arguments = command(made, "out", server, "--limit", "4")
    arguments[arguments.index("--videos") + 1] = str(listed)
    assert main(arguments) == 0
    # before the next start: it is named, and what was written about the others is there
    (made / "videos/deep/v1.mp4").unlink()
    assert main(arguments) == 0
    assert "list.txt line 2: no such file: videos/deep/v1.mp4" in capsys.readouterr().err
    assert json.loads((made / "out" / "report.json").read_text())["videos left out"] == 1
    assert len(load_rows([made / "out" / "rows.jsonl"])[0]) == 4 and len(server.bodies) == 5
    # after they were looked for: it fails alone
    (made / "videos/deep/v5.mp4").unlink()
    (made / "videos/deep/v5.mp4").symlink_to(made / "nowhere.mp4")
    arguments[arguments.index("--videos") + 1] = str(made / "videos")
    arguments[arguments.index("--limit") + 1] = "6"
    arguments[arguments.index("--out") + 1] = str(made / "again")
    assert main(arguments) == 1
    failed = json.loads((made / "again" / "failures.jsonl").read_text())
    assert failed["key"] == ["deep/v5.mp4", ""]
    assert len(load_rows([made / "again" / "rows.jsonl"])[0]) == 4
