"""Simulated engines behind a router, event by event; ``scheduling.py`` plays runs on them."""

import heapq
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentic_video.training.loop.router import GroupRouter, RequestId


class Rates(NamedTuple):
    """An engine and its prompts."""

    weights: float  # seconds of a pass for reading the weights
    cached: float  # seconds of a pass for each token of a running sequence, at least a little
    token: float  # seconds to compute a new token, with its share of the vision tower's work
    picture: float  # seconds of the server for a frame that it hasn't processed yet
    room: int  # tokens in the KV cache
    pictures: int  # processed frames that the server keeps
    sequences: int  # most running ones (max_num_seqs)
    shared: int  # first tokens of a rollout, which its group shares
    shared_frames: int  # frames among these
    frame: int  # tokens of a frame


class Turn(NamedTuple):
    """Tokens that a turn says, frames that its call shows, and the call's seconds."""

    said: int
    frames: int
    wait: float


@dataclass(eq=False)
class Episode:
    """A rollout on its way."""

    group: int
    session: int
    rollouts: int  # of its group
    turns: Sequence[Turn]
    began: float
    left: float  # tokens that its turn still has to say
    turn: int = 0
    own: float = 0.0  # tokens beyond those that its group shares
    frames: int = 0  # frames among these
    version: int = -1  # of the weights that its first token came from
    ended: float = 0.0
    engine: str = ""

    @property
    def request(self) -> str:
        """Its id for routers."""
        return f"{self.group}:{self.session}:{self.rollouts}:0"


class Clock:
    """Calls in the order of their times."""

    def __init__(self) -> None:
        self.now, self._count = 0.0, 0
        self._calls: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, seconds: float, call: Callable[..., None], *given: Any) -> None:
        """Call a function later."""
        self._count += 1
        heapq.heappush(self._calls, (self.now + seconds, self._count, call, given))

    def run(self, seconds: float = math.inf, done: Callable[[], bool] = lambda: False) -> None:
        """Let so much time pass, or as much as something takes."""
        until = self.now + seconds
        while not done() and self._calls and self._calls[0][0] <= until:
            self.now, _, call, given = heapq.heappop(self._calls)
            call(*given)
        if until < math.inf:
            self.now = until


class Cache:
    """Entries within a bound: those in use stay, of the others the least recently used goes first."""

    def __init__(self, room: float) -> None:
        self._room, self._in_use, self._kept = room, 0.0, 0.0
        self._held: dict[Hashable, float] = {}
        self._users: Counter[Hashable] = Counter()
        self._idle: OrderedDict[Hashable, float] = OrderedDict()

    def take(self, wanted: Mapping[Hashable, float]) -> float | None:
        """Use entries, at least so large; what was missing of them, or None while others leave no room."""
        there = {key: self._held.get(key, self._idle.get(key, 0.0)) for key in wanted}
        sizes = {key: max(size, there[key]) for key, size in wanted.items()}
        in_use = self._in_use + sum(size - self._held.get(key, 0.0) for key, size in sizes.items())
        if self._held and in_use > self._room:
            return None
        self._in_use = in_use
        for key, size in sizes.items():
            self._kept -= self._idle.pop(key, 0.0)
            self._held[key] = size
            self._users[key] += 1
        while self._idle and self._in_use + self._kept > self._room:
            self._kept -= self._idle.popitem(last=False)[1]
        return sum(sizes[key] - there[key] for key in wanted)

    def release(self, keys: Iterable[Hashable]) -> None:
        """Use entries no longer."""
        for key in keys:
            self._users[key] -= 1
            if not self._users[key]:
                self._idle[key] = self._held.pop(key)
                self._in_use -= self._idle[key]
                self._kept += self._idle[key]


class Engine:
    """An engine from when it wakes to when it sleeps. It computes waiting prompts one by one, while its sequences stand
    still; without any it decodes all of them in step."""

    def __init__(self, clock: Clock, rates: Rates, over: Callable[[Episode], None]) -> None:
        self._clock, self._rates, self._over = clock, rates, over
        self._here: dict[Episode, None] = {}
        self._waiting: deque[Episode] = deque()
        self._computing: Episode | None = None
        self._running: list[tuple[float, int, Episode]] = []  # with the pass that is their last
        self._passes = self._tokens = self.busy = 0.0
        self._since = self._server_free = clock.now
        self._cache, self._pictures = Cache(rates.room), Cache(rates.pictures)
        self._event = self._count = 0  # only the newest event counts

    def play(self, episode: Episode) -> None:
        """Begin a turn; the server first processes frames that are new to it, request by request."""
        self._here[episode] = None
        keys: dict[Hashable, float] = {
            ("group", episode.group): self._rates.shared_frames,
            ("own", episode): episode.frames,
        }
        new = self._pictures.take(keys) or 0.0
        self._pictures.release(keys)
        self._server_free = max(self._server_free, self._clock.now) + new * self._rates.picture
        self._clock.after(self._server_free - self._clock.now, self._arrive, episode)

    def stop(self) -> list[Episode]:
        """Stop for good; the episodes that were here, with what they have said so far."""
        self._advance()
        for last, _, episode in self._running:
            said = episode.left - (last - self._passes)
            episode.left, episode.own = episode.left - said, episode.own + said
        stopped, self._here = list(self._here), {}
        self._event += 1
        return stopped

    def _pass_seconds(self) -> tuple[float, float]:
        """Seconds of the next pass, and how much longer each one is than the one before."""
        rates = self._rates
        return rates.weights + rates.cached * self._tokens, rates.cached * len(self._running)

    def _advance(self) -> None:
        seconds, self._since = self._clock.now - self._since, self._clock.now
        if self._computing or self._running:
            self.busy += seconds
        if self._running and not self._computing:
            first, more = self._pass_seconds()
            passes = (math.sqrt(first**2 + 2 * more * seconds) - first) / more
            self._passes += passes
            self._tokens += passes * len(self._running)

    def _keys(self, episode: Episode) -> dict[Hashable, float]:
        return {("group", episode.group): self._rates.shared, ("own", episode): episode.own + episode.left}

    def _next(self) -> None:
        """Compute the first waiting prompt if there is room for it and its reply, else decode until a turn is over."""
        self._event += 1
        if self._waiting and len(self._running) < self._rates.sequences:
            missing = self._cache.take(self._keys(self._waiting[0]))
            if missing is not None:
                self._computing = self._waiting.popleft()
                seconds = max(1.0, missing - self._computing.left) * self._rates.token
                self._clock.after(seconds, self._computed, self._event)
                return
        if self._running:
            first, more = self._pass_seconds()
            passes = max(0.0, self._running[0][0] - self._passes)
            self._clock.after(first * passes + more * passes**2 / 2, self._said, self._event)

    def _arrive(self, episode: Episode) -> None:
        if episode not in self._here:
            return
        self._waiting.append(episode)
        if not self._computing:
            self._advance()
            self._next()

    def _computed(self, event: int) -> None:
        if event != self._event or not self._computing:
            return
        self._advance()
        episode, self._computing = self._computing, None
        self._count += 1
        heapq.heappush(self._running, (self._passes + episode.left, self._count, episode))
        self._tokens += self._rates.shared + episode.own
        self._next()

    def _said(self, event: int) -> None:
        if event != self._event:
            return
        self._advance()
        episode = heapq.heappop(self._running)[2]
        self._cache.release(self._keys(episode))
        episode.own, episode.left = episode.own + episode.left, 0.0
        self._tokens -= self._rates.shared + episode.own
        del self._here[episode]
        self._next()
        self._over(episode)


class Cluster:
    """Engines behind a router, and the episodes that they play."""

    def __init__(self, clock: Clock, rates: Rates, router: Any, engines: Iterable[str]) -> None:
        self._clock, self._rates, self._router, self._names = clock, rates, router, tuple(engines)
        self._engines: dict[str, Engine] = {}
        self._parked: list[Episode] = []
        self.playing: dict[int, list[Episode]] = {}  # groups, with their episodes that are over
        self.ready: dict[int, list[Episode]] = {}  # groups that are over
        self.version, self.busy, self.awake, self._woken = 0, 0.0, 0.0, 0.0

    def begin(self, group: int, rollouts: Sequence[Sequence[Turn]]) -> None:
        """Begin a group."""
        self.playing[group] = []
        for session, turns in enumerate(rollouts):
            self._ask(Episode(group, session, len(rollouts), turns, self._clock.now, turns[0].said))

    def take(self, groups: int) -> list[Episode]:
        """Episodes of groups that are over, those that began first."""
        return [episode for group in sorted(self.ready)[:groups] for episode in self.ready.pop(group)]

    def wake(self) -> None:
        """Play, with the current version of the weights and empty caches."""
        self._engines = {name: Engine(self._clock, self._rates, self._turn_over) for name in self._names}
        self._woken = self._clock.now
        parked, self._parked = self._parked, []
        for episode in parked:
            self._ask(episode)

    def sleep(self) -> None:
        """Interrupt all episodes."""
        self.awake += (self._clock.now - self._woken) * len(self._engines)
        for engine in self._engines.values():
            for episode in engine.stop():
                self._router.release_server(episode.engine, episode.request)
                self._parked.append(episode)
            self.busy += engine.busy
        self._engines = {}

    def _ask(self, episode: Episode) -> None:
        if not self._engines:
            self._parked.append(episode)
            return
        episode.version = self.version if episode.version < 0 else episode.version
        episode.engine = self._router.acquire_server(episode.request)[0]
        self._engines[episode.engine].play(episode)

    def _turn_over(self, episode: Episode) -> None:
        self._router.release_server(episode.engine, episode.request)
        turn = episode.turns[episode.turn]
        episode.turn += 1
        if episode.turn < len(episode.turns):
            episode.frames, episode.own = episode.frames + turn.frames, episode.own + turn.frames * self._rates.frame
            episode.left = episode.turns[episode.turn].said
            self._clock.after(turn.wait, self._ask, episode)
            return
        episode.ended = self._clock.now
        over = self.playing[episode.group]
        over.append(episode)
        if len(over) == episode.rollouts:
            self.ready[episode.group] = self.playing.pop(episode.group)


class MovingRouter(GroupRouter):
    """A group's engine, from which a further turn moves to an engine that has been idle, if its own has been busy."""

    least, seconds = 4, 3.0
    """Requests of an engine that hands over turns, and how long the two have been busy and idle."""

    def __init__(self, servers: dict[str, Any], clock: Clock) -> None:
        super().__init__(servers)
        self._clock, self._changed = clock, dict.fromkeys(servers, 0.0)

    def acquire_server(self, request_id: str) -> tuple[str, Any]:
        """See :class:`GroupRouter`."""
        request, before = RequestId.read(request_id), self._clock.now - self.seconds
        group = self._groups.get(request.group)
        engine = group.seen.get(request.session) if group else None
        if group and engine and self._inflight_requests[engine] >= self.least and self._changed[engine] < before:
            loads = ((self._inflight_requests[name] + self._to_come[name], name) for name in self._servers)
            idle = (name for load, name in loads if not load and self._changed[name] < before)
            group.seen[request.session] = next(idle, engine)
        chosen = super().acquire_server(request_id)
        if self._inflight_requests[chosen[0]] == 1:
            self._changed[chosen[0]] = self._clock.now
        return chosen

    def release_server(self, server_id: str, request_id: str | None = None) -> None:
        """See :class:`GroupRouter`."""
        super().release_server(server_id, request_id)
        if not self._inflight_requests[server_id]:
            self._changed[server_id] = self._clock.now
