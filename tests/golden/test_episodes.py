"""Every system does with given turns what it did before, to the last character and digit."""

from collections.abc import Sequence

import pytest

from tests.golden.episodes import EPISODES, digest_of, episodes, line_of, read_digests


def assert_golden(numbers: Sequence[int]) -> None:
    expected = read_digests()
    changed = [
        (one["system"], one["number"])
        for one in episodes(numbers)
        if digest_of(line_of(one)) != expected[one["system"]][one["number"]]
    ]
    assert changed == [], "behaviour has changed; where that is meant: python -m tests.golden.episodes"


def test_some_golden_episodes() -> None:
    assert_golden(range(0, EPISODES, 40))


@pytest.mark.slow
def test_all_golden_episodes() -> None:
    assert_golden(range(EPISODES))


def test_there_is_a_digest_for_each() -> None:
    assert {name: len(digests) for name, digests in read_digests().items()} == dict.fromkeys(
        ("videozoomer", "framethinker", "framemind", "videobrain", "eva", "longvt", "timesearch", "paravt"), EPISODES
    )
