"""Devices that are registered at ChirpStack, at a gRPC server that answers as it does."""
# ruff: noqa: N802 - the calls have the names of its API

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import pytest_asyncio
from chirpstack_api.api import device_pb2 as pb
from chirpstack_api.api import device_pb2_grpc
from google.protobuf.empty_pb2 import Empty

from libs.common.errors import ThingwayError
from services.management.networks.chirpstack import ChirpStack
from tests.certificates import Files
from tests.unit.management.networks.samples import APPLICATION, EUI

TOKEN, PROFILE, KEY = "good token", "14855bf7-d10d-4aee-b618-ebfcb64dc7ad", "0f" * 16
PARAMS = {
    "dev_eui": EUI,
    "model": "M",
    "application": APPLICATION,
    "device_profile": PROFILE,
    "join_eui": "70b3d57ed0000000",
    "app_key": KEY,
}


class PlayedApi(device_pb2_grpc.DeviceServiceServicer):
    """The calls of ChirpStack's `DeviceService` that are needed."""

    def __init__(self) -> None:
        self.devices: dict[str, pb.Device] = {}
        self.keys: dict[str, pb.DeviceKeys] = {}
        self.refuses_keys = ""
        self.holds_keys = False
        self.port = 0

    async def _check(self, context: Any) -> None:
        if ("authorization", f"Bearer {TOKEN}") not in context.invocation_metadata():
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "invalid token")

    async def Create(self, request: Any, context: Any) -> Any:
        """A device, of a profile that is there."""
        await self._check(context)
        device = request.device
        if device.dev_eui in self.devices:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, "object already exists")
        if device.device_profile_id != PROFILE:
            await context.abort(grpc.StatusCode.NOT_FOUND, "device_profile does not exist")
        self.devices[device.dev_eui] = device
        return Empty()

    async def Get(self, request: Any, context: Any) -> Any:
        """A device."""
        await self._check(context)
        return pb.GetDeviceResponse(device=self.devices[request.dev_eui])

    async def Delete(self, request: Any, context: Any) -> Any:
        """A device and its keys."""
        await self._check(context)
        del self.devices[request.dev_eui]
        return Empty()

    async def CreateKeys(self, request: Any, context: Any) -> Any:
        """Keys of a device."""
        await self._check(context)
        if self.refuses_keys:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuses_keys)
        if self.holds_keys:
            await asyncio.sleep(60)
        self.keys[request.device_keys.dev_eui] = request.device_keys
        return Empty()

    async def GetKeys(self, request: Any, context: Any) -> Any:
        """Keys of a device."""
        await self._check(context)
        if request.dev_eui not in self.keys:
            await context.abort(grpc.StatusCode.NOT_FOUND, "object does not exist")
        return pb.GetDeviceKeysResponse(device_keys=self.keys[request.dev_eui])


@asynccontextmanager
async def serving(files: Files | None = None) -> AsyncIterator[PlayedApi]:
    """A server of it, with TLS when there are certificates."""
    played, server = PlayedApi(), grpc.aio.server()
    device_pb2_grpc.add_DeviceServiceServicer_to_server(played, server)
    if files is None:
        played.port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = (files.key_file.read_bytes(), files.certificate_file.read_bytes())
        played.port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    try:
        yield played
    finally:
        await server.stop(None)


@pytest_asyncio.fixture
async def api() -> AsyncIterator[PlayedApi]:
    """A server without TLS."""
    async with serving() as played:
        yield played


def settings(api: PlayedApi, scheme: str = "http") -> dict[str, str]:
    return {"api": f"{scheme}://localhost:{api.port}", "api_token": TOKEN}


async def test_a_device_is_registered_with_its_key(api, hosted):
    """With its profile; again, it stays as it is."""
    async with asyncio.timeout(60), hosted(ChirpStack) as played:
        await played.update(settings(api))
        for _ in range(2):
            device = await played.add(PARAMS)
        assert device.identifier == EUI
        (made,) = api.devices.values()
        assert (made.application_id, made.device_profile_id) == (APPLICATION, PROFILE)
        assert (made.dev_eui, made.join_eui) == (EUI.lower(), "70b3d57ed0000000")
        assert api.keys[EUI.lower()].nwk_key == KEY


async def test_a_key_that_is_refused_leaves_no_device(api, hosted):
    """The reason is told; so it is when ChirpStack does not answer."""
    async with asyncio.timeout(60), hosted(ChirpStack) as played:
        await played.update(settings(api))
        api.refuses_keys = "nwk_key: wrong"
        with pytest.raises(ThingwayError, match="ChirpStack rejects the device: nwk_key: wrong"):
            await played.add(PARAMS)
        assert not api.devices


async def test_a_late_answer_leaves_no_device(api, hosted, monkeypatch):
    """The registration is undone."""
    monkeypatch.setattr(
        "services.management.networks.chirpstack_registration.REGISTRATION_TIMEOUT_SECONDS", 1.0
    )
    async with asyncio.timeout(60), hosted(ChirpStack) as played:
        await played.update(settings(api))
        api.holds_keys = True
        with pytest.raises(ThingwayError, match="did not answer in time"):
            await played.add(PARAMS)
        assert not api.devices


@pytest.mark.parametrize(
    ("change", "params", "reason"),
    [
        ({"api_token": "wrong"}, {}, "api_token: is rejected by ChirpStack: invalid token"),
        ({}, {"device_profile": "other"}, "device_profile: ChirpStack rejects the device"),
        ({}, {"app_key": "xx"}, "app_key: must be 32 hexadecimal digits"),
        ({}, {"join_eui": "1"}, "join_eui: must be"),
        ({}, {"application": ""}, "application: is required"),
        ({"api": ""}, {}, "api is not set"),
        ({"api": "http://localhost:1"}, {}, "api_token is not set for this api"),
        ({"api": "http://localhost:1", "api_token": TOKEN}, {}, "ChirpStack's API"),
        ({}, {"device_profile": ""}, "device_profile: is required"),
    ],
)
async def test_a_rejected_registration_names_the_fault(api, hosted, change, params, reason):
    """No device is created."""
    async with asyncio.timeout(60), hosted(ChirpStack) as played:
        await played.update(settings(api))
        await played.update(change)
        with pytest.raises(ThingwayError) as raised:
            await played.add(PARAMS | params)
        assert reason in raised.value.text
        assert not api.devices


async def test_a_device_that_is_there_in_another_way_is_a_conflict(api, hosted):
    """Nobody's key is replaced."""
    async with asyncio.timeout(60), hosted(ChirpStack) as played:
        await played.update(settings(api))
        await played.add(PARAMS)
        with pytest.raises(ThingwayError, match="registered in ChirpStack with other settings"):
            await played.add(PARAMS | {"app_key": "ff" * 16})
        assert api.keys[EUI.lower()].nwk_key == KEY


async def test_the_certificate_is_checked(hosted, tmp_path):
    """By the authority that is set, for the name that is set."""
    files = Files(tmp_path)
    async with asyncio.timeout(60), serving(files) as api, hosted(ChirpStack) as played:
        await played.update(settings(api, "https"))
        with pytest.raises(ThingwayError, match="ChirpStack's API"):
            await played.add(PARAMS)
        await played.update({"ca": files.ca_file.read_text()})
        await played.add(PARAMS)
        assert api.devices
