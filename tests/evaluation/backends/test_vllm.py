"""What vLLM is handed; real engines are in tests/e2e."""

from agentic_video.rollout.vllm_prompts import one_placeholder


def test_one_placeholder_an_image() -> None:
    assert one_placeholder([9, 9, 1, 9, 2, 2, 9, 9, 9], [9]) == [9, 1, 9, 2, 2, 9]
    assert one_placeholder([9, 9, 8, 8, 9], [9, 8]) == [9, 8, 9]
    assert one_placeholder([], [9]) == []
