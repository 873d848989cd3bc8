"""A chat server that plays a teacher, a thinker, a critic and the rest by a script, and misbehaves when asked to.

A request is recognised by an id in square brackets somewhere in its text. The number of assistant messages is the
number of the turn that is asked for. A reply depends on its request only, so that two runs get the same.
"""

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.faulty_server import FaultyServer, Reply

MODEL = "oracle"


@dataclass
class Part:
    """Replies about one question."""

    turns: tuple[str, ...] = ()
    samples: dict[int, tuple[str, ...]] = field(default_factory=dict)  # turns by the request's seed
    revised: dict[int, str] = field(default_factory=dict)  # by number of the turn: after an objection
    reviews: dict[int, str] = field(default_factory=dict)  # of the thinker, by number of the episode's turn
    critic: str = "yes"
    summary: str = "It looked at the whole video first."
    diagnosis: str = ""
    corrected: tuple[str, ...] = ()  # turns after a diagnosis
    broken: bool = False  # every request gets a 400


FAULTS = (
    Reply(status=429, headers={"Retry-After": "0.1"}),
    Reply(status=500),
    Reply(body=b"<html>it works</html>"),
    Reply(body=b'{"choices": []}'),
)


@dataclass
class Oracle:
    """The server."""

    parts: dict[str, Part]  # by id
    faults: bool = False  # some requests get a fault before the right reply
    delay: float = 0.0  # seconds before each reply
    asked: list[dict[str, Any]] = field(default_factory=list)
    tries: Counter[str] = field(default_factory=Counter)
    faulty: int = 0

    def reply(self, body: dict[str, Any], number: int) -> Reply:
        self.asked.append(body)
        name = hashlib.sha1(json.dumps(body).encode()).hexdigest()
        self.tries[name] += 1
        time.sleep(self.delay)
        part = self.parts[re.findall(r"\[(q[0-9]+)\]", all_text(body))[-1]]
        if part.broken:
            return Reply(status=400)
        if self.faults and self.tries[name] == 1 and (fault := int(name, 16) % 9) < len(FAULTS):
            self.faulty += 1
            return FAULTS[fault]
        choice = {"index": 0, "message": {"role": "assistant", "content": say(part, body)}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100 + len(body["messages"]), "completion_tokens": 10}
        return Reply(body=json.dumps({"choices": [choice], "usage": usage}).encode())

    @contextmanager
    def running(self) -> Iterator[str]:
        """Serve in a thread; yields the address."""
        server = FaultyServer(self.reply, models=[{"id": MODEL}])
        yield server.url
        server.stop()


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
    """Number of images in a request."""
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
    if "Go on with the task from here" in all_text(body):
        turns = part.corrected
    return turns[min(turn, len(turns) - 1)]
