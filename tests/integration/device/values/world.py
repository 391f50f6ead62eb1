"""The device service with its ingest, and integrations that tests start and stop."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from httpx import ASGITransport, AsyncClient
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import DEAD, EVENTS, UPLINK, BatchConsumer, Bus, RpcClient, RpcServer
from libs.common.bus.subjects import command_subject, uplink_subject
from libs.common.contracts import auth
from libs.common.contracts.integrations import (
    AddDevice,
    CallService,
    DeviceCommand,
    DeviceRef,
    GetIntegrations,
    Integration,
    Manifest,
    NewDevice,
    PropertiesUpdated,
    ServiceResult,
)
from libs.common.errors import InvalidInput
from libs.common.identity import HeaderSigner, Principal, PrincipalKind, generate_keys
from libs.common.identity.functions import Function
from libs.common.integrations import Integration as SdkIntegration
from libs.common.integrations import IntegrationHost
from libs.common.integrations import client as known
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from services.device.alarms import trigger
from services.device.app import build_app
from services.device.clients import Clients
from services.device.ingest_main import build_ingest
from services.device.lorawan import healing
from services.device.migrations import MIGRATIONS
from services.device.process import Foundation, wire_foundation
from services.device.registry.products.service import ProductService
from services.device.settings import DeviceSettings
from services.device.telemetry.partitions import Partitions, history_key, partition_number
from services.device.telemetry.wiring import CONSUMER_NAME
from services.device.things.product_model import PutProduct
from services.management.builtin.direct import Direct, System
from services.management.integrations import IntegrationRegistry
from tests.console import AskedByUsers, Grants
from tests.lending import lent
from tests.lifespan import running as living
from tests.servers import Servers

EVERYTHING = frozenset(Function)
CALL_TIMEOUT = 1.0


def property_of(key: str, kind: str, mode: str = "RW", **spec: Any) -> dict[str, Any]:
    """Return a property of a TSL."""
    return {"id": key, "name": key, "accessMode": mode, "dataSpec": {"dataType": kind, **spec}}


def param(key: str, kind: str, **spec: Any) -> dict[str, Any]:
    """Return an input or output of a TSL."""
    return {"id": key, "name": key, "dataSpec": {"dataType": kind, **spec}}


LAMP = {
    "version": "v1.0",
    "properties": [
        property_of("on", "BOOL"),
        property_of("level", "INT", validator={"min": 0, "max": 100}),
        property_of("power", "DOUBLE", "R"),
        property_of("colour", "ENUM", mapping={"0": "red", "1": "green"}),
        property_of("label", "STRING", validator={"maxSize": 8}),
        property_of("wifi", "STRUCT"),
        property_of("wifi.ssid", "STRING", validator={"minSize": 1}),
        property_of("wifi.channel", "INT"),
        property_of("steps", "ARRAY"),
        property_of("steps._item", "INT"),
        property_of("blob", "STRING", encoding="BASE64"),
    ],
    "events": [{"id": "alarm", "name": "alarm", "outputs": [param("alarm.heat", "INT")]}],
    "services": [
        {
            "id": "dim",
            "name": "dim",
            "inputs": [
                param("dim.to", "INT", validator={"min": 0, "max": 100, "required": True}),
                param("dim.seconds", "DOUBLE"),
            ],
            "outputs": [param("dim.was", "INT")],
        }
    ],
}
LAMPS = {
    "version": "v1.0",
    "properties": [
        property_of("period", "INT", validator={"min": 5, "max": 60}),
        property_of("mode", "ENUM", mapping={"0": "slow", "1": "fast"}),
        property_of("state", "STRING", "R"),
    ],
    "services": [
        {
            "id": "add_lamp",
            "name": "add",
            "inputs": [
                param("add_lamp.serial", "STRING", validator={"minSize": 3, "required": True}),
                param("add_lamp.channel", "INT", validator={"min": 1, "max": 9}),
            ],
        },
        {"id": "remove_lamp", "name": "remove"},
        {
            "id": "scan",
            "name": "scan",
            "inputs": [param("scan.depth", "INT", validator={"required": True})],
            "outputs": [param("scan.found", "INT")],
        },
    ],
    "events": [],
}
MANIFEST = Manifest(
    id="lamps",
    name="Lamps",
    tsl=LAMPS,
    add_device_service="add_lamp",
    delete_device_service="remove_lamp",
    carries_commands=True,
)


@dataclass
class Lamps(SdkIntegration):
    """An integration that records requests and answers on demand."""

    manifest: Manifest = MANIFEST
    model: str = "LAMP"
    tsl: dict[str, Any] | None = field(default_factory=lambda: LAMP)
    asked: list[Any] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    fails: Exception | None = None

    def __post_init__(self) -> None:
        self.answers.set()

    async def _hear(self, wanted: Any) -> None:
        self.asked.append(wanted)
        self.reached.set()
        await self.answers.wait()
        if self.fails is not None:
            raise self.fails

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        await self._hear(wanted)
        if wanted.params["serial"] == "used":
            raise InvalidInput("is in use elsewhere", field="serial")
        return NewDevice(
            identifier=wanted.params["serial"],
            model=self.model,
            additional={"channel": wanted.params.get("channel", 0)},
            tsl=self.tsl,
        )

    async def delete_device(self, device: DeviceRef) -> None:
        await self._hear(device)

    async def call(self, wanted: CallService) -> ServiceResult:
        await self._hear(wanted)
        return ServiceResult({"found": wanted.inputs["depth"] * 2})

    async def updated(self, change: PropertiesUpdated) -> None:
        await self._hear(change)

    async def command(self, wanted: DeviceCommand) -> None:
        await self._hear(wanted)


class _Announced:
    """Announced manifests in memory; a test sets which integrations are silent."""

    def __init__(self) -> None:
        self.manifests: dict[str, Manifest] = {}
        self.silent: set[str] = set()

    async def save(self, manifest: Manifest) -> None:
        self.manifests[manifest.id] = manifest

    async def renew_or_save(self, manifests: Sequence[Manifest]) -> list[None]:
        return [None] * len(manifests)

    async def list_all(self) -> Sequence[Integration]:
        return [
            Integration(manifest, manifest.id not in self.silent)
            for manifest in self.manifests.values()
        ]


@dataclass
class World(AskedByUsers):
    """The running service, and helpers of tests."""

    http: AsyncClient
    foundation: Foundation
    grants: Grants
    signer: HeaderSigner
    announced: _Announced
    outside: Bus
    keys: dict[str, str]
    shown_keys: set[str]
    """SNs whose first keys can be shown again."""
    call_timeout: float = CALL_TIMEOUT
    usual = EVERYTHING

    @property
    def clients(self) -> Clients:
        return self.foundation.clients

    @property
    def database(self) -> Any:
        return self.clients.mongo.database

    async def rpc(self, subject: str, request: Any, answer: type) -> Any:
        """Send an RPC request as another process."""
        return await RpcClient(self.outside).call(subject, request, answer)

    async def put_product(self, model: str, tsl: dict[str, Any], tenant: str = "default") -> None:
        """Create or update a product."""
        principal = Principal(PrincipalKind.APPLICATION, tenant, "1", name="application 1")
        things = self.foundation.things
        products = ProductService(things.products, things.specifications)
        await products.put(principal, model, PutProduct(name=model, tsl=tsl))

    async def device(self, sn: str) -> dict[str, Any]:
        """Return the document of a device."""
        found: dict[str, Any] = await self.database["devices"].find_one({"sn": sn})
        return found

    async def add_direct(self, sn: str, model: str = "", tenant: str = "default") -> int:
        """Add a device that connects directly, and return its id."""
        own = "direct.integration.add_device"
        body = {
            "name": f"device {sn}",
            "integration": "direct",
            "param_entities": {f"{own}.sn": sn, f"{own}.model": model},
        }
        await self.admin(tenant).done("POST", "/device", body)
        return int((await self.device(sn))["_id"])

    async def ids(self, thing_id: int) -> dict[str, str]:
        """Return entity ids of a device by key."""
        detail = await self.admin().done("GET", f"/device/{thing_id}")
        return {entity["key"]: entity["id"] for entity in detail["entities"]}

    async def history(self, thing_id: int, *rows: tuple[int, Mapping[str, Any]]) -> None:
        """Write history as ingest does: time in ms and properties."""
        partitions = Partitions(self.database)
        for at, (ts, properties) in enumerate(rows):
            await partitions.ensure([partition_number(ts)])
            document = {"_id": history_key(thing_id, ts, at), "p": dict(properties)}
            await partitions.collection(partition_number(ts)).insert_one(document)

    @asynccontextmanager
    async def hosting(self, lamps: Lamps) -> AsyncIterator[IntegrationHost]:
        """Run an integration as a process of its own on the bus."""
        bus = await Bus.connect(self.clients.settings.nats_url, name=lamps.manifest.id)
        try:
            async with IntegrationHost(bus, lamps) as host:
                yield host
        finally:
            await bus.drain()

    @asynccontextmanager
    async def dying(self, lamps: Lamps) -> AsyncIterator[None]:
        """Run an integration whose process is killed at the end."""
        bus = await Bus.connect(self.clients.settings.nats_url, name=lamps.manifest.id)
        host = IntegrationHost(bus, lamps)
        await host.start()
        yield
        await bus.close()
        lamps.answers.set()
        with suppress(NatsError):
            await host.stop()

    async def online(self, sn: str) -> None:
        """Mark a device as connected."""
        change = {"$set": {"connectStatus": "ONLINE"}}
        await self.database["devices"].update_one({"sn": sn}, change)

    @asynccontextmanager
    async def device_answers(
        self, sn: str, status: str = "SUCCESS", **more: Any
    ) -> AsyncIterator[list[dict[str, Any]]]:
        """Run an online device that answers each command; return the commands."""
        heard: list[dict[str, Any]] = []
        await self.online(sn)

        async def answer(message: Any) -> None:
            command = msgspec.json.decode(message.data)
            heard.append(command)
            reply = {"commandId": command["commandId"], "status": status, **more}
            await self.outside.client.publish(
                uplink_subject(sn, "reply"), msgspec.json.encode(reply)
            )

        subscription = await self.outside.client.subscribe(command_subject(sn), cb=answer)
        await self.outside.client.flush()
        try:
            yield heard
        finally:
            await subscription.unsubscribe()

    async def until(self, condition: Any, seconds: float = 30.0) -> None:
        """Wait until an asynchronous condition holds."""
        async with asyncio.timeout(seconds):
            while not await condition():
                await asyncio.sleep(0.02)


def _foundation(servers: Servers, mongo: Mongo, bus: Bus, public: str) -> Foundation:
    settings = DeviceSettings(
        internal_public_key=public,
        nats_url=servers.nats_url,
        service_call_timeout=CALL_TIMEOUT,
    )
    telemetry = Telemetry(None, MeterProvider())
    return wire_foundation(Clients(settings, telemetry, mongo, bus))


def _play_auth(rpc: RpcServer, keys: dict[str, str], shown: set[str]) -> None:
    async def issue(wanted: auth.DeviceRef) -> auth.DeviceCredentials:
        keys[wanted.sn] = f"key-{wanted.device_id}"
        return auth.DeviceCredentials(wanted.sn, keys[wanted.sn])

    async def revoke(wanted: auth.DeviceRef) -> auth.Done:
        keys.pop(wanted.sn, None)
        return auth.Done()

    async def issue_first(wanted: auth.IssueFirstKey) -> auth.FirstDeviceKey:
        if wanted.sn in keys:
            again = wanted.repeatable and wanted.sn in shown
            return auth.FirstDeviceKey(keys[wanted.sn] if again else None)
        shown.add(wanted.sn)
        return auth.FirstDeviceKey((await issue(wanted)).key)

    rpc.offer("issue_device_credentials", auth.DeviceRef, issue)
    rpc.offer("issue_first_device_credentials", auth.IssueFirstKey, issue_first)
    rpc.offer("revoke_device_credentials", auth.DeviceRef, revoke)


@asynccontextmanager
async def running(servers: Servers, mongo: Mongo) -> AsyncIterator[World]:
    """Start the service and its ingest on empty streams and an empty database."""
    bus = await Bus.connect(servers.nats_url, name="device", stream_replicas=1)
    outside = await Bus.connect(servers.nats_url, name="outside")
    for stream in (UPLINK, EVENTS, DEAD):
        await bus.js.purge_stream(stream)
    with suppress(NotFoundError):
        await bus.js.delete_consumer(UPLINK, CONSUMER_NAME)
    await migrate(mongo.database, MIGRATIONS)
    private, public = generate_keys()
    foundation = _foundation(servers, mongo, bus, public)
    await foundation.things.directory.watch(bus)
    announced, keys = _Announced(), {}
    registry = IntegrationRegistry(announced)
    for built_in in (Direct, System):
        await announced.save(built_in.manifest)
    management, auth_rpc = RpcServer(outside, "management"), RpcServer(outside, "auth")
    management.offer_each("announce_integration", Manifest, registry.announce)
    management.offer("get_integrations", GetIntegrations, registry.list_all)
    shown: set[str] = set()
    _play_auth(auth_rpc, keys, shown)
    await management.start()
    await auth_rpc.start()
    fresh, known.CACHE_SECONDS = known.CACHE_SECONDS, 0.0
    period, trigger.MAX_INDEX_AGE_SECONDS = trigger.MAX_INDEX_AGE_SECONDS, 0.0
    pause, healing.CHECK_INTERVAL_SECONDS = healing.CHECK_INTERVAL_SECONDS, 0.2
    late, healing.LATE_FRAME_WAIT_MS = healing.LATE_FRAME_WAIT_MS, 0
    ingest, ingest_parts = build_ingest(foundation, [UPLINK])
    consumer = BatchConsumer(
        bus=bus, stream=UPLINK, durable=CONSUMER_NAME, handle=ingest.ingest.handle, concurrency=1
    )
    consuming = asyncio.ensure_future(consumer.run())
    try:
        async with AsyncExitStack() as stack:
            app = stack.enter_context(lent(lambda: build_app(foundation, outside)))
            workers = (resource for parts in ingest_parts for resource in parts.resources)
            for part in (*workers, living(app), IntegrationHost(outside, Direct())):
                await stack.enter_async_context(part)
            grants = await stack.enter_async_context(Grants(outside))
            transport = ASGITransport(app)  # type: ignore[arg-type]
            http = AsyncClient(transport=transport, base_url="http://device", timeout=30)
            await stack.enter_async_context(http)
            signer = HeaderSigner(private)
            yield World(http, foundation, grants, signer, announced, outside, keys, shown)
    finally:
        known.CACHE_SECONDS, trigger.MAX_INDEX_AGE_SECONDS = fresh, period
        healing.CHECK_INTERVAL_SECONDS, healing.LATE_FRAME_WAIT_MS = pause, late
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)
        await management.stop()
        await auth_rpc.stop()
        await bus.drain()
        await outside.drain()
