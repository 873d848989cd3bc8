"""Puts the example's folder on the path, as its run.sh does."""

import sys
from pathlib import Path

CUSTOM_TOOL = Path(__file__).resolve().parents[2] / "examples" / "custom_tool"
sys.path.insert(0, str(CUSTOM_TOOL))
