"""Sets properties of entities: of devices by a command, of all other things by a report."""

from collections.abc import Mapping
from typing import Any

from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Principal
from libs.common.things import SYSTEM, own_sn
from services.device.commands.model import Draft
from services.device.entities.things import Entity
from services.device.entity_values.exchange import Settable, Writing, by_people, writings
from services.device.entity_values.ports import (
    Commands,
    Devices,
    Directory,
    IntegrationCalls,
    Speaker,
)
from services.device.entity_values.refusals import faults_of, refused, refused_by_integration
from services.device.entity_values.schemas import UpdateProperties
from services.device.entity_values.seen import SeenEntities
from services.device.things import Thing


class EntityWriter:
    """Updates of properties on behalf of users."""

    def __init__(
        self,
        *,
        entities: SeenEntities,
        devices: Devices,
        directory: Directory,
        commands: Commands,
        speaker: Speaker,
        integrations: IntegrationCalls,
    ) -> None:
        self._entities = entities
        self._devices = devices
        self._directory = directory
        self._commands = commands
        self._speaker = speaker
        self._integrations = integrations

    async def update(self, principal: Principal, body: UpdateProperties) -> None:
        """Set what can be set; nothing is done unless every value is right.

        A device takes its values on when it answers the command; those of other things are
        in force when this returns.
        """
        await self.write(
            principal, body.exchange, await self._entities.of(principal, body.exchange)
        )

    async def write(
        self,
        principal: Principal,
        exchange: Mapping[str, Any],
        entities: Mapping[str, Entity],
        settable: Settable = by_people,
    ) -> None:
        """The same with entities that have been looked up, and may be written by who asks."""
        wanted = writings(exchange, entities, settable)
        to_devices = [one for one in wanted if one.thing.device]
        drafts = await self._drafts(principal.tenant, to_devices)
        others = [(one.thing, *await self._checked(one)) for one in wanted if not one.thing.device]
        if drafts:
            await self._commands.issue(principal, drafts)
        for entities_of, thing, values in others:
            try:
                await self._set(thing, values)
            except InvalidInput as error:
                raise refused_by_integration(entities_of, error) from error

    async def _set(self, thing: Thing, values: dict[str, Any]) -> None:
        shown = _shown(thing, values)
        about = (thing.integration, thing.tenant, thing.id, values)
        if len(shown) < len(values):  # first, so that a refusal leaves what was in force
            await self._integrations.entrust(*about)
        if shown:
            await self._speaker.report(thing, shown)
        if len(shown) == len(values) and thing.integration != SYSTEM:
            await self._integrations.updated(*about)

    async def _drafts(self, tenant: str, wanted: list[Writing]) -> list[Draft]:
        things = await self._devices.granted(tenant, [one.thing.id for one in wanted])
        drafts = []
        for one in wanted:
            if one.thing.id not in things:
                raise NotFound(f"{one.thing.key} is gone", field="exchange")
            try:
                drafts.append(
                    await self._commands.check_properties(things[one.thing.id], one.values)
                )
            except InvalidInput as error:
                raise refused(one.thing, "", faults_of(error)) from error
        return drafts

    async def _checked(self, writing: Writing) -> tuple[Thing, dict[str, Any]]:
        return checked(writing, await self._directory.by_sn([own_sn(writing.thing.id)]))


def checked(writing: Writing, things: Mapping[str, Thing]) -> tuple[Thing, dict[str, Any]]:
    """The thing, among `things` by what they report under, with the values that it takes."""
    thing = things.get(own_sn(writing.thing.id))
    if thing is None:
        raise NotFound(f"{writing.thing.key} is gone", field="exchange")
    values, faults = thing.tsl.check_report(writing.values)
    if faults:
        raise refused(writing.thing, "", faults)
    return thing, values


def _shown(thing: Thing, values: dict[str, Any]) -> dict[str, Any]:
    """Those that may be stored: what people may only write of an integration is a secret."""
    if thing.integration == SYSTEM:
        return values
    modes = {name: thing.tsl.property(name) for name in values}
    return {
        name: value
        for name, value in values.items()
        if (spec := modes[name]) is None or spec.access_mode != "W"
    }
