"""Which integrations there are, as `management` knows them; asked at most every two seconds."""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping

from libs.common.bus import RpcClient
from libs.common.contracts.integrations import (
    GET_INTEGRATIONS,
    GetIntegrations,
    Integration,
    KnownIntegrations,
)
from libs.common.errors import Unavailable, UpstreamFailed
from libs.common.things import DIRECT
from services.device.things.integrations import BuiltIn
from services.device.things.integrations import Integration as Shown

log = logging.getLogger(__name__)

FRESH = 2.0
"""Seconds for which an answer holds."""


class IntegrationsOverRpc:
    """Knows the integrations; one per process."""

    def __init__(self, client: RpcClient) -> None:
        self._client = client
        self._found: Mapping[str, Integration] = {}
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def all(self) -> Mapping[str, Integration]:
        """The integrations by id, silent ones too; raise `Unavailable` when nobody knows."""
        if time.monotonic() < self._until:
            return self._found
        async with self._asking:
            if time.monotonic() >= self._until:
                answer = await self._client.call(
                    GET_INTEGRATIONS, GetIntegrations(), KnownIntegrations
                )
                self._found = {one.manifest.id: one for one in answer.integrations}
                self._until = time.monotonic() + FRESH
        return self._found

    async def expecting(self, integrations: Iterable[str]) -> Mapping[str, Integration]:
        """All of them, asked anew when one of `integrations` is not there: it may just come."""
        found = await self.all()
        if any(one not in found or not found[one].alive for one in integrations):
            self._until = 0.0
            found = await self.all()
        return found

    async def find(self, integration: str) -> Integration | None:
        """One of them, there or silent; None when it was never announced."""
        return (await self.expecting([integration])).get(integration)

    async def carries(self, integration: str) -> bool:
        """Whether commands to its devices go to the integration."""
        if integration == DIRECT:
            return False
        found = (await self.all()).get(integration)
        return found is not None and found.manifest.carries_commands

    async def known(self) -> Mapping[str, Shown]:
        """As lists show them: what was known last when `management` is silent.

        Devices of an integration that is gone can be deleted, whatever it could do.
        """
        try:
            found = await self.all()
        except (Unavailable, UpstreamFailed) as error:
            log.warning("names of integrations may be old: %s", error)
            found = self._found
        shown = {key: Shown(one.manifest.name, _deletable(one)) for key, one in found.items()}
        return shown or await BuiltIn().known()


def _deletable(integration: Integration) -> bool:
    return not integration.alive or integration.manifest.delete_device_service is not None
