"""Frame retrieval with known embeddings: results, sharing between requests, failures."""

import asyncio
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentic_video.video.errors import VideoError
from agentic_video.video.retrieval.encoder import ClipEncoder
from agentic_video.video.retrieval.retriever import FrameRetriever, clean_prompt
from tests.video.retrieval.degrees import CONFIG, DegreeEncoder, PickySource, run


def test_similarities_are_cosines_in_the_asked_order(path: str) -> None:
    similarities, retriever = run(lambda retriever: retriever.asimilarities(path, [90, 30, 90, 0], "90"))
    # 0, 60, 0 and 90 degrees apart
    assert similarities == pytest.approx([1.0, 0.5, 1.0, 0.0], abs=1e-6)
    assert all(type(similarity) is float for similarity in similarities)
    stats = retriever.stats()
    assert (stats.asked, stats.embedded, stats.hits, stats.texts) == (4, 3, 1, 1)


def test_frames_are_compared_with_each_other(path: str) -> None:
    (relevance, alike), retriever = run(lambda retriever: retriever.acompare(path, [90, 30, 90, 0], "90"))
    assert relevance.tolist() == pytest.approx([1.0, 0.5, 1.0, 0.0], abs=1e-6)
    # cosines of 60, 0, 90 and 30 degrees between them
    near = math.sqrt(3) / 2
    expected = [[1, 0.5, 1, 0], [0.5, 1, 0.5, near], [1, 0.5, 1, 0], [0, near, 0, 1]]
    assert alike == pytest.approx(np.array(expected), abs=1e-6)
    assert relevance.dtype == alike.dtype == np.float32
    assert not (relevance.flags.writeable or alike.flags.writeable)
    stats = retriever.stats()
    assert (stats.asked, stats.embedded, stats.hits, stats.texts) == (4, 3, 1, 1)


@given(st.lists(st.integers(0, 99), max_size=12), st.integers(0, 180))
@settings(max_examples=25, deadline=None)
def test_both_ways_to_compare_agree(indices: list[int], degrees: int) -> None:
    path = __file__  # any file: the frames are made up

    async def both(retriever: FrameRetriever) -> Any:
        return await retriever.asimilarities(path, indices, str(degrees)), await retriever.acompare(
            path, indices, str(degrees)
        )

    (similarities, (relevance, alike)), _ = run(both)
    assert relevance.tolist() == pytest.approx(similarities, abs=1e-6)
    assert alike.shape == (len(indices), len(indices)) and (alike == alike.T).all()
    assert np.linalg.eigvalsh(alike).min(initial=0.0) > -1e-4


def test_too_many_frames_are_refused_before_any_is_read(path: str) -> None:
    source = PickySource()
    with pytest.raises(ValueError, match="4096"):
        run(lambda retriever: retriever.acompare(path, [0] * 4097, "90"), source=source)
    assert source.requests == []


def test_frames_come_small_and_a_few_at_a_time(path: str) -> None:
    source, encoder = PickySource(), DegreeEncoder()
    run(lambda retriever: retriever.asimilarities(path, range(30), "0"), source=source, encoder=encoder)
    assert sorted(map(len, source.requests)) == [6, 8, 8, 8]
    assert encoder.shapes == {(24, 32, 3)}
    assert max(encoder.batches) <= 8 and sum(encoder.batches) == 30


def test_concurrent_requests_embed_each_frame_once(path: str) -> None:
    source, encoder = PickySource(seconds=0.02), DegreeEncoder()

    async def use(retriever: FrameRetriever) -> list[list[float]]:
        return await asyncio.gather(*(retriever.asimilarities(path, range(64), str(n)) for n in range(16)))

    answers, retriever = run(use, source=source, encoder=encoder)
    assert source.requested == sum(encoder.batches) == 64
    for number, answer in enumerate(answers):
        assert answer == pytest.approx([math.cos(math.radians(n - number)) for n in range(64)], abs=1e-5)
    stats = retriever.stats()
    assert (stats.asked, stats.embedded, stats.hits) == (1024, 64, 960)


def test_frames_of_two_episodes_go_through_one_pass(tmp_path: Path) -> None:
    videos = [tmp_path / "a.mp4", tmp_path / "b.mp4"]
    for video in videos:
        video.write_bytes(video.name.encode())
    encoder = DegreeEncoder()

    async def use(retriever: FrameRetriever) -> list[list[float]]:
        return await asyncio.gather(*(retriever.asimilarities(str(video), range(4), "0") for video in videos))

    # eight fill a batch, which would wait a minute for them
    answers, _ = run(use, replace(CONFIG, wait_ms=60_000.0, batch_size=8), encoder=encoder)
    assert encoder.batches == [8]
    assert answers[0] == answers[1] == pytest.approx([math.cos(math.radians(n)) for n in range(4)], abs=1e-6)


def test_a_text_is_embedded_once_while_it_is_remembered(path: str) -> None:
    async def use(retriever: FrameRetriever) -> list[int]:
        counts = []
        for prompt in ["1", "1", "2", "3", "1"]:
            await asyncio.gather(*(retriever.asimilarities(path, [0], prompt) for _ in range(3)))
            counts.append(retriever.stats().texts)
        return counts

    # two are remembered: 3 drives 1 out
    assert run(use, replace(CONFIG, max_texts=2))[0] == [1, 1, 2, 3, 4]


def test_a_cancelled_rollout_does_not_cancel_others(path: str) -> None:
    source = PickySource(seconds=0.1)

    async def use(retriever: FrameRetriever) -> list[float]:
        first = asyncio.create_task(retriever.asimilarities(path, [0, 60], "0"))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(retriever.asimilarities(path, [0, 60], "0"))
        await asyncio.sleep(0.01)
        first.cancel()
        return await second

    similarities, _ = run(use, replace(CONFIG, wait_ms=1.0), source=source)
    assert similarities == pytest.approx([1.0, 0.5], abs=1e-6)
    assert source.requested == 2


def test_a_damaged_frame_fails_only_its_requests(path: str) -> None:
    source = PickySource(damaged=[7], seconds=0.05)

    async def use(retriever: FrameRetriever) -> tuple[list[Any], list[float]]:
        failing = asyncio.create_task(retriever.asimilarities(path, [0, 7], "0"))
        await asyncio.sleep(0.02)
        answers = await asyncio.gather(failing, retriever.asimilarities(path, [0], "0"), return_exceptions=True)
        # the failure is not remembered: both frames are embedded once they can be read
        source.damaged = frozenset()
        return answers, await retriever.asimilarities(path, [0, 7, 60], "0")

    ((failed, fine), again), _ = run(use, replace(CONFIG, wait_ms=1.0), source=source)
    assert isinstance(failed, VideoError) and failed.reason == "corrupt"
    assert fine == pytest.approx([1.0])
    assert again == pytest.approx([1.0, math.cos(math.radians(7)), 0.5], abs=1e-6)


def test_a_decoder_that_hangs_is_not_tried_by_each_in_turn(path: str) -> None:
    source = PickySource(damaged=[7], reason="timeout", seconds=0.05)

    async def use(retriever: FrameRetriever) -> list[Any]:
        asked = (retriever.asimilarities(path, [7], "0") for _ in range(6))
        return await asyncio.gather(*asked, return_exceptions=True)

    answers, _ = run(use, source=source)
    assert [getattr(answer, "reason", None) for answer in answers] == ["timeout"] * 6
    assert len(source.requests) == 1


HOSTILE = {
    "long": "red " * 250_000,
    "one word": "x" * 10**6,
    "nul": "red\x00green\x00",
    "emoji": "\U0001f600" * 5000,
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 300,
    "surrogate": "red \ud800\udfff",
    "special tokens": "<start_of_text><end_of_text><pad></s><|endoftext|> red",
    "entities": "&amp;" * 100 + "&#0;&#x110000;",
    "mixed": "\u202e\ufeff\u0301" * 200 + "\r\n\t red",
    "empty": "",
    "blank": " \n\t ",
    "json": '{"prompt": ["red"]}',
}


@pytest.mark.parametrize("prompt", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_prompts_break_nothing(clip: ClipEncoder, path: str, prompt: str) -> None:
    async def ask(text: str) -> float:
        retriever = FrameRetriever(PickySource(), clip, CONFIG)
        started = time.monotonic()
        similarities = await retriever.asimilarities(path, [0, 100], text)
        elapsed = time.monotonic() - started
        assert len(similarities) == 2 and all(-1.001 < similarity < 1.001 for similarity in similarities)
        await retriever.aclose()
        return elapsed

    ordinary = min(asyncio.run(ask("a red flash near the end")) for _ in range(3))
    # the first time counts: tokenizers remember words
    assert asyncio.run(ask(prompt)) < 50 * ordinary


@settings(max_examples=50)
@given(st.text(st.characters(codec=None), max_size=400), st.integers(1, 300))
def test_cleaned_prompts_are_short_and_encodable(prompt: str, max_chars: int) -> None:
    cleaned = clean_prompt(prompt, max_chars)
    assert len(cleaned) <= max_chars and cleaned == cleaned.strip()
    assert cleaned.encode().decode() == cleaned and "\x00" not in cleaned
