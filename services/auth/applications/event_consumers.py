"""Ends the consumers on `EVENTS` of applications that are gone or hear events no longer.

Such a consumer would keep its place, and hold what it has not acknowledged, for ever.
"""

import logging
from dataclasses import dataclass
from uuid import UUID

import msgspec

from libs.common.bus import EVENTS, Bus
from libs.common.scheduling.turns import repeat
from services.auth.applications.store import ApplicationStore

log = logging.getLogger(__name__)

PERIOD = 300.0
"""Seconds between two looks."""
WAIT = 5.0
"""Seconds that JetStream gets to answer."""


class _Names(msgspec.Struct):
    total: int = 0
    consumers: list[str] | None = None


@dataclass(frozen=True)
class EventConsumers:
    """The durable consumers of applications, each named as its client id."""

    bus: Bus
    applications: ApplicationStore

    async def sweep(self) -> None:
        """End those that nobody may use, for ever; run by the lease holder."""
        await repeat(self.end_abandoned, PERIOD, "consumers of applications are looked at later")

    async def end_abandoned(self) -> None:
        """Look at each consumer once."""
        for name in await self._names():
            if _is_client_id(name):
                application = await self.applications.by_client_id(name)
                if application is None or not application.events:
                    await self._ask(f"$JS.API.CONSUMER.DELETE.{EVENTS}.{name}")
                    log.info("the consumer of application %s is deleted", name)

    async def _names(self) -> list[str]:
        names: list[str] = []
        while True:
            page = msgspec.json.decode(
                await self._ask(f"$JS.API.CONSUMER.NAMES.{EVENTS}", {"offset": len(names)}),
                type=_Names,
            )
            names += page.consumers or []
            if not page.consumers or len(names) >= page.total:
                return names

    async def _ask(self, subject: str, body: dict[str, int] | None = None) -> bytes:
        encoded = b"" if body is None else msgspec.json.encode(body)
        return (await self.bus.client.request(subject, encoded, timeout=WAIT)).data


def _is_client_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
