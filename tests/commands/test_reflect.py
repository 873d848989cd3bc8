from pathlib import Path

from agentic_video.commands import reflect
from tests.commands.conftest import TEACHER, Ask

WORDS = ("--system", "videozoomer", "--rollouts", "run", *TEACHER, "--out", "o")


def test_what_is_asked_for(ask: Ask) -> None:
    options = ask(reflect, "reflect", *WORDS, "--rollouts", "other", "--min-acc", "0.5")
    assert options.rollouts == (Path("run"), Path("other")) and options.min_acc == 0.5
    assert (options.keep, options.loss) == ("flaw", "correction")
    released = ask(reflect, "reflect", *WORDS, "--keep", "whole", "--loss", "all")
    assert (released.keep, released.loss) == ("whole", "all")
    assert options.job.out == Path("o") and options.teacher.recipe.name == "videozoomer"
