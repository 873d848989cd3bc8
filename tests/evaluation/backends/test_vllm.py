"""What vLLM is handed."""

from agentic_video.evaluation.backends.vllm import one_placeholder


def test_one_placeholder_an_image() -> None:
    assert one_placeholder([9, 9, 1, 9, 2, 2, 9, 9, 9], 9) == [9, 1, 9, 2, 2, 9]
    assert one_placeholder([], 9) == []
