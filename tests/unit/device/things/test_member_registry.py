"""Numbers of members that several processes assign at the same time."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from libs.common.errors import Unavailable
from services.device.things.specifications import MemberRegistry


class ContendedCollection:
    """A collection in which another process appends a key before each update."""

    def __init__(self) -> None:
        self.marks: list[str] = []

    async def find_one(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the numbers so far."""
        return {"marks": list(self.marks)}

    async def update_one(self, *_: Any, **__: Any) -> Any:
        """Change nothing: the number of keys differs."""
        self.marks.append(f"other{len(self.marks)}")
        return SimpleNamespace(matched_count=0, upserted_id=None)


async def test_keys_never_stay_without_a_number() -> None:
    """If others are quicker each time, the request fails instead of omitting members."""
    registry = MemberRegistry(cast("Any", {"members": ContendedCollection()}))
    with pytest.raises(Unavailable):
        await registry.assign_numbers({"integration": "i"}, ["temperature"])
