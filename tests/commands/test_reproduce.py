"""``agentic-video reproduce``."""

from pathlib import Path

import pytest

from agentic_video import cli
from tests.converters.published import SAMPLES
from tests.launch.reproduce.chains import write_recipe


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, and no machine."""
    monkeypatch.chdir(tmp_path)
    for name in ("RAY_ADDRESS", "OUTPUT_DIR", "MODEL_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("agentic_video.utils.host.count_gpus", lambda: 0)


def test_a_newcomer_gets_the_rehearsal_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "videozoomer", "--plan"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("REHEARSAL of VideoZoomer on the synthetic world")
    assert "What the paper's needs: agentic-video reproduce videozoomer --paper --plan" in said
    assert not Path("outputs").exists()


def test_the_paper_s_plan_reports_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "eva", "--paper", "--plan"]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("EVA, as published: from Qwen/Qwen2.5-VL-7B-Instruct")
    assert said.err == (
        "error: nothing was started: data/llava_video: not there (for rows-open, rows-choice); what belongs there is "
        "above (and 14 more, in the list above); to rehearse it without data and GPUs: --laptop\n"
    )
    assert not Path("outputs").exists()


def test_a_judge_that_demonstrations_need_is_missing_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "timesearch", "--paper", "--plan", "--until", "demonstrations"]) == 2
    said = capsys.readouterr().out
    assert "--set judge=...: not named" in said and "--set judge_model=...: not named" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eval=1"], "eval=1: neither an option nor STAGE:WORD"),
        (["grpo:"], "grpo:: neither an option nor STAGE:WORD"),
        (["grpo:trainer.total_training_step=1"], "grpo: trainer.total_training_step: no such key; did you mean"),
        (["--set", "judge"], "--set judge: expected NAME=VALUE"),
        (["--given", "sft=x"], "--given sft=x: expected STAGE.OUTPUT=PATH"),
        (["--until", "sfft"], "sfft: no such stage; did you mean sft?"),
        (["--benchmarks", "mlvu_dev"], "the synthetic world has none"),
    ],
)
def test_a_mistake_costs_a_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "videozoomer", "--laptop", *words]) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1
    assert not Path("outputs").exists()


def test_a_word_that_a_later_stage_s_command_does_not_take_costs_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for word, message in (("--limit=abc", "--limit"), ("--limt=3", "not an option: --limt=3; did you mean --limit?")):
        assert cli.main(["reproduce", "videozoomer", "--laptop", f"eval-*:{word}"]) == 2
        said = capsys.readouterr()
        assert message in said.err and not said.out
    assert not Path("outputs").exists()


def test_there_is_no_such_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "videozomer"]) == 2
    assert "did you mean videozoomer?" in capsys.readouterr().err


def test_real_commands_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of a data set by the real command; the second call runs nothing."""
    recipe = write_recipe(
        Path("recipes") / "mine",
        {
            "name": "rows",
            "about": "rows of MLVU",
            "run": "agentic-video convert mlvu --split dev --source {data}/mlvu --out {folder}/rows.jsonl",
            "makes": {"rows": "rows.jsonl"},
        },
        {
            "name": "again",
            "about": "a file of rows is no data set",
            "run": "agentic-video convert mlvu --split dev --source {rows.rows} --out {folder}/rows.jsonl",
            "makes": {"rows": "rows.jsonl"},
        },
    )
    (recipe / "config").mkdir()
    SAMPLES["mlvu"].write(Path("data") / "mlvu")
    assert cli.main(["reproduce", str(recipe), "--laptop"]) == 1
    said = capsys.readouterr()
    assert "[1/3] rows: done" in said.out
    assert said.err.startswith("error: again ended with status ") and "the same command resumes it" in said.err
    assert Path("outputs/mine-reproduce-laptop/rows/rows.jsonl").is_file()
    assert cli.main(["reproduce", str(recipe), "--laptop", "--until", "rows"]) == 0
    assert "[1/2] rows: complete (" in capsys.readouterr().out
