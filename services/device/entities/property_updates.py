"""Updates of properties by entity."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from libs.common.errors import InvalidInput, ThingwayError
from libs.common.identity import Principal
from libs.common.integrations.client import IntegrationClient
from libs.common.things import SYSTEM, member_key
from libs.common.tsl import Fault
from services.device.commands.model import Draft
from services.device.commands.service import CommandService
from services.device.entities.schemas import UpdateEntities
from services.device.entities.service import EntityService
from services.device.members.entity import Entity, EntityThing
from services.device.members.members import Member
from services.device.members.values import (
    ValueFault,
    integration_refusal,
    put,
    read_value,
    refusal,
    said_of,
    value_faults,
)
from services.device.telemetry.reporter import OwnReport, Reporter

FIELD = "exchange"

T = TypeVar("T")


@dataclass(slots=True)
class Writing:
    """Properties to set of one thing."""

    thing: EntityThing
    values: dict[str, Any] = field(default_factory=dict)

    def faults(self, faults: Iterable[Fault]) -> list[ValueFault]:
        """What the TSL refuses (`properties.…`), said of the entities."""
        if not self.thing.device and self.thing.identifier:  # it reports under its identifier
            own = f"properties.{self.thing.identifier}"
            faults = [
                msgspec.structs.replace(fault, path=f"properties{fault.path.removeprefix(own)}")
                for fault in faults
            ]
        return value_faults(self.thing.key, self.thing.members, "", faults)


@dataclass(slots=True)
class Calling:
    """One service to call, with its inputs."""

    thing: EntityThing
    service: Member
    inputs: Any = field(default_factory=dict)
    """By their names; anything else that was sent is for the TSL to refuse."""

    @property
    def service_id(self) -> str:
        """The service, as the TSL knows it."""
        return (self.service.path or self.thing.identifier).removesuffix("@service")

    def faults(self, faults: Iterable[Fault]) -> list[ValueFault]:
        """What the TSL refuses (`inputs.…`), said of the entities."""
        return value_faults(self.thing.key, self.thing.members, self.service.path, faults)

    def member(self, name: str) -> Member | None:
        """The input of a name."""
        path = f"{self.service.path}.{name}" if self.service.path else name
        return self.thing.members.by_path.get(path)

    def give(self, name: str, value: Any) -> None:
        """Give an input as it was sent; null counts as none where there may be none."""
        member = self.member(name)
        if not isinstance(self.inputs, dict):
            return
        if member is None:
            self.inputs[name] = value
        elif value is not None or not member.attribute.get("optional"):
            put(self.inputs, name.split("."), read_value(member.value_type, value))


Settable = Callable[[Entity], bool]
"""Whether an entity may be set by who asks."""


def by_people(entity: Entity) -> bool:
    """Properties that can be written."""
    return entity.member.writable


def by_flows(entity: Entity) -> bool:
    """Besides those, custom properties that people only read: who else should set them?"""
    return entity.member.writable or (entity.customized and entity.member.type == "PROPERTY")


def writings(
    exchange: Mapping[str, Any], entities: Mapping[str, Entity], settable: Settable = by_people
) -> list[Writing]:
    """What is to be set; what cannot be written is passed over.

    An empty secret stays as it is: a thing may be left without any value. Values are for the TSL
    to check. Raises `InvalidInput` when nothing is left.
    """
    found: dict[int, Writing] = {}
    for key, given in exchange.items():
        entity = entities.get(key)
        if entity is None or not settable(entity):
            continue
        value = read_value(entity.member.value_type, given)
        if entity.secret and value in (None, ""):
            found.setdefault(entity.thing.id, Writing(entity.thing))
            continue
        if value == {} or (value is None and entity.member.attribute.get("optional")):
            continue
        writing = found.setdefault(entity.thing.id, Writing(entity.thing))
        put(writing.values, entity.reported_path, value)
    return _left(list(found.values()))


def callings(exchange: Mapping[str, Any], entities: Mapping[str, Entity]) -> list[Calling]:
    """What is to be called; what is no service is passed over.

    A service is named by itself or by any of its inputs. Inputs are for the TSL to check.
    Raises `InvalidInput` when nothing is left.
    """
    found: dict[tuple[int, str], Calling] = {}
    for key, given in exchange.items():
        entity = entities.get(key)
        if entity is None or entity.member.type != "SERVICE":
            continue
        member, members = entity.member, entity.thing.members
        service = member if member.parent is None else members.by_path[member.parent]
        calling = found.setdefault((entity.thing.id, service.path), Calling(entity.thing, service))
        if member is not service:
            calling.give(member.path.removeprefix(f"{service.path}."), given)
        elif isinstance(given, dict):
            for name, value in given.items():
                calling.give(name, value)
        elif given is not None and given != "":
            calling.inputs = given
    return _left(list(found.values()))


def _left(found: list[T]) -> list[T]:
    if not found:
        raise InvalidInput("has no entity that can be used like this", field=FIELD)
    return found


@dataclass(slots=True)
class Update:
    """Properties that a flow sets, all of them or none, and what became of it."""

    tenant: str
    exchange: Mapping[str, Any]
    entities: Mapping[str, Entity]
    hops: int
    """How many flows have led to it."""
    dry_run: bool = False
    """Judge them and set nothing."""
    error: ThingwayError | None = None
    reports: list[OwnReport] = field(default_factory=list)

    @property
    def custom(self) -> bool:
        """Whether it is about nothing but custom entities."""
        return all(entity.customized for entity in self.entities.values())


@dataclass(frozen=True, kw_only=True)
class EntityWriter:
    """Updates of properties, for users and for flows."""

    entities: EntityService
    commands: CommandService
    reporter: Reporter
    integrations: IntegrationClient

    async def update(self, principal: Principal, body: UpdateEntities) -> None:
        """Set what can be set; nothing is done unless every value is right.

        A device takes its values on when it answers the command; those of other things are
        in force when this returns.
        """
        entities = await self.entities.with_keys(principal, body.exchange)
        await self.write(principal, body.exchange, entities)

    async def write(
        self,
        principal: Principal,
        exchange: Mapping[str, Any],
        entities: Mapping[str, Entity],
        settable: Settable = by_people,
        *,
        dry_run: bool = False,
    ) -> None:
        """The same with entities that have been looked up, and may be written by who asks.

        A dry run raises what it would, as far as that can be told here, and sets nothing.
        """
        wanted = [one for one in writings(exchange, entities, settable) if one.values]
        devices = [(one.thing.record, one.values) for one in wanted if one.thing.device]
        checked = iter(await self.commands.check_properties(devices))
        drafts: list[Draft] = []
        others: list[tuple[EntityThing, dict[str, Any]]] = []
        faults: list[ValueFault] = []
        for writing in wanted:
            found = next(checked) if writing.thing.device else _checked(writing)
            if isinstance(found, InvalidInput):
                faults += writing.faults(found.faults)
            elif isinstance(found, Draft):
                drafts.append(found)
            else:
                others.append((writing.thing, found))
        if faults:
            raise refusal(FIELD, faults)
        if dry_run:
            return
        if drafts:
            await self.commands.issue(principal, drafts)
        for thing, values in others:
            await self._set(thing, values)

    async def _set(self, thing: EntityThing, values: dict[str, Any]) -> None:
        """Report values of a thing that is no device, after its integration has taken them.

        So what was in force stays when the integration refuses.
        """
        shown = thing.record.tsl.readable(values)
        try:
            if thing.integration != SYSTEM:
                tell = self.integrations.updated if shown == values else self.integrations.entrust
                await tell(thing.integration, thing.tenant, thing.id, values)
            if shown:
                await self.reporter.report(thing.record, shown)
        except InvalidInput as error:
            raise refused_by_integration(thing, error) from error

    async def write_custom(self, updates: Sequence[Update]) -> None:
        """Set custom entities for flows, which do it hundreds of times a second.

        What is asked for at the same time is sent and waited for together. Each update is
        checked, and refused, by itself: it notes why. Values are in force when this returns.
        """
        for update in updates:
            try:
                update.reports = list(_reports(update))
            except InvalidInput as error:
                update.error = error
        done = [update for update in updates if not update.dry_run]
        reports = [(update, report) for update in done for report in update.reports]
        reasons = await self.reporter.report_all([report for _, report in reports])
        for (update, _), reason in zip(reports, reasons, strict=True):
            if reason is not None:
                update.error = InvalidInput(reason, field="properties")


def refused_by_integration(thing: EntityThing, error: InvalidInput) -> InvalidInput:
    """The same 400; the text of an integration may begin with the property at fault."""
    name = error.message.partition(":")[0]
    member = thing.members.by_path.get(name)
    if member is None:
        return integration_refusal(FIELD, error)
    key = member_key(thing.key, name)
    return refusal(FIELD, [said_of(key, member, error.code, error.message)])


def _reports(update: Update) -> Iterable[OwnReport]:
    for writing in writings(update.exchange, update.entities, by_flows):
        values = _checked(writing)
        if isinstance(values, InvalidInput):
            raise refusal(FIELD, writing.faults(values.faults))
        thing = writing.thing.record
        if readable := thing.tsl.readable(values):
            yield OwnReport(thing, readable, update.hops)


def _checked(writing: Writing) -> dict[str, Any] | InvalidInput:
    """What a thing that is no device is to report, or why it cannot."""
    values, faults = writing.thing.record.tsl.check_settings(writing.values)
    return InvalidInput.of_faults(faults) if faults else values
