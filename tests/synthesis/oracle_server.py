"""A small server of the chat completions API that says what a script tells it to, and misbehaves when asked to.

A request is recognised by an id in square brackets somewhere in its text. The number of assistant messages is the
number of the turn that is asked for. What one request gets depends on its content only, so that two runs get the same.
"""

import asyncio
import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

MODEL = "oracle"


@dataclass
class Part:
    """What is said about one question.

    Attributes:
        turns: Of the episode.
        samples: Turns by the request's seed, in place of ``turns``.
        revised: By number of the turn: what is said after an objection.
        reviews: Of the thinker, by number of the episode's turn.
        critic: Of the critic.
        summary: Of a verified episode.
        diagnosis: Of a failed episode.
        corrected: Turns after a diagnosis.
        broken: Whether every request gets a 400.
    """

    turns: tuple[str, ...] = ()
    samples: dict[int, tuple[str, ...]] = field(default_factory=dict)
    revised: dict[int, str] = field(default_factory=dict)
    reviews: dict[int, str] = field(default_factory=dict)
    critic: str = "yes"
    summary: str = "It looked at the whole video first."
    diagnosis: str = ""
    corrected: tuple[str, ...] = ()
    broken: bool = False


@dataclass
class Oracle:
    """The server.

    Attributes:
        parts: By id.
        faults: Whether some requests get a 429, a 500, nonsense or a late reply before the right one.
        delay: Seconds before each reply.
        asked: All requests, in the order in which they came.
    """

    parts: dict[str, Part]
    faults: bool = False
    delay: float = 0.0
    asked: list[dict[str, Any]] = field(default_factory=list)
    tries: Counter[str] = field(default_factory=Counter)
    faulty: Counter[str] = field(default_factory=Counter)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw)
        self.asked.append(body)
        name = hashlib.sha1(raw).hexdigest()
        self.tries[name] += 1
        await asyncio.sleep(self.delay)
        text = all_text(body)
        part = self.parts[re.findall(r"\[(q[0-9]+)\]", text)[-1]]
        if part.broken:
            return web.json_response({"error": {"message": "broken"}}, status=400)
        if self.faults and self.tries[name] == 1:
            fault = ("busy", "error", "nonsense", "empty", "slow", "", "", "", "")[int(name, 16) % 9]
            self.faulty[fault] += 1
            match fault:
                case "busy":
                    return web.json_response({"error": {}}, status=429, headers={"Retry-After": "0.1"})
                case "error":
                    return web.Response(text="oops", status=500)
                case "nonsense":
                    return web.Response(text="<html>it works</html>")
                case "empty":
                    return web.json_response({"choices": []})
                case "slow":
                    await asyncio.sleep(0.3)
        choice = {"index": 0, "message": {"role": "assistant", "content": say(part, body)}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100 + len(body["messages"]), "completion_tokens": 10}
        return web.json_response({"choices": [choice], "usage": usage})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": MODEL}]})

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve in a thread.

        Yields:
            The base address.
        """
        loop = asyncio.new_event_loop()
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        runner = web.AppRunner(app)

        async def start() -> int:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return int(runner.addresses[0][1])

        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{asyncio.run_coroutine_threadsafe(start(), loop).result(30)}/v1"
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(30)
            loop.close()


def all_text(body: dict[str, Any]) -> str:
    """The texts of a request."""
    return "\n".join(text_of(message) for message in body["messages"])


def text_of(message: dict[str, Any]) -> str:
    """The text of a message."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def images_in(body: dict[str, Any]) -> int:
    """How many images a request holds."""
    contents = [message["content"] for message in body["messages"] if not isinstance(message["content"], str)]
    return sum(part["type"] == "image_url" for content in contents for part in content)


def say(part: Part, body: dict[str, Any]) -> str:
    """The reply to a request."""
    first, last = text_of(body["messages"][0]), text_of(body["messages"][-1])
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    if first.startswith("You check how"):
        return part.reviews.get(len(json.loads(last)["so_far"]), "OK")
    if first.startswith("You get one JSON object"):
        return part.summary
    if first.startswith("You check the work"):
        return part.critic
    if "Do not continue the attempt" in last:
        return part.diagnosis
    if last.startswith("Before the call above"):
        return part.revised[turn - 1]
    turns = part.samples.get(body.get("seed", -1), part.turns)
    if "Go on with the task from here" in first or "Go on with the task from here" in all_text(body):
        turns = part.corrected
    return turns[min(turn, len(turns) - 1)]
