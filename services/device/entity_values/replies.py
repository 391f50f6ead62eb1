"""Hears what devices answer to calls of their services."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import Bus
from libs.common.bus.subjects import service_event
from libs.common.contracts.events import ServiceReplied, TaskStatus
from libs.common.errors import UpstreamFailed, UpstreamTimeout
from services.device.commands.model import Command
from services.device.commands.store import CommandStore

_decoder = msgspec.json.Decoder(ServiceReplied)


class Heard:
    """What is heard of commands while somebody waits for them."""

    def __init__(self, commands: CommandStore, seconds: float) -> None:
        self._commands = commands
        self._seconds = seconds
        self._replies: dict[int, asyncio.Future[ServiceReplied]] = {}

    async def hear(self, message: Msg) -> None:
        """Note a reply."""
        reply = _decoder.decode(message.data)
        future = self._future(reply.task_id)
        if not future.done():
            future.set_result(reply)

    async def of(self, command: Command) -> Mapping[str, Any]:
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
            raise UpstreamTimeout(text, field="exchange") from error
        return _outputs(reply.status, reply.outputs, reply.error)

    def _future(self, command_id: int) -> "asyncio.Future[ServiceReplied]":
        return self._replies.setdefault(command_id, asyncio.get_running_loop().create_future())


def _outputs(
    status: TaskStatus, outputs: Mapping[str, Any] | None, error: str | None
) -> Mapping[str, Any]:
    if status == "SUCCESS":
        return outputs or {}
    if status == "TIMEOUT":
        raise UpstreamTimeout(error or "the device did not answer in time", field="exchange")
    raise UpstreamFailed(error or "the device says that it failed", field="exchange")


class ServiceReplies:
    """Listens on the bus."""

    def __init__(self, bus: Bus, commands: CommandStore, seconds: float) -> None:
        self._bus = bus
        self._commands = commands
        self._seconds = seconds

    @asynccontextmanager
    async def listening(self, tenant: str, device_ids: Iterable[int]) -> AsyncIterator[Heard]:
        """Listen to devices while the block runs."""
        heard = Heard(self._commands, self._seconds)
        subscriptions = [
            await self._bus.client.subscribe(
                service_event(tenant, device_id, "replied"), cb=heard.hear
            )
            for device_id in device_ids
        ]
        await self._bus.client.flush()
        try:
            yield heard
        finally:
            if not self._bus.client.is_closed:
                for subscription in subscriptions:
                    await subscription.unsubscribe()
