"""The integration `webhook`: devices of any network server that posts JSON."""

from typing import Any

from libs.common.contracts.frames import QueueDownlinks
from libs.common.contracts.integrations import PropertiesUpdated
from libs.common.errors import InvalidInput
from services.management.manifests import load_manifest
from services.management.networks import webhook_mapping as mapping
from services.management.networks.messages import InboundMessage, OutboundDownlink, Publication
from services.management.networks.server import NetworkServer
from services.management.networks.settings import Broker


class Webhook(NetworkServer):
    """Receives posted messages; it has no broker, and no downlinks."""

    manifest = load_manifest("webhook")
    own_settings = (mapping.PRESET_SETTING, *mapping.POINTER_FIELDS, mapping.ENCODING)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Store the mapping and the token; raise `InvalidInput`."""
        mapping.check_pointers(change.properties)
        await super().updated(change)

    async def downlink(self, request: QueueDownlinks) -> None:
        """Raise `InvalidInput`, because webhooks have no downlinks."""
        raise InvalidInput("a webhook does not support downlinks", field="integration")

    def list_topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Return no topics."""
        return []

    def decode_message(self, tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
        """Return None, because there is no broker."""
        return None

    def decode_hook(
        self, tenant: str, body: bytes, values: dict[str, Any]
    ) -> InboundMessage | None:
        """Return the message that the mapping finds in a body."""
        return mapping.map_body_to_uplink(tenant, body, values)

    def encode_downlink(
        self, downlink: OutboundDownlink, broker: Broker, values: dict[str, Any]
    ) -> Publication:
        """Raise `InvalidInput`, because webhooks have no downlinks."""
        raise InvalidInput("a webhook does not support downlinks", field="integration")
