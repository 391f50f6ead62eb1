"""Entities on the bus: what other services ask."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from libs.common.bus import RpcServer
from libs.common.contracts.entities import MOST, ResolvedEntities, ResolveEntities
from libs.common.errors import InvalidInput
from services.device.entities.shown import resolved
from services.device.entities.things import Entity


class Directory(Protocol):
    """Finds entities."""

    async def by_ids(self, tenant: str, ids: Sequence[int]) -> dict[int, Entity]:
        """The entities of `ids`; what is unknown is missing."""

    async def by_keys(self, tenant: str, keys: Iterable[str]) -> dict[str, Entity]:
        """The entities of `keys`; what is unknown is missing."""


def offer_entities(rpc: RpcServer, directory: Directory) -> None:
    """Answer `rpc.device.resolve_entities`."""

    async def resolve(wanted: ResolveEntities) -> ResolvedEntities:
        for field, asked in (("keys", wanted.keys), ("ids", wanted.ids)):
            if len(asked) > MOST:
                raise InvalidInput(f"must be at most {MOST}", field=field)
        found: dict[int, Entity] = {}
        if wanted.ids:
            found = dict(await directory.by_ids(wanted.tenant, wanted.ids))
        if wanted.keys:
            by_key = await directory.by_keys(wanted.tenant, wanted.keys)
            found |= {entity.id: entity for entity in by_key.values()}
        return ResolvedEntities([resolved(entity) for entity in found.values()])

    rpc.offer("resolve_entities", ResolveEntities, resolve)
