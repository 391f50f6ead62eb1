"""Registers devices at ChirpStack over its API (gRPC): a device with its profile, and its key."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import AF_INET6
from typing import Any

import grpc
from chirpstack_api.api import device_pb2 as pb
from chirpstack_api.api.device_pb2_grpc import DeviceServiceStub

from libs.common.errors import Conflict, InvalidInput, ThingwayError, Unavailable
from libs.common.http.outgoing import outgoing_addresses
from services.management.builtin.networks.chirpstack.manifest import (
    API,
    API_TOKEN,
    APP_KEY,
    APPLICATION,
    JOIN_EUI,
    PROFILE,
)

SECONDS = 8.0
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
        async with asyncio.timeout(SECONDS), _connected(api, allowed) as devices:
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
