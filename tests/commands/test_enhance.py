from pathlib import Path

from agentic_video.commands import enhance
from tests.commands.conftest import TEACHER, Ask

WORDS = ("--failures", "mined.jsonl", "--videos", "new", *TEACHER, "--out", "o")


def test_what_is_asked_for(ask: Ask) -> None:
    options = ask(enhance, "enhance", *WORDS)
    assert (options.failures, options.videos, options.existing) == ((Path("mined.jsonl"),), (Path("new"),), ())
    assert (options.teacher.url, options.teacher.temperature, options.teacher.max_tokens) == ("http://h/v1", 0.7, 2048)
    assert options.data_source == "eva-enhanced"
    options = ask(enhance, "enhance", *WORDS, "--existing", "a", "--existing", "b", "--near", "0.5", "--draw", "3")
    assert (options.existing, options.rules.near, options.draw) == ((Path("a"), Path("b")), 0.5, 3)
