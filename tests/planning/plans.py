"""Plans of the recipes."""

from typing import Any

from agentic_video.planning.plan import Plan
from agentic_video.planning.report import plan_of
from tests.config.configs import composed


def plan(name: str, gpus: int | None = None, *overrides: str, **more: Any) -> Plan:
    return plan_of(composed(name, "cluster", *overrides), gpus, **more)
