from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentic_video.cli import main
from agentic_video.converters import CONVERTERS, run


def test_all_data_sets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("NAME") and [line.split()[0] for line in lines[1:]] == list(CONVERTERS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name a data set; there are "),
        (("nothing",), "no data set 'nothing'; there are "),
        (("videomme", "--source", "x"), "--source and --out are needed"),
        (("videomme", "--source", "none", "--out", "o.jsonl"), "none"),
    ],
)
def test_what_is_missing_is_named(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and message in said and said.count("\n") == 1


@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_that_is_none_is_refused(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", "videomme", "--source", "x", "--out", "o.jsonl", "--limit", limit]) == 2
    assert "--limit" in capsys.readouterr().err


@pytest.mark.parametrize(("rows", "status"), [(3, 0), (0, 1)])
def test_the_videos_are_beside_the_annotations(
    rows: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def convert(*arguments: Any, **options: Any) -> SimpleNamespace:
        asked.append((*arguments, options["limit"]))
        return SimpleNamespace(rows=rows)

    monkeypatch.setattr(run, "convert", convert)
    monkeypatch.setattr(run, "summary", lambda report: "done")
    file, out = tmp_path / "a.json", tmp_path / "o.jsonl"
    file.touch()
    for source in (file, tmp_path):
        assert main(["convert", "videomme", "--source", str(source), "--out", str(out), "--limit", "4"]) == status
    videomme = CONVERTERS["videomme"]
    assert asked == [(videomme, file, tmp_path, out, 4), (videomme, tmp_path, tmp_path, out, 4)]
