"""`chirpstack`: devices of a ChirpStack 4 server, over its MQTT integration and its API (gRPC)."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import AF_INET6
from typing import Any
from urllib.parse import urlsplit

import grpc
from chirpstack_api.api import device_pb2 as pb
from chirpstack_api.api.device_pb2_grpc import DeviceServiceStub

from libs.common.contracts.integrations import NOT_SET, AddDevice, NewDevice, PropertiesUpdated
from libs.common.errors import Conflict, InvalidInput, ThingwayError, Unavailable
from libs.common.http.outgoing import LONGEST_URL, checked_url, outgoing_addresses
from services.management.networks.chirpstack_events import KINDS, encode_command, read_event
from services.management.networks.messages import (
    InboundMessage,
    OutboundDownlink,
    Publication,
    parse_dev_eui,
)
from services.management.networks.server import NetworkServer, create_manifest
from services.management.networks.settings import CA, Broker, broker_properties, read_text
from services.management.tsl import text_input, text_property

APPLICATION = "application"
API, API_TOKEN = "api", "api_token"
PROFILE, JOIN_EUI, APP_KEY = "device_profile", "join_eui", "app_key"
REGISTER_SECONDS = 8.0
"""For all that registering a device needs."""
UNDO_SECONDS = 3.0
LONGEST_REASON = 300
_REFUSED = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
_WRONG = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INTERNAL,
}
_KEY = re.compile("[0-9a-fA-F]{32}")
_ID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

MANIFEST = create_manifest(
    "chirpstack",
    "ChirpStack",
    "LoRaWAN devices of a ChirpStack 4 server",
    text_input(
        APPLICATION,
        "Application",
        "ID of its application in ChirpStack; it is learned with an uplink",
        64,
    ),
    text_input(
        PROFILE,
        "Device profile",
        "ID in ChirpStack: the device is registered there with it; empty when it is there",
        64,
    ),
    text_input(JOIN_EUI, "JoinEUI", "To be registered: 16 digits", 32),
    text_input(
        APP_KEY,
        "AppKey",
        "To be registered, for a device that joins: 32 hexadecimal digits; it is not kept here",
        64,
    ),
    properties=[
        *broker_properties(),
        text_property(
            APPLICATION,
            "Application",
            "RW",
            "ID of the one application to hear; empty for all that the broker shows",
            64,
        ),
        text_property(
            API,
            "API",
            "RW",
            "Of ChirpStack, to register devices: https://host:443 or http://host:8080",
            LONGEST_URL,
        ),
        text_property(
            API_TOKEN,
            "API key",
            "W",
            "Of ChirpStack, never shown; it is given anew with another API",
            4096,
        ),
    ],
)


@dataclass(frozen=True, kw_only=True)
class Api:
    """ChirpStack's API, and as whom it is asked."""

    host: str
    port: int
    tls: bool
    ca: str
    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A device as ChirpStack is told of it."""

    dev_eui: str
    name: str
    application: str
    profile: str
    join_eui: str
    app_key: str = field(repr=False)


class _Devices:
    """The calls of `DeviceService`, each of which says who asks."""

    def __init__(self, stub: DeviceServiceStub, token: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {token}"),)

    async def call(self, name: str, request: Any, timeout: float | None = None) -> Any:
        """Raises `AioRpcError`."""
        return await getattr(self._stub, name)(request, metadata=self._metadata, timeout=timeout)


async def register(api: Api, wanted: Registration, allowed: tuple[str, ...]) -> None:
    """Register a device with its key, or leave it as it is there when it is the same.

    Raises `InvalidInput` naming the input at fault, `Conflict` when ChirpStack has another device
    of this DevEUI, and `Unavailable`; then ChirpStack has no device more than before.
    """
    try:
        async with asyncio.timeout(REGISTER_SECONDS), _connected(api, allowed) as devices:
            await _register(devices, wanted)
    except TimeoutError as error:
        raise Unavailable("ChirpStack's API does not answer in time") from error
    except OSError as error:
        raise InvalidInput(f"cannot be called: {error.strerror or error}", field=API) from error
    except grpc.aio.AioRpcError as error:
        raise _told(error) from error


async def _register(devices: _Devices, wanted: Registration) -> None:
    device = pb.Device(
        dev_eui=wanted.dev_eui.lower(),
        name=wanted.name,
        application_id=wanted.application,
        device_profile_id=wanted.profile,
        join_eui=wanted.join_eui.lower(),
    )
    try:
        await devices.call("Create", pb.CreateDeviceRequest(device=device))
    except grpc.aio.AioRpcError as error:
        if error.code() != grpc.StatusCode.ALREADY_EXISTS:
            raise
        await _check_same(devices, wanted)
        return
    if not wanted.app_key:
        return
    try:
        await devices.call("CreateKeys", pb.CreateDeviceKeysRequest(device_keys=_keys(wanted)))
    except BaseException:
        await asyncio.shield(_undo(devices, wanted.dev_eui))
        raise


def _keys(wanted: Registration) -> pb.DeviceKeys:
    """The AppKey of LoRaWAN 1.0, which ChirpStack keeps as `nwk_key`."""
    return pb.DeviceKeys(dev_eui=wanted.dev_eui.lower(), nwk_key=wanted.app_key.lower())


async def _undo(devices: _Devices, dev_eui: str) -> None:
    request = pb.DeleteDeviceRequest(dev_eui=dev_eui.lower())
    try:
        await devices.call("Delete", request, UNDO_SECONDS)
    except grpc.aio.AioRpcError as error:
        text = f"ChirpStack took no key, and has the device {dev_eui} without it: delete it there"
        raise Unavailable(text) from error


async def _check_same(devices: _Devices, wanted: Registration) -> None:
    """Raise `Conflict` unless the device is there as it is wanted; a missing key is added."""
    eui = wanted.dev_eui.lower()
    there = (await devices.call("Get", pb.GetDeviceRequest(dev_eui=eui))).device
    same = (there.application_id, there.device_profile_id) == (wanted.application, wanted.profile)
    if same and wanted.app_key:
        try:
            keys = (await devices.call("GetKeys", pb.GetDeviceKeysRequest(dev_eui=eui))).device_keys
            same = keys.nwk_key.lower() == wanted.app_key.lower()
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
            await devices.call("CreateKeys", pb.CreateDeviceKeysRequest(device_keys=_keys(wanted)))
    if not same:
        text = "is registered at ChirpStack in another way: add it without a device profile"
        raise Conflict(text, field="dev_eui")


def _told(error: grpc.aio.AioRpcError) -> ThingwayError:
    reason = (error.details() or error.code().name)[:LONGEST_REASON]
    if error.code() in _REFUSED:
        return InvalidInput(f"is refused by ChirpStack: {reason}", field=API_TOKEN)
    if error.code() in _WRONG:
        named = [one for one in (PROFILE, APPLICATION, JOIN_EUI, APP_KEY) if _names(reason, one)]
        return InvalidInput(
            f"ChirpStack refuses the device: {reason}", field=named[0] if named else "dev_eui"
        )
    return Unavailable(f"ChirpStack's API: {reason}")


def _names(reason: str, key: str) -> bool:
    return key.replace("_", " ") in reason.lower().replace("-", " ").replace("_", " ")


@asynccontextmanager
async def _connected(api: Api, allowed: tuple[str, ...]) -> AsyncIterator[_Devices]:
    """Calls to an address that may be called; its certificate is checked for the name."""
    address = (await outgoing_addresses(api.host, api.port, allowed))[0]
    family = "ipv6" if address["family"] == AF_INET6 else "ipv4"
    host = f"[{address['host']}]" if family == "ipv6" else address["host"]
    target = f"{family}:{host}:{api.port}"
    options = [("grpc.default_authority", f"{api.host}:{api.port}"), ("grpc.enable_http_proxy", 0)]
    if api.tls:
        options.append(("grpc.ssl_target_name_override", api.host))
        trusted = grpc.ssl_channel_credentials(api.ca.encode() or None)
        channel = grpc.aio.secure_channel(target, trusted, options)
    else:
        channel = grpc.aio.insecure_channel(target, options)
    async with channel:
        yield _Devices(DeviceServiceStub(channel), api.token)


class ChirpStack(NetworkServer):
    """Hears the events of ChirpStack's MQTT integration and publishes its commands."""

    manifest = MANIFEST
    own_settings = (APPLICATION,)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Take the API and its key, the application and the rest; raises `InvalidInput`."""
        given, tenant = change.properties, change.tenant
        if text := read_text(given, API):
            self._checked(text)
        if (text := read_text(given, APPLICATION)) and not _ID.fullmatch(text):
            raise InvalidInput("must be the ID of an application, a UUID", field=APPLICATION)
        await super().updated(change)
        if token := read_text(given, API_TOKEN):
            values = (await self.things.own_values(tenant)).properties | given
            await self.store.save_secret(tenant, API_TOKEN, token, read_text(values, API))

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        """A device by its DevEUI; one with a device profile is registered at ChirpStack first."""
        new = await super().add_device(wanted)
        profile, app_key = read_text(wanted.params, PROFILE), read_text(wanted.params, APP_KEY)
        if not profile:
            if app_key:
                raise InvalidInput("is needed to register a device", field=PROFILE, code=NOT_SET)
            return new
        if app_key and not _KEY.fullmatch(app_key):
            raise InvalidInput("must be 32 hexadecimal digits", field=APP_KEY)
        join_eui = read_text(wanted.params, JOIN_EUI)
        values = (await self.things.own_values(wanted.tenant)).properties
        application = read_text(wanted.params, APPLICATION) or read_text(values, APPLICATION)
        if not application:
            raise InvalidInput("is needed to register a device", field=APPLICATION, code=NOT_SET)
        registration = Registration(
            dev_eui=new.identifier,
            name=wanted.name,
            application=application,
            profile=profile,
            join_eui=parse_dev_eui(join_eui, JOIN_EUI) if join_eui else "",
            app_key=app_key,
        )
        await register(await self._api(wanted.tenant, values), registration, self.allowed)
        new.additional[APPLICATION] = application
        return new

    async def _api(self, tenant: str, values: dict[str, Any]) -> Api:
        """Raise `InvalidInput` naming the setting that is missing."""
        text = read_text(values, API)
        if not text:
            raise InvalidInput("api is not set: devices are registered with it", field=PROFILE)
        token = await self.store.find_secret(tenant, API_TOKEN, text)
        if not token:
            raise InvalidInput("api_token is not set for this api: give it", field=PROFILE)
        host, port, tls = self._checked(text)
        return Api(host=host, port=port, tls=tls, ca=read_text(values, CA), token=token)

    def _checked(self, text: str) -> tuple[str, int, bool]:
        parts = urlsplit(checked_url(text, API, self.allowed))
        tls = parts.scheme == "https"
        if parts.path:
            raise InvalidInput("must be https://host:port or http://host:port", field=API)
        return parts.hostname or "", parts.port or (443 if tls else 80), tls

    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Events of one application, or of all."""
        application = values[APPLICATION] or "+"
        return [f"application/{application}/device/+/event/{kind}" for kind in KINDS]

    def read(self, tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
        """An event in JSON or protobuf."""
        return read_event(tenant, topic, payload)

    def encode_downlink(
        self, downlink: OutboundDownlink, broker: Broker, values: dict[str, Any]
    ) -> Publication:
        """A command, in the encoding that the server speaks."""
        return encode_command(downlink)
