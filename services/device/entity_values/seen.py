"""The entities that a user means by keys: those that there are and that the user sees."""

from collections.abc import Collection

from libs.common.errors import Forbidden, InvalidInput
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from libs.common.things import SYSTEM, split_key
from services.device.entities.ports import OwnThings
from services.device.entities.things import Entity
from services.device.entity_values.ports import Keys

MOST_KEYS = 1000
"""Entities of one exchange."""


class SeenEntities:
    """Finds entities by key on behalf of users."""

    def __init__(self, keys: Keys, grants: GrantReader, own: OwnThings) -> None:
        self._keys = keys
        self._grants = grants
        self._own = own

    async def of(self, principal: Principal, keys: Collection[str]) -> dict[str, Entity]:
        """The entities of `keys` that the user sees; custom ones every user does.

        What is unknown is missing, and so is what the user does not see. Raises `Forbidden`
        for a user who has no grant at all and means none that everybody sees.
        """
        if not 1 <= len(keys) <= MOST_KEYS:
            raise InvalidInput(f"must have 1 to {MOST_KEYS} entities", field="exchange")
        parts = [split for key in keys if (split := split_key(key)) is not None]
        own = {one.integration for one in parts if one.device is None} - {SYSTEM}
        await self._own.complete(principal.tenant, own)
        found = await self._keys.by_keys(principal.tenant, keys)
        shared = {key: one for key, one in found.items() if one.thing.integration == SYSTEM}
        if len(shared) == len(keys):
            return shared
        grants = await self._grants.of(principal)
        if grants.nothing and not shared:
            raise Forbidden("user does not have data permission")
        return {key: one for key, one in found.items() if key in shared or one.seen_with(grants)}
