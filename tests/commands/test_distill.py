from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.commands import distill
from agentic_video.synthesis.team import TeamOptions
from tests.commands.conftest import Ask
from tests.config.configs import RECIPES

WORDS = ("--system", "framemind", "--data", "a.jsonl", "--teacher", "http://h/v1", "--teacher-name", "m", "--out", "o")


def test_what_is_asked_for(ask: Ask) -> None:
    options = ask(distill, "distill", *WORDS, "--data", "b.jsonl", "--samples", "3", "agentic_video.max_turn_tokens=9")
    assert options.data == (Path("a.jsonl"), Path("b.jsonl")) and options.samples == 3 and options.min_acc == 1.0
    assert (options.teacher.recipe, options.teacher.overrides) == (
        RECIPES / "framemind",
        ("agentic_video.max_turn_tokens=9",),
    )
    assert options.critic is None and options.team == TeamOptions()


def test_a_critic_and_one_teacher_alone(ask: Ask) -> None:
    options = ask(distill, "distill", *WORDS, "--critic", "http://c/v1", "--critic-model", "c", "--single-teacher")
    assert (options.critic.url, options.critic.name, options.team) == ("http://c/v1", "c", None)


@pytest.mark.parametrize("words", [("--samples", "0"), ("--min-acc", "1.5"), ("--bank-round", "x")])
def test_numbers_that_make_no_sense(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["distill", *WORDS, *words])
    assert words[0] in capsys.readouterr().err
