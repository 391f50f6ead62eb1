"""`webhook` of all tenants."""

from typing import Any

from libs.common.contracts.frames import CarryDownlinks
from libs.common.contracts.integrations import PropertiesUpdated
from libs.common.errors import InvalidInput
from services.management.builtin.networks.heard import Carried, Heard, Queued
from services.management.builtin.networks.server import NetworkServer
from services.management.builtin.networks.settings import Broker
from services.management.builtin.networks.webhook import mapping, presets
from services.management.builtin.networks.webhook.manifest import MANIFEST


class Webhook(NetworkServer):
    """Takes what is posted; it has no broker, and nothing goes back."""

    manifest = MANIFEST
    own_settings = (presets.PRESET, *presets.POINTERS, presets.ENCODING)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Take the mapping and the token; raises `InvalidInput`."""
        mapping.check(change.properties)
        await super().updated(change)

    async def downlink(self, wanted: CarryDownlinks) -> None:
        """Raise `InvalidInput`: there is nobody to give it to."""
        raise InvalidInput("a webhook takes no downlinks", field="integration")

    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """None."""
        return []

    def read(self, tenant: str, topic: str, payload: bytes) -> Heard | None:
        """Nothing comes by a broker."""
        return None

    def read_hook(self, tenant: str, body: bytes, values: dict[str, Any]) -> Heard | None:
        """What the mapping finds in a body."""
        return mapping.read(tenant, body, values)

    def queue(self, carried: Carried, broker: Broker, values: dict[str, Any]) -> Queued:
        """Nothing goes by a broker."""
        raise InvalidInput("a webhook takes no downlinks", field="integration")
