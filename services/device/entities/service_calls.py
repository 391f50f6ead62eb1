"""Calls services of entities, and waits for what they answer."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import Bus, RpcClient
from libs.common.bus.hops import current_hops
from libs.common.bus.subjects import service_event
from libs.common.contracts.events import ServiceReplied, TaskStatus
from libs.common.contracts.flows import CALL, CallFlow, FlowOutputs
from libs.common.errors import InvalidInput, UpstreamFailed, UpstreamTimeout
from libs.common.identity import Principal
from libs.common.integrations.client import IntegrationClient, Integrations
from libs.common.things import SYSTEM
from libs.common.tsl import InvalidValues, UnknownService
from services.device.commands.model import Command, Draft
from services.device.commands.service import CommandService
from services.device.commands.store import CommandStore
from services.device.entities.property_updates import (
    FIELD,
    Calling,
    callings,
    refused_by_integration,
)
from services.device.entities.schemas import CallEntities
from services.device.entities.service import EntityService
from services.device.members.entity import Entity
from services.device.members.values import ValueFault, refusal

FLOW_MARGIN = 2.0
"""Seconds more than a flow has, for its answer to come."""

_decoder = msgspec.json.Decoder(ServiceReplied)


class Called(NamedTuple):
    """What came of calls."""

    outputs: dict[str, Any]
    """Of all that answered, by name."""
    queued: Sequence[Command] = ()
    """Those that devices get when they connect: they are offline."""


@dataclass(frozen=True, kw_only=True)
class EntityCaller:
    """Calls of services, for users and for flows."""

    entities: EntityService
    commands: CommandService
    bus: Bus
    store: CommandStore
    integrations: Integrations
    client: IntegrationClient
    rpc: RpcClient
    seconds: float
    """How long a device or a flow may take."""

    async def call(self, principal: Principal, body: CallEntities) -> Called:
        """Call the services that are named; give their outputs by name, all in one.

        Nothing is called unless every input is right; for a device that is offline nobody waits.
        Raises `UpstreamTimeout` when a device, an integration or a flow is late (what a device
        or a flow was asked goes on), `UpstreamFailed` when a device refuses or a flow fails.
        """
        entities = await self.entities.with_keys(principal, body.exchange)
        return await self.run(principal, body.exchange, entities)

    async def run(
        self,
        principal: Principal,
        exchange: Mapping[str, Any],
        entities: Mapping[str, Entity],
        *,
        dry_run: bool = False,
    ) -> Called:
        """The same with entities that have been looked up, and may be called by who asks.

        A dry run raises what it would, as far as that can be told here, and calls nothing.
        """
        drafts: list[Draft] = []
        others: list[tuple[Calling, dict[str, Any]]] = []
        faults: list[ValueFault] = []
        for calling in callings(exchange, entities):
            try:
                if calling.thing.device:
                    drafts.append(self._draft(calling))
                else:
                    others.append((calling, await self._checked(calling)))
            except InvalidInput as error:
                if not error.faults:
                    raise
                faults += calling.faults(error.faults)
        if faults:
            raise refusal(FIELD, faults)
        if dry_run:
            return Called({})
        rest = (self._of_other(principal, calling, inputs) for calling, inputs in others)
        called, answers = await asyncio.gather(
            self._of_devices(principal, drafts), asyncio.gather(*rest)
        )
        return Called(_together([called.outputs, *answers]), called.queued)

    def _draft(self, calling: Calling) -> Draft:
        return self.commands.check_call(calling.thing.record, calling.service_id, calling.inputs)

    async def _checked(self, calling: Calling) -> dict[str, Any]:
        """The inputs of a service of an integration itself, or of a flow."""
        thing = calling.thing
        if thing.flow is None:
            await self._check_callable(calling)
        try:
            return thing.record.tsl.check_service_inputs(calling.service_id, calling.inputs)
        except (InvalidValues, UnknownService) as error:
            raise InvalidInput.of_faults(error.faults) from error

    async def _check_callable(self, calling: Calling) -> None:
        integration = calling.thing.integration
        found = None if integration == SYSTEM else await self.integrations.find(integration)
        if found is None:
            raise _not_callable(calling, "nobody answers for it")
        manifest = found.manifest
        if calling.service_id in (manifest.add_device_service, manifest.delete_device_service):
            raise _not_callable(calling, "devices are added and deleted at /device")

    async def _of_devices(self, principal: Principal, drafts: list[Draft]) -> Called:
        if not drafts:
            return Called({})
        ids = {draft.thing.id for draft in drafts}
        replies = ServiceReplies(self.bus, self.store, self.seconds)
        async with replies.listening(principal.tenant, ids):
            commands = await self.commands.issue(principal, drafts)
            queued = [one for one in commands if one.is_queued]
            answers = await asyncio.gather(
                *(replies.outputs(one) for one in commands if not one.is_queued)
            )
        return Called(_together(answers), queued)

    async def _of_other(
        self, principal: Principal, calling: Calling, inputs: dict[str, Any]
    ) -> Mapping[str, Any]:
        thing = calling.thing
        if thing.flow is not None:
            return await self._run_flow(thing.tenant, thing.flow, inputs, principal.user_id)
        try:
            return await self.client.call(
                thing.integration, thing.tenant, thing.id, calling.service_id, inputs
            )
        except InvalidInput as error:
            raise refused_by_integration(thing, error) from error

    async def _run_flow(
        self, tenant: str, flow_id: int, inputs: dict[str, Any], user_id: int
    ) -> Mapping[str, Any]:
        """Run a flow; its last output. Raises what `workflow` refuses or fails with."""
        wanted = CallFlow(
            tenant=tenant,
            flow_id=flow_id,
            inputs=inputs,
            user_id=user_id or None,
            hops=current_hops(),
            seconds=self.seconds,
        )
        patience = self.seconds + FLOW_MARGIN
        return (await self.rpc.call(CALL, wanted, FlowOutputs, patience)).outputs


def _together(answers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for answer in answers for name, value in answer.items()}


def _not_callable(calling: Calling, reason: str) -> InvalidInput:
    key = f"{calling.thing.key}.{calling.service.path}".removesuffix(".")
    text = f"{key} cannot be called: {reason}"
    return InvalidInput(text, field=FIELD, code="method_not_allowed")


class ServiceReplies:
    """What devices answer to calls of their services while somebody waits for it."""

    def __init__(self, bus: Bus, commands: CommandStore, seconds: float) -> None:
        self._bus = bus
        self._commands = commands
        self._seconds = seconds
        self._replies: dict[int, asyncio.Future[ServiceReplied]] = {}

    @asynccontextmanager
    async def listening(self, tenant: str, device_ids: Iterable[int]) -> AsyncIterator[None]:
        """Listen to devices while the block runs, begun before the command: nothing is missed."""
        subscriptions = [
            await self._bus.client.subscribe(
                service_event(tenant, device_id, "replied"), cb=self._hear
            )
            for device_id in device_ids
        ]
        await self._bus.client.flush()
        try:
            yield
        finally:
            if not self._bus.client.is_closed:
                for subscription in subscriptions:
                    await subscription.unsubscribe()

    async def _hear(self, message: Msg) -> None:
        reply = _decoder.decode(message.data)
        future = self._future(reply.task_id)
        if not future.done():
            future.set_result(reply)

    async def outputs(self, command: Command) -> Mapping[str, Any]:
        """The outputs of a call.

        Raises `UpstreamTimeout` when the device is late: its answer closes the command all the
        same. Raises `UpstreamFailed` when it says that it did not do it.
        """
        try:
            async with asyncio.timeout(self._seconds):
                reply = await self._future(command.id)
        except TimeoutError as error:
            stored = await self._commands.find_command(command.id)  # the event may have been lost
            if stored is not None and stored.finished_at is not None:
                return _outputs(stored.status, stored.outputs, stored.error)
            text = f"{command.sn} did not answer within {self._seconds:g} s; the call goes on"
            raise UpstreamTimeout(text, field=FIELD) from error
        return _outputs(reply.status, reply.outputs, reply.error)

    def _future(self, command_id: int) -> "asyncio.Future[ServiceReplied]":
        return self._replies.setdefault(command_id, asyncio.get_running_loop().create_future())


def _outputs(
    status: TaskStatus, outputs: Mapping[str, Any] | None, error: str | None
) -> Mapping[str, Any]:
    if status == "SUCCESS":
        return outputs or {}
    if status == "TIMEOUT":
        raise UpstreamTimeout(error or "the device did not answer in time", field=FIELD)
    raise UpstreamFailed(error or "the device says that it failed", field=FIELD)
