"""Makes the own things of integrations before anybody looks for their entities."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from libs.common.contracts.integrations import Integration, Manifest
from libs.common.errors import Unavailable, UpstreamFailed

log = logging.getLogger(__name__)

KEPT = 10_000
"""Most tenants of which it is known what there is."""


class Integrations(Protocol):
    """Knows the integrations."""

    async def expecting(self, integrations: Iterable[str]) -> Mapping[str, Integration]:
        """The integrations by id, surely those named; raises `Unavailable` when nobody knows."""


class Things(Protocol):
    """Keeps the things of integrations."""

    async def ensure(self, tenant: str, manifest: Manifest) -> dict[str, Any]:
        """The document of the integration's thing in a tenant, with its current TSL."""


class OwnThingsOfAll:
    """One per process; what was made with a manifest is not looked at again."""

    def __init__(self, integrations: Integrations, things: Things) -> None:
        self._integrations = integrations
        self._things = things
        self._made: OrderedDict[str, dict[str, Manifest]] = OrderedDict()

    async def complete(self, tenant: str, integrations: Iterable[str] = ()) -> None:
        """Make what is missing in a tenant, surely the things of `integrations`.

        Without `management` what there is suffices.
        """
        try:
            found = await self._integrations.expecting(integrations)
        except (Unavailable, UpstreamFailed) as error:
            log.warning("entities of new integrations may be missing: %s", error)
            return
        made = self._made.setdefault(tenant, {})
        self._made.move_to_end(tenant)
        if len(self._made) > KEPT:
            self._made.popitem(last=False)
        there = [one.manifest for one in found.values() if one.alive and not one.manifest.hidden]
        new = [one for one in there if made.get(one.id) != one]
        await asyncio.gather(*(self._make(tenant, one, made) for one in new))

    async def _make(self, tenant: str, manifest: Manifest, made: dict[str, Manifest]) -> None:
        try:
            await self._things.ensure(tenant, manifest)
        except UpstreamFailed as error:
            log.warning("integration %s has no entities: %s", manifest.id, error)
        made[manifest.id] = manifest
