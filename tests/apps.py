"""The services as they are wired, on clients that never connect: their routes, guards, headers."""

from collections.abc import Callable, Mapping

from litestar import Litestar
from nats.aio.client import Client
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import Bus, Outbox, RpcClient
from libs.common.bus.nkeys import KeyKind, KeyPair
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.auth.app import build_app as build_auth
from services.auth.settings import AuthSettings
from services.device.app import build_app as build_device
from services.device.commands.store import CommandStore
from services.device.history.partitions import Partitions
from services.device.reports.ledger import Ledger
from services.device.retention.days import Retention
from services.device.settings import DeviceSettings
from services.device.things import ThingDirectory
from services.device.things.latest import LatestValues
from services.device.things.store import DeviceStore
from services.device.things.tsls import Tsls
from services.device.wiring import Base
from services.management.app import build_app as build_management
from services.management.settings import ManagementSettings
from services.workflow.app import build_app as build_workflow
from services.workflow.settings import WorkflowSettings
from services.workflow.wiring import Core as WorkflowCore

NOWHERE = "mongodb://127.0.0.1:1/"


def silent() -> Telemetry:
    """Telemetry that nobody reads."""
    return Telemetry(None, MeterProvider())


def auth(public_key: str) -> Litestar:
    """The service `auth`, which takes headers of the key's owner."""
    settings = AuthSettings(
        callout_seed=KeyPair.create(KeyKind.ACCOUNT).seed, internal_public_key=public_key
    )
    return build_auth(settings, Mongo(NOWHERE, "auth"), _redis(), _bus(), silent())


def device(public_key: str) -> Litestar:
    """The service `device`."""
    mongo, bus = Mongo(NOWHERE, "device"), _bus()
    limits, latest = KnownLimits(RpcClient(bus)), LatestValues(mongo.database)
    outbox = Outbox(mongo.database, bus)
    tsls = Tsls(mongo.database)
    devices = DeviceStore(mongo, outbox, limits, latest)
    base = Base(
        settings=DeviceSettings(internal_public_key=public_key),
        telemetry=silent(),
        mongo=mongo,
        bus=bus,
        devices=devices,
        tsls=tsls,
        things=ThingDirectory(mongo.database, devices, tsls),
        outbox=outbox,
        partitions=Partitions(mongo.database),
        latest=latest,
        ledger=Ledger(mongo),
        commands=CommandStore(mongo.database),
        rpc=RpcClient(bus),
        limits=limits,
        retention=Retention(mongo.database, limits, 30),
    )
    return build_device(base, _bus())


def management(public_key: str) -> Litestar:
    """The service `management`."""
    settings = ManagementSettings(internal_public_key=public_key, secrets_key=public_key)
    mongo = Mongo(NOWHERE, "management")
    return build_management(settings, mongo, _redis(), _bus(), silent())


def workflow(public_key: str) -> Litestar:
    """The service `workflow`."""
    settings = WorkflowSettings(internal_public_key=public_key, secrets_key=public_key)
    core = WorkflowCore(settings, Mongo(NOWHERE, "workflow"), _bus())
    return build_workflow(core, silent())


SERVICES: Mapping[str, Callable[[str], Litestar]] = {
    "auth": auth,
    "device": device,
    "management": management,
    "workflow": workflow,
}
"""Every service behind the gateway that answers HTTP requests of users."""


def _redis() -> Redis:
    return connect_redis("redis://127.0.0.1:1/0")


def _bus() -> Bus:
    client = Client()
    return Bus(client, client.jetstream())
