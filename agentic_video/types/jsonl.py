"""Lines of JSON."""

import json
from typing import Any


def json_line(value: Any) -> str:
    """Write a value as a line of a UTF-8 file; half a surrogate pair, which models write, becomes its escape."""
    line = json.dumps(value, ensure_ascii=False)
    return line.encode("utf-8", errors="backslashreplace").decode("utf-8") + "\n"
