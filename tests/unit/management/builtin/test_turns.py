"""Tenants take turns at what integrations have in common."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from libs.common.clock import now_ms
from libs.common.contracts.integrations import DeviceRef
from libs.common.jobs import cancel_and_wait
from services.management.builtin import simulator as simulator_module
from services.management.builtin.openapi_client.commands import (
    MAX_CONCURRENT_CALLS,
    CommandForwarder,
)
from services.management.builtin.openapi_client.integration import OpenApiClient
from services.management.builtin.openapi_client.remote import (
    HistoryPage,
    HistoryReport,
    RemoteDevice,
    Task,
)
from services.management.builtin.openapi_client.store import DeviceLink, ForwardedCommand
from services.management.builtin.openapi_client.sync import MAX_CONCURRENT_PAGES
from services.management.builtin.simulator import Simulator
from services.management.networks.chirpstack import ChirpStack
from services.management.networks.server import MAX_CONCURRENT_CHECKS

CROWD = 200


class Things:
    """`device`: reports of one tenant wait, those of others are taken."""

    def __init__(self, devices: list[DeviceRef] | None = None) -> None:
        self.reported: asyncio.Queue[str] = asyncio.Queue()
        self.synced: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.slow = 0
        self._devices = devices or []

    async def report(self, tenant: str, *_: Any, **__: Any) -> None:
        if tenant == "slow":
            self.slow += 1
            await asyncio.Event().wait()
        self.reported.put_nowait(tenant)

    async def send_reply(self, tenant: str, *_: Any, **__: Any) -> None:
        self.reported.put_nowait(tenant)

    async def get_own_values(self, tenant: str) -> Any:
        await self.report(tenant)
        return SimpleNamespace(properties={})

    async def report_own(self, tenant: str, properties: dict[str, Any]) -> None:
        if "synced_reports" in properties:
            self.synced.put_nowait((tenant, properties["synced_reports"]))

    async def list_devices(self) -> AsyncIterator[DeviceRef]:
        for device in self._devices:
            yield device

    async def get_tsl(self, *_: Any) -> Any:
        return {
            "version": "v1.0",
            "properties": [
                {
                    "id": "at",
                    "name": "At",
                    "accessMode": "R",
                    "dataSpec": {"dataType": "DOUBLE"},
                }
            ],
            "events": [],
            "services": [],
        }


class Store:
    """Keeps nothing."""

    def __init__(self, tenants: list[str] | None = None) -> None:
        self._tenants = tenants or []

    async def list_configured_tenants(self) -> list[str]:
        return self._tenants

    read_last_sync_times = list_configured_tenants

    async def find_link(self, *_: Any) -> DeviceLink:
        return DeviceLink(url="u", remote_id="1", state="here", name="S1", model="")

    async def save_command(self, *_: Any) -> None:
        pass

    save_link = finish_command = exclude_device = mark_synced = save_command


class Remote:
    """Another platform, whose tasks of one tenant never end."""

    def __init__(self, tenant: str, pages: int = 0) -> None:
        self.account = SimpleNamespace(base_url="u")
        self._tenant = tenant
        self._pages = pages

    async def set_properties(self, *_: Any) -> str | None:
        return "1" if self._tenant == "slow" else None

    async def get_task(self, _: str) -> Task:
        if self._tenant == "slow":
            await asyncio.Event().wait()
        raise AssertionError

    async def iterate_devices(self) -> AsyncIterator[RemoteDevice]:
        yield RemoteDevice(sn="S1", device_id=1, name="S1", model="")

    async def iterate_history(self, *_: Any) -> AsyncIterator[HistoryPage]:
        for number in range(self._pages):
            yield HistoryPage(records=[HistoryReport(ts=number + 1, properties={"at": number})])


class Accounts:
    async def get_platform(self, tenant: str) -> Remote:
        return Remote(tenant, 2 if tenant == "other" else 100_000)


async def test_commands_that_wait_at_one_platform_delay_no_other() -> None:
    """However many a tenant has, another's is sent and its end told."""
    things = Things()
    carrier = CommandForwarder(things, Store(), Accounts())  # type: ignore[arg-type]
    command = {"kind": "SET_PROPERTIES", "properties": {}, "expiresAt": now_ms() + 600_000}
    for number in range(2 * MAX_CONCURRENT_CALLS + 1):
        tenant = "slow" if number < 2 * MAX_CONCURRENT_CALLS else "other"
        carrier._start_task(
            ForwardedCommand(
                id=number, tenant=tenant, identifier="S1", remote_id="1", command=dict(command)
            )
        )
    assert await things.reported.get() == "other"
    await carrier.stop()


async def test_a_short_sync_ends_beside_long_ones() -> None:
    """Syncs take turns page by page."""
    things = Things()
    client = OpenApiClient(things, Store(), Accounts(), None)  # type: ignore[arg-type]
    for number in range(2 * MAX_CONCURRENT_PAGES):
        client._start_sync(f"long{number}")
    for _ in range(10):
        await things.reported.get()
    client._start_sync("other")
    assert await things.synced.get() == ("other", 2)
    await client._syncing.stop()


async def test_simulators_of_one_tenant_delay_no_other(monkeypatch: Any) -> None:
    """However many reports of a tenant are on their way, another's is sent."""
    devices = [
        DeviceRef(
            device_id=number,
            tenant="slow" if number < CROWD else "other",
            identifier=f"S{number}",
            model="M",
            additional={"interval": 1},
        )
        for number in range(CROWD + 1)
    ]
    clock = iter(range(1_000))
    monkeypatch.setattr(
        simulator_module, "time", SimpleNamespace(monotonic=lambda: float(next(clock)))
    )
    things = Things(devices)
    running = asyncio.ensure_future(Simulator(things).run())  # type: ignore[arg-type]
    assert await things.reported.get() == "other"
    assert 0 < things.slow < CROWD
    await cancel_and_wait(running)


async def test_settings_of_one_tenant_delay_no_other() -> None:
    """A look that does not end keeps one place of many."""
    things = Things()
    tenants = ["slow", *(f"t{number}" for number in range(2 * MAX_CONCURRENT_CHECKS))]
    server = ChirpStack(things, Store(tenants), ())  # type: ignore[arg-type]
    running = asyncio.ensure_future(server.run())
    assert {await things.reported.get() for _ in tenants[1:]} == set(tenants[1:])
    await cancel_and_wait(running)
