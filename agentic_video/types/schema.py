"""Types of fields that pydantic checks, and its validation errors as one line."""

from typing import Annotated

from pydantic import Field, Strict, ValidationError

from agentic_video.types.text import short

Flag = Annotated[bool, Strict()]
Number = Annotated[float, Strict()]
Int = Annotated[int, Strict(), Field(ge=-(2**63), lt=2**63)]
Natural = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
Positive = Annotated[int, Strict(), Field(gt=0, lt=2**63)]

_WORDS = {"missing": "is missing", "extra_forbidden": "is unknown", "unexpected_keyword_argument": "is unknown"}


def first_problem(error: ValidationError) -> tuple[str, str]:
    """Dotted key of a validation's first problem, and the problem; union tags in angle brackets are no part of it."""
    found = error.errors(include_url=False)[0]
    parts = [part for part in found["loc"] if isinstance(part, int) or not part.startswith("<")]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")
    if found["type"] in _WORDS:
        return key, _WORDS[found["type"]]
    if found["type"] == "value_error":
        return key, str(found["ctx"]["error"])
    if found["type"] == "union_tag_invalid":
        return key, f"has an unknown kind, got {short(found['input'])}"
    expected = found["msg"].replace("Input should be", "must be").replace("valid tuple", "list")
    return key, f"{expected}, got {short(found['input'])}"
