"""Prompt templates: what there is, what is filled in, how a question is written."""

from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from agentic_video.systems.prompts import check_places, fill, load_prompt, packaged_prompts, question_text
from agentic_video.types.row import VideoQA


def test_all_templates_of_all_folders_are_found_by_name_in_order() -> None:
    folder = Path(str(files("agentic_video.systems")))
    names = [file.stem for file in folder.rglob("*.txt")]
    assert len(set(names)) == len(names)  # no folder hides another one's
    assert list(packaged_prompts()) == sorted(names)
    assert {"direct", "baseline", "videozoomer", "eva_verifier"} <= set(names)
    assert all(text.strip() for text in packaged_prompts().values())


def test_a_name_a_file_or_an_error_that_lists_the_names(tmp_path: Path) -> None:
    assert load_prompt("direct") == packaged_prompts()["direct"]
    own = tmp_path / "own.txt"
    own.write_text("Look \N{LATIN SMALL LETTER E WITH ACUTE}\n", encoding="utf-8")
    assert load_prompt(str(own)) == "Look \N{LATIN SMALL LETTER E WITH ACUTE}\n"
    with pytest.raises(FileNotFoundError, match="videozoomer"):
        load_prompt("nowhere")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a video of {duraton} s", r"did you mean duration\? There are \{count\}, \{duration\}"),
        ("{duration:s!}", r"\{duration:s!\}"),
    ],
)
def test_a_misspelt_place_of_a_template_is_named(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_places(template, "{count} of {duration:.1f} s")


@pytest.mark.parametrize("template", ["{count:03d} {duration:.0f}", "\\boxed{A} {question}", '{"durations": 1}', ""])
def test_what_may_be_meant_as_it_is_in_a_template_is_let_be(template: str) -> None:
    check_places(template, "{count} of {duration:.1f} s")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("at most {count} of {duration} s", "at most 4 of 12.5 s"),
        ("{duration:.2f} s, {duration:.0f} s", "12.50 s, 12 s"),
        ('{"segment": [start, end], "fps": {count}}', '{"segment": [start, end], "fps": 4}'),  # JSON stays
        ("{unknown} {} {a b} {0} {{count}}", "{unknown} {} {a b} {0} {4}"),
        ("{name}", "{count}"),  # what is filled in is not filled once more
        ("", ""),
    ],
)
def test_only_known_names_are_filled_in(template: str, text: str) -> None:
    assert fill(template, count=4, duration=12.5, name="{count}") == text


def test_a_question_and_its_options_one_a_line(qa: VideoQA) -> None:
    assert question_text(qa, "({letter}) {text}") == (
        "What colour flashes at 42 s?\n(A) red\n(B) green\n(C) blue\n(D) grey"
    )
    assert question_text(replace(qa, options=("{letter}", "b")), "{letter}: {text}") == (
        "What colour flashes at 42 s?\nA: {letter}\nB: b"
    )
    assert question_text(replace(qa, options=()), "{letter}. {text}") == "What colour flashes at 42 s?"
