"""Which entities a user may use in a flow: those that the user sees."""

from collections.abc import Collection
from typing import Protocol

from libs.common.contracts.entities import ResolvedEntity
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from libs.common.things import SYSTEM

ANY = "*"


class GrantsOf(Protocol):
    """Knows grants."""

    async def of(self, principal: Principal) -> Grants:
        """What a user sees."""


class Resolver(Protocol):
    """Finds entities."""

    async def resolve(self, tenant: str, keys: Collection[str]) -> Collection[ResolvedEntity]:
        """Those of `keys` that there are."""


class EntityAccess:
    """Looks entities up for users who let flows run."""

    def __init__(self, grants: GrantsOf, resolver: Resolver) -> None:
        self._grants = grants
        self._resolver = resolver

    async def unseen(self, user: Principal, keys: Collection[str]) -> Collection[str]:
        """Those of `keys` that a user must not use; none for who sees all of the tenant.

        Custom entities are everybody's. A pattern must begin with an integration that the
        user sees as a whole.
        """
        grants = await self._grants.of(user)
        if grants.everything:
            return ()
        plain = [key for key in keys if ANY not in key]
        found = await self._resolver.resolve(user.tenant, plain) if plain else ()
        seen = {one.key for one in found if _sees(grants, one)}
        seen |= {key for key in keys if ANY in key and _covers(grants, key)}
        return [key for key in keys if key not in seen]


def _sees(grants: Grants, entity: ResolvedEntity) -> bool:
    whole = grants.thing(entity.thing_id, entity.integration, device=entity.device)
    return whole or grants.entity(entity.id)


def _covers(grants: Grants, pattern: str) -> bool:
    integration, dot, _ = pattern.partition(ANY)[0].partition(".")
    return bool(dot) and (integration == SYSTEM or grants.integration(integration))
