"""Composes the process `device` from its packages."""

from collections.abc import Sequence

from litestar.types import ASGIApp

from libs.common.bus import UPLINK, Bus, RpcServer
from libs.common.bus.streams import find_uplink_streams
from libs.common.http import ServiceDescription, create_app, serve
from libs.common.identity import HeaderVerifier
from libs.common.process import (
    PackageParts,
    collect_routers,
    run_packages,
    start_and_stop,
    wait_for_store,
)
from libs.common.store.migrations import set_retention_days
from services.device.alarms.wiring import wire_alarms
from services.device.commands.wiring import wire_commands
from services.device.entities.wiring import wire_entities
from services.device.lorawan.wiring import wire_codecs, wire_lorawan
from services.device.members.wiring import wire_members
from services.device.process import Foundation, start_process
from services.device.registry.wiring import wire_registry
from services.device.settings import DeviceSettings
from services.device.telemetry.direct_ingest import DirectIngest
from services.device.telemetry.wiring import TelemetryPackage, wire_telemetry


def wire_packages(
    foundation: Foundation, *, rpc: RpcServer, system: Bus, uplinks: Sequence[str] = (UPLINK,)
) -> tuple[list[PackageParts], TelemetryPackage]:
    """Construct the packages.

    `system` is the connection to NATS's system account, `uplinks` are `UPLINK` and its partitions.
    """
    clients, things, values = foundation.clients, foundation.things, foundation.values
    store = foundation.commands
    members = wire_members(clients, things=things)
    codecs = wire_codecs(clients, things=things)
    telemetry = wire_telemetry(
        clients,
        rpc=rpc,
        things=things,
        values=values,
        system=system,
        uplinks=uplinks,
        reconnects=store.schedule,
    )
    commands = wire_commands(
        clients, things=things, telemetry=telemetry, store=store, encoder=codecs.encoder
    )
    alarms = wire_alarms(
        clients,
        rpc=rpc,
        things=things,
        values=values,
        entities=members.directory,
        uplinks=uplinks,
    )
    lorawan = wire_lorawan(
        clients, rpc=rpc, things=things, telemetry=telemetry, commands=commands, codecs=codecs
    )
    registry = wire_registry(
        clients,
        rpc=rpc,
        things=things,
        members=members,
        telemetry=telemetry,
        commands=commands,
        alarms=alarms,
        codecs=codecs,
        lorawan=lorawan,
    )
    entities = wire_entities(
        clients,
        rpc=rpc,
        things=things,
        members=members,
        telemetry=telemetry,
        commands=commands,
        alarms=alarms,
    )
    packages = (telemetry, codecs, lorawan, commands, alarms)
    return [registry, *(package.parts for package in packages), entities], telemetry


def build_app(foundation: Foundation, system: Bus, uplinks: Sequence[str] = (UPLINK,)) -> ASGIApp:
    """Compose the application of `device`; for `system` and `uplinks` see `wire_packages`."""
    clients, mongo = foundation.clients, foundation.clients.mongo
    rpc = RpcServer(clients.bus, "device")
    packages, telemetry = wire_packages(foundation, rpc=rpc, system=system, uplinks=uplinks)
    verifier = HeaderVerifier(clients.settings.internal_public_key)
    parts = [
        *packages,
        PackageParts(
            resources=[start_and_stop(rpc.start, rpc.stop)],
            tasks=[clients.wakeups.run],
            jobs={"outbox": clients.outbox.sweep},
        ),
    ]
    app = create_app(
        ServiceDescription(
            name="device",
            title="Thingway device open API",
            routes=collect_routers(parts),
            verifier=verifier,
            telemetry=clients.telemetry,
            checks={"mongo": mongo.ping, "nats": clients.bus.check, "nats-system": system.check},
            lifespan=lambda: run_packages(parts, mongo.database, "device", life=5.0),
        )
    )
    return DirectIngest(app, telemetry.edge, verifier)


async def connect_system_account(settings: DeviceSettings) -> Bus:
    """Connect to NATS's system account, which reports and closes connections."""
    return await Bus.connect(
        settings.nats_url,
        user=settings.sys_nats_user,
        password=settings.sys_nats_password,
        name="device-presence",
        ca_file=settings.ca_file,
    )


async def main() -> None:
    """Run the service until it is stopped."""
    async with start_process("device") as foundation:
        settings, database = foundation.clients.settings, foundation.clients.mongo.database
        days = max(settings.command_retention_days, settings.retention_days)
        await set_retention_days(database, "commands", "finishedAt", days)
        await set_retention_days(database, "alarms", "endedAt", settings.alarm_retention_days)
        await set_retention_days(database, "alarm_steps", "at", 1)
        uplinks = await wait_for_store(
            "NATS",
            lambda: find_uplink_streams(foundation.clients.bus.js, settings.uplink_partitions),
        )
        system = await connect_system_account(settings)
        try:
            await serve(build_app(foundation, system, uplinks), settings)
        finally:
            await system.drain()
