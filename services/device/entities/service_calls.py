"""Calls of services by entity, with their outputs."""

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
from libs.common.contracts.flows import CALL_FLOW, CallFlow, FlowOutputs
from libs.common.errors import InvalidInput, UpstreamFailed, UpstreamTimeout
from libs.common.identity import Principal
from libs.common.integrations.client import IntegrationClient, Integrations
from libs.common.things import SYSTEM_INTEGRATION
from libs.common.tsl import InvalidValues, UnknownService
from services.device.commands.model import Command, CommandDraft
from services.device.commands.service import CommandService
from services.device.commands.store import CommandStore
from services.device.entities.property_updates import (
    EXCHANGE_FIELD,
    ServiceCall,
    collect_calls,
    integration_error,
)
from services.device.entities.schemas import CallEntityServices
from services.device.entities.service import EntityService
from services.device.members.entity import Entity
from services.device.members.values import ValueFault, error_with_all_faults

FLOW_MARGIN_SECONDS = 2.0
"""Seconds in addition to the time of a flow, for its response to arrive."""

_reply_decoder = msgspec.json.Decoder(ServiceReplied)


class CallResult(NamedTuple):
    """Result of service calls."""

    outputs: dict[str, Any]
    """Outputs of all calls by name."""
    queued: Sequence[Command] = ()
    """Commands that wait until their devices connect or send an uplink."""


@dataclass(frozen=True, kw_only=True)
class EntityCaller:
    """Calls services for users and flows."""

    entities: EntityService
    commands: CommandService
    bus: Bus
    store: CommandStore
    integrations: Integrations
    client: IntegrationClient
    rpc: RpcClient
    seconds: float
    """Seconds after which a device or a flow is late."""

    async def call(self, principal: Principal, body: CallEntityServices) -> CallResult:
        """Call services and return their outputs by name, merged.

        One invalid input rejects the request. Calls of offline devices are queued. Raises
        `UpstreamTimeout` when a device, an integration or a flow is late (a device or a flow
        continues), `UpstreamFailed` when a device rejects the call or a flow fails.
        """
        entities = await self.entities.find_by_keys(principal, body.exchange)
        return await self.call_given_entities(principal, body.exchange, entities)

    async def call_given_entities(
        self,
        principal: Principal,
        exchange: Mapping[str, Any],
        entities: Mapping[str, Entity],
        *,
        dry_run: bool = False,
    ) -> CallResult:
        """Call services of given entities, which the caller may call.

        A dry run raises the errors that can be found without a call, and calls nothing.
        """
        drafts: list[CommandDraft] = []
        others: list[tuple[ServiceCall, dict[str, Any]]] = []
        faults: list[ValueFault] = []
        for call in collect_calls(exchange, entities):
            try:
                if call.thing.device:
                    drafts.append(self._to_draft(call))
                else:
                    others.append((call, await self._check_inputs(call)))
            except InvalidInput as error:
                if not error.faults:
                    raise
                faults += call.to_entity_faults(error.faults)
        if faults:
            raise error_with_all_faults(EXCHANGE_FIELD, faults)
        if dry_run:
            return CallResult({})
        rest = (self._call_integration_or_flow(principal, call, inputs) for call, inputs in others)
        called, answers = await asyncio.gather(
            self._call_devices(principal, drafts), asyncio.gather(*rest)
        )
        return CallResult(_merge_outputs([called.outputs, *answers]), called.queued)

    def _to_draft(self, call: ServiceCall) -> CommandDraft:
        return self.commands.draft_service_call(
            call.thing.loaded_thing, call.service_id, call.inputs
        )

    async def _check_inputs(self, call: ServiceCall) -> dict[str, Any]:
        """Return the inputs of an integration or flow service; raise `InvalidInput`."""
        thing = call.thing
        if thing.flow is None:
            await self._check_callable(call)
        try:
            return thing.loaded_thing.tsl.check_service_inputs(call.service_id, call.inputs)
        except (InvalidValues, UnknownService) as error:
            raise InvalidInput.from_faults(error.faults) from error

    async def _check_callable(self, call: ServiceCall) -> None:
        integration = call.thing.integration
        found = (
            None if integration == SYSTEM_INTEGRATION else await self.integrations.find(integration)
        )
        if found is None:
            raise _not_callable_error(call, "no integration or flow provides it")
        manifest = found.manifest
        if call.service_id in (manifest.add_device_service, manifest.delete_device_service):
            raise _not_callable_error(call, "add and delete devices at /device")

    async def _call_devices(self, principal: Principal, drafts: list[CommandDraft]) -> CallResult:
        if not drafts:
            return CallResult({})
        ids = {draft.thing.id for draft in drafts}
        replies = ServiceReplies(self.bus, self.store, self.seconds)
        async with replies.subscribe(principal.tenant, ids):
            commands = await self.commands.issue(principal, drafts)
            queued = [command for command in commands if command.is_queued]
            answers = await asyncio.gather(
                *(
                    replies.wait_for_outputs(command)
                    for command in commands
                    if not command.is_queued
                )
            )
        return CallResult(_merge_outputs(answers), queued)

    async def _call_integration_or_flow(
        self, principal: Principal, call: ServiceCall, inputs: dict[str, Any]
    ) -> Mapping[str, Any]:
        thing = call.thing
        if thing.flow is not None:
            return await self._run_flow(thing.tenant, thing.flow, inputs, principal.user_id)
        try:
            return await self.client.call(
                thing.integration, thing.tenant, thing.id, call.service_id, inputs
            )
        except InvalidInput as error:
            raise integration_error(thing, error) from error

    async def _run_flow(
        self, tenant: str, flow_id: int, inputs: dict[str, Any], user_id: int
    ) -> Mapping[str, Any]:
        """Run a flow and return its output; raise the errors of `workflow`."""
        request = CallFlow(
            tenant=tenant,
            flow_id=flow_id,
            inputs=inputs,
            user_id=user_id or None,
            hops=current_hops(),
            seconds=self.seconds,
        )
        timeout = self.seconds + FLOW_MARGIN_SECONDS
        return (await self.rpc.call(CALL_FLOW, request, FlowOutputs, timeout)).outputs


def _merge_outputs(answers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for answer in answers for name, value in answer.items()}


def _not_callable_error(call: ServiceCall, reason: str) -> InvalidInput:
    key = f"{call.thing.key}.{call.service.path}".removesuffix(".")
    text = f"{key} cannot be called: {reason}"
    return InvalidInput(text, field=EXCHANGE_FIELD, code="method_not_allowed")


class ServiceReplies:
    """Waits for replies of devices to service calls."""

    def __init__(self, bus: Bus, commands: CommandStore, seconds: float) -> None:
        self._bus = bus
        self._commands = commands
        self._seconds = seconds
        self._replies: dict[int, asyncio.Future[ServiceReplied]] = {}

    @asynccontextmanager
    async def subscribe(self, tenant: str, device_ids: Iterable[int]) -> AsyncIterator[None]:
        """Receive replies of devices while the block runs; send the commands inside the block."""
        subscriptions = [
            await self._bus.client.subscribe(
                service_event(tenant, device_id, "replied"), cb=self._on_reply
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

    async def _on_reply(self, message: Msg) -> None:
        reply = _reply_decoder.decode(message.data)
        future = self._reply_future(reply.task_id)
        if not future.done():
            future.set_result(reply)

    async def wait_for_outputs(self, command: Command) -> Mapping[str, Any]:
        """Return the outputs of a call.

        Raises `UpstreamTimeout` when the device is late; a later reply still closes the command.
        Raises `UpstreamFailed` when the device reports an error.
        """
        try:
            async with asyncio.timeout(self._seconds):
                reply = await self._reply_future(command.id)
        except TimeoutError as error:
            stored = await self._commands.find_command(command.id)  # the event may have been lost
            if stored is not None and stored.finished_at is not None:
                return _outputs_or_raise(stored.status, stored.outputs, stored.error)
            text = f"{command.sn} did not answer within {self._seconds:g} s; the call continues"
            raise UpstreamTimeout(text, field=EXCHANGE_FIELD) from error
        return _outputs_or_raise(reply.status, reply.outputs, reply.error)

    def _reply_future(self, command_id: int) -> "asyncio.Future[ServiceReplied]":
        return self._replies.setdefault(command_id, asyncio.get_running_loop().create_future())


def _outputs_or_raise(
    status: TaskStatus, outputs: Mapping[str, Any] | None, error: str | None
) -> Mapping[str, Any]:
    if status == "SUCCESS":
        return outputs or {}
    if status == "TIMEOUT":
        raise UpstreamTimeout(error or "the device did not answer in time", field=EXCHANGE_FIELD)
    raise UpstreamFailed(error or "the device reported an error", field=EXCHANGE_FIELD)
