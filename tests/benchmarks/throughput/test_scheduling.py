"""The simulated engines by hand, and what a run of them counts."""

import random
from collections.abc import Callable

import pytest

from agentic_video.planning.job import Episode as TypicalEpisode
from agentic_video.training.loop.router import GroupRouter
from benchmarks.throughput.engines import Cache, Clock, Cluster, Engine, Episode, MovingRouter, Rates, Turn
from benchmarks.throughput.scheduling import LENGTHS, MOST_SAID, MOST_TURNS, Setting, simulate

TYPICAL = TypicalEpisode("", overview_frames=4, frames=28, width=28, height=28)
RATES = Rates(
    weights=1.0,
    cached=0.1,
    token=0.5,
    picture=0.25,
    room=1000,
    pictures=100,
    sequences=8,
    shared=10,
    shared_frames=4,
    frame=2,
)


def episode(said: int = 2, group: int = 0, session: int = 0) -> Episode:
    return Episode(group, session, 2, [Turn(said, 0, 0.0)], 0.0, said)


def played(rates: Rates, *episodes: Episode) -> tuple[Engine, list[tuple[int, float]]]:
    """An engine that is given all episodes at once, and when each was over."""
    clock, over = Clock(), []  # type: Clock, list[tuple[int, float]]
    engine = Engine(clock, rates, lambda episode: over.append((episode.session, clock.now)))
    for one in episodes:
        engine.play(one)
    clock.run()
    return engine, over


def test_a_turn_alone() -> None:
    # 4 frames in 1 s, 10 tokens in 5 s, then passes of 1 + 0.1 * 10 s and, in the middle of it, a twentieth more
    engine, over = played(RATES, episode(said=1))
    assert over == [(0, pytest.approx(1 + 5 + 2.05))]
    assert engine.busy == pytest.approx(7.05)  # the server's second isn't the GPU's


def test_a_groups_first_view_is_computed_once() -> None:
    # the second waits for no picture, and computes one token while the first stands still; both then say two tokens in
    # passes of 1 + 0.1 * 20 s, each 0.2 s longer than the one before
    _, over = played(RATES, episode(), episode(session=1))
    together = 1 + 5 + 0.5 + 2 * 3 + 0.2 * 2
    assert over == [(0, pytest.approx(together)), (1, pytest.approx(together))]
    # of another group, it has 4 frames and 10 tokens of its own
    _, over = played(RATES, episode(), episode(group=1, session=1))
    assert over[1][1] > together + 4


def test_sequences_wait_for_room() -> None:
    # of 12 tokens there is room for one sequence of 10 and 2 at a time
    _, over = played(RATES._replace(room=12), episode(), episode(group=1, session=1))
    alone = 5 + 2 * 2 + 0.1 * 2
    assert over == [(0, pytest.approx(1 + alone)), (1, pytest.approx(1 + 2 * alone))]
    _, over = played(RATES._replace(sequences=1), episode(), episode(group=1, session=1))
    assert over[1][1] == pytest.approx(1 + 2 * alone)


def test_an_interrupted_turn_keeps_what_it_said() -> None:
    clock, one = Clock(), episode(said=4)
    engine = Engine(clock, RATES, lambda _: None)
    engine.play(one)
    clock.run(1 + 5 + 2 * 2 + 0.1 * 2)  # two passes
    assert engine.stop() == [one] and (one.own, one.left) == (pytest.approx(2), pytest.approx(2))
    clock.run()
    assert one.own == pytest.approx(2)  # nothing happens any more
    again, over = Engine(clock, RATES, lambda _: over.append(clock.now)), []  # type: Engine, list[float]
    again.play(one)
    started = clock.now
    clock.run()
    # frames and 12 tokens anew, then two passes with 12 and 13 in the cache, and on average half a token more
    assert over == [pytest.approx(started + 1 + 6 + 2 * 2.2 + 0.1 * 2)]


def test_a_cache_drops_the_least_recently_used() -> None:
    cache = Cache(10)
    assert [cache.take({"a": 4}), cache.take({"b": 4})] == [4, 4]
    assert cache.take({"c": 4}) is None  # both are in use
    cache.release(["a", "b"])
    assert cache.take({"a": 5}) == 1
    cache.release(["a"])
    assert cache.take({"c": 4}) == 4  # in the place of b
    cache.release(["c"])
    assert [cache.take({"a": 5}), cache.take({"b": 4})] == [0, 4]


@pytest.mark.parametrize(
    ("router", "share"), [(lambda engines, clock: GroupRouter(engines), 1), (lambda engines, clock: Spread(engines), 2)]
)
def test_a_group_on_one_engine_or_on_all(router: Callable[..., object], share: int) -> None:
    clock, names = Clock(), {"a": None, "b": None}
    cluster = Cluster(clock, RATES, router(names, clock), names)
    cluster.wake()
    cluster.begin(0, [[Turn(1, 3, 2.0), Turn(1, 0, 0.0)]] * 2)
    clock.run()
    done = cluster.take(1)
    assert len({one.engine for one in done}) == share
    # two turns said, and three frames of two tokens
    assert [(one.own, one.frames, one.version) for one in done] == [(8, 3, 0)] * 2
    cluster.sleep()
    assert cluster.awake == pytest.approx(2 * clock.now)


class Spread:
    """Rollouts on engines in turn."""

    def __init__(self, engines: dict[str, object]):
        self.engines = list(engines)

    def acquire_server(self, request_id: str) -> tuple[str, object]:
        return self.engines[int(request_id.split(":")[1]) % len(self.engines)], None

    def release_server(self, server_id: str, request_id: str) -> None:
        pass


def test_a_turn_moves_from_an_engine_long_busy_to_one_long_idle() -> None:
    clock = Clock()
    router = MovingRouter({"a": None, "b": None}, clock)
    requests = [f"g:{session}:5:0" for session in range(5)]
    assert [router.acquire_server(request)[0] for request in requests] == ["a"] * 5
    router.release_server("a")
    assert router.acquire_server(requests[0])[0] == "a"  # not yet
    router.release_server("a")
    clock.run(4)
    assert [router.acquire_server(requests[0])[0] for _ in range(2)] == ["b", "b"]
    # the other isn't idle any more
    router.release_server("a")
    assert router.acquire_server(requests[1])[0] == "a"


def test_lengths_are_those_of_a_typical_episode() -> None:
    for name, lengths in LENGTHS.items():
        draw = lengths(TYPICAL, random.Random(0), 8)
        episodes = [one for _ in range(300) for one in draw()]
        said = sum(turn.said for one in episodes for turn in one) / len(episodes)
        assert said == pytest.approx(1000, rel=0.15), name
        assert max(len(one) for one in episodes) <= MOST_TURNS
        assert all(1 <= turn.said <= MOST_SAID for one in episodes for turn in one)


def run(**changed: object) -> dict[str, float]:
    setting = {"gpus": 2, "lengths": "recorded", "questions": 8, "rollouts": 4, "steps": 3, "skip": 1, "sync": 1.0}
    fast = RATES._replace(weights=0.01, cached=1e-6, token=1e-4, picture=0.0, room=100_000)
    return simulate(Setting(**{**setting, **changed}), TYPICAL, fast, seed=0)  # type: ignore[arg-type]


def test_staleness_counts_updates() -> None:
    # four updates a step: a synchronous step's last one is three ahead of the weights that played
    figures = run()
    assert (figures["staleness"], figures["oldest"]) == (1.5, 3)
    # with a batch ahead, nearly all was begun a step earlier
    ahead = run(mode="colocate_async", ahead=1.0)
    assert 3.5 < ahead["staleness"] < 7.5
    # none lasts longer than two steps where the step waits for it
    assert run(mode="colocate_async", ahead=1.0, threshold=2, lengths="heavy")["oldest"] <= 7


def test_what_a_slow_trainer_or_slow_engines_leave_idle() -> None:
    slow = run(mode="separate_async", ahead=1.0, parts=4, players=0.5, trained=100.0)
    assert slow["trainer idle"] == 0 and slow["engines idle"] > 0.5
    fast = run(mode="separate_async", ahead=1.0, parts=4, players=0.5, trained=1e6)
    assert fast["trainer idle"] > 0.5 > fast["engines idle"]
    # a run that only waits for its trainer: tokens as fast as it takes them
    trained = run(trained=1.0)
    assert trained["tokens/s"] == pytest.approx(2, rel=0.05)
