"""Lines of json."""

import json
from typing import Any


def json_line(value: Any) -> str:
    """A value as a line of a UTF-8 text file.

    What a model wrote may hold half of a surrogate pair, which UTF-8 can't: its escape is written, which is good JSON.
    """
    line = json.dumps(value, ensure_ascii=False)
    return line.encode("utf-8", errors="backslashreplace").decode("utf-8") + "\n"
