"""Real servers of tiny models: `vllm serve`, which plays episodes for the commands that ask one, and verl's."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from PIL import Image

from agentic_video.cli import main
from agentic_video.datasets.rows import load_rows
from agentic_video.launch.toyworld import build_toyworld
from agentic_video.training.engine_images import ReferenceEngine
from agentic_video.types.record import read_records
from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV
from tests.synthesis.conftest import lines
from tests.toyworld.conftest import any_checkpoint, tokenizer
from tests.training.servers import server
from tests.training.test_engine_images import Store, counts, drawn, image, stored

__all__ = ["any_checkpoint", "tokenizer"]

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "videozoomer"
QUESTIONS = 12

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def toyworld() -> dict[str, str]:
    """The recipe's own world and cold start."""
    return build_toyworld(RECIPE, [])


@pytest.fixture(scope="module")
def url(toyworld: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "log.txt"
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        toyworld["model"],
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        "--served-model-name",
        "tiny",
        "--dtype",
        "float32",
        "--enforce-eager",
        "--max-model-len",
        "640",
        "--max-num-seqs",
        "16",
        "--limit-mm-per-prompt",
        '{"image": 32, "video": 0}',
    ]
    with log.open("w") as file:
        environment = {**os.environ, **COMMON_ENV, **LAPTOP_ENV}
        server = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            assert server.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5)
                break
            except OSError:
                time.sleep(1)
        else:
            raise AssertionError(log.read_text()[-3000:])
        yield f"{address}/v1"
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture(scope="module")
def rows(toyworld: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    asked = load_rows([toyworld["heldout"]])[0][:QUESTIONS]
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps(qa.to_row()) + "\n" for qa in asked))
    return path


def test_a_teacher_is_distilled(url: str, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        "distill",
        "--recipe",
        str(RECIPE),
        "--profile",
        "laptop",
        "--teacher",
        url,
        "--data",
        str(rows),
        "--out",
        str(out),
        "--samples",
        "2",
        "--temperature",
        "1.0",
    ]
    assert main(command) == 0
    kept, rejected = list(read_records(out / "kept.jsonl")), lines(out / "rejected.jsonl")
    assert len(kept) + len(rejected) == 2 * QUESTIONS
    # The tiny model is right two times in three; what is kept is right and played by the rules.
    assert len(kept) >= QUESTIONS / 2
    assert all(record.rewards["acc"] == 1.0 and record.trajectory.illegal_calls == 0 for record in kept)
    assert sum(record.trajectory.tool_calls for record in kept) > 0
    report = json.loads((out / "report.json").read_text())
    assert report["failed"] == 0


def test_an_agent_behind_a_server_is_evaluated(url: str, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        "eval",
        "--recipe",
        str(RECIPE),
        "--profile",
        "laptop",
        "--model",
        url,
        "--data",
        str(rows),
        "--out",
        str(out),
        "--temperature",
        "0",
    ]
    assert main(command) == 0
    report = json.loads((out / "report.json").read_text())
    assert report["failed"] == 0
    assert report["official"]["mean"] > 0.4
    assert report["per_episode"]["tool_calls"]["mean"] > 0.3


SAMPLING = {"temperature": 0.0, "max_tokens": 6, "ignore_eos": True, "logprobs": True}


def test_references_give_what_images_give(any_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An episode of two turns, a sibling, and a picture that the server has lost; each also with images themselves."""
    for name, value in {**COMMON_ENV, **LAPTOP_ENV}.items():
        monkeypatch.setenv(name, value)
    asyncio.run(_compare(any_checkpoint))


async def _compare(checkpoint: Path) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=str(checkpoint),
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=16,
        limit_mm_per_prompt={"image": 32, "video": 0},
        skip_mm_profiling=True,
        distributed_executor_backend="vllm.v1.executor.uniproc_executor.UniProcExecutor",
    )
    engine = AsyncLLM.from_engine_args(arguments)
    try:
        await engine.reset_mm_cache()
        store = Store()
        ours = ReferenceEngine(engine, store)
        words = engine.renderer.tokenizer.convert_tokens_to_ids(["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"])

        def prompt(*pictures: int) -> list[int]:
            ids = [11, 12]
            for number in pictures:
                ids += [*words, 20 + number]
            return ids

        async def say(engine: Any, ids: Sequence[int], images: Sequence[Any]) -> Any:
            return await server(engine).generate(list(ids), dict(SAMPLING), uuid4().hex, image_data=images)

        async def same(ids: Sequence[int], refs: Sequence[Any], numbers: Sequence[int]) -> list[int]:
            by_reference = await say(ours, ids, refs)
            by_image = await say(engine, ids, [Image.fromarray(image(number)) for number in numbers])
            assert by_reference.token_ids == by_image.token_ids and len(by_reference.token_ids) == 6
            assert by_reference.log_probs == pytest.approx(by_image.log_probs, abs=1e-5)
            return list(by_reference.token_ids)

        opening = [stored(number) for number in range(3)]
        said = await same(prompt(0, 1, 2), opening, [0, 1, 2])
        # it looks at its images: with others it says something else, or is less sure
        other = await say(ours, prompt(0, 1, 2), [stored(number) for number in (7, 8, 9)])
        assert other.log_probs != (await say(ours, prompt(0, 1, 2), opening)).log_probs
        assert counts(ours.stats, "processed", "fetched") == (6, 6)

        later = [*prompt(0, 1, 2), *said, *prompt(3, 4)]
        await same(later, [*opening, stored(3), drawn(4)], [0, 1, 2, 3, 4])
        await same(later, [*opening, stored(3), drawn(4).bare()], [0, 1, 2, 3, 4])
        assert counts(ours.stats, "processed", "fetched", "received", "again") == (8, 7, 1, 0)

        # siblings that start at once
        fresh = [stored(number) for number in (20, 21)]
        answers = await asyncio.gather(*(say(ours, prompt(5, 6), fresh) for _ in range(6)))
        assert len({tuple(answer.token_ids) for answer in answers}) == 1
        assert counts(ours.stats, "processed", "fetched") == (10, 9)

        # as verl does after a weight update
        await ours.reset_prefix_cache(reset_connector=True)
        await ours.reset_mm_cache()
        await ours.reset_encoder_cache()
        lost = await say(ours, later, [*opening, stored(3), drawn(4).bare()])
        assert (lost.token_ids, lost.stop_reason, lost.extra_fields["missing"]) == (
            [],
            "missing_images",
            [drawn(4).key],
        )
        await same(later, [*opening, stored(3), drawn(4)], [0, 1, 2, 3, 4])
        assert counts(ours.stats, "processed", "again", "missing", "resets") == (15, 0, 1, 1)
    finally:
        engine.shutdown()
