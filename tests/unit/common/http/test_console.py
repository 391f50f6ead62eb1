"""What answers of the management API show."""

from datetime import UTC, datetime

import msgspec
import pytest

from libs.common.http.console import ResponseModel


class Kept(msgspec.Struct):
    id: int
    name: str
    made_at: datetime
    owner: int | None = None
    ready: bool = True
    secret: str = "secret"
    changed_at: datetime = datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)

    @property
    def size(self) -> int:
        return 3


class ShownThing(ResponseModel, kw_only=True):
    id: str
    name: str
    made_at: str
    changed_at: int
    owner: str | None = None
    ready: bool
    size: int
    rows: list[int]


@pytest.mark.parametrize(("owner", "shown"), [(9, {"owner": "9"}), (None, {})])
def test_responses_are_filled_by_field_names(owner: int | None, shown: dict[str, str]):
    """Ids become texts and times ms.

    Fields without a counterpart are given, and no others are shown.
    """
    kept = Kept(7, "a", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), owner)
    found = ShownThing.from_fields(kept, rows=[1], name="b")
    assert msgspec.to_builtins(found) == {
        "id": "7",
        "name": "b",
        "made_at": "1000",
        "changed_at": 2000,
        "ready": True,
        "size": 3,
        "rows": [1],
        **shown,
    }
