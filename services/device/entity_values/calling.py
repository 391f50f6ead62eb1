"""Calls services of entities, and waits for what they answer."""

import asyncio
from collections.abc import Mapping
from typing import Any

from libs.common.errors import InvalidInput, NotFound
from libs.common.identity import Principal
from libs.common.things import SYSTEM, own_sn
from libs.common.tsl import InvalidValues, UnknownService
from services.device.commands.model import Draft
from services.device.entity_values.exchange import Calling, callings
from services.device.entity_values.ports import (
    Commands,
    Devices,
    Directory,
    FlowCalls,
    IntegrationCalls,
    Integrations,
    Replies,
)
from services.device.entity_values.refusals import faults_of, refused, refused_by_integration
from services.device.entity_values.schemas import CallService
from services.device.entity_values.seen import SeenEntities


class EntityCaller:
    """Calls of services on behalf of users."""

    def __init__(
        self,
        *,
        entities: SeenEntities,
        devices: Devices,
        directory: Directory,
        commands: Commands,
        replies: Replies,
        integrations: Integrations,
        calls: IntegrationCalls,
        flows: FlowCalls,
    ) -> None:
        self._entities = entities
        self._devices = devices
        self._directory = directory
        self._commands = commands
        self._replies = replies
        self._integrations = integrations
        self._calls = calls
        self._flows = flows

    async def call(self, principal: Principal, body: CallService) -> dict[str, Any]:
        """Call the services that are named; give their outputs by name, all in one.

        Nothing is called unless every input is right. Raises `UpstreamTimeout` when a device,
        an integration or a flow is late (what a device or a flow was asked goes on),
        `UpstreamFailed` when a device refuses or a flow fails.
        """
        entities = await self._entities.of(principal, body.exchange)
        wanted = callings(body.exchange, entities)
        of_devices = [one for one in wanted if one.thing.device]
        others = [one for one in wanted if not one.thing.device]
        drafts = await self._drafts(principal.tenant, of_devices)
        checked = [await self._checked(one) for one in others]
        answers = await asyncio.gather(
            self._of_devices(principal, drafts),
            *(
                self._of_other(principal, one, inputs)
                for one, inputs in zip(others, checked, strict=True)
            ),
        )
        return {name: value for answer in answers for name, value in answer.items()}

    async def _of_devices(self, principal: Principal, drafts: list[Draft]) -> dict[str, Any]:
        if not drafts:
            return {}
        ids = {draft.thing.id for draft in drafts}
        async with self._replies.listening(principal.tenant, ids) as outcomes:
            commands = await self._commands.issue(principal, drafts)
            answers = await asyncio.gather(*map(outcomes.of, commands))
        return {name: value for answer in answers for name, value in answer.items()}

    async def _of_other(
        self, principal: Principal, one: Calling, inputs: dict[str, Any]
    ) -> Mapping[str, Any]:
        thing = one.thing
        if thing.flow is not None:
            return await self._flows.call(thing.tenant, thing.flow, inputs, principal.user_id)
        try:
            return await self._calls.call(
                thing.integration, thing.tenant, thing.id, one.service_id, inputs
            )
        except InvalidInput as error:
            raise refused_by_integration(thing, error) from error

    async def _drafts(self, tenant: str, wanted: list[Calling]) -> list[Draft]:
        things = await self._devices.granted(tenant, [one.thing.id for one in wanted])
        drafts = []
        for one in wanted:
            if one.thing.id not in things:
                raise NotFound(f"{one.thing.key} is gone", field="exchange")
            thing = things[one.thing.id]
            try:
                drafts.append(self._commands.check_call(thing, one.service_id, one.inputs))
            except InvalidInput as error:
                raise refused(one.thing, one.service.path, faults_of(error)) from error
        return drafts

    async def _checked(self, calling: Calling) -> dict[str, Any]:
        """The inputs of a service of an integration itself, or of a flow."""
        if calling.thing.flow is not None:
            return calling.inputs  # their entities say all that there is to say about them
        integration = calling.thing.integration
        found = None if integration == SYSTEM else await self._integrations.find(integration)
        if found is None:
            raise _not_callable(calling, "nobody answers for it")
        manifest = found.manifest
        if calling.service_id in (manifest.add_device_service, manifest.delete_device_service):
            raise _not_callable(calling, "devices are added and deleted at /device")
        sn = own_sn(calling.thing.id)
        thing = (await self._directory.by_sn([sn])).get(sn)
        if thing is None:
            raise NotFound(f"{calling.thing.key} is gone", field="exchange")
        try:
            return thing.tsl.check_service_inputs(calling.service_id, calling.inputs)
        except (InvalidValues, UnknownService) as error:
            raise refused(calling.thing, calling.service.path, error.faults) from error


def _not_callable(calling: Calling, reason: str) -> InvalidInput:
    key = f"{calling.thing.key}.{calling.service.path}".removesuffix(".")
    text = f"{key} cannot be called: {reason}"
    return InvalidInput(text, field="exchange", code="method_not_allowed")
