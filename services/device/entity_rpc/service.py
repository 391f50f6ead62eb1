"""Does with entities what flows ask.

Whoever lets a flow run has been looked at then (`services.workflow`); here the platform acts,
for one tenant.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from libs.common.bus.hops import led_by
from libs.common.contracts.entities import (
    MOST,
    CalledServices,
    CallServices,
    EntityUpdate,
    EntityValues,
    ReadEntities,
    UpdatedEntities,
    UpdateEntities,
    UpdateOutcome,
)
from libs.common.errors import InvalidInput, NotFound, ThingwayError
from libs.common.identity import Kind, Principal
from services.device.entities.things import Entity
from services.device.entity_values.exchange import Settable, by_flows
from services.device.entity_values.schemas import CallService
from services.device.entity_values.together import Update

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

    async def write(
        self,
        principal: Principal,
        exchange: Mapping[str, Any],
        entities: Mapping[str, Entity],
        settable: Settable,
    ) -> None:
        """Set what can be set; nothing unless every value is right."""


class CustomWriter(Protocol):
    """Sets custom entities for many at once."""

    async def update(self, updates: Sequence[Update]) -> None:
        """Set what can be set, and note with each update why it was not."""


class Caller(Protocol):
    """Calls services."""

    async def call(self, principal: Principal, body: CallService) -> dict[str, Any]:
        """Call the services that are named; their outputs."""


class EntityRpc:
    """The operations that `device` offers on entities."""

    def __init__(
        self,
        *,
        directory: Directory,
        values: Values,
        writer: Writer,
        custom: CustomWriter,
        caller: Caller,
    ) -> None:
        self._directory = directory
        self._values = values
        self._writer = writer
        self._custom = custom
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
        """Set properties; what is not there is an error of its update, which names it."""
        if len(wanted.updates) > MOST:
            raise InvalidInput(f"must be at most {MOST}", field="updates")
        found = await self._found_all(wanted.updates)
        work = [_Work(one, found[one.tenant]) for one in wanted.updates]
        await asyncio.gather(
            self._write_custom([one.update for one in work if one.custom]),
            *(self._write(one) for one in work if not (one.custom or one.update.error)),
        )
        return UpdatedEntities([one.outcome for one in work])

    async def _found_all(self, updates: Iterable[EntityUpdate]) -> dict[str, dict[str, Entity]]:
        """What there is of all keys, by tenant."""
        keys: dict[str, set[str]] = defaultdict(set)
        for one in updates:
            keys[one.tenant].update(one.exchange)
        return {
            tenant: await self._directory.by_keys(tenant, some) for tenant, some in keys.items()
        }

    async def _write_custom(self, updates: Sequence[Update]) -> None:
        try:
            await self._custom.update(updates)
        except ThingwayError as error:
            for one in updates:
                one.error = one.error or error

    async def _write(self, one: "_Work") -> None:
        with led_by(one.update.hops):
            try:
                await self._writer.write(
                    _platform(one.tenant), one.update.exchange, one.update.entities, by_flows
                )
            except ThingwayError as error:
                one.update.error = error

    async def call(self, wanted: CallServices) -> CalledServices:
        """Call services; raises `NotFound` naming what is not there."""
        await self._found(wanted.tenant, wanted.exchange)
        with led_by(wanted.hops):
            body = CallService(wanted.exchange)
            return CalledServices(await self._caller.call(_platform(wanted.tenant), body))

    async def _found(self, tenant: str, keys: Iterable[str]) -> dict[str, Entity]:
        wanted = list(keys)
        found = await self._directory.by_keys(tenant, wanted)
        _check_present(wanted, found)
        return found


class _Work:
    """One update on its way."""

    def __init__(self, wanted: EntityUpdate, found: Mapping[str, Entity]) -> None:
        entities = {key: found[key] for key in wanted.exchange if key in found}
        self.tenant = wanted.tenant
        self.update = Update(wanted.exchange, entities, wanted.hops)
        try:
            _check_present(wanted.exchange, found)
        except NotFound as error:
            self.update.error = error

    @property
    def custom(self) -> bool:
        """Whether it is about nothing but custom entities, and all of those are there."""
        all_custom = all(one.customized for one in self.update.entities.values())
        return all_custom and self.update.error is None

    @property
    def outcome(self) -> UpdateOutcome:
        """What became of it."""
        error, entities = self.update.error, self.update.entities
        if error is not None:
            return UpdateOutcome(status=error.status, code=error.code, error=error.text)
        return UpdateOutcome(keys=[key for key, one in entities.items() if by_flows(one)])


def _check_present(keys: Iterable[str], found: Mapping[str, Entity]) -> None:
    missing = [key for key in keys if key not in found]
    if missing:
        raise NotFound(f"there is no entity {', '.join(missing[:5])}", field="exchange")


def _value(entity: Entity, entries: Mapping[int, Mapping[str, Any]]) -> Any:
    of_thing = entries.get(entity.thing.id, {}) if entity.member.type == "PROPERTY" else {}
    return entity.value_in({key: entry["v"] for key, entry in of_thing.items()})


def _platform(tenant: str) -> Principal:
    return Principal(
        kind=Kind.USER, tenant=tenant, subject=PLATFORM, name="workflow", super_admin=True
    )
