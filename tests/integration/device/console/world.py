"""The console's side of the device service, on real servers; `auth` is played on the bus."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from httpx import ASGITransport, AsyncClient
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import Bus, Outbox, RpcClient, RpcServer
from libs.common.contracts import auth
from libs.common.contracts.auth import DescribedUsers, DescribeUsers
from libs.common.http import ServiceDescription, create_app
from libs.common.identity import (
    HeaderSigner,
    HeaderVerifier,
    Principal,
    PrincipalKind,
    generate_keys,
)
from libs.common.identity.functions import Function
from libs.common.process import collect_routers
from libs.common.store.ids import IdAllocator
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from services.device.app import wire_packages
from services.device.clients import Clients
from services.device.commands.completion import CommandCanceller
from services.device.members.device_keys import AsyncStep, DeviceCredentialsClient
from services.device.migrations import MIGRATIONS
from services.device.process import wire_foundation
from services.device.registry.devices.ownership import (
    ApplicationClient,
    DeviceRemover,
    OrphanCleaner,
)
from services.device.registry.devices.schemas import AddDevice
from services.device.registry.devices.service import DeviceService
from services.device.registry.products.rps import RpsStore
from services.device.registry.products.service import ProductService
from services.device.settings import DeviceSettings
from services.device.telemetry.latest_values import LatestValues
from services.device.things.model import Device
from services.device.things.product_model import PutProduct
from tests.console import AskedByUsers, Grants
from tests.databases import empty_documents
from tests.limits import limits_of
from tests.servers import Servers

EVERYTHING = frozenset(Function)


@dataclass
class Keys:
    """Stands for `auth`: device keys by SN."""

    issued: dict[str, str] = field(default_factory=dict)

    async def issue(self, wanted: auth.DeviceRef) -> auth.DeviceCredentials:
        self.issued[wanted.sn] = f"key-{wanted.device_id}-{len(self.issued)}"
        return auth.DeviceCredentials(wanted.sn, self.issued[wanted.sn])

    async def issue_first(self, wanted: auth.IssueFirstKey) -> auth.FirstDeviceKey:
        known = wanted.sn in self.issued
        return auth.FirstDeviceKey(None if known else (await self.issue(wanted)).key)

    async def revoke(self, wanted: auth.DeviceRef) -> auth.Done:
        self.issued.pop(wanted.sn, None)
        return auth.Done()


@dataclass
class World(AskedByUsers):
    """The running features, and what a test does with them."""

    http: AsyncClient
    mongo: Mongo
    bus: Bus
    grants: Grants
    keys: Keys
    signer: HeaderSigner
    products: ProductService
    devices: DeviceService
    usual = EVERYTHING

    @property
    def database(self) -> Any:
        return self.mongo.database

    async def put_product(self, model: str, tsl: dict[str, Any], tenant: str = "default") -> None:
        """Create or update a product."""
        await self.products.put(_application(tenant), model, PutProduct(name=model, tsl=tsl))

    async def add(
        self,
        sn: str,
        name: str = "",
        model: str | None = None,
        tenant: str = "default",
        **fields: Any,
    ) -> int:
        """A device that an application added; `fields` of its document are set after that."""
        body = AddDevice(sn_dev_eui=sn, name=name or f"device {sn}", model=model)
        added = await self.devices.add(_application(tenant), body)
        if fields:
            await self.database["devices"].update_one({"_id": added.device_id}, {"$set": fields})
        return added.device_id

    async def report(self, thing_id: int, ts: int, properties: Mapping[str, Any]) -> None:
        """Write latest values, as ingest does."""
        await LatestValues(self.database).apply([(thing_id, ts, dict(properties))])

    async def custom(
        self, identifier: str, *members: dict[str, Any], integration: str = "system", **more: Any
    ) -> int:
        """A custom entity, or with an empty identifier an integration's own thing."""
        now = datetime.now(UTC)
        thing_id = await IdAllocator(self.database, "things", 1).allocate()
        document = {
            "_id": thing_id,
            "tenant": "default",
            "integration": integration,
            "identifier": identifier,
            "createdAt": now,
            "updatedAt": now,
            "members": list(members),
            **more,
        }
        await self.database["things"].insert_one(document)
        return thing_id

    async def rpc(self, operation: str, request: Any, answer: type) -> Any:
        """Ask the service over the bus."""
        return await RpcClient(self.bus).call(f"rpc.device.{operation}", request, answer)

    async def events(self) -> list[dict[str, Any]]:
        """What waits in the outbox or was published: every entry stays here in these tests."""
        written = self.database["outbox"].find()
        return [entry async for one in written for entry in one["entries"]]

    async def empty(self) -> None:
        """Forget everything but the indexes and the ids that were given."""
        await empty_documents(self.database)
        for user_id in (1, 7, 8, 9):
            self.grants.take(user_id)
        self.keys.issued.clear()


class Listening:
    """Stands for the bus: keeps what is published."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def check_message_size(self, *_: object) -> None:
        """Take messages of every size."""

    async def publish(self, messages: Any) -> None:
        self.heard.extend(messages)


class _NoProvisioning:
    async def validate(self, device: dict[str, Any], config: dict[str, Any]) -> None:
        raise AssertionError

    async def provision(self, device: dict[str, Any], config: dict[str, Any]) -> None:
        raise AssertionError

    async def delete_profile(self, thing_id: int) -> None:
        raise AssertionError


class _NoKeys:
    async def issue(self, device: Device, check_exists: AsyncStep) -> Any:
        raise AssertionError

    async def revoke(self, device: Device) -> None:
        return None


def _application(tenant: str) -> Principal:
    return Principal(PrincipalKind.APPLICATION, tenant, "1", name="application 1")


async def _describe_users(wanted: DescribeUsers) -> DescribedUsers:
    """Only user 7 has not been deleted."""
    return DescribedUsers({str(user): "Nadia" for user in wanted.ids if user == 7})


@asynccontextmanager
async def running(servers: Servers, mongo: Mongo) -> AsyncIterator[tuple[World, Listening]]:
    """Start the features on an empty database."""
    await migrate(mongo.database, MIGRATIONS)
    bus = await Bus.connect(servers.nats_url, name="device")
    auth_bus = await Bus.connect(servers.nats_url, name="auth")
    heard, keys = Listening(), Keys()
    outbox = Outbox(mongo.database, heard)  # type: ignore[arg-type]
    auth_rpc = RpcServer(auth_bus, "auth")
    auth_rpc.offer("issue_device_credentials", auth.DeviceRef, keys.issue)
    auth_rpc.offer("issue_first_device_credentials", auth.IssueFirstKey, keys.issue_first)
    auth_rpc.offer("revoke_device_credentials", auth.DeviceRef, keys.revoke)
    auth_rpc.offer("describe_users", DescribeUsers, _describe_users)
    private, public = generate_keys()
    settings = DeviceSettings(internal_public_key=public)
    clients = Clients(settings, Telemetry(None, MeterProvider()), mongo, bus)
    clients.outbox, clients.limits = outbox, limits_of()
    foundation, rpc = wire_foundation(clients), RpcServer(bus, "device")
    things = foundation.things
    app = create_app(
        ServiceDescription(
            name="device",
            title="Device",
            routes=collect_routers(wire_packages(foundation, rpc=rpc, system=bus)[0]),
            verifier=HeaderVerifier(public),
            telemetry=clients.telemetry,
        )
    )
    products = ProductService(things.products, things.specifications)
    canceller = CommandCanceller(foundation.commands, bus)
    remover = DeviceRemover(DeviceCredentialsClient(clients.rpc), canceller)
    applications = ApplicationClient(clients.rpc)
    devices = DeviceService(
        things.devices,
        foundation.values,
        IdAllocator(mongo.database, "things", 1),
        products,
        _NoProvisioning(),
        _NoKeys(),
        remover,
        OrphanCleaner(things.devices, RpsStore(mongo, clients.limits), applications, remover),
    )
    await rpc.start()
    await auth_rpc.start()
    transport = ASGITransport(app)  # type: ignore[arg-type]
    async with (
        Grants(auth_bus) as grants,
        AsyncClient(transport=transport, base_url="http://device") as http,
    ):
        yield (
            World(http, mongo, bus, grants, keys, HeaderSigner(private), products, devices),
            heard,
        )
    await rpc.stop()
    await auth_rpc.stop()
    await bus.drain()
    await auth_bus.drain()
