"""verl's router of requests with ours in its place: plain objects, and as verl makes it from the packaged yaml."""

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from verl.workers.rollout.llm_server import LLMServerClient, LLMServerManager
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.router import _load_router_yaml, _resolve_router_class, get_router_handle

from agentic_video.training.loop.router import GroupRouter, OneEngineClient, RequestId, client_of, packaged_path
from tests.config.configs import composed

PACKAGED = "pkg://agentic_video.training/router.yaml"


def router(engines: int, **config: int) -> GroupRouter:
    return GroupRouter({f"e{number}": f"handle {number}" for number in range(engines)}, config)


def ask(balancer: GroupRouter, group: str, session: int = 0, rollouts: int = 4) -> str:
    return balancer.acquire_server(RequestId(group, str(session), rollouts).unique())[0]


def test_ids() -> None:
    request = RequestId("6f1c-22", "3", 16)
    assert RequestId.read(request.unique()) == request
    assert request.unique() != request.unique()
    # those of others are groups by themselves
    for other in ("5b0c5f4e", "a:b:c:d", ""):
        assert RequestId.read(other) == (other, "", 1)


def test_a_group_stays_together_and_the_next_goes_elsewhere() -> None:
    balancer = router(2)
    assert {ask(balancer, "a", session) for session in range(4)} == {"e0"}
    assert balancer.acquire_server(RequestId("a", "0", 4).unique()) == ("e0", "handle 0")
    assert {ask(balancer, "b", session) for session in range(4)} == {"e1"}
    assert balancer.get_status()["servers"] == {"e0": 5, "e1": 4}
    assert balancer.get_total_inflight() == 9
    for _ in range(5):
        balancer.release_server("e0")
    # a turn later: the group is still at its engine, though another has less to do
    assert ask(balancer, "b", 2) == "e1" and ask(balancer, "a", 1) == "e0"


def test_rollouts_to_come_count() -> None:
    """The first requests of all groups may arrive before any second one, and short ones may be over by then."""
    balancer = router(4)
    homes = []
    for number in range(16):
        homes.append(ask(balancer, f"g{number}"))
        balancer.release_server(homes[-1])
    assert Counter(homes) == {f"e{number}": 4 for number in range(4)}


def test_a_single_rollout_goes_to_the_least_loaded_engine() -> None:
    balancer = router(3)
    assert [ask(balancer, f"v{number}", rollouts=1) for number in range(3)] == ["e0", "e1", "e2"]
    balancer.release_server("e1")
    assert ask(balancer, "v3", rollouts=1) == "e1"


def test_a_full_engine_hands_over_further_rollouts() -> None:
    balancer = router(2, full=4)
    assert [ask(balancer, "a", session, 8) for session in range(6)] == ["e0"] * 4 + ["e1"] * 2
    # they stay there, and so do those that were first
    assert [ask(balancer, "a", session, 8) for session in (5, 0)] == ["e1", "e0"]
    # the other has more than half to do now
    assert ask(balancer, "a", 6, 8) == "e0"


def test_engines_that_leave_and_join() -> None:
    balancer = router(2)
    assert ask(balancer, "a") == "e0" and ask(balancer, "b") == "e1"
    balancer.remove_servers(["e0"])
    assert ask(balancer, "a") == "e1" and ask(balancer, "a", 1) == "e1"
    balancer.add_servers({"e2": "handle 2"})
    assert ask(balancer, "c") == "e2"
    assert balancer.clear_sticky_cache()["cleared_entries"] == 3
    balancer.remove_servers(["e1", "e2"])
    with pytest.raises(RuntimeError, match=r"^No available servers in load balancer$"):
        ask(balancer, "a")
    assert balancer.get_status()["groups"] == 3


def test_a_group_whose_engine_is_forgotten_has_no_more_to_come_than_it_had() -> None:
    """As in ``agentic_video_separate_async`` with ``enable_switch``, whenever the trainer's engines play along."""
    balancer = router(2)
    for session in range(4):
        ask(balancer, "a", session)
    balancer.clear_sticky_cache()
    ask(balancer, "a", 3)  # a further turn of the last one that is under way
    assert balancer._to_come == {"e0": 0, "e1": 0}
    ask(balancer, "b", 0)
    balancer.clear_sticky_cache()
    ask(balancer, "b", 1)
    assert sorted(balancer._to_come.values()) == [0, 2]


@pytest.mark.parametrize("joins_first", [True, False])
def test_a_group_that_moves_has_no_more_to_come_than_it_had(joins_first: bool) -> None:
    """As in ``agentic_video_separate_async``: engines leave for each update while rollouts go on."""
    balancer = router(2)
    for number in range(20):
        groups = f"a{number}", f"b{number}"
        asked = [ask(balancer, group, session) for group in groups for session in range(3)]
        assert set(asked) == {"e0", "e1"}
        balancer.remove_servers(["e1"])
        if joins_first:
            balancer.add_servers({"e1": "handle 1"})
        # a further turn of a rollout that has played, and the first of the last one
        asked += [ask(balancer, group, session) for group in groups for session in (0, 3)]
        if not joins_first:
            balancer.add_servers({"e1": "handle 1"})
        for engine in asked:
            balancer.release_server(engine)
    assert balancer._to_come == {"e0": 0, "e1": 0}


def test_old_groups_are_forgotten() -> None:
    balancer = router(2, max_groups=3)
    for number in range(50):
        ask(balancer, f"g{number}")
    assert balancer.get_status()["groups"] == 3
    # what they had still to come is forgotten with them
    assert sum(balancer._to_come.values()) == 3 * 3


@settings(max_examples=60, deadline=None)
@given(
    engines=st.integers(1, 8),
    groups=st.integers(1, 40),
    rollouts=st.integers(1, 16),
    order=st.randoms(use_true_random=False),
    turns=st.integers(1, 3),
)
def test_any_order_of_requests(engines: int, groups: int, rollouts: int, order: Any, turns: int) -> None:
    """All requests of a group go to one engine, and engines get as many groups as each other, in whatever order the
    requests arrive and end."""
    balancer = router(engines, full=groups * rollouts * turns + 1)
    pending = [(group, session) for group in range(groups) for session in range(rollouts)] * turns
    order.shuffle(pending)
    homes: dict[int, set[str]] = {group: set() for group in range(groups)}
    running: list[str] = []
    for group, session in pending:
        homes[group].add(ask(balancer, f"g{group}", session, rollouts))
        running += homes[group]
    assert all(len(home) == 1 for home in homes.values())
    for engine in running:
        balancer.release_server(engine)
    assert balancer.get_total_inflight() == 0 and sum(balancer._to_come.values()) == 0
    placed = Counter(next(iter(home)) for home in homes.values())
    if turns == 1:
        assert max(placed.values()) - min(placed.get(f"e{number}", 0) for number in range(engines)) <= 1


def test_the_packaged_yaml_names_it(tmp_path: Path) -> None:
    path = packaged_path(PACKAGED)
    assert path is not None and Path(path).is_file()
    config = _load_router_yaml(path)
    assert _resolve_router_class(config["router_class"]) is GroupRouter
    assert set(config) == {"router_class", "max_groups", "full"}
    assert packaged_path(str(tmp_path / "own.yaml")) == str(tmp_path / "own.yaml") and packaged_path(None) is None
    assert composed("videozoomer", "laptop", "data.train_files=none").actor_rollout_ref.rollout.router_config_path == (
        PACKAGED
    )


@pytest.mark.ray
def test_verl_makes_it_an_actor() -> None:
    ray.init("local", num_cpus=2, include_dashboard=False)
    try:
        handle = get_router_handle({"e0": "h0", "e1": "h1"}, packaged_path(PACKAGED))
        assert ray.get(handle.require_acquire_fields.remote()) == []
        places = [
            ray.get(handle.acquire_server.remote(request_id=RequestId(group, str(session), 2).unique()))
            for group in "ab"
            for session in range(2)
        ]
        assert places == [("e0", "h0")] * 2 + [("e1", "h1")] * 2
    finally:
        ray.shutdown()


@pytest.mark.parametrize("engines", [1, 2])
def test_a_single_engine_needs_no_router(engines: int) -> None:
    asked: list[dict[str, Any]] = []

    async def generate(**request: Any) -> TokenOutput:
        asked.append(request)
        return TokenOutput(token_ids=[7], log_probs=[-0.5], extra_fields={"global_steps": 3})

    manager = object.__new__(LLMServerManager)
    manager.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"name": "vllm"}}})
    manager.server_addresses = [f"e{number}" for number in range(engines)]
    manager.server_handles = [SimpleNamespace(generate=SimpleNamespace(remote=generate))] * engines
    manager.global_load_balancer = None  # a router that answers nothing
    client = client_of(manager)
    assert type(client) is (OneEngineClient if engines == 1 else LLMServerClient)
    if engines == 1:
        output = asyncio.run(client.generate("g:0:4:abcd", prompt_ids=[1, 2], sampling_params={"max_tokens": 5}))
        assert (output.token_ids, output.extra_fields["max_global_steps"]) == ([7], 3)
        assert (asked[0]["prompt_ids"], asked[0]["sampling_params"]) == ([1, 2], {"max_tokens": 5})
