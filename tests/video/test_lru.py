from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from agentic_video.video.lru import BoundedCache


def test_the_least_recently_used_goes_first() -> None:
    cache: BoundedCache[str, bytes] = BoundedCache(10, len)
    cache["a"], cache["b"] = b"1234", b"5678"
    assert cache.get("a") == b"1234" and cache.get("none") is None
    cache["c"] = b"90"
    assert (cache.currsize, cache.evicted) == (10, 0)
    cache["d"] = b"1"
    assert sorted(cache) == ["a", "c", "d"] and (cache.currsize, cache.evicted) == (7, 1)


def test_a_value_larger_than_the_bound_is_left_out() -> None:
    cache: BoundedCache[str, bytes] = BoundedCache(4, len)
    cache["a"] = b"1234"
    cache["b"] = b"12345"
    assert list(cache) == ["a"] and cache.evicted == 0
    # in place of an older value too
    cache["a"] = b"12345"
    assert (len(cache), cache.currsize, cache.evicted) == (0, 0, 0)


def test_a_bound_of_nothing_keeps_nothing() -> None:
    cache: BoundedCache[str, int] = BoundedCache(0)
    cache["a"] = 1
    assert (len(cache), cache.evicted) == (0, 0)


def test_replaced_and_cleared_values_are_not_counted_as_evicted() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache["a"] = cache["b"] = 1
    cache["a"] = 2
    assert (len(cache), cache.evicted) == (2, 0)
    cache["c"] = 3
    assert sorted(cache) == ["a", "c"] and cache.evicted == 1
    cache.clear()
    assert (len(cache), cache.currsize, cache.evicted) == (0, 0, 1)


@given(st.integers(0, 30), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12) | st.none()), max_size=40))
def test_it_does_what_a_plain_list_of_sizes_does(bound: int, steps: list[tuple[int, int | None]]) -> None:
    cache: BoundedCache[int, bytes] = BoundedCache(bound, len)
    held: OrderedDict[int, int] = OrderedDict()
    evicted = 0
    for key, size in steps:
        if size is None:
            value = cache.get(key)
            assert (None if value is None else len(value)) == held.get(key)
            if key in held:
                held.move_to_end(key)
            continue
        cache[key] = bytes(size)
        held.pop(key, None)
        if size <= bound:
            while sum(held.values()) + size > bound:
                held.popitem(last=False)
                evicted += 1
            held[key] = size
        assert set(cache) == set(held)
        assert cache.currsize == sum(held.values()) <= bound and cache.evicted == evicted
    assert {key: len(value) for key, value in cache.items()} == held
