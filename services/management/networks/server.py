"""Base of the integrations with network servers: a connection per tenant with a broker."""

import asyncio
import logging
from abc import abstractmethod
from typing import Any

import msgspec

from libs.common.bus import RawRequest
from libs.common.contracts.frames import QueueDownlinks
from libs.common.contracts.integrations import (
    Acknowledged,
    AddDevice,
    DeviceRef,
    NewDevice,
    PropertiesUpdated,
)
from libs.common.errors import InvalidInput, NotFound, ThingwayError, Unavailable
from libs.common.integrations import IntegrationThings
from libs.common.scheduling.turns import TenantSteps, take_turns
from services.management.networks import settings
from services.management.networks.messages import (
    DownlinkRoute,
    InboundMessage,
    OutboundDownlink,
    Publication,
    parse_dev_eui,
)
from services.management.networks.settings import Broker
from services.management.networks.store import WEBHOOK_SETTING, NetworkStore
from services.management.networks.tenant_connection import Dialect, TenantConnection

log = logging.getLogger(__name__)

SETTINGS_CHECK_SECONDS = 30.0
"""Seconds between two checks of the settings; changes take effect immediately."""
MAX_CONCURRENT_CHECKS = 16
"""Tenants whose settings are checked concurrently."""


class NetworkServer(Dialect):
    """Base of integrations with network servers; subclasses define the messages.

    `run` connects tenants; operations such as `downlink` use these connections.
    """

    qos = 1
    """Quality of service of downlinks."""
    own_settings: tuple[str, ...] = ()
    """Settings that determine topics or downlinks, in addition to those of the broker."""
    routed_by = "application"
    """Field of `DownlinkRoute` that users may set when they add a device."""

    def __init__(
        self, things: IntegrationThings, store: NetworkStore, allowed_networks: tuple[str, ...]
    ) -> None:
        super().__init__(things, store, allowed_networks)
        self._connections: dict[str, TenantConnection] = {}

    @abstractmethod
    def encode_downlink(
        self, downlink: OutboundDownlink, broker: Broker, values: dict[str, Any]
    ) -> Publication:
        """Return a downlink in the format of the server."""

    def decode_hook(
        self, tenant: str, body: bytes, values: dict[str, Any]
    ) -> InboundMessage | None:
        """Return the message in a webhook body (see `decode_message`); raise `InvalidInput`.

        This base raises `NotFound`, for network servers without webhooks.
        """
        raise NotFound("the integration has no webhook")

    async def receive_hook(self, call: RawRequest) -> Acknowledged:
        """Forward the message of a webhook request; its errors appear in the tenant's state."""
        connection = self._connections.get(call.tenant)
        if connection is None:
            await self._apply_settings(call.tenant)
            connection = self._get_or_create_connection(call.tenant)
        try:
            message = self.decode_hook(call.tenant, call.body, connection.values)
        except InvalidInput as error:
            connection.state.record_failure(f"webhook: {error.text}")
            raise
        await connection.forward_hook_message(message)
        return Acknowledged()

    async def add_device(self, request: AddDevice) -> NewDevice:
        """Return a device by its DevEUI, with its route at the server."""
        params = request.params
        routed = settings.read_setting(params, self.routed_by)
        return NewDevice(
            identifier=parse_dev_eui(params["dev_eui"], "dev_eui"),
            model=params["model"],
            additional={self.routed_by: routed} if routed else {},
        )

    async def delete_device(self, device: DeviceRef) -> None:
        """Delete the route of a device; the device remains at the network server."""
        await self.store.delete_route(device.tenant, device.identifier)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Store secrets, and connect with the new settings; raise `InvalidInput`."""
        properties, tenant = change.properties, change.tenant
        settings.check_broker_settings(properties, self.allowed_networks)
        values = (await self.things.get_own_values(tenant)).properties | properties
        await self.store.get_or_create_client_id(tenant)
        for name in settings.BROKER_SECRET_SETTINGS:
            if properties.get(name):
                await self.store.save_secret(
                    tenant, name, properties[name], settings.build_secret_binding(values)
                )
        if properties.get(WEBHOOK_SETTING):
            await self.store.save_hook(tenant, properties[WEBHOOK_SETTING])
        await self._connect_with(tenant, values)

    async def downlink(self, request: QueueDownlinks) -> None:
        """Queue downlinks for a device at its server; duplicates are ignored."""
        device = request.device
        route = await self._get_route(device)
        connection = self._get_or_create_connection(device.tenant)
        for downlink in request.downlinks:
            if await self.store.register_downlink(device.tenant, device.identifier, downlink.id):
                reference = self.store.derive_reference(device.tenant, downlink.id)
                outbound = OutboundDownlink(device.identifier, route, downlink, reference)
                await self._publish(connection, outbound)
                await self.store.mark_queued(device.tenant, downlink.id)

    async def _publish(self, connection: TenantConnection, downlink: OutboundDownlink) -> None:
        if connection.broker is None:
            raise Unavailable("no network server is set, or its settings are invalid")
        publication = self.encode_downlink(downlink, connection.broker, connection.values)
        await connection.publish(publication, self.qos)

    async def _get_route(self, device: DeviceRef) -> DownlinkRoute:
        route = await self.store.find_route(device.tenant, device.identifier)
        if route is not None:
            return route
        routing = device.additional.get(self.routed_by)
        if not routing:
            text = f"the device has sent no message yet, and was added without {self.routed_by}"
            raise Unavailable(text)
        return msgspec.convert({self.routed_by: str(routing)}, DownlinkRoute)

    async def run(self) -> None:
        """Keep tenants connected, for ever."""
        name = f"{self.manifest.id} settings"
        try:
            await take_turns(
                name,
                MAX_CONCURRENT_CHECKS,
                self.store.list_configured_tenants,
                self._settings_check_steps,
                SETTINGS_CHECK_SECONDS,
            )
        finally:
            await asyncio.gather(*(connection.stop() for connection in self._connections.values()))

    async def _settings_check_steps(self, tenant: str) -> TenantSteps:
        await self._apply_settings(tenant)
        yield

    async def _apply_settings(self, tenant: str) -> None:
        try:
            await self._connect_with(tenant, (await self.things.get_own_values(tenant)).properties)
        except ThingwayError as error:
            log.warning(
                "%s: the settings of %s cannot be applied: %s", self.manifest.id, tenant, error
            )

    async def _connect_with(self, tenant: str, values: dict[str, Any]) -> None:
        connection = self._get_or_create_connection(tenant, values)
        own_values = {name: settings.read_setting(values, name) for name in self.own_settings}
        try:
            broker = await settings.read_broker(self.store, tenant, values, self.allowed_networks)
        except InvalidInput as error:
            await connection.apply_settings(None, own_values, error.text)
        else:
            await connection.apply_settings(broker, own_values)

    def _get_or_create_connection(
        self, tenant: str, values: dict[str, Any] | None = None
    ) -> TenantConnection:
        connection = self._connections.get(tenant)
        if connection is None:
            uplinks = (values or {}).get("uplinks") or 0
            connection = self._connections[tenant] = TenantConnection(self, tenant, uplinks)
        return connection
