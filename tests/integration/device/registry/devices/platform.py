"""The three features on a real MongoDB, behind the real HTTP edge, with a bus that listens."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from httpx import ASGITransport, AsyncClient, Response
from litestar import Router
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import Outbox, OutgoingMessage
from libs.common.contracts.auth import DeviceCredentials
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.http import ServiceDescription, build_dependencies, create_app
from libs.common.identity import (
    PRINCIPAL_HEADER,
    HeaderSigner,
    HeaderVerifier,
    Principal,
    PrincipalKind,
    generate_keys,
)
from libs.common.store.ids import IdAllocator
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from services.device.commands.model import FailureReason
from services.device.members.device_keys import AsyncStep
from services.device.migrations import MIGRATIONS
from services.device.registry.devices.open_api import ROUTER as DEVICE_ROUTES
from services.device.registry.devices.ownership import DeviceAssigner, DeviceRemover, OrphanCleaner
from services.device.registry.devices.service import DeviceService
from services.device.registry.products.open_api import ROUTER as PRODUCT_ROUTES
from services.device.registry.products.open_api import RPS_ROUTER as RPS_ROUTES
from services.device.registry.products.rps import RpsService, RpsStore
from services.device.registry.products.service import ProductService
from services.device.telemetry.latest_values import LatestValues
from services.device.things.device_store import DeviceStore
from services.device.things.model import Device
from services.device.things.product_store import ProductStore
from services.device.things.specifications import TslStore
from tests.databases import empty_documents
from tests.limits import limits_of

API = "/device/openapi/v1"
DEVICES_ALLOWED = 500
"""Devices that a tenant may have."""
RECORDS_ALLOWED = 300
"""Records of a kind that a tenant may have."""


class Listening:
    """Stands for the bus: keeps what is published."""

    def __init__(self) -> None:
        self.heard: list[OutgoingMessage] = []

    def check_message_size(self, *_: object) -> None:
        """Take messages of every size."""

    async def publish(self, messages: Iterable[OutgoingMessage]) -> None:
        self.heard.extend(messages)

    def changes(self) -> list[tuple[str, str]]:
        """Subject and `change` of every event, in order."""
        return [
            (message.subject, msgspec.json.decode(message.payload)["change"])
            for message in self.heard
        ]


@dataclass
class Keys:
    """Stands for `auth`: device keys by SN."""

    issued: dict[str, str] = field(default_factory=dict)

    async def issue(self, device: Device, check_exists: AsyncStep) -> DeviceCredentials:
        self.issued[device.sn] = f"key-{device.id}-{len(self.issued)}"
        try:
            await check_exists()
        except ThingwayError:
            await self.revoke(device)
            raise
        return DeviceCredentials(device.sn, self.issued[device.sn])

    async def revoke(self, device: Device) -> None:
        self.issued.pop(device.sn, None)


@dataclass
class Provisioning:
    """Stands for commands: keeps what it was asked to send."""

    asked: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    ended: list[tuple[int, str]] = field(default_factory=list)
    """Devices whose tasks were ended, and the code."""

    async def validate(self, device: Device, config: dict[str, Any]) -> None:
        if "bad" in config:
            raise InvalidInput("config.bad: is not known", field="config.bad")

    async def provision(self, device: Device, config: dict[str, Any]) -> None:
        self.asked.append((device.id, config))

    async def delete_profile(self, thing_id: int) -> None:
        self.forgotten.append(thing_id)

    async def cancel_all(self, device: Device, reason: FailureReason) -> None:
        self.ended.append((device.id, reason.code))


@dataclass
class Applications:
    """Stands for `auth`: which applications are gone."""

    gone: set[int] = field(default_factory=set)

    async def exists(self, tenant: str, application_id: int) -> bool:
        return application_id not in self.gone


class Caller:
    """An application that calls the API."""

    def __init__(self, http: Any, signer: HeaderSigner, who: Principal) -> None:
        self._http = http
        self._signer = signer
        self._who = who

    async def ask(self, method: str, path: str, body: Any = None) -> Response:
        answer: Response = await self._http.request(
            method,
            f"{API}{path}",
            json=body,
            headers={PRINCIPAL_HEADER: self._signer.sign(self._who)},
        )
        return answer

    async def done(self, method: str, path: str, body: Any = None) -> Any:
        """The `data` of a success."""
        answer = await self.ask(method, path, body)
        assert answer.status_code == 200, answer.text
        content = answer.json()
        assert content["status"] == "Success"
        assert content["requestId"]
        return content.get("data")

    async def refused(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """The body of a refusal with this status."""
        answer = await self.ask(method, path, body)
        assert answer.status_code == status, answer.text
        content = answer.json()
        assert content["status"] == "Failed"
        return content

    async def add(self, sn: str, **more: Any) -> int:
        added = await self.done(
            "POST", "/devices", {"snDevEUI": sn, "name": f"device {sn}", **more}
        )
        return int(added["deviceId"])

    async def put_product(self, model: str, tsl: Any, **more: Any) -> Any:
        return await self.done("PUT", f"/products/{model}", {"name": model, "tsl": tsl, **more})


@dataclass(frozen=True)
class Handlers:
    """Dependencies of the handlers."""

    product_service: ProductService
    device_service: DeviceService
    rps_service: RpsService


@dataclass
class Platform:
    """The features, and three applications: two of one tenant, one of another."""

    mongo: Mongo
    bus: Listening
    keys: Keys
    provisioning: Provisioning
    applications: Applications
    orphans: OrphanCleaner
    assigner: DeviceAssigner
    mine: Caller
    sibling: Caller
    foreign: Caller
    full: Caller

    @property
    def database(self) -> Any:
        return self.mongo.database

    async def empty(self) -> None:
        """Forget everything but the indexes and the ids that were given."""
        await empty_documents(self.database)
        self.bus.heard.clear()
        self.keys.issued.clear()
        for heard in (
            self.provisioning.asked,
            self.provisioning.forgotten,
            self.provisioning.ended,
        ):
            heard.clear()
        self.applications.gone.clear()


@asynccontextmanager
async def running(mongo: Mongo) -> AsyncIterator[Platform]:
    """Start the features on an empty database."""
    await migrate(mongo.database, MIGRATIONS)
    bus, keys, provisioning = Listening(), Keys(), Provisioning()
    limits = limits_of(devices=DEVICES_ALLOWED, records=RECORDS_ALLOWED)
    outbox, latest = Outbox(mongo.database, bus), LatestValues(mongo.database)  # type: ignore[arg-type]
    tsls = TslStore(mongo.database)
    store = DeviceStore(mongo, outbox, limits, latest)
    products = ProductService(ProductStore(mongo, store, tsls, limits), tsls)
    records, applications = RpsStore(mongo, limits), Applications()
    remover = DeviceRemover(keys, provisioning)
    orphans = OrphanCleaner(store, records, applications, remover)
    devices = DeviceService(
        store,
        latest,
        IdAllocator(mongo.database, "devices"),
        products,
        provisioning,
        keys,
        remover,
        orphans,
    )
    private, public = generate_keys()
    signer = HeaderSigner(private)
    app = create_app(
        ServiceDescription(
            name="device",
            title="Device",
            routes=[
                Router(
                    "/",
                    route_handlers=[PRODUCT_ROUTES, DEVICE_ROUTES, RPS_ROUTES],
                    dependencies=build_dependencies(
                        Handlers(products, devices, RpsService(records))
                    ),
                )
            ],
            verifier=HeaderVerifier(public),
            telemetry=Telemetry(None, MeterProvider()),
        )
    )

    def caller(http: Any, tenant: str, number: int) -> Caller:
        who = Principal(
            PrincipalKind.APPLICATION, tenant, str(number), name=f"application {number}"
        )
        return Caller(http, signer, who)

    transport = ASGITransport(app)  # type: ignore[arg-type]
    async with AsyncClient(transport=transport, base_url="http://device") as http:
        yield Platform(
            mongo,
            bus,
            keys,
            provisioning,
            applications,
            orphans,
            DeviceAssigner(store, orphans, remover),
            mine=caller(http, "default", 1),
            sibling=caller(http, "default", 2),
            foreign=caller(http, "other", 3),
            full=caller(http, "full", 4),
        )


async def together(*calls: Any) -> list[Response]:
    """The answers to calls made at the same time."""
    return list(await asyncio.gather(*calls))


def tsl(version: str = "v1.0", **bounds: float) -> dict[str, Any]:
    """A small TSL: a temperature with bounds."""
    return {
        "version": version,
        "properties": [
            {
                "id": "temperature",
                "name": "Temperature",
                "accessMode": "R",
                "dataSpec": {"dataType": "FLOAT", "validator": bounds or {"min": -20, "max": 70}},
            }
        ],
        "events": [],
        "services": [],
    }
