"""What users call the entities of a thing, in place of what its TSL calls them.

`entityNames` of a device, or of an integration's own thing: JSON of names by path, in the order of
paths. It is one text, so that devices with the same members and names are counted together.
"""

from collections.abc import Callable

import msgspec

from libs.common.errors import InvalidInput
from libs.common.store.mongo import Collection, Mongo, Session

MOST_NAMES = 100
"""Entities of one thing that users may call otherwise."""


class EntityNames:
    """The names in a collection of things."""

    def __init__(self, mongo: Mongo, things: Collection) -> None:
        self._mongo = mongo
        self._things = things

    async def change(self, tenant: str, thing_id: int, change: Callable[[str], str]) -> bool:
        """Change the names of a thing; whether it is there."""
        query = {"_id": thing_id, "tenant": tenant}

        async def work(session: Session) -> bool:
            found = await self._things.find_one(query, {"entityNames": 1}, session=session)
            if found is None:
                return False
            names = {"entityNames": change(found.get("entityNames", ""))}
            update = {"$set" if names["entityNames"] else "$unset": names}
            now = {"$currentDate": {"updatedAt": True}}
            await self._things.update_one(query, update | now, session=session)
            return True

        return await self._mongo.transaction(work)


def names_of(stored: str) -> dict[str, str]:
    """Names by path."""
    return msgspec.json.decode(stored, type=dict[str, str]) if stored else {}


def with_name(stored: str, path: str, name: str | None) -> str:
    """The names with that of a path, or without it; raise `InvalidInput` for too many."""
    names = names_of(stored)
    names.pop(path, None)
    if name is not None:
        names[path] = name
    if len(names) > MOST_NAMES:
        text = f"users may call at most {MOST_NAMES} entities of a device otherwise"
        raise InvalidInput(text, field="name")
    return msgspec.json.encode(dict(sorted(names.items()))).decode() if names else ""
