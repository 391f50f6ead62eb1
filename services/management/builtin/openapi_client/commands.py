"""Commands on their way to the other platform, until their end is known and told.

A command is kept before it is accepted, so that a replica that takes over finds it. It is
sent at least once; where the other platform has tasks its end is waited for there, elsewhere
being accepted is the end.
"""

import asyncio
import logging
from functools import partial
from typing import Any

from libs.common.clock import now_ms
from libs.common.contracts.integrations import DeviceCommand
from libs.common.errors import Conflict, InvalidInput, NotFound, ThingwayError, UpstreamFailed
from libs.common.integrations import IntegrationThings
from libs.common.jobs import Beside
from libs.common.scheduling import FairScheduler
from services.management.builtin.openapi_client.accounts import Accounts
from services.management.builtin.openapi_client.remote import Remote
from services.management.builtin.openapi_client.store import CarriedCommand, OpenApiStore

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.2, 10.0, 1.5
"""Seconds between two looks at a task, or two tries."""
AT_ONCE = 64
"""Calls of other platforms for commands, of all tenants."""
ENDS = {"SUCCESS": "SUCCESS", "FAILED": "FAILED", "TIMEOUT": "FAILED"}
"""States of a task that has ended, and what it has come to."""


class CommandCarrier:
    """Carries commands, each in a task of its own, which waits for its tenant's turn to call."""

    def __init__(self, things: IntegrationThings, store: OpenApiStore, accounts: Accounts) -> None:
        self._things = things
        self._store = store
        self._accounts = accounts
        self._calls = FairScheduler("openapi-client commands", AT_ONCE)
        self._beside = Beside()

    async def accept(self, wanted: DeviceCommand) -> None:
        """Take a command on; a copy of one that was taken changes nothing.

        Raises `NotFound` when nobody knows which device of the other platform it is for.
        """
        device, command = wanted.device, wanted.command
        link = await self._store.find_link(device.tenant, device.identifier)
        remote_id = link.remote_id if link else device.additional.get("deviceId")
        if remote_id is None:
            raise NotFound(f"{device.identifier} is not known at the other platform")
        carried = CarriedCommand(
            id=int(command["commandId"]),
            tenant=device.tenant,
            identifier=device.identifier,
            remote_id=str(remote_id),
            command=command,
        )
        self._begin(await self._store.add_command(carried, int(command["expiresAt"])))

    async def resume(self) -> None:
        """Go on with what another replica has begun."""
        for carried in await self._store.list_open_commands():
            self._begin(carried)

    async def stop(self) -> None:
        """Put down what is in hand; `resume` finds it."""
        await self._beside.stop()

    def _begin(self, carried: CarriedCommand) -> None:
        self._beside.begin(f"command {carried.id}", partial(self._carry, carried))

    async def _carry(self, carried: CarriedCommand) -> None:
        pause = FIRST_PAUSE
        while not await self._step(carried):
            if carried.command["expiresAt"] < now_ms():
                await self._store.close_command(carried)
                return
            await asyncio.sleep(pause)
            pause = min(pause * GROWTH, LONGEST_PAUSE)

    async def _step(self, carried: CarriedCommand) -> bool:
        """One step; True when the end is told. What is away is tried again."""
        try:
            if carried.reply is None:
                async with self._calls.slot(carried.tenant):
                    carried.reply = await self._advance(carried)
                await self._store.save_command(carried)
            if carried.reply is None:
                return False
            await self._tell(carried)
        except ThingwayError as error:
            log.info("command %d waits: %s", carried.id, error)
            return False
        return True

    async def _advance(self, carried: CarriedCommand) -> dict[str, Any] | None:
        """Send the command or look at its task; what it has come to, when that is known."""
        try:
            remote = await self._accounts.remote(carried.tenant)
            if carried.task is None:
                carried.task = await _send(remote, carried)
                return {"status": "SUCCESS"} if carried.task is None else None
            task = await remote.task(carried.task)
        except (InvalidInput, NotFound, Conflict, UpstreamFailed) as error:
            return {"status": "FAILED", "error": error.text}
        if task.status not in ENDS:
            return None
        reply: dict[str, Any] = {"status": ENDS[task.status]}
        if task.outputs is not None:
            reply["outputs"] = task.outputs
        if reply["status"] == "FAILED":
            reply["error"] = task.err_msg or task.status
        return reply

    async def _tell(self, carried: CarriedCommand) -> None:
        reply = carried.reply or {}
        try:
            await self._things.reply(
                carried.tenant,
                carried.identifier,
                carried.id,
                reply["status"],
                outputs=reply.get("outputs"),
                error=reply.get("error"),
            )
        except NotFound:
            log.info("command %d: the device is gone", carried.id)
        await self._store.close_command(carried)


async def _send(remote: Remote, carried: CarriedCommand) -> str | None:
    """Send a command; the id of its task, when there is one."""
    command = carried.command
    match command["kind"]:
        case "SET_PROPERTIES":
            return await remote.set_properties(carried.remote_id, command["properties"])
        case "CALL_SERVICE":
            inputs = command.get("inputs") or {}
            return await remote.call_service(carried.remote_id, command["serviceId"], inputs)
        case "SET_PROFILE":
            return await remote.set_profile(carried.remote_id, command["values"])
        case other:
            raise InvalidInput(f"cannot carry a command of kind {other}")
