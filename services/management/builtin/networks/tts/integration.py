"""`tts` of all tenants."""

from typing import Any

from libs.common.contracts.integrations import NOT_SET, PropertiesUpdated
from libs.common.errors import InvalidInput
from services.management.builtin.networks.heard import Carried, Heard, Queued
from services.management.builtin.networks.server import NetworkServer
from services.management.builtin.networks.settings import USERNAME, Broker, text_of
from services.management.builtin.networks.tts import messages
from services.management.builtin.networks.tts.manifest import DEVICE, MANIFEST


class TheThingsStack(NetworkServer):
    """Hears an application of The Things Stack, whose broker knows QoS 0 only."""

    manifest = MANIFEST
    qos = 0
    routed_by = DEVICE

    async def updated(self, change: PropertiesUpdated) -> None:
        """Take the user name, which is in topics, and the rest; raises `InvalidInput`."""
        if {*"+#/"} & {*text_of(change.properties, USERNAME)}:
            raise InvalidInput("must be application@tenant", field=USERNAME)
        await super().updated(change)

    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """All of the application that the user name is."""
        if not broker.username:
            raise InvalidInput("is not set: application@tenant", field=USERNAME, code=NOT_SET)
        return [f"v3/{broker.username}/devices/+/{kind}" for kind in messages.KINDS]

    def read(self, tenant: str, topic: str, payload: bytes) -> Heard | None:
        """A message of the application server."""
        return messages.read(tenant, payload)

    def read_hook(self, tenant: str, body: bytes, values: dict[str, Any]) -> Heard | None:
        """The same message."""
        return messages.read(tenant, body)

    def queue(self, carried: Carried, broker: Broker, values: dict[str, Any]) -> Queued:
        """A push to the end of the device's queue."""
        return messages.queued(carried, broker.username)
