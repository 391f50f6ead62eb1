"""The integration `chirpstack`: devices of a ChirpStack 4 server, over MQTT and gRPC."""

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
from libs.common.http.outgoing import outgoing_addresses, validate_url
from services.management.manifests import load_manifest
from services.management.networks.chirpstack_events import KINDS, encode_command, read_event
from services.management.networks.messages import (
    InboundMessage,
    OutboundDownlink,
    Publication,
    parse_dev_eui,
)
from services.management.networks.server import NetworkServer
from services.management.networks.settings import CA, Broker, read_text

APPLICATION = "application"
API, API_TOKEN = "api", "api_token"
PROFILE, JOIN_EUI, APP_KEY = "device_profile", "join_eui", "app_key"
REGISTER_SECONDS = 8.0
"""Seconds for the complete registration of a device."""
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


@dataclass(frozen=True, kw_only=True)
class Api:
    """ChirpStack's API, and the key with which it is called."""

    host: str
    port: int
    tls: bool
    ca: str
    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A device for ChirpStack."""

    dev_eui: str
    name: str
    application: str
    profile: str
    join_eui: str
    app_key: str = field(repr=False)


class _DeviceService:
    """The authenticated calls of `DeviceService`."""

    def __init__(self, stub: DeviceServiceStub, token: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {token}"),)

    async def call(self, name: str, request: Any, timeout: float | None = None) -> Any:
        """Call an operation; raise `AioRpcError`."""
        return await getattr(self._stub, name)(request, metadata=self._metadata, timeout=timeout)


async def register(api: Api, registration: Registration, allowed: tuple[str, ...]) -> None:
    """Register a device with its key, or do nothing if it is already registered so.

    Raises `InvalidInput` for the invalid input, `Conflict` if ChirpStack has a different device
    with this DevEUI, and `Unavailable`. After an error, the device is not registered.
    """
    try:
        async with asyncio.timeout(REGISTER_SECONDS), _connected(api, allowed) as devices:
            await _register(devices, registration)
    except TimeoutError as error:
        raise Unavailable("ChirpStack's API did not answer in time") from error
    except OSError as error:
        raise InvalidInput(f"cannot be called: {error.strerror or error}", field=API) from error
    except grpc.aio.AioRpcError as error:
        raise _translate_error(error) from error


async def _register(devices: _DeviceService, registration: Registration) -> None:
    device = pb.Device(
        dev_eui=registration.dev_eui.lower(),
        name=registration.name,
        application_id=registration.application,
        device_profile_id=registration.profile,
        join_eui=registration.join_eui.lower(),
    )
    try:
        await devices.call("Create", pb.CreateDeviceRequest(device=device))
    except grpc.aio.AioRpcError as error:
        if error.code() != grpc.StatusCode.ALREADY_EXISTS:
            raise
        await _check_same(devices, registration)
        return
    if not registration.app_key:
        return
    try:
        await devices.call(
            "CreateKeys", pb.CreateDeviceKeysRequest(device_keys=_keys(registration))
        )
    except BaseException:
        await asyncio.shield(_undo(devices, registration.dev_eui))
        raise


def _keys(registration: Registration) -> pb.DeviceKeys:
    """Return the AppKey of LoRaWAN 1.0, which ChirpStack stores as `nwk_key`."""
    return pb.DeviceKeys(dev_eui=registration.dev_eui.lower(), nwk_key=registration.app_key.lower())


async def _undo(devices: _DeviceService, dev_eui: str) -> None:
    request = pb.DeleteDeviceRequest(dev_eui=dev_eui.lower())
    try:
        await devices.call("Delete", request, UNDO_SECONDS)
    except grpc.aio.AioRpcError as error:
        text = (
            f"ChirpStack rejected the key, and has the device {dev_eui} without it: delete it there"
        )
        raise Unavailable(text) from error


async def _check_same(devices: _DeviceService, registration: Registration) -> None:
    """Raise `Conflict` unless the registered device matches; add a missing key."""
    eui = registration.dev_eui.lower()
    there = (await devices.call("Get", pb.GetDeviceRequest(dev_eui=eui))).device
    same = (there.application_id, there.device_profile_id) == (
        registration.application,
        registration.profile,
    )
    if same and registration.app_key:
        try:
            keys = (await devices.call("GetKeys", pb.GetDeviceKeysRequest(dev_eui=eui))).device_keys
            same = keys.nwk_key.lower() == registration.app_key.lower()
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
            await devices.call(
                "CreateKeys", pb.CreateDeviceKeysRequest(device_keys=_keys(registration))
            )
    if not same:
        text = "is registered in ChirpStack with other settings: add it without a device profile"
        raise Conflict(text, field="dev_eui")


def _translate_error(error: grpc.aio.AioRpcError) -> ThingwayError:
    reason = (error.details() or error.code().name)[:LONGEST_REASON]
    if error.code() in _REFUSED:
        return InvalidInput(f"is rejected by ChirpStack: {reason}", field=API_TOKEN)
    if error.code() in _WRONG:
        named = [name for name in (PROFILE, APPLICATION, JOIN_EUI, APP_KEY) if _names(reason, name)]
        return InvalidInput(
            f"ChirpStack rejects the device: {reason}", field=named[0] if named else "dev_eui"
        )
    return Unavailable(f"ChirpStack's API: {reason}")


def _names(reason: str, key: str) -> bool:
    return key.replace("_", " ") in reason.lower().replace("-", " ").replace("_", " ")


@asynccontextmanager
async def _connected(api: Api, allowed: tuple[str, ...]) -> AsyncIterator[_DeviceService]:
    """Connect to a permitted address, whose certificate is checked for the host name."""
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
        yield _DeviceService(DeviceServiceStub(channel), api.token)


class ChirpStack(NetworkServer):
    """Receives events of ChirpStack's MQTT integration, and publishes its commands."""

    manifest = load_manifest("chirpstack")
    own_settings = (APPLICATION,)

    async def updated(self, change: PropertiesUpdated) -> None:
        """Store the API and its key, the application and the broker; raise `InvalidInput`."""
        given, tenant = change.properties, change.tenant
        if text := read_text(given, API):
            self._checked(text)
        if (text := read_text(given, APPLICATION)) and not _ID.fullmatch(text):
            raise InvalidInput("must be the ID of an application (a UUID)", field=APPLICATION)
        await super().updated(change)
        if token := read_text(given, API_TOKEN):
            values = (await self.things.get_own_values(tenant)).properties | given
            await self.store.save_secret(tenant, API_TOKEN, token, read_text(values, API))

    async def add_device(self, request: AddDevice) -> NewDevice:
        """Return a device by its DevEUI; register it in ChirpStack if it has a device profile."""
        new = await super().add_device(request)
        profile, app_key = read_text(request.params, PROFILE), read_text(request.params, APP_KEY)
        if not profile:
            if app_key:
                raise InvalidInput("is required to register a device", field=PROFILE, code=NOT_SET)
            return new
        if app_key and not _KEY.fullmatch(app_key):
            raise InvalidInput("must be 32 hexadecimal digits", field=APP_KEY)
        join_eui = read_text(request.params, JOIN_EUI)
        values = (await self.things.get_own_values(request.tenant)).properties
        application = read_text(request.params, APPLICATION) or read_text(values, APPLICATION)
        if not application:
            raise InvalidInput("is required to register a device", field=APPLICATION, code=NOT_SET)
        registration = Registration(
            dev_eui=new.identifier,
            name=request.name,
            application=application,
            profile=profile,
            join_eui=parse_dev_eui(join_eui, JOIN_EUI) if join_eui else "",
            app_key=app_key,
        )
        await register(await self._api(request.tenant, values), registration, self.allowed)
        new.additional[APPLICATION] = application
        return new

    async def _api(self, tenant: str, values: dict[str, Any]) -> Api:
        """Return the API of a tenant; raise `InvalidInput` for a missing setting."""
        text = read_text(values, API)
        if not text:
            raise InvalidInput("api is not set, but is required to register devices", field=PROFILE)
        token = await self.store.find_secret(tenant, API_TOKEN, text)
        if not token:
            raise InvalidInput("api_token is not set for this api: enter it", field=PROFILE)
        host, port, tls = self._checked(text)
        return Api(host=host, port=port, tls=tls, ca=read_text(values, CA), token=token)

    def _checked(self, text: str) -> tuple[str, int, bool]:
        parts = urlsplit(validate_url(text, API, self.allowed))
        tls = parts.scheme == "https"
        if parts.path:
            raise InvalidInput("must be https://host:port or http://host:port", field=API)
        return parts.hostname or "", parts.port or (443 if tls else 80), tls

    def topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Return the topics of the events of one application, or of all."""
        application = values[APPLICATION] or "+"
        return [f"application/{application}/device/+/event/{kind}" for kind in KINDS]

    def read(self, tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
        """Return an event in JSON or protobuf."""
        return read_event(tenant, topic, payload)

    def encode_downlink(
        self, downlink: OutboundDownlink, broker: Broker, values: dict[str, Any]
    ) -> Publication:
        """Return a command in the encoding of the server's events."""
        return encode_command(downlink)
