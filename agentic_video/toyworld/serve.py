"""The tiny model behind an OpenAI-compatible endpoint: the laptop profile's verifier.

``python -m agentic_video.toyworld.serve MODEL_DIR`` prints its address and serves until it is stopped."""

import argparse
import asyncio
import base64
import binascii
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from aiohttp import web
from PIL import Image

from agentic_video.families.registry import family_of
from agentic_video.rollout.engine import GenerationRequest
from agentic_video.toyworld.engine import BatchEngine
from agentic_video.toyworld.model import chat_format_of, load_checkpoint
from agentic_video.types.frame import Frame
from agentic_video.types.message import Message, Part, visuals_of
from agentic_video.video.sizes import resize

MODEL_NAME = "toyworld"
MAX_BODY_BYTES = 32 << 20
MAX_TOKENS = 40
MAX_PROMPT_TOKENS = 2_048


class ChatServer:
    """Answers ``/v1/chat/completions`` with images; frames are resized to one visual token."""

    def __init__(self, model_dir: Path):
        self._model, tokenizer = load_checkpoint(model_dir)
        self._model.eval()
        self._side = family_of(self._model).tiny.frame_side
        self._format = chat_format_of(self._model, tokenizer)
        self._tokenizer = tokenizer

    def app(self) -> web.Application:
        """The web application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        return app

    async def models(self, request: web.Request) -> web.Response:
        """List the one model."""
        return web.json_response({"object": "list", "data": [{"id": MODEL_NAME, "object": "model"}]})

    async def complete(self, request: web.Request) -> web.Response:
        """Answer a chat completion."""
        try:
            body = await request.json()
            messages = [Message(_role(message), self._parts(message["content"])) for message in body["messages"]]
            temperature = float(body.get("temperature") or 0.0)
            seed = None if body.get("seed") is None else int(body["seed"])
            max_tokens = min(int(body.get("max_tokens") or body.get("max_completion_tokens") or MAX_TOKENS), MAX_TOKENS)
        except (ValueError, TypeError, KeyError, AttributeError, OSError, binascii.Error) as error:
            return web.json_response({"error": {"message": f"bad request: {error}"}}, status=400)
        ids = self._format.opening_ids(messages)
        if len(ids) > MAX_PROMPT_TOKENS:
            return web.json_response({"error": {"message": f"more than {MAX_PROMPT_TOKENS} tokens"}}, status=400)
        shown = [part for message in messages for part in visuals_of(message.parts)]
        engine = BatchEngine(self._model, self._tokenizer, temperature=temperature)
        banned, ends = self._format.banned_ids, self._format.eos_ids
        turn = GenerationRequest(ids, shown, stop=(), max_tokens=max_tokens, banned_ids=banned, end_ids=ends)
        completion = await engine.generate(turn, seed=seed)
        said = self._format.said(completion.token_ids)
        return web.json_response(
            {
                "id": "chatcmpl-toyworld",
                "object": "chat.completion",
                "created": 0,
                "model": MODEL_NAME,
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": said},
                        "finish_reason": "stop" if completion.token_ids[-1] in ends else "length",
                    }
                ],
                "usage": {
                    "prompt_tokens": len(ids),
                    "completion_tokens": len(completion.token_ids),
                    "total_tokens": len(ids) + len(completion.token_ids),
                },
            }
        )

    def _parts(self, content: Any) -> tuple[Part, ...]:
        """The parts of a message: its text, or its texts and images in order."""
        if isinstance(content, str):
            return (content,)
        parts: list[Part] = []
        for part in content:
            parts.append(self._frame(part["image_url"]["url"]) if part["type"] == "image_url" else str(part["text"]))
        return tuple(parts)

    def _frame(self, url: str) -> Frame:
        """The picture of a data URL, resized to one visual token."""
        match = re.match(r"data:image/\w+;base64,", url)
        if not match:
            raise ValueError("images must be data URLs")
        with Image.open(io.BytesIO(base64.b64decode(url[match.end() :], validate=True))) as image:
            picture = np.asarray(image.convert("RGB"))
        return Frame(0, 0.0, resize(picture, self._side, self._side))


def _role(message: Any) -> Any:
    """Check the role of a message."""
    if message["role"] not in ("system", "user", "assistant", "tool"):
        raise ValueError(f"role {message['role']!r}: only system, user, assistant and tool messages are served")
    return message["role"]


@asynccontextmanager
async def serving(model_dir: Path, port: int = 0, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve a checkpoint while the context lasts, on a free port if ``port`` is 0; yields ``http://<host>:<port>/v1``."""
    runner = web.AppRunner(ChatServer(model_dir).app())
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield f"http://{host}:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def main() -> None:
    """Serve from the command line."""
    parser = argparse.ArgumentParser(prog="python -m agentic_video.toyworld.serve", description=__doc__)
    parser.add_argument("model", type=Path, help="folder of the checkpoint")
    parser.add_argument("--host", default="127.0.0.1", help="address of this machine to serve at (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    async def serve() -> None:
        async with serving(arguments.model, arguments.port, arguments.host) as url:
            print(f"serving: {url}", flush=True)
            await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
