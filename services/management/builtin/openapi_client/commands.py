"""Commands to the other platform, until their result is reported.

A command is stored before it is accepted, so that another replica can continue it. It is sent at
least once. If the other platform has tasks, the result is that of the task; otherwise, acceptance
is success.
"""

import asyncio
import logging
from functools import partial
from typing import Any

from libs.common.clock import now_ms
from libs.common.contracts.integrations import DeviceCommand
from libs.common.errors import Conflict, InvalidInput, NotFound, ThingwayError, UpstreamFailed
from libs.common.integrations import IntegrationThings
from libs.common.jobs import NamedTasks
from libs.common.scheduling import FairScheduler
from services.management.builtin.openapi_client.accounts import RemoteAccounts
from services.management.builtin.openapi_client.remote import RemotePlatform
from services.management.builtin.openapi_client.store import ForwardedCommand, OpenApiStore

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, PAUSE_GROWTH = 0.2, 10.0, 1.5
"""First and longest pause in seconds between two checks of a task, or two attempts, and the factor
by which the pause grows."""
MAX_CONCURRENT_CALLS = 64
"""Concurrent calls of other platforms for commands, of all tenants."""
COMMAND_STATUS_BY_TASK_STATUS = {"SUCCESS": "SUCCESS", "FAILED": "FAILED", "TIMEOUT": "FAILED"}
"""Status of a finished command by the final status of its task at the other platform."""


class CommandForwarder:
    """Forwards each command in its own asyncio task; tenants take turns to call other platforms."""

    def __init__(
        self, things: IntegrationThings, store: OpenApiStore, accounts: RemoteAccounts
    ) -> None:
        self._things = things
        self._store = store
        self._accounts = accounts
        self._calls = FairScheduler("openapi-client commands", MAX_CONCURRENT_CALLS)
        self._beside = NamedTasks()

    async def accept(self, request: DeviceCommand) -> None:
        """Accept a command; for a duplicate, continue the stored command or report its result.

        A duplicate of a command that expired without a result is ignored. Raises `NotFound` if the
        device is unknown at the other platform.
        """
        device, command = request.device, request.command
        link = await self._store.find_link(device.tenant, device.identifier)
        remote_id = link.remote_id if link else device.additional.get("deviceId")
        if remote_id is None:
            raise NotFound(f"{device.identifier} is not known at the other platform")
        remote_command = ForwardedCommand(
            id=int(command["commandId"]),
            tenant=device.tenant,
            identifier=device.identifier,
            remote_id=str(remote_id),
            command=command,
        )
        stored = await self._store.add_or_get_command(remote_command, int(command["expiresAt"]))
        if stored is not None:
            self._start_task(stored)

    async def resume(self) -> None:
        """Continue the stored commands that another replica did not finish."""
        for remote_command in await self._store.list_unfinished_commands():
            self._start_task(remote_command)

    async def stop(self) -> None:
        """Cancel the tasks; `resume` continues their commands."""
        await self._beside.stop()

    def _start_task(self, remote_command: ForwardedCommand) -> None:
        self._beside.start(
            f"command {remote_command.id}", partial(self._forward_until_reported, remote_command)
        )

    async def _forward_until_reported(self, remote_command: ForwardedCommand) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not await self._try_to_finish(remote_command):
            if remote_command.command["expiresAt"] < now_ms():
                await self._store.finish_command(remote_command)
                return
            await asyncio.sleep(pause)
            pause = min(pause * PAUSE_GROWTH, LONGEST_PAUSE_SECONDS)

    async def _try_to_finish(self, remote_command: ForwardedCommand) -> bool:
        """Send a command, check its task or report its result; return whether it is reported.

        Returns False after an error, so that the caller tries again.
        """
        try:
            if remote_command.reply is None:
                async with self._calls.slot(remote_command.tenant):
                    remote_command.reply = await self._send_or_check_task(remote_command)
                await self._store.save_command(remote_command)
            if remote_command.reply is None:
                return False
            await self._report_result(remote_command)
        except ThingwayError as error:
            log.info("command %d waits: %s", remote_command.id, error)
            return False
        return True

    async def _send_or_check_task(self, remote_command: ForwardedCommand) -> dict[str, Any] | None:
        """Send the command or check its task; return the result, None while it is unknown."""
        try:
            remote = await self._accounts.get_platform(remote_command.tenant)
            if remote_command.task is None:
                remote_command.task = await _send(remote, remote_command)
                return {"status": "SUCCESS"} if remote_command.task is None else None
            task = await remote.get_task(remote_command.task)
        except (InvalidInput, NotFound, Conflict, UpstreamFailed) as error:
            return {"status": "FAILED", "error": error.text}
        if task.status not in COMMAND_STATUS_BY_TASK_STATUS:
            return None
        reply: dict[str, Any] = {"status": COMMAND_STATUS_BY_TASK_STATUS[task.status]}
        if task.outputs is not None:
            reply["outputs"] = task.outputs
        if reply["status"] == "FAILED":
            reply["error"] = task.err_msg or task.status
        return reply

    async def _report_result(self, remote_command: ForwardedCommand) -> None:
        reply = remote_command.reply or {}
        try:
            await self._things.send_reply(
                remote_command.tenant,
                remote_command.identifier,
                remote_command.id,
                reply["status"],
                outputs=reply.get("outputs"),
                error=reply.get("error"),
            )
        except NotFound:
            log.info("command %d: the device was deleted", remote_command.id)
        await self._store.finish_command(remote_command)


async def _send(remote: RemotePlatform, remote_command: ForwardedCommand) -> str | None:
    """Send a command; return the id of its task, if any."""
    command = remote_command.command
    match command["kind"]:
        case "SET_PROPERTIES":
            return await remote.set_properties(remote_command.remote_id, command["properties"])
        case "CALL_SERVICE":
            inputs = command.get("inputs") or {}
            return await remote.call_service(remote_command.remote_id, command["serviceId"], inputs)
        case "SET_PROFILE":
            return await remote.set_profile(remote_command.remote_id, command["values"])
        case other:
            raise InvalidInput(f"commands of kind {other} are not supported")
