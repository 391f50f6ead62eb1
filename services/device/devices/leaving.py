"""What ends when a device leaves its application or the platform (docs/ownership.md).

Its key and the connections that it opened end, and the tasks that nobody will answer.
"""

import logging

from libs.common.errors import ThingwayError
from libs.common.store.mongo import StoreError
from services.device.commands.completion import CommandEnding
from services.device.commands.model import Reason
from services.device.members.device_keys import CredentialsOverRpc, Step
from services.device.things.model import Device

log = logging.getLogger(__name__)


class Leaving:
    """Lets devices go."""

    def __init__(self, keys: CredentialsOverRpc, commands: CommandEnding) -> None:
        self._keys = keys
        self._commands = commands

    async def leave(self, device: Device, step: Step, reason: Reason) -> None:
        """End the key, do the `step` by which the device leaves, and end its tasks.

        The key ends before, so that a crash in between leaves no key without an owner; and once
        more after, for one that was issued meanwhile. Raises what the first end and `step` raise.
        """
        await self._keys.revoke(device.sn, device.id, device.tenant)
        await step()
        try:
            await self._keys.revoke(device.sn, device.id, device.tenant)
        except ThingwayError as error:
            log.warning("device %d: a second revocation failed: %s", device.id, error)
        await self._end(device, reason)

    async def leave_application(self, device: Device, step: Step, reason: Reason) -> None:
        """`leave`; but what goes back to the users, who gave it, keeps its key."""
        await (self.go_back if device.given else self.leave)(device, step, reason)

    async def go_back(self, device: Device, step: Step, reason: Reason) -> None:
        """Do the `step` by which the device goes back to the users, and end its tasks."""
        await step()
        await self._end(device, reason)

    async def _end(self, device: Device, reason: Reason) -> None:
        try:
            await self._commands.end(device, reason)
        except StoreError as error:
            log.warning("device %d: its tasks end later: %s", device.id, error)
