"""A mapping that keeps what was used last."""

from libs.common.lru_cache import LruCache


def test_what_was_not_used_for_longest_makes_room():
    """Reading is a use, and so is writing again."""
    kept: LruCache[str, int] = LruCache(2)
    kept.put("a", 1)
    kept.put("b", 2)
    assert kept.get("a") == 1
    assert kept.put("c", 3) == 2
    assert ("b" in kept, kept.get("a"), kept.get("c"), len(kept)) == (False, 1, 3, 2)


def test_what_is_forgotten_is_gone():
    """Whether it was there or not."""
    kept: LruCache[str, int] = LruCache(2)
    kept.put("a", 1)
    assert (kept.pop("a"), kept.pop("a"), kept.get("a")) == (1, None, None)
