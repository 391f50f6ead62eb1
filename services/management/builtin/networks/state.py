"""What people see of a network server: properties of the integration."""

import asyncio
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any

from libs.common.jobs import happened
from services.management.builtin.tsl import Part, own_property

SHOW_EVERY = 30.0
"""Seconds between two looks at what is counted; what is urgent is shown at once."""
SHOW_PAUSE = 1.0
MOST_REFUSED = 50
"""Devices that are shown with the reason why they were not taken, those heard last."""
LONGEST_ERROR, LONGEST_REASON = 500, 200


def state_properties() -> list[Part]:
    """For a manifest."""
    return [
        own_property("connected", "Connected", "R", "Whether the server is", dataType="BOOL"),
        own_property("last_error", "Last error", "R", "What is wrong", dataType="STRING"),
        own_property("uplinks", "Uplinks", "R", "Taken so far", dataType="LONG"),
        own_property(
            "not_taken",
            "Not taken",
            "R",
            "Devices that were heard and not taken, the last first, each with the reason: "
            "those that are not known here can be added",
            dataType="STRING",
        ),
    ]


class State:
    """The state of the server of one tenant."""

    def __init__(self, uplinks: int) -> None:
        self.connected = False
        self.last_error = ""
        self.uplinks = uplinks
        self._refused: dict[str, str] = {}
        """Why nothing of a device was taken, by DevEUI."""
        self._urgent = asyncio.Event()

    def up(self) -> None:
        """The connection is there."""
        self._now(connected=True, error="")

    def down(self, reason: str) -> None:
        """There is none; `reason` is empty when none is wanted."""
        self._now(connected=False, error=reason)

    def failed(self, reason: str) -> None:
        """Something went wrong, and the connection goes on; it is shown with the minute."""
        error = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC: {reason}"
        self._now(connected=self.connected, error=error)

    def _now(self, *, connected: bool, error: str) -> None:
        before = (self.connected, self.last_error)
        self.connected, self.last_error = connected, error[:LONGEST_ERROR]
        if (self.connected, self.last_error) != before:
            self._urgent.set()

    def refuse(self, identifier: str, reason: str) -> None:
        """Something of a device was not taken."""
        reason = reason[:LONGEST_REASON]
        if self._refused.pop(identifier, None) != reason:
            self._urgent.set()
        self._refused[identifier] = reason
        if len(self._refused) > MOST_REFUSED:
            self._refused.pop(next(iter(self._refused)))

    def taken(self, identifiers: AbstractSet[str], uplinks: int) -> None:
        """Uplinks of devices were taken."""
        if not self.uplinks and uplinks:
            self._urgent.set()
        self.uplinks += uplinks
        for identifier in identifiers & self._refused.keys():
            del self._refused[identifier]
            self._urgent.set()

    def properties(self) -> dict[str, Any]:
        """As they are shown."""
        lines = [f"{one}: {reason}" for one, reason in reversed(self._refused.items())]
        return {
            "connected": self.connected,
            "last_error": self.last_error,
            "uplinks": self.uplinks,
            "not_taken": "\n".join(lines),
        }

    async def news(self) -> None:
        """Wait until there may be something new to show."""
        await happened(self._urgent, SHOW_EVERY)
        self._urgent.clear()
