"""A judge in a process of its own, which can be stopped and killed: ``python -m tests.chaos.judge PORT``."""

import json
import sys
import threading
from typing import Any

from tests.faulty_server import FaultyServer, Reply


def grade(body: dict[str, Any], number: int) -> Reply:
    """1 where the reference is in the answer."""
    fields = json.loads(body["messages"][-1]["content"])
    return Reply(content=str(int(fields["reference"].strip() in fields["candidate"])))


if __name__ == "__main__":
    print(FaultyServer(grade, int(sys.argv[1])).url, flush=True)
    threading.Event().wait()
