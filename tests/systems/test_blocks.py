import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.systems.blocks import Block, answer_or_all, last_block, read_blocks
from tests.growth import assert_linear

TAGS = ("think", "answer")


def test_blocks_come_in_order() -> None:
    read = read_blocks(" <think>a</think>\n<answer>B</answer> ", TAGS)
    assert read.blocks == (Block("think", "a"), Block("answer", "B"))
    assert read.clean
    assert read.bodies("answer") == ["B"]


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("a <think>b</think>", [("think", "b")]),  # text before
        ("<think>b</think> a", [("think", "b")]),  # behind
        ("<think>b</think> a <answer>B</answer>", [("think", "b"), ("answer", "B")]),  # between
        ("<think>b", []),  # never closed
        ("b</think>", []),  # never opened
        ("<think>b<answer>B</answer>", [("answer", "B")]),  # a thought that is never closed hides nothing
        ("<think>b<answer>A</answer></think>", [("think", "b<answer>A</answer>")]),  # a closed one does
        ("<think>a<think>b</think>", [("think", "a<think>b")]),
        ("<think>a</think></think>", [("think", "a")]),
        ("</answer><answer>", []),
    ],
)
def test_what_is_not_clean(text: str, blocks: list[tuple[str, str]]) -> None:
    read = read_blocks(text, TAGS)
    assert [(block.tag, block.body) for block in read.blocks] == blocks
    assert not read.clean


def test_unknown_tags_are_text() -> None:
    assert read_blocks("<think><b>x</b></think>", TAGS).clean
    assert not read_blocks("<b>x</b>", TAGS).clean


def test_nothing_is_clean() -> None:
    assert read_blocks("", TAGS).clean
    assert read_blocks("", TAGS).blocks == ()


@pytest.mark.parametrize(
    ("unit", "end"),
    [
        ("<think>", ""),
        ("</think>", ""),
        ("<think></think>", ""),
        ("<think>", "</answer>"),
        ("<think><answer>", "</think>"),
        ("<", ""),
    ],
)
def test_time_is_linear(unit: str, end: str) -> None:
    def text(times: int) -> str:
        return unit * times + end * (times if end == "</think>" else 1)

    assert_linear(lambda text: read_blocks(text, TAGS), text(3_000), text(24_000), growth=8.0)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("<answer>B</answer>", "B"),
        ("<answer>A</answer> or <answer> B </answer>", " B "),
        ("<answer>A<answer>B</answer></answer>", "B"),  # from the last opening tag to the closing one that follows
        ("<answer>B</answer></answer>", "B"),
        ("<answer>B</answer> or C</answer>", "B"),
        ("</answer><answer>B</answer>", "B"),
        ("<answer></answer>", ""),
        ("<answer>B", None),
        ("B</answer>", None),
        ("</answer><answer>", None),
        ("<answer>A</answer><answer>B", None),
        ("", None),
    ],
)
def test_the_last_block(text: str, inside: str | None) -> None:
    assert last_block(text, "answer") == inside


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("B", "B"),
        ("<think>A?</think><answer>B</answer>", "B"),
        ("<answer>A</answer> no <answer> B </answer>", " B "),
        ("</answer><answer>", "</answer><answer>"),
        ("<answer></answer>", ""),
        ("", ""),
    ],
)
def test_an_answer_with_or_without_its_tag(reply: str, answer: str) -> None:
    assert answer_or_all(reply) == answer


@given(st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "x", " "]), max_size=12))
def test_a_clean_text_is_its_blocks(pieces: list[str]) -> None:
    text = "".join(pieces)
    read = read_blocks(text, TAGS)
    written = "".join(f"<{block.tag}>{block.body}</{block.tag}>" for block in read.blocks)
    assert len(written) <= len(text)
    if read.clean:
        assert written.replace(" ", "") == text.replace(" ", "")
