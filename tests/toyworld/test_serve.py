import asyncio
from pathlib import Path

import httpx

from agentic_video.graders.verifier import Verifier, VerifierConfig
from agentic_video.toyworld.serve import serving
from agentic_video.types.frame import Frame
from tests.conftest import MemorySource


def test_the_tiny_model_is_served(checkpoint: Path) -> None:
    frames: list[Frame] = MemorySource().draw("memory", [1, 2], (60, 40))

    async def ask() -> str:
        async with serving(checkpoint) as url:
            async with httpx.AsyncClient() as client:
                wrong = await client.post(f"{url}/chat/completions", json={"messages": [{"role": "x", "content": 1}]})
                assert wrong.status_code == 400
            return await Verifier(VerifierConfig(base_url=url, model="toyworld")).ask("What colour?", frames)

    assert isinstance(asyncio.run(ask()), str)
