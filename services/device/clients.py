"""Clients of a process of the service: what needs the settings and connections only."""

from dataclasses import dataclass

from libs.common.bus import Bus, Outbox, RpcClient
from libs.common.identity.grants import GrantReader
from libs.common.integrations.client import IntegrationClient, Integrations
from libs.common.limits.tenants import KnownLimits
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from services.device.settings import DeviceSettings


@dataclass(frozen=True, kw_only=True)
class Clients:
    """The settings of a process and its clients of databases, the bus and other services."""

    settings: DeviceSettings
    telemetry: Telemetry
    mongo: Mongo
    bus: Bus
    rpc: RpcClient
    outbox: Outbox
    limits: KnownLimits
    grants: GrantReader
    integrations: Integrations
    integration_client: IntegrationClient


def create_clients(
    settings: DeviceSettings, telemetry: Telemetry, mongo: Mongo, bus: Bus
) -> Clients:
    """Create the clients that use the connections to MongoDB and NATS."""
    rpc = RpcClient(bus)
    return Clients(
        settings=settings,
        telemetry=telemetry,
        mongo=mongo,
        bus=bus,
        rpc=rpc,
        outbox=Outbox(mongo.database, bus),
        limits=KnownLimits(rpc),
        grants=GrantReader(rpc),
        integrations=Integrations(rpc),
        integration_client=IntegrationClient(rpc, settings.service_call_timeout),
    )
