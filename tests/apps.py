"""The services as they are wired, on clients that never connect: their routes, guards, headers."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import cast

from litestar import Litestar
from nats.aio.client import Client
from opentelemetry.sdk.metrics import MeterProvider

from deploy.platform.services import SERVICES as STARTED
from libs.common.bus import Bus
from libs.common.bus.nkeys import KeyKind, KeyPair
from libs.common.http.guards import GuardedOperation, list_guarded_operations
from libs.common.identity import generate_keys
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, connect_redis
from libs.common.telemetry import Telemetry
from services.auth.app import build_app as build_auth
from services.auth.settings import AuthSettings
from services.device.app import build_app as build_device
from services.device.clients import Clients as DeviceClients
from services.device.process import wire_foundation
from services.device.settings import DeviceSettings
from services.management.app import build_app as build_management
from services.management.settings import ManagementSettings
from services.workflow.app import build_app as build_workflow
from services.workflow.app import wire_packages as wire_workflow
from services.workflow.clients import Clients as WorkflowClients
from services.workflow.settings import WorkflowSettings

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
    settings = DeviceSettings(internal_public_key=public_key)
    foundation = wire_foundation(DeviceClients(settings, silent(), mongo, bus))
    return cast("Litestar", build_device(foundation, _bus()).app)


def management(public_key: str) -> Litestar:
    """The service `management`."""
    settings = ManagementSettings(internal_public_key=public_key, secrets_key=public_key)
    mongo = Mongo(NOWHERE, "management")
    return build_management(settings, mongo, _redis(), _bus(), silent())


def workflow(public_key: str) -> Litestar:
    """The service `workflow`."""
    settings = WorkflowSettings(internal_public_key=public_key, secrets_key=public_key)
    mongo, bus = Mongo(NOWHERE, "workflow"), _bus()
    clients = WorkflowClients(settings, silent(), mongo, bus)
    return build_workflow(wire_workflow(clients))


SERVICES: Mapping[str, Callable[[str], Litestar]] = {
    "auth": auth,
    "device": device,
    "management": management,
    "workflow": workflow,
}
"""Every service behind the gateway that answers HTTP requests of users."""


@cache
def operations() -> list[tuple[str, GuardedOperation]]:
    """What the services of the platform answer, each with its service."""
    served = {service.name for service in STARTED if service.upstream}
    return [
        (name, operation)
        for name, build in SERVICES.items()
        if name in served
        for operation in list_guarded_operations(build(generate_keys()[1]))
    ]


def _redis() -> Redis:
    return connect_redis("redis://127.0.0.1:1/0")


def _bus() -> Bus:
    client = Client()
    return Bus(client, client.jetstream())
