from agentic_video.training.loop.outputs import extra_fields, key_of, rewards_of, rollout_of
from tests.training.episodes import Queue, episode


def test_whose_an_output_is() -> None:
    assert key_of("a_b", 3, 11) == "a_b_3_11"
    assert rollout_of("a-b_3_0") == ("a-b", "3") and rollout_of("a_b_3_11") == ("a_b", "3")


def test_what_outputs_carry(queue: Queue) -> None:
    queue.update(g_0_0=episode(0.0), g_1_0=episode(1.0))
    assert [field["reward_extra_info"]["acc"] for field in extra_fields(["g_1_0", "g_0_0"], "train")] == [1.0, 0.0]
    assert {key: earned["reward"] for key, earned in rewards_of(["g_0_0", "g_1_0"], "train").items()} == {
        "g_0_0": 0.0,
        "g_1_0": 1.0,
    }


def test_nothing_is_asked_for_no_outputs() -> None:
    assert extra_fields([], "train") == [] and rewards_of([], "train") == {}
