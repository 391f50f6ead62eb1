"""Registration of devices in ChirpStack 4 over gRPC.

Only a process that registers a device imports this module: its libraries need 10 MiB.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import AF_INET6
from typing import Any

import grpc
from chirpstack_api.api import device_pb2 as pb
from chirpstack_api.api.device_pb2_grpc import DeviceServiceStub

from libs.common.errors import Conflict, InvalidInput, ThingwayError, Unavailable
from libs.common.http.outgoing import resolve_outgoing_addresses
from services.management.networks.chirpstack import (
    API,
    API_TOKEN,
    APP_KEY,
    APPLICATION_SETTING,
    JOIN_EUI,
    PROFILE,
    ChirpStackApi,
    DeviceRegistration,
)

REGISTRATION_TIMEOUT_SECONDS = 8.0
"""Seconds for the complete registration of a device."""
UNDO_TIMEOUT_SECONDS = 3.0
MAX_REASON_CHARACTERS = 300
_TOKEN_REJECTED_STATUSES = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
_INPUT_ERROR_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INTERNAL,
}


class _DeviceService:
    """The authenticated calls of `DeviceService`."""

    def __init__(self, stub: DeviceServiceStub, token: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {token}"),)

    async def call(self, name: str, request: Any, timeout: float | None = None) -> Any:
        """Call an operation; raise `AioRpcError`."""
        return await getattr(self._stub, name)(request, metadata=self._metadata, timeout=timeout)


async def register_device(
    api: ChirpStackApi, registration: DeviceRegistration, allowed_networks: tuple[str, ...]
) -> None:
    """Register a device with its key, or do nothing if ChirpStack already has this device.

    Raises `InvalidInput` for the invalid input, `Conflict` if ChirpStack has a different device
    with this DevEUI, and `Unavailable`. If ChirpStack rejects the key of a new device, the device
    is deleted there again.
    """
    try:
        async with (
            asyncio.timeout(REGISTRATION_TIMEOUT_SECONDS),
            _open_device_service(api, allowed_networks) as devices,
        ):
            await _create_device_with_key(devices, registration)
    except TimeoutError as error:
        raise Unavailable("ChirpStack's API did not answer in time") from error
    except OSError as error:
        raise InvalidInput(f"cannot be called: {error.strerror or error}", field=API) from error
    except grpc.aio.AioRpcError as error:
        raise _translate_error(error) from error


async def _create_device_with_key(
    devices: _DeviceService, registration: DeviceRegistration
) -> None:
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
        await _check_registration_and_add_key(devices, registration)
        return
    if not registration.app_key:
        return
    try:
        await devices.call(
            "CreateKeys", pb.CreateDeviceKeysRequest(device_keys=_build_device_keys(registration))
        )
    except BaseException:
        await asyncio.shield(_delete_device(devices, registration.dev_eui))
        raise


def _build_device_keys(registration: DeviceRegistration) -> pb.DeviceKeys:
    """Return the AppKey of LoRaWAN 1.0, which ChirpStack stores as `nwk_key`."""
    return pb.DeviceKeys(dev_eui=registration.dev_eui.lower(), nwk_key=registration.app_key.lower())


async def _delete_device(devices: _DeviceService, dev_eui: str) -> None:
    request = pb.DeleteDeviceRequest(dev_eui=dev_eui.lower())
    try:
        await devices.call("Delete", request, UNDO_TIMEOUT_SECONDS)
    except grpc.aio.AioRpcError as error:
        text = (
            f"ChirpStack rejected the key, and has the device {dev_eui} without it: delete it there"
        )
        raise Unavailable(text) from error


async def _check_registration_and_add_key(
    devices: _DeviceService, registration: DeviceRegistration
) -> None:
    """Raise `Conflict` unless the registered device matches; add a missing key."""
    eui = registration.dev_eui.lower()
    registered = (await devices.call("Get", pb.GetDeviceRequest(dev_eui=eui))).device
    same = (registered.application_id, registered.device_profile_id) == (
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
                "CreateKeys",
                pb.CreateDeviceKeysRequest(device_keys=_build_device_keys(registration)),
            )
    if not same:
        text = "is registered in ChirpStack with other settings: add it without a device profile"
        raise Conflict(text, field="dev_eui")


def _translate_error(error: grpc.aio.AioRpcError) -> ThingwayError:
    reason = (error.details() or error.code().name)[:MAX_REASON_CHARACTERS]
    if error.code() in _TOKEN_REJECTED_STATUSES:
        return InvalidInput(f"is rejected by ChirpStack: {reason}", field=API_TOKEN)
    if error.code() in _INPUT_ERROR_STATUSES:
        mentioned = [
            name
            for name in (PROFILE, APPLICATION_SETTING, JOIN_EUI, APP_KEY)
            if _mentions(reason, name)
        ]
        return InvalidInput(
            f"ChirpStack rejects the device: {reason}",
            field=mentioned[0] if mentioned else "dev_eui",
        )
    return Unavailable(f"ChirpStack's API: {reason}")


def _mentions(reason: str, key: str) -> bool:
    return key.replace("_", " ") in reason.lower().replace("-", " ").replace("_", " ")


@asynccontextmanager
async def _open_device_service(
    api: ChirpStackApi, allowed_networks: tuple[str, ...]
) -> AsyncIterator[_DeviceService]:
    """Connect to a permitted address, whose certificate is checked for the host name."""
    address = (await resolve_outgoing_addresses(api.host, api.port, allowed_networks))[0]
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
