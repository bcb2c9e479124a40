"""A bounded memory: what is used stays, what is not used for longest goes."""

from concurrent.futures import ThreadPoolExecutor

from superfeat.recent import Recent


def test_what_was_not_used_for_longest_goes_first() -> None:
    kept: Recent[int] = Recent(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    kept.put("c", 3)
    assert [kept.get(key) for key in "abc"] == [1, None, 3]
    assert (len(kept), kept.held) == (2, 0)


def test_values_share_the_room() -> None:
    kept: Recent[str] = Recent(10, size=5)
    kept.put("a", "old", 2)
    kept.put("a", "new", 3)
    kept.put("b", "more", 2)
    assert (kept.get("a"), kept.get("b"), kept.held) == ("new", "more", 5)
    kept.put("c", "one more", 1)
    assert (kept.get("a"), kept.get("b"), kept.get("c"), kept.held) == (None, "more", "one more", 3)


def test_what_is_larger_than_all_room_is_not_kept() -> None:
    kept: Recent[str] = Recent(10, size=5)
    kept.put("a", "small", 5)
    kept.put("b", "large", 6)
    assert (kept.get("a"), kept.get("b"), len(kept)) == ("small", None, 1)
    kept.put("a", "large", 6)
    assert (kept.get("a"), len(kept), kept.held) == (None, 0, 0)


def test_many_threads_keep_it_in_its_bounds() -> None:
    kept: Recent[int] = Recent(5, size=20)

    def use(number: int) -> bool:
        kept.put(str(number % 11), number % 11, number % 7)
        return kept.get(str(number % 13)) in (None, number % 13)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(4000)))
    assert len(kept) <= 5
    assert 0 <= kept.held <= 20
