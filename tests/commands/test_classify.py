import argparse

import pytest

from agentic_video.commands.classify import shares


def test_shares_are_checked() -> None:
    assert shares("adaptive=0.25, active=0.75") == {"adaptive": 0.25, "active": 0.75}
    for bad in ("adaptive=0.5", "easy=1", "active=0.5,active=0.5", "active=2", "active"):
        with pytest.raises((argparse.ArgumentTypeError, ValueError)):
            shares(bad)
