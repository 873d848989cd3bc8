import pytest

from agentic_video.tools.arguments import json_float
from agentic_video.tools.base import ToolError
from agentic_video.tools.frame_select import read_calls
from agentic_video.tools.video_zoom import parse_arguments


def test_a_number_beyond_a_float_is_refused_where_json_is_read() -> None:
    assert json_float("1.5e3") == 1500.0
    for text in ("1e999", "-1e999"):
        with pytest.raises(ToolError, match="too large"):
            json_float(text)
    with pytest.raises(ToolError, match="too large"):
        parse_arguments('{"fps": 1e999}')
    with pytest.raises(ToolError, match="too large"):
        read_calls('{"tool": "frame_select", "arguments": {"nframes": 1e999}}')
