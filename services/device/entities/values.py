"""Latest values, as entities show them."""

from collections.abc import Mapping
from typing import Any

from libs.common.store.mongo import Database


class EntityValues:
    """Reads the latest values of things."""

    def __init__(self, database: Database) -> None:
        self._latest = database["latest"]

    async def entries(self, thing_id: int) -> Mapping[str, Any]:
        """Value and time of each property of a thing: `{key: {"v": value, "t": ms}}`."""
        document = await self._latest.find_one({"_id": thing_id}, {"v": 1})
        entries: dict[str, Any] = document["v"] if document else {}
        return entries
