"""Uplinks that show what a command has set: then the device has it, acknowledged or not."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from libs.common.clock import to_ms
from services.device.commands.model import Command
from services.device.commands.store import CommandStore
from services.device.reports.batch import GoodReport
from services.device.things.store import DeviceStore


@dataclass(frozen=True, kw_only=True)
class ShownCommands:
    """Ends property updates that devices have shown to be in force."""

    commands: CommandStore
    devices: DeviceStore

    async def note(self, reports: Sequence[GoodReport]) -> None:
        """Look at reports that are stored; repeating it changes nothing.

        A command that sets write-only values ends when it is acknowledged: no report shows them.
        """
        awaited = await self.commands.awaited({report.thing.id for report in reports})
        if not awaited:
            return
        by_thing: dict[int, list[GoodReport]] = defaultdict(list)
        for report in reports:
            by_thing[report.thing.id].append(report)
        for command in awaited:
            if command.kind == "SET_PROPERTIES" and not command.write_only:
                await self._note(command, by_thing[command.thing_id])

    async def _note(self, command: Command, reports: Sequence[GoodReport]) -> None:
        wanted: dict[str, Any] = command.payload["properties"]
        since = to_ms(command.created_at)
        shown = {
            key
            for report in reports
            if report.ts >= since
            for key, value in report.properties.items()
            if key in wanted and shows(value, wanted[key])
        }
        if shown and len(await self.commands.note_shown(command, shown)) == len(wanted):
            provisioned = self.devices.notes.provisioned
            await self.commands.end(
                command,
                "SUCCESS",
                None,
                also=lambda session: provisioned(command.thing_id, session),
            )


def shows(value: Any, wanted: Any) -> bool:
    """Whether what was reported is what was wanted; a STRUCT may have more."""
    if isinstance(value, dict) and isinstance(wanted, dict):
        return all(key in value and shows(value[key], wanted[key]) for key in wanted)
    return type(value) is type(wanted) and bool(value == wanted)
