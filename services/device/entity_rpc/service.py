"""Does with entities what flows ask.

Whoever lets a flow run has been looked at then (`services.workflow`); here the platform acts,
for one tenant.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from libs.common.bus.hops import led_by
from libs.common.contracts.entities import (
    MOST,
    CalledServices,
    CallServices,
    EntityValues,
    ReadEntities,
    UpdatedEntities,
    UpdateEntities,
)
from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Kind, Principal
from services.device.entities.things import Entity
from services.device.entity_values.schemas import CallService, UpdateProperties

PLATFORM = "0"
"""The user that stands for the platform itself, as in the audit log."""


class Directory(Protocol):
    """Finds entities."""

    async def by_keys(self, tenant: str, keys: Iterable[str]) -> dict[str, Entity]:
        """The entities of `keys`; what is unknown is missing."""


class Values(Protocol):
    """Reads latest values."""

    async def entries(self, thing_id: int) -> Mapping[str, Any]:
        """Value and time of each property of a thing."""


class Writer(Protocol):
    """Sets properties."""

    async def update(self, principal: Principal, body: UpdateProperties) -> None:
        """Set what can be set; nothing unless every value is right."""


class Caller(Protocol):
    """Calls services."""

    async def call(self, principal: Principal, body: CallService) -> dict[str, Any]:
        """Call the services that are named; their outputs."""


class EntityRpc:
    """The operations that `device` offers on entities."""

    def __init__(
        self, directory: Directory, values: Values, writer: Writer, caller: Caller
    ) -> None:
        self._directory = directory
        self._values = values
        self._writer = writer
        self._caller = caller

    async def read(self, wanted: ReadEntities) -> EntityValues:
        """Latest values; None of what has none, or none of its own."""
        if len(wanted.keys) > MOST:
            raise InvalidInput(f"must be at most {MOST}", field="keys")
        found = await self._directory.by_keys(wanted.tenant, wanted.keys)
        entries: dict[int, Mapping[str, Any]] = {}
        for entity in found.values():
            if entity.member.type == "PROPERTY" and entity.thing.id not in entries:
                entries[entity.thing.id] = await self._values.entries(entity.thing.id)
        return EntityValues({key: _value(one, entries) for key, one in found.items()})

    async def update(self, wanted: UpdateEntities) -> UpdatedEntities:
        """Set properties; raises `NotFound` naming what is not there."""
        found = await self._found(wanted.tenant, wanted.exchange)
        with led_by(wanted.hops):
            body = UpdateProperties(wanted.exchange)
            await self._writer.update(_platform(wanted.tenant), body)
        return UpdatedEntities([key for key, one in found.items() if one.member.writable])

    async def call(self, wanted: CallServices) -> CalledServices:
        """Call services; raises `NotFound` naming what is not there."""
        await self._found(wanted.tenant, wanted.exchange)
        with led_by(wanted.hops):
            body = CallService(wanted.exchange)
            return CalledServices(await self._caller.call(_platform(wanted.tenant), body))

    async def _found(self, tenant: str, keys: Iterable[str]) -> dict[str, Entity]:
        wanted = list(keys)
        found = await self._directory.by_keys(tenant, wanted)
        missing = [key for key in wanted if key not in found]
        if missing:
            raise NotFound(f"there is no entity {', '.join(missing[:5])}", field="exchange")
        return found


def _value(entity: Entity, entries: Mapping[int, Mapping[str, Any]]) -> Any:
    of_thing = entries.get(entity.thing.id, {}) if entity.member.type == "PROPERTY" else {}
    return entity.value_in({key: entry["v"] for key, entry in of_thing.items()})


def _platform(tenant: str) -> Principal:
    return Principal(
        kind=Kind.USER, tenant=tenant, subject=PLATFORM, name="workflow", super_admin=True
    )
