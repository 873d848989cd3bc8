from pathlib import Path

from agentic_video.commands import templates
from agentic_video.synthesis.templates import TemplateOptions
from tests.commands.conftest import Ask


def test_what_is_asked_for(ask: Ask) -> None:
    assert ask(templates, "count_templates", "a", "b") == TemplateOptions((Path("a"), Path("b")), None)
    assert ask(templates, "count_templates", "a", "--out", "t.json").out == Path("t.json")
