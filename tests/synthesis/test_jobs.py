import asyncio
import gc
import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from agentic_video.rollout.chat_policy import Usage
from agentic_video.synthesis.jobs import JobOptions, Key, Outcome, open_job, read_journal
from agentic_video.utils.errors import SetupError

SETTINGS = {"model": "m", "system": {"max_turns": 5}}


def items(count: int) -> dict[Key, int]:
    return {("rows", number): number for number in range(count)}


def play(folder: Path, count: int, broken: set[int] = frozenset(), settings: Any = SETTINGS) -> list[int]:  # type: ignore[assignment]
    """A job whose odd items are rejected and which ends in reverse order; what it did."""
    done: list[int] = []

    async def work(number: int) -> Outcome:
        await asyncio.sleep(0.002 * (count - number))
        if number in broken:
            raise OSError("no server")
        done.append(number)
        verdict = "odd" if number % 2 else "kept"
        return Outcome(verdict, {"number": number, "text": "\ud800é"}, Usage(10, number, 1))

    options = JobOptions(out=folder, concurrency=count, price_in=1e6, price_out=2e6)
    with open_job(options, settings, "test job") as job:
        asyncio.run(job.play(items(count), work))
        job.write_rows("kept.jsonl", (outcome.result for _, outcome in job.results() if outcome.kept))
        job.write_report("A test")
    return done


def test_outputs_are_in_input_order_and_counted(tmp_path: Path) -> None:
    assert play(tmp_path, 4) == [3, 2, 1, 0]
    rows = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert [row["number"] for row in rows] == [0, 2]
    assert rows[0]["text"] == "\ud800é"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report == {
        "items": 4,
        "kept": 2,
        "rejected": {"odd": 2},
        "failed": 0,
        "usage": {"prompt_tokens": 40, "completion_tokens": 6, "requests": 4},
        "cost": 52.0,
        "cost_per_kept": 26.0,
    }


def test_the_progress_says_how_many_of_how_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play(tmp_path, 3, broken={2})
    said = capsys.readouterr().err
    assert "0/3" in said and "3/3" in said and "kept 1, rejected 1, failed 1" in said
    # what an earlier start did counts from the beginning
    play(tmp_path, 5)
    assert "2/5" in (said := capsys.readouterr().err) and "5/5" in said


def test_a_job_that_was_cut_short_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    play(tmp_path / "whole", 6)
    play(tmp_path / "cut", 6)
    journal = tmp_path / "cut" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:2]) + b"no json\n" + lines[3] + lines[4][:20])
    again = play(tmp_path / "cut", 6)
    assert sorted(again) == sorted(json.loads(line)["result"]["number"] for line in (lines[2], *lines[4:]))
    for name in ("kept.jsonl", "report.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert play(tmp_path / "cut", 6) == [], "nothing is left to do"


def test_results_stay_on_disk_until_they_are_asked_for(tmp_path: Path) -> None:
    """Outcomes of 200 KB each: of a job that does sixty of them, and of one that finds them done, few are in memory."""

    async def work(number: int) -> Outcome:
        return Outcome("odd" if number % 2 else "kept", {"text": f"{number}: é" * 40_000}, Usage(1, 1, 1))

    for _ in range(2):
        with open_job(JobOptions(out=tmp_path, concurrency=2), SETTINGS, "test job") as job:
            gc.collect()
            tracemalloc.start()
            finished = asyncio.run(job.play(items(60), work))
            job.write_rows("kept.jsonl", (outcome.result for _, outcome in job.results(kept=True)))
            gc.collect()
            held, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert held < 1e6 and peak < 8e6, f"{held / 1e6:.1f} MB held, {peak / 1e6:.1f} MB at most"
            assert job.outcome(("rows", 7)).result["text"].startswith("7: é7: é")
            assert finished == list(items(60))
            assert job.finished(kept=False) == [("rows", number) for number in range(1, 60, 2)]
    kept = [json.loads(line)["text"] for line in (tmp_path / "kept.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [text.partition(":")[0] for text in kept] == [str(number) for number in range(0, 60, 2)]


def test_a_folder_of_an_earlier_version_takes_what_it_does_not_know(tmp_path: Path) -> None:
    play(tmp_path, 1)
    judged = {**SETTINGS, "judge": {"model": "small"}, "retrieval": {"model": "ViT-B-32"}}
    assert play(tmp_path, 2, settings=judged) == [1]
    # without a judge this time: what is known stays
    assert play(tmp_path, 3, settings={**judged, "judge": None}) == [2]
    for part in ("judge", "retrieval"):
        with pytest.raises(SetupError) as caught:
            play(tmp_path, 3, settings={**judged, part: {"model": "large"}})
        assert caught.value.key == f"{part}.model"


def test_failed_items_are_listed_and_tried_again(tmp_path: Path) -> None:
    play(tmp_path, 3, broken={1})
    failed = [json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines()]
    assert [line["key"] for line in failed] == [["rows", 1]]
    assert re.fullmatch(r"OSError: no server \(test_jobs\.py line \d+\)", failed[0]["error"])
    assert json.loads((tmp_path / "report.json").read_text())["failed"] == 1
    assert play(tmp_path, 3) == [1]
    assert (tmp_path / "failures.jsonl").read_text() == ""
    assert json.loads((tmp_path / "report.json").read_text())["failed"] == 0


def test_a_result_that_is_no_json_fails_its_item_only(tmp_path: Path) -> None:
    async def work(number: int) -> Outcome:
        return Outcome(result=object() if number else 1)

    with open_job(JobOptions(out=tmp_path, concurrency=2), SETTINGS, "test job") as job:
        asyncio.run(job.play(items(2), work))
        assert [key for key, _ in job.results()] == [("rows", 0)]
        assert "not JSON serializable" in job.failures[("rows", 1)]
    assert list(read_journal(tmp_path / "journal.jsonl")) == [("rows", 0)]


def test_a_folder_belongs_to_its_settings_and_to_one_process(tmp_path: Path) -> None:
    play(tmp_path, 1)
    with pytest.raises(SetupError) as caught:
        play(tmp_path, 1, settings={**SETTINGS, "system": {"max_turns": 3}})
    assert caught.value.key == "system.max_turns"
    with pytest.raises(SetupError) as caught, open_job(JobOptions(out=tmp_path), SETTINGS, "other job"):
        pass
    assert caught.value.key == "job"
    with open_job(JobOptions(out=tmp_path), SETTINGS, "test job"), pytest.raises(SetupError):
        play(tmp_path, 1)


def test_rounds_build_on_each_other_and_keys_are_unique(tmp_path: Path) -> None:
    async def work(number: int) -> Outcome:
        return Outcome(result=number)

    with open_job(JobOptions(out=tmp_path, concurrency=2), SETTINGS, "test job") as job:
        first = asyncio.run(job.play({("a",): 1, ("b",): 2}, work))
        assert [job.outcome(key).result for key in first] == [1, 2]
        asyncio.run(job.play({("c",): 3}, work))
        assert [key for key, _ in job.results()] == [("a",), ("b",), ("c",)]
        with pytest.raises(ValueError, match="its key was there before"):
            asyncio.run(job.play({("a",): 1}, work))
