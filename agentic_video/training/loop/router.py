"""Routing of requests: all rollouts of a group go to one engine.

They share the question, the overview and often further frames, which one engine then computes once. verl's own router
knows rollouts only, and sends each to the least loaded engine (``verl/workers/rollout/router.py``).
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, NamedTuple
from uuid import uuid4

from verl.workers.rollout.llm_server import LLMServerClient, LLMServerManager
from verl.workers.rollout.router import GlobalRequestLoadBalancer

MAX_GROUPS = 10_000
"""Groups that are remembered by default: many steps' worth."""
FULL = 64
"""Concurrent requests from which on an engine counts as full by default."""
PACKAGED = "pkg://"
"""Prefix of a path inside an installed package."""


class RequestId(NamedTuple):
    """Group (verl's uid), the rollout's number there, and the number of rollouts in the group."""

    group: str
    session: str
    rollouts: int

    def unique(self) -> str:
        """The id as text, different each time: a rollout may be played again under the same numbers."""
        return f"{self.group}:{self.session}:{self.rollouts}:{uuid4().hex[:8]}"

    @classmethod
    def read(cls, text: str) -> "RequestId":
        """Parse an id; one of another form is a group by itself."""
        parts = text.rsplit(":", 3)
        if len(parts) == 4 and parts[2].isdigit():
            return cls(parts[0], parts[1], int(parts[2]))
        return cls(text, "", 1)


def packaged_path(path: str | None) -> str | None:
    """The path on this machine of ``pkg://agentic_video.training/router.yaml``; others are returned unchanged."""
    if not path or not path.startswith(PACKAGED):
        return path
    package, _, name = path.removeprefix(PACKAGED).partition("/")
    return str(files(package) / name)


@dataclass
class _RoutedGroup:
    """A group's engine, its rollouts that haven't asked for anything yet, and the engines of those that have."""

    home: str
    to_come: int
    seen: dict[str, str] = field(default_factory=dict)


class GroupRouter(GlobalRequestLoadBalancer):
    """verl's router by group (``rollout.router_config_path``; a Ray actor, one for all agent-loop workers).

    A group's first request goes to the least loaded engine, all others follow it. Only when its engine is full and
    another has less than half the load does a further rollout go to that one, and stay there.
    """

    def __init__(self, servers: dict[str, Any], config: Mapping[str, Any] | None = None):
        super().__init__(servers)
        config = config or {}
        self._max_groups = int(config.get("max_groups", MAX_GROUPS))
        self._full = int(config.get("full", FULL))
        if self._max_groups < 1 or self._full < 1:
            raise ValueError(f"max_groups={self._max_groups}, full={self._full} (router.yaml): set 1 or more")
        self._groups: OrderedDict[str, _RoutedGroup] = OrderedDict()
        self._to_come: dict[str, int] = dict.fromkeys(servers, 0)

    def acquire_server(self, request_id: str) -> tuple[str, Any]:
        """Id and handle of the engine for a request."""
        if not self._servers:
            raise RuntimeError("No available servers in load balancer")  # verl's clients wait when they read this
        group_id, session, rollouts = RequestId.read(request_id)
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _RoutedGroup(self._idlest(), rollouts)
            self._to_come[group.home] += rollouts
        elif group.home not in self._servers:  # it moves with what it has still to come, and no more
            group.home = self._idlest()
            self._to_come[group.home] += group.to_come
        self._groups.move_to_end(group_id)
        engine = group.seen.get(session)
        if engine not in self._servers:
            if engine is None and group.to_come:
                group.to_come -= 1
                self._to_come[group.home] -= 1
            engine = group.seen[session] = self._with_room(group.home)
        while len(self._groups) > self._max_groups:
            self._forget(next(iter(self._groups)))
        self._inflight_requests[engine] += 1
        return engine, self._servers[engine]

    def add_servers(self, servers: dict[str, Any]) -> None:
        """Add engines, or return them: groups that requested nothing meanwhile are still theirs."""
        super().add_servers(servers)
        for server_id in servers:
            left = sum(group.to_come for group in self._groups.values() if group.home == server_id)
            self._to_come.setdefault(server_id, left)

    def remove_servers(self, server_ids: list[str]) -> None:
        """Remove engines; their groups move with their next request."""
        super().remove_servers(server_ids)
        for server_id in server_ids:
            self._to_come.pop(server_id, None)

    def clear_sticky_cache(self) -> dict[str, Any]:
        """Forget the groups' engines, so that they spread again, over new engines too, but not their rollouts."""
        cleared = len(self._groups)
        for group in self._groups.values():
            group.home, group.seen = "", dict.fromkeys(group.seen, "")
        self._to_come = dict.fromkeys(self._servers, 0)
        return {"cleared_entries": cleared, "server_loads": dict(self._inflight_requests)}

    def get_status(self) -> dict[str, Any]:
        """verl's figures, with the number of remembered groups."""
        return {**super().get_status(), "groups": len(self._groups)}

    def _idlest(self) -> str:
        """The least loaded engine; the first of several."""
        return min(self._servers, key=lambda server: self._inflight_requests[server] + self._to_come[server])

    def _with_room(self, home: str) -> str:
        """The engine for a further rollout of a group: the group's, unless that is full and another has room."""
        if self._inflight_requests[home] < self._full:
            return home
        other = self._idlest()
        load = self._inflight_requests[other] + self._to_come[other]
        return other if 2 * load < self._inflight_requests[home] else home

    def _forget(self, group_id: str) -> None:
        group = self._groups.pop(group_id)
        if group.home in self._to_come:
            self._to_come[group.home] -= group.to_come


class OneEngineClient(LLMServerClient):
    """verl's client of a single engine (id and handle): the router isn't asked before each turn."""

    def __init__(self, *, engine: tuple[str, Any], **options: Any):
        super().__init__(**options)
        self._engine = engine

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        return self._engine

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        pass


def client_of(manager: LLMServerManager) -> LLMServerClient:
    """The client of a fixed set of servers, as the synchronous trainer's."""
    if len(manager.server_addresses) > 1:
        return manager.get_client()
    engine = (manager.server_addresses[0], manager.server_handles[0])
    return manager.get_client(OneEngineClient, engine=engine)
