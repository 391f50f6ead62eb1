"""Deletes `EVENTS` consumers of applications that may no longer read events.

Otherwise JetStream would keep their unacknowledged messages forever.
"""

import logging
from dataclasses import dataclass
from uuid import UUID

import msgspec

from libs.common.bus import EVENTS, Bus
from libs.common.scheduling.turns import repeat
from services.auth.applications.store import ApplicationStore

log = logging.getLogger(__name__)

SWEEP_SECONDS = 300.0
"""Seconds between two sweeps."""
REQUEST_TIMEOUT_SECONDS = 5.0
"""Timeout of JetStream requests, in seconds."""


class _ConsumerNamesPage(msgspec.Struct):
    total: int = 0
    consumers: list[str] | None = None


@dataclass(frozen=True)
class AbandonedConsumerSweep:
    """Deletes abandoned durable consumers, which are named after client ids."""

    bus: Bus
    applications: ApplicationStore

    async def run(self) -> None:
        """Call `delete_abandoned` periodically; runs in the lease holder."""
        await repeat(self.delete_abandoned, SWEEP_SECONDS, "consumers were not checked; retrying")

    async def delete_abandoned(self) -> None:
        """Delete each consumer whose application is deleted or may not read events."""
        for name in await self._list_names():
            if _is_client_id(name):
                application = await self.applications.find_by_client_id(name)
                if application is None or not application.events:
                    await self._request(f"$JS.API.CONSUMER.DELETE.{EVENTS}.{name}")
                    log.info("deleted the EVENTS consumer of application %s", name)

    async def _list_names(self) -> list[str]:
        names: list[str] = []
        while True:
            page = msgspec.json.decode(
                await self._request(f"$JS.API.CONSUMER.NAMES.{EVENTS}", {"offset": len(names)}),
                type=_ConsumerNamesPage,
            )
            names += page.consumers or []
            if not page.consumers or len(names) >= page.total:
                return names

    async def _request(self, subject: str, body: dict[str, int] | None = None) -> bytes:
        encoded = b"" if body is None else msgspec.json.encode(body)
        return (
            await self.bus.client.request(subject, encoded, timeout=REQUEST_TIMEOUT_SECONDS)
        ).data


def _is_client_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
