"""The integration `chirpstack`: devices of a ChirpStack 4 server, over MQTT and gRPC."""

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from libs.common.contracts.integrations import (
    MISSING_SETTING_CODE,
    AddDevice,
    NewDevice,
    PropertiesUpdated,
)
from libs.common.errors import InvalidInput
from libs.common.http.outgoing import validate_url
from services.management.manifests import load_manifest
from services.management.networks.chirpstack_events import EVENT_KINDS, decode_event, encode_command
from services.management.networks.messages import (
    InboundMessage,
    OutboundDownlink,
    Publication,
    parse_dev_eui,
)
from services.management.networks.server import NetworkServer
from services.management.networks.settings import CA, Broker, read_setting

APPLICATION_SETTING = "application"
API, API_TOKEN = "api", "api_token"
PROFILE, JOIN_EUI, APP_KEY = "device_profile", "join_eui", "app_key"
_APP_KEY_PATTERN = re.compile("[0-9a-fA-F]{32}")
_UUID_PATTERN = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, kw_only=True)
class ChirpStackApi:
    """ChirpStack's API, and the key with which it is called."""

    host: str
    port: int
    tls: bool
    ca: str
    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class DeviceRegistration:
    """A device to register in ChirpStack."""

    dev_eui: str
    name: str
    application: str
    profile: str
    join_eui: str
    app_key: str = field(repr=False)


class ChirpStack(NetworkServer):
    """Receives events of ChirpStack's MQTT integration, and publishes downlink commands."""

    manifest = load_manifest("chirpstack")
    own_settings = (APPLICATION_SETTING,)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Store the API and its key, the application and the broker; raise `InvalidInput`."""
        properties, tenant = change.properties, change.tenant
        if text := read_setting(properties, API):
            self._parse_api_url(text)
        if (text := read_setting(properties, APPLICATION_SETTING)) and not _UUID_PATTERN.fullmatch(
            text
        ):
            raise InvalidInput(
                "must be the ID of an application (a UUID)", field=APPLICATION_SETTING
            )
        await super().updated(change)
        if token := read_setting(properties, API_TOKEN):
            values = (await self.things.get_own_values(tenant)).properties | properties
            await self.store.save_secret(tenant, API_TOKEN, token, read_setting(values, API))

    async def add_device(self, request: AddDevice) -> NewDevice:
        """Return a device by its DevEUI; with a device profile, register it in ChirpStack."""
        new = await super().add_device(request)
        profile, app_key = (
            read_setting(request.params, PROFILE),
            read_setting(request.params, APP_KEY),
        )
        if not profile:
            if app_key:
                raise InvalidInput(
                    "is required to register a device", field=PROFILE, code=MISSING_SETTING_CODE
                )
            return new
        if app_key and not _APP_KEY_PATTERN.fullmatch(app_key):
            raise InvalidInput("must be 32 hexadecimal digits", field=APP_KEY)
        join_eui = read_setting(request.params, JOIN_EUI)
        values = (await self.things.get_own_values(request.tenant)).properties
        application = read_setting(request.params, APPLICATION_SETTING) or read_setting(
            values, APPLICATION_SETTING
        )
        if not application:
            raise InvalidInput(
                "is required to register a device",
                field=APPLICATION_SETTING,
                code=MISSING_SETTING_CODE,
            )
        registration = DeviceRegistration(
            dev_eui=new.identifier,
            name=request.name,
            application=application,
            profile=profile,
            join_eui=parse_dev_eui(join_eui, JOIN_EUI) if join_eui else "",
            app_key=app_key,
        )
        # its libraries need 10 MiB, and few users register devices
        from services.management.networks import chirpstack_registration  # noqa: PLC0415

        await chirpstack_registration.register_device(
            await self._read_api(request.tenant, values), registration, self.allowed_networks
        )
        new.additional[APPLICATION_SETTING] = application
        return new

    async def _read_api(self, tenant: str, values: dict[str, Any]) -> ChirpStackApi:
        """Return the API of a tenant; raise `InvalidInput` for a missing setting."""
        text = read_setting(values, API)
        if not text:
            raise InvalidInput("api is not set, but is required to register devices", field=PROFILE)
        token = await self.store.find_secret(tenant, API_TOKEN, text)
        if not token:
            raise InvalidInput("api_token is not set for this api: enter it", field=PROFILE)
        host, port, tls = self._parse_api_url(text)
        return ChirpStackApi(
            host=host, port=port, tls=tls, ca=read_setting(values, CA), token=token
        )

    def _parse_api_url(self, text: str) -> tuple[str, int, bool]:
        parts = urlsplit(validate_url(text, API, self.allowed_networks))
        tls = parts.scheme == "https"
        if parts.path:
            raise InvalidInput("must be https://host:port or http://host:port", field=API)
        return parts.hostname or "", parts.port or (443 if tls else 80), tls

    def list_topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Return the topics of the events of one application, or of all."""
        application = values[APPLICATION_SETTING] or "+"
        return [f"application/{application}/device/+/event/{kind}" for kind in EVENT_KINDS]

    def decode_message(self, tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
        """Decode an event, which is JSON or protobuf."""
        return decode_event(tenant, topic, payload)

    def encode_downlink(
        self, downlink: OutboundDownlink, broker: Broker, values: dict[str, Any]
    ) -> Publication:
        """Encode a downlink command in JSON or protobuf, as the server encodes its events."""
        return encode_command(downlink)
