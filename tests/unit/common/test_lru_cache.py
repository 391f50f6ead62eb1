"""A mapping that keeps what was used last."""

from libs.common.lru_cache import LruCache


def test_the_least_recently_used_entry_is_dropped():
    """Reads and writes both count as use."""
    kept: LruCache[str, int] = LruCache(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    assert kept.put("c", 3) == 2
    assert ("b" in kept, kept.get("a"), kept.get("c"), len(kept)) == (False, 1, 3, 2)


def test_a_removed_entry_is_missing():
    """Removing a missing entry raises no error."""
    kept: LruCache[str, int] = LruCache(2)
    kept.put("a", 1)
    assert (kept.pop("a"), kept.pop("a"), kept.get("a")) == (1, None, None)
