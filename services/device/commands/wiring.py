"""Wiring of the commands package."""

from dataclasses import dataclass

from libs.common.process import PackageParts, create_routers, start_and_stop
from libs.common.store.ids import IdAllocator
from services.device.clients import Clients
from services.device.commands.completion import CommandCanceller, CommandCompletion
from services.device.commands.console import ROUTER as CONSOLE
from services.device.commands.console import BatchConfigurator, DeviceCommands
from services.device.commands.delivery import DueCommandDelivery, IntegrationCommandSender
from services.device.commands.model import DownlinkEncoder
from services.device.commands.open_api import ROUTER as OPEN_API
from services.device.commands.polling import ROUTER as POLLING
from services.device.commands.polling import CommandPolls
from services.device.commands.service import CommandService
from services.device.commands.store import CommandStore
from services.device.commands.write_only import CommandMessageWiper
from services.device.telemetry.batch_store import BatchStore
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.ports import CommandCloser
from services.device.telemetry.wiring import TelemetryPackage
from services.device.things.wiring import ThingsPackage


@dataclass(frozen=True, kw_only=True)
class CommandHandlerDependencies:
    """Dependencies of the HTTP handlers."""

    commands: CommandService
    command_polls: CommandPolls
    configurator: BatchConfigurator
    device_commands: DeviceCommands


@dataclass(frozen=True, kw_only=True)
class CommandsPackage:
    """Interface of the commands package."""

    service: CommandService
    store: CommandStore
    canceller: CommandCanceller
    parts: PackageParts


def wire_commands(
    clients: Clients,
    *,
    things: ThingsPackage,
    telemetry: TelemetryPackage,
    store: CommandStore,
    encoder: DownlinkEncoder,
) -> CommandsPackage:
    """Construct the command service, its handlers, and the jobs that deliver and wipe commands."""
    settings, bus = clients.settings, clients.bus
    devices, directory, granted = things.devices, things.directory, things.granted_devices
    sender = IntegrationCommandSender(
        devices, clients.integrations, clients.integration_client, store, encoder
    )
    service = CommandService(
        things=directory,
        store=store,
        latest=telemetry.values,
        ids=IdAllocator(clients.mongo.database, "tasks"),
        sender=sender,
        lifetime_seconds=settings.command_life,
        coded_lifetime_seconds=settings.downlink_life,
    )
    delivery = DueCommandDelivery(devices=devices, bus=bus, commands=store, sender=sender)
    polls = CommandPolls(bus, directory, store, telemetry.presence)
    handlers = CommandHandlerDependencies(
        commands=service,
        command_polls=polls,
        configurator=BatchConfigurator(service, devices, directory, clients.grants),
        device_commands=DeviceCommands(service, store, granted, directory),
    )
    return CommandsPackage(
        service=service,
        store=store,
        canceller=CommandCanceller(store, bus),
        parts=PackageParts(
            routers=create_routers(handlers, open_api=[OPEN_API], others=[POLLING, CONSOLE]),
            resources=[start_and_stop(polls.start, polls.stop)],
            jobs={
                "delivery": delivery.run,
                "wiping": CommandMessageWiper(store.write_only, bus).run,
            },
        ),
    )


def wire_completion(
    *,
    things: ThingsPackage,
    values: LatestValues,
    store: CommandStore,
    batch_store: BatchStore,
) -> CommandCloser:
    """Construct the component that closes commands by replies and reports."""
    return CommandCompletion(
        devices=things.devices, commands=store, latest=values, batch_store=batch_store
    )
