"""`chirpstack` of all tenants."""

import re
from typing import Any
from urllib.parse import urlsplit

from libs.common.contracts.integrations import NOT_SET, AddDevice, NewDevice, PropertiesUpdated
from libs.common.errors import InvalidInput
from libs.common.http.outgoing import checked_url
from services.management.builtin.networks.chirpstack import events
from services.management.builtin.networks.chirpstack.manifest import (
    API,
    API_TOKEN,
    APP_KEY,
    APPLICATION,
    JOIN_EUI,
    MANIFEST,
    PROFILE,
)
from services.management.builtin.networks.chirpstack.registering import Api, Registration, register
from services.management.builtin.networks.heard import Carried, Heard, Queued, dev_eui
from services.management.builtin.networks.server import NetworkServer
from services.management.builtin.networks.settings import CA, Broker, text_of

_KEY = re.compile("[0-9a-fA-F]{32}")
_ID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class ChirpStack(NetworkServer):
    """Hears the events of ChirpStack's MQTT integration and publishes its commands."""

    manifest = MANIFEST
    own_settings = (APPLICATION,)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Take the API and its key, the application and the rest; raises `InvalidInput`."""
        given, tenant = change.properties, change.tenant
        if text := text_of(given, API):
            self._checked(text)
        if (text := text_of(given, APPLICATION)) and not _ID.fullmatch(text):
            raise InvalidInput("must be the ID of an application, a UUID", field=APPLICATION)
        await super().updated(change)
        if token := text_of(given, API_TOKEN):
            values = (await self.things.own_values(tenant)).properties | given
            await self.store.keep_secret(tenant, API_TOKEN, token, text_of(values, API))

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        """A device by its DevEUI; one with a device profile is registered at ChirpStack first."""
        new = await super().add_device(wanted)
        profile, app_key = text_of(wanted.params, PROFILE), text_of(wanted.params, APP_KEY)
        if not profile:
            if app_key:
                raise InvalidInput("is needed to register a device", field=PROFILE, code=NOT_SET)
            return new
        if app_key and not _KEY.fullmatch(app_key):
            raise InvalidInput("must be 32 hexadecimal digits", field=APP_KEY)
        join_eui = text_of(wanted.params, JOIN_EUI)
        values = (await self.things.own_values(wanted.tenant)).properties
        application = text_of(wanted.params, APPLICATION) or text_of(values, APPLICATION)
        if not application:
            raise InvalidInput("is needed to register a device", field=APPLICATION, code=NOT_SET)
        registration = Registration(
            dev_eui=new.identifier,
            name=wanted.name,
            application=application,
            profile=profile,
            join_eui=dev_eui(join_eui, JOIN_EUI) if join_eui else "",
            app_key=app_key,
        )
        await register(await self._api(wanted.tenant, values), registration, self.allowed)
        new.additional[APPLICATION] = application
        return new

    async def _api(self, tenant: str, values: dict[str, Any]) -> Api:
        """Raise `InvalidInput` naming the setting that is missing."""
        text = text_of(values, API)
        if not text:
            raise InvalidInput("api is not set: devices are registered with it", field=PROFILE)
        token = await self.store.secret(tenant, API_TOKEN, text)
        if not token:
            raise InvalidInput("api_token is not set for this api: give it", field=PROFILE)
        host, port, tls = self._checked(text)
        return Api(host=host, port=port, tls=tls, ca=text_of(values, CA), token=token)

    def _checked(self, text: str) -> tuple[str, int, bool]:
        parts = urlsplit(checked_url(text, API, self.allowed))
        tls = parts.scheme == "https"
        if parts.path:
            raise InvalidInput("must be https://host:port or http://host:port", field=API)
        return parts.hostname or "", parts.port or (443 if tls else 80), tls

    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Events of one application, or of all."""
        application = values[APPLICATION] or "+"
        return [f"application/{application}/device/+/event/{kind}" for kind in events.KINDS]

    def read(self, tenant: str, topic: str, payload: bytes) -> Heard | None:
        """An event in JSON or protobuf."""
        return events.read(tenant, topic, payload)

    def queue(self, carried: Carried, broker: Broker, values: dict[str, Any]) -> Queued:
        """A command, in the encoding that the server speaks."""
        return events.queued(carried)
