"""`GET /ingest/v1/{sn}/commands`: command delivery to devices that poll over HTTP."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import msgspec
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from libs.common.bus import Bus
from libs.common.bus.subjects import command_subject
from libs.common.http import RequestPrincipal
from libs.common.http.guards import devices
from libs.common.http.open_api import get
from libs.common.http.operations import route_operations
from libs.common.identity import Principal
from libs.common.jobs import wait_for_event
from services.device.commands.model import utc_now
from services.device.commands.store import CommandStore
from services.device.telemetry.presence_store import HttpPresence
from services.device.things.directory import ThingDirectory
from services.device.things.model import Thing

MAX_POLL_SECONDS = 60
"""Maximum seconds that a poll may wait."""


class Commands(msgspec.Struct):
    """Open commands of the device, oldest first."""

    commands: list[dict[str, Any]]
    """Commands in the format of the device protocol."""


class CommandPolls:
    """Waiting polls of this process, which share one subscription to all commands."""

    def __init__(
        self, bus: Bus, things: ThingDirectory, store: CommandStore, presence: HttpPresence
    ) -> None:
        self._bus = bus
        self._things = things
        self._store = store
        self._presence = presence
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Subscribe to commands."""
        subject = command_subject("*")
        self._subscription = await self._bus.client.subscribe(subject, cb=self._on_command)

    async def stop(self) -> None:
        """End the subscription."""
        if self._subscription is not None and self._bus.is_connected:
            await self._subscription.unsubscribe()

    async def wait_for_commands(self, principal: Principal, sn: str, wait: int) -> Commands:
        """Return open commands of a device; wait up to `wait` seconds for the first.

        Returns no commands when the owner of the device changes during the wait.
        """
        thing = await self._things.find_sender(principal, sn)
        await self._presence.record_contact(thing)
        deadline = asyncio.get_running_loop().time() + min(wait, MAX_POLL_SECONDS)
        with self.expect_command(thing.sn) as arrived:
            while await self._has_same_owner(thing):
                fetched = await self._store.schedule.fetch_for_poll(thing.id, utc_now())
                remaining = deadline - asyncio.get_running_loop().time()
                if fetched or remaining <= 0:
                    return Commands(
                        [command.to_wire() for command in fetched if command.has_all_values]
                    )
                await wait_for_event(arrived, remaining)
                arrived.clear()
        return Commands([])

    async def _has_same_owner(self, thing: Thing) -> bool:
        """Return whether the device still has the same owner; otherwise its key is invalid."""
        current_thing = (await self._things.find_by_sn([thing.sn])).get(thing.sn)
        owner = (thing.id, thing.application_id)
        return (
            current_thing is not None and (current_thing.id, current_thing.application_id) == owner
        )

    @contextmanager
    def expect_command(self, sn: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when a command is sent to the device."""
        arrived = asyncio.Event()
        subject = command_subject(sn)
        events = self._waiting.setdefault(subject, set())
        events.add(arrived)
        try:
            yield arrived
        finally:
            events.remove(arrived)
            if not events:
                del self._waiting[subject]

    async def _on_command(self, message: Msg) -> None:
        for arrived in self._waiting.get(message.subject, ()):
            arrived.set()


@get("/commands", waits=True)
async def fetch_commands(
    principal: RequestPrincipal,
    command_polls: NamedDependency[CommandPolls],
    sn: FromPath[str],
    wait: Annotated[
        int,
        QueryParameter(
            description="Seconds to wait for a command if none is open.", ge=0, le=MAX_POLL_SECONDS
        ),
    ] = 0,
) -> Commands:
    """Return up to 100 open commands of the device, after at most `wait` seconds.

    A command is returned again after 30 s until the device answers it or it expires.
    """
    return await command_polls.wait_for_commands(principal, sn, wait)


ROUTER = route_operations(globals(), "/ingest/v1/{sn:str}", guards=[devices], tags=["Device edge"])
