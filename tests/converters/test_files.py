"""Finding and reading files, videos and subtitles."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.converters.base import ConversionProblem, ConvertError, Fields, Split
from agentic_video.converters.files import FoundVideo, SubtitleFolder, VideoFolder, files_below, find_files, read, walk
from agentic_video.types.row import RowError


def touch(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def places(path: Path, keyed: bool = False) -> list[str]:
    return [
        f"{'!' if isinstance(row, ConversionProblem) else ''}{row.where}"
        for row in read(path, path.parent, Split((), keyed=keyed))
    ]


def test_find_files_takes_the_first_pattern_and_no_caches(tmp_path: Path) -> None:
    touch(tmp_path / ".cache" / "a.json")
    touch(tmp_path / "old.report.json")
    b, a = touch(tmp_path / "deep" / "b.json"), touch(tmp_path / "deep" / "a.json")
    out = touch(tmp_path / "out.json")
    assert find_files(tmp_path, ("no.json", "*.json"), out) == [a, b]
    assert find_files(b, ("no.json",), out) == [b]
    with pytest.raises(ConvertError, match=r"no file x\.csv or y\.csv; see docs/datasets\.md"):
        find_files(tmp_path, ("x.csv", "y.csv"), out)
    with pytest.raises(ConvertError, match="no such folder"):
        find_files(tmp_path / "none", ("*",), out)
    with pytest.raises(ConvertError, match="is the source itself"):
        find_files(b, ("*",), b)


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    elsewhere, source = tmp_path / "elsewhere", tmp_path / "source"
    touch(elsewhere / "deep" / "a.json")
    touch(elsewhere / "deep" / "a.srt")
    touch(elsewhere / ".cache" / "b.json")
    touch(source / "own" / "c.json")
    (source / "linked").symlink_to(elsewhere)
    out = source / "out.json"
    found = [source / "linked" / "deep" / "a.json", source / "own" / "c.json"]
    assert find_files(source, ("*.json",), out) == found
    assert find_files(source, ("deep/*.json",), out) == found[:1]
    assert SubtitleFolder(source).find(("subtitles/a.srt",)) == found[0].with_suffix(".srt")
    # the same folder by another name, and links back to where they are
    (source / "again").symlink_to(source / "own")
    (source / "own" / "up").symlink_to(source)
    (elsewhere / "deep" / "self").symlink_to(elsewhere / "deep")
    (source / "nowhere").symlink_to(tmp_path / "gone")
    assert find_files(source, ("*.json",), out) == found


def test_videos_in_links_that_lead_back(tmp_path: Path) -> None:
    video = touch(tmp_path / "source" / "deep" / "a.mp4")
    (tmp_path / "source" / "deep" / "up").symlink_to(tmp_path / "source")
    (tmp_path / "source" / "published").symlink_to(tmp_path / "source" / "deep")
    folder = VideoFolder(tmp_path / "source")
    assert folder.find(["a.mp4"]).path.samefile(video)  # under either name
    assert folder.find(["data/published/a"]).path == tmp_path / "source" / "published" / "a.mp4"


def test_folders_that_link_to_each_other_cost_no_more_than_eight_visits_a_link(tmp_path: Path) -> None:
    names = "abcdef"
    for name in names:
        touch(tmp_path / name / f"{name}.json")
        for other in names.replace(name, ""):
            (tmp_path / name / other).symlink_to(tmp_path / other)
    # the root, each folder by itself, and eight times through each link; there are 1957 paths
    assert len(walk(tmp_path)) <= 1 + 6 + 6 * 5 * 8
    assert files_below(tmp_path) == [tmp_path / name / f"{name}.json" for name in names]


def test_a_link_in_a_folder_that_is_linked_twice_has_both_names(tmp_path: Path) -> None:
    touch(tmp_path / "other" / "x.mp4")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "deep").symlink_to(tmp_path / "other")
    for name in "ab":
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / name).symlink_to(tmp_path / "store")
    places = [str(folder.relative_to(tmp_path)) for folder, _ in walk(tmp_path / "data")]
    assert places == ["data", "data/a", "data/a/deep", "data/b", "data/b/deep"]


def test_a_link_that_leads_back_by_one_path_is_followed_by_another(tmp_path: Path) -> None:
    a = touch(tmp_path / "data" / "top" / "part" / "a.json")
    (a.parent / "up").symlink_to(a.parents[1])
    (tmp_path / "data" / "linked").symlink_to(a.parent)
    places = [str(folder.relative_to(tmp_path)) for folder, _ in walk(tmp_path / "data")]
    assert places == ["data", "data/linked", "data/linked/up", "data/top", "data/top/part"]


def test_a_damaged_array_keeps_what_precedes_the_damage(tmp_path: Path) -> None:
    path = touch(tmp_path / "a.json", b'\xef\xbb\xbf[{"x": 1}, 3, {"x": 2} {"x": 3}]')
    assert places(path) == ["a.json row 0", "!a.json row 1", "a.json row 2", "!a.json row 3"]
    path = touch(tmp_path / "t.json", b'[{"x": 1}]\n[{"x": 2}]')
    told = list(read(path, tmp_path, Split(())))[-1]
    assert isinstance(told, ConversionProblem)
    assert told.where == "t.json row 1"
    assert "more text after the end" in told.message
    path = touch(tmp_path / "k.json", b'{"v1": {"x": 1}, "v2": {"x": ')
    rows = list(read(path, tmp_path, Split((), keyed=True)))
    assert isinstance(rows[0], Fields)
    assert rows[0].key == "v1"
    assert isinstance(rows[1], ConversionProblem)
    assert (rows[1].kind, rows[1].where) == ("bad_file", "k.json row 1")


def test_a_bad_line_does_not_end_json_lines(tmp_path: Path) -> None:
    path = touch(tmp_path / "l.jsonl", b'{"x": 1}\n\n{"x":\n[1]\n{"x": 2}')
    assert places(path) == ["l.jsonl line 1", "!l.jsonl line 3", "!l.jsonl line 4", "l.jsonl line 5"]
    assert [row.message for row in read(path, tmp_path, Split(())) if isinstance(row, ConversionProblem)] == [
        "is not json: Expecting value at column 6",
        "l.jsonl line 4: expected an object, got [1]",
    ]
    rows = [row for row in read(path, tmp_path, Split(())) if isinstance(row, Fields)]
    assert [row.number for row in rows] == [0, 3]  # blank lines don't count, bad ones do


def test_csv(tmp_path: Path) -> None:
    path = touch(tmp_path / "c.csv", b'a,b\n1,"two, with a comma"\n3\n4,5,6\n7,8\n')
    rows = list(read(path, tmp_path, Split(())))
    assert isinstance(rows[0], Fields)
    assert rows[0].text("b") == "two, with a comma"
    assert isinstance(rows[1], Fields)
    with pytest.raises(RowError, match=r"c\.csv row 1: field 'b' is missing"):
        rows[1].text("b")
    assert isinstance(rows[2], ConversionProblem)
    assert rows[2].where == "c.csv row 2"
    assert isinstance(rows[3], Fields)
    assert rows[3].where == "c.csv row 3"
    assert places(touch(tmp_path / "open.csv", b'a,b\n1,"never closed\n')) == ["!open.csv"]


@given(st.binary(max_size=200), st.sampled_from([".json", ".jsonl", ".csv", ".parquet"]), st.booleans())
def test_no_content_raises(tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str, keyed: bool) -> None:
    path = touch(tmp_path_factory.getbasetemp() / f"any{suffix}", content)
    rows = list(read(path, path.parent, Split((), keyed=keyed)))
    assert rows
    assert all(path.name in row.where for row in rows)


def test_an_object_over_several_lines_is_one_row(tmp_path: Path) -> None:
    path = touch(tmp_path / "o.json", json.dumps({"a": {"b": [1, 2]}, "c": 3}, indent=2).encode())
    (row,) = read(path, tmp_path, Split(()))
    assert isinstance(row, Fields)
    assert (row.where, row.raw) == ("o.json row 0", {"a": {"b": [1, 2]}, "c": 3})
    assert places(path, keyed=True) == ["o.json row 0", "!o.json row 1"]
    path.write_text(path.read_text()[:-5])
    assert places(path) == ["!o.json row 0"]
    assert places(touch(tmp_path / "p.json", b'{"a": {\n"b": 1}}\n')) == ["p.json row 0"]
    assert places(touch(tmp_path / "k.jsonl", b'{"a": {}}\n{"a": {}}\n'), keyed=True) == [
        "k.jsonl line 1",
        "k.jsonl line 2",
    ]


def test_deep_json_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    assert places(touch(tmp_path / "d.json", b"[" * 100_000)) == ["!d.json row 0"]
    assert places(touch(tmp_path / "d.jsonl", b'{"a":' * 100_000)) == ["!d.jsonl line 1"]


def test_videos_by_path_and_with_another_suffix(tmp_path: Path) -> None:
    flat = touch(tmp_path / "flat.mp4")
    deep = touch(tmp_path / "x" / "y" / "deep.1.MKV")
    first, second = touch(tmp_path / "1_a" / "1.mp4"), touch(tmp_path / "2_b" / "1.mp4")
    touch(tmp_path / ".cache" / "hidden.mp4")
    touch(tmp_path / "empty.mp4", b"")
    touch(tmp_path / "note.txt")
    stream = touch(tmp_path / "stream.ts")
    videos = VideoFolder(tmp_path)
    assert videos.find(["stream.mp4"]) == FoundVideo(stream, True)
    assert videos.find(["flat.mp4"]) == FoundVideo(flat, True)
    assert videos.find(["flat"]) == FoundVideo(flat, True)
    assert videos.find(["else/flat.webm"]) == FoundVideo(flat, False)
    assert videos.find(["deep.1"]) == FoundVideo(deep, True)
    assert videos.find(["x/y/deep.1.mp4"]) == FoundVideo(deep, True)
    assert videos.find(["/their/disk/x/y/deep.1.mp4"]) == FoundVideo(deep, False)
    assert videos.find(["no/1.mp4", "2_b/1.mp4"]) == FoundVideo(second, True)
    assert videos.find(["/their/disk/1_a/1.mp4"]) == FoundVideo(first, False)
    assert videos.find(["1_a/1.mp4"], exact=True) == FoundVideo(first, True)
    assert VideoFolder(tmp_path / "x").find(["y/deep.1.mkv"], exact=True) == FoundVideo(deep, True)
    with pytest.raises(FileNotFoundError, match="may be any of"):
        videos.find(["1.mp4"])
    for name in ("no.mp4", "hidden.mp4", "note.txt", "../flat.mp4", "", "/", "a\0b"):
        with pytest.raises(FileNotFoundError, match="no video"):
            videos.find([name])
    with pytest.raises(FileNotFoundError, match=r"no video 'x/1_a/1\.mp4'"):
        videos.find(["x/1_a/1.mp4"], exact=True)
    with pytest.raises(FileNotFoundError, match="empty file"):
        videos.find(["empty.mp4"])
    with pytest.raises(ConvertError, match="download the videos there first"):
        VideoFolder(tmp_path / "none")


def test_a_video_of_the_same_name_in_other_folders_is_another_video(tmp_path: Path) -> None:
    touch(tmp_path / "cooking" / "219" / "Sg" / "split_5.mp4")
    touch(tmp_path / "perception" / "videos" / "video_9.mp4")
    videos = VideoFolder(tmp_path)
    for name in (
        "cooking/104/qL/split_5.mp4",
        "cooking/104/Sg/split_5.mp4",  # the last folder alone isn't enough
        "/their/disk/219/qL/split_5.mp4",
        "clevrer/validation/video_9.mp4",
        "clevrer/videos/video_9.mp4",
    ):
        with pytest.raises(FileNotFoundError, match=r"no video .*; '.*' has the name, but lies in other folders"):
            videos.find([name])
    # a name that was published without folders may lie in any
    assert videos.find(["video_9.mp4"]).path == tmp_path / "perception" / "videos" / "video_9.mp4"
    assert videos.find(["clevrer/video_9.mp4", "video_9.mp4"]).whole


def test_the_file_that_shares_most_folders_counts(tmp_path: Path) -> None:
    whole, part = touch(tmp_path / "data" / "a" / "b" / "1.mp4"), touch(tmp_path / "b" / "1.mp4")
    videos = VideoFolder(tmp_path)
    assert videos.find(["a/b/1.mp4"]) == FoundVideo(whole, True)
    assert videos.find(["c/b/1.mp4"]) == FoundVideo(part, False)
    mkv = touch(tmp_path / "data" / "a" / "b" / "1.mkv")
    videos = VideoFolder(tmp_path)
    assert videos.find(["a/b/1.mkv"]) == FoundVideo(mkv, True)  # the published suffix, where both are there
    with pytest.raises(FileNotFoundError, match="may be any of"):
        videos.find(["a/b/1.avi"])


def test_subtitle_files_are_found_by_path_or_by_name(tmp_path: Path) -> None:
    near = touch(tmp_path / "s.srt")
    assert SubtitleFolder(tmp_path).find(("no.srt", "s.srt")) == near
    assert SubtitleFolder(tmp_path).find(("no.srt", "../s.srt")) is None
    deep = touch(tmp_path / "deep" / "subtitle" / "t.srt")
    assert SubtitleFolder(tmp_path).find(("subtitle/t.srt",)) == deep
    assert SubtitleFolder(tmp_path).find(()) is None
