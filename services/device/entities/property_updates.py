"""Property updates by entity."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from libs.common.errors import InvalidInput, ThingwayError
from libs.common.identity import Principal
from libs.common.integrations.client import IntegrationClient
from libs.common.things import SYSTEM_INTEGRATION, member_key
from libs.common.tsl import Fault
from services.device.commands.model import CommandDraft
from services.device.commands.service import CommandService
from services.device.entities.schemas import UpdateEntities
from services.device.entities.service import EntityService
from services.device.members.entity import Entity, EntityThing
from services.device.members.members import Member
from services.device.members.values import (
    ValueFault,
    convert_faults,
    convert_value,
    error_with_all_faults,
    integration_fault,
    integration_rejection,
    set_value_at_path,
)
from services.device.telemetry.reporter import Reporter, ThingReport

EXCHANGE_FIELD = "exchange"

T = TypeVar("T")


@dataclass(slots=True)
class PropertyUpdate:
    """New values of properties of one thing."""

    thing: EntityThing
    values: dict[str, Any] = field(default_factory=dict)

    def to_entity_faults(self, faults: Iterable[Fault]) -> list[ValueFault]:
        """Return faults of the TSL (`properties.…`) as faults of entities."""
        if not self.thing.device and self.thing.identifier:  # it reports under its identifier
            own_path = f"properties.{self.thing.identifier}"
            faults = [
                msgspec.structs.replace(
                    fault, path=f"properties{fault.path.removeprefix(own_path)}"
                )
                for fault in faults
            ]
        return convert_faults(self.thing.key, self.thing.members, "", faults)


@dataclass(slots=True)
class ServiceCall:
    """A service to call, with its inputs."""

    thing: EntityThing
    service: Member
    inputs: Any = field(default_factory=dict)
    """Inputs by name. If the caller sent no object, the sent value, which the TSL rejects later."""

    @property
    def service_id(self) -> str:
        """Return the id of the service in the TSL."""
        return (self.service.path or self.thing.identifier).removesuffix("@service")

    def to_entity_faults(self, faults: Iterable[Fault]) -> list[ValueFault]:
        """Return faults of the TSL (`inputs.…`) as faults of entities."""
        return convert_faults(self.thing.key, self.thing.members, self.service.path, faults)

    def find_input(self, name: str) -> Member | None:
        """Return the member that declares an input, or None."""
        path = f"{self.service.path}.{name}" if self.service.path else name
        return self.thing.members.by_path.get(path)

    def set_input(self, name: str, value: Any) -> None:
        """Set an input, converted to its type if it is declared; null omits an optional input."""
        member = self.find_input(name)
        if not isinstance(self.inputs, dict):
            return
        if member is None:
            self.inputs[name] = value
        elif value is not None or not member.attribute.get("optional"):
            set_value_at_path(self.inputs, name.split("."), convert_value(member.value_type, value))


SettableTest = Callable[[Entity], bool]
"""Returns whether the caller may set an entity."""


def is_settable_by_users(entity: Entity) -> bool:
    """Return whether users may set an entity: it is writable."""
    return entity.member.writable


def is_settable_by_flows(entity: Entity) -> bool:
    """Return whether flows may set an entity: also custom read-only properties."""
    return entity.member.writable or (entity.is_custom and entity.member.type == "PROPERTY")


def collect_updates(
    exchange: Mapping[str, Any],
    entities: Mapping[str, Entity],
    settable: SettableTest = is_settable_by_users,
) -> list[PropertyUpdate]:
    """Return one update for each thing; ignore entities that cannot be set.

    An empty secret keeps its stored value, so an update may contain no value. The TSL checks values
    later. Raises `InvalidInput` when no update remains.
    """
    updates_by_thing: dict[int, PropertyUpdate] = {}
    for key, given in exchange.items():
        entity = entities.get(key)
        if entity is None or not settable(entity):
            continue
        value = convert_value(entity.member.value_type, given)
        if entity.is_integration_secret and value in (None, ""):
            updates_by_thing.setdefault(entity.thing.id, PropertyUpdate(entity.thing))
            continue
        if value == {} or (value is None and entity.member.attribute.get("optional")):
            continue
        update = updates_by_thing.setdefault(entity.thing.id, PropertyUpdate(entity.thing))
        set_value_at_path(update.values, entity.reported_path, value)
    return _require_nonempty(list(updates_by_thing.values()))


def collect_calls(exchange: Mapping[str, Any], entities: Mapping[str, Entity]) -> list[ServiceCall]:
    """Return the services to call; ignore entities that are no services.

    A key names a service or one of its inputs. The TSL checks inputs later. Raises `InvalidInput`
    when no call remains.
    """
    calls_by_service: dict[tuple[int, str], ServiceCall] = {}
    for key, inputs in exchange.items():
        entity = entities.get(key)
        if entity is None or entity.member.type != "SERVICE":
            continue
        member, members = entity.member, entity.thing.members
        service = member if member.parent is None else members.by_path[member.parent]
        call = calls_by_service.setdefault(
            (entity.thing.id, service.path), ServiceCall(entity.thing, service)
        )
        if member is not service:
            call.set_input(member.path.removeprefix(f"{service.path}."), inputs)
        elif isinstance(inputs, dict):
            for name, value in inputs.items():
                call.set_input(name, value)
        elif inputs is not None and inputs != "":
            call.inputs = inputs
    return _require_nonempty(list(calls_by_service.values()))


def _require_nonempty(updates: list[T]) -> list[T]:
    if not updates:
        raise InvalidInput("names no entity that allows this operation", field=EXCHANGE_FIELD)
    return updates


@dataclass(slots=True)
class FlowUpdate:
    """Properties that a flow sets, all or none, and the result."""

    tenant: str
    exchange: Mapping[str, Any]
    entities: Mapping[str, Entity]
    hops: int
    """Hops of the messages that the update causes (`libs.common.bus.hops`)."""
    dry_run: bool = False
    """Whether to check the values without setting them."""
    error: ThingwayError | None = None
    reports: list[ThingReport] = field(default_factory=list)

    @property
    def is_custom(self) -> bool:
        """Return whether all entities of the update are custom."""
        return all(entity.is_custom for entity in self.entities.values())


@dataclass(frozen=True, kw_only=True)
class EntityWriter:
    """Updates properties for users and flows."""

    entities: EntityService
    commands: CommandService
    reporter: Reporter
    integrations: IntegrationClient

    async def update(self, principal: Principal, body: UpdateEntities) -> None:
        """Set values; one invalid value rejects the request.

        Values of a device change when it confirms the command. Values of other things have changed
        when this method returns.
        """
        entities = await self.entities.find_by_keys(principal, body.exchange)
        await self.update_given_entities(principal, body.exchange, entities)

    async def update_given_entities(
        self,
        principal: Principal,
        exchange: Mapping[str, Any],
        entities: Mapping[str, Entity],
        settable: SettableTest = is_settable_by_users,
        *,
        dry_run: bool = False,
    ) -> None:
        """Set values of given entities, which the caller may write.

        A dry run raises the errors that can be found without a write, and sets nothing.
        """
        updates = [
            update for update in collect_updates(exchange, entities, settable) if update.values
        ]
        devices = [
            (update.thing.loaded_thing, update.values) for update in updates if update.thing.device
        ]
        checked = iter(await self.commands.draft_property_updates(devices))
        drafts: list[CommandDraft] = []
        others: list[tuple[EntityThing, dict[str, Any]]] = []
        faults: list[ValueFault] = []
        for update in updates:
            outcome = next(checked) if update.thing.device else _checked_values_or_error(update)
            if isinstance(outcome, InvalidInput):
                faults += update.to_entity_faults(outcome.faults)
            elif isinstance(outcome, CommandDraft):
                drafts.append(outcome)
            else:
                others.append((update.thing, outcome))
        if faults:
            raise error_with_all_faults(EXCHANGE_FIELD, faults)
        if dry_run:
            return
        if drafts:
            await self.commands.issue(principal, drafts)
        for thing, values in others:
            await self._report_values(thing, values)

    async def _report_values(self, thing: EntityThing, values: dict[str, Any]) -> None:
        """Report values of a thing without a device, after its integration accepted them."""
        readable = thing.loaded_thing.tsl.readable(values)
        try:
            if thing.integration != SYSTEM_INTEGRATION:
                send = (
                    self.integrations.send_update
                    if readable == values
                    else self.integrations.send_secrets
                )
                await send(thing.integration, thing.tenant, thing.id, values)
            if readable:
                await self.reporter.report(thing.loaded_thing, readable)
        except InvalidInput as error:
            raise integration_error(thing, error) from error

    async def update_custom(self, updates: Sequence[FlowUpdate]) -> None:
        """Set values of custom entities for flows.

        Updates are checked one by one, and published and awaited together, because flows set
        hundreds of values a second. An error is stored in the `error` of its update. Values have
        changed when this method returns.
        """
        for update in updates:
            try:
                update.reports = list(_build_reports(update))
            except InvalidInput as error:
                update.error = error
        written = [update for update in updates if not update.dry_run]
        reports = [(update, report) for update in written for report in update.reports]
        reasons = await self.reporter.report_all([report for _, report in reports])
        for (update, _), reason in zip(reports, reasons, strict=True):
            if reason is not None:
                update.error = InvalidInput(reason, field="properties")


def integration_error(thing: EntityThing, error: InvalidInput) -> InvalidInput:
    """Return the error of an integration as a fault of the property named before its first colon.

    If the text names no property, the error concerns the whole request.
    """
    name = error.message.partition(":")[0]
    member = thing.members.by_path.get(name)
    if member is None:
        return integration_rejection(EXCHANGE_FIELD, error)
    key = member_key(thing.key, name)
    return error_with_all_faults(
        EXCHANGE_FIELD, [integration_fault(key, member, error.code, error.message)]
    )


def _build_reports(flow_update: FlowUpdate) -> Iterable[ThingReport]:
    for update in collect_updates(flow_update.exchange, flow_update.entities, is_settable_by_flows):
        values = _checked_values_or_error(update)
        if isinstance(values, InvalidInput):
            raise error_with_all_faults(EXCHANGE_FIELD, update.to_entity_faults(values.faults))
        thing = update.thing.loaded_thing
        if readable := thing.tsl.readable(values):
            yield ThingReport(thing, readable, flow_update.hops)


def _checked_values_or_error(update: PropertyUpdate) -> dict[str, Any] | InvalidInput:
    """Return the values that a thing without a device reports, or the error."""
    values, faults = update.thing.loaded_thing.tsl.check_settings(update.values)
    return InvalidInput.from_faults(faults) if faults else values
