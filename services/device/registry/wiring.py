"""The wiring of operations on devices, products, templates, groups and imports."""

from dataclasses import dataclass
from functools import partial

from libs.common.bus import RpcServer
from libs.common.contracts.names import DescribeGroups
from libs.common.identity.grants import GrantsClient
from libs.common.identity.users import UserNames
from libs.common.limits.tenants import answer_usage_requests
from libs.common.process import PackageParts, create_routers, start_and_stop
from services.device.alarms.wiring import AlarmsPackage
from services.device.clients import Clients
from services.device.commands.wiring import CommandsPackage
from services.device.lorawan.codec_service import CodecService
from services.device.lorawan.wiring import CodecsPackage, LorawanPackage
from services.device.members.wiring import MembersPackage
from services.device.registry.devices.console import BATCH_ROUTER as BATCHES
from services.device.registry.devices.console import ROUTER as DEVICE_CONSOLE
from services.device.registry.devices.console_service import UserDevices
from services.device.registry.devices.groups import ROUTER as GROUPS
from services.device.registry.devices.groups import GroupService
from services.device.registry.devices.integration_devices import (
    DeviceAdder,
    IntegrationDeviceWriter,
)
from services.device.registry.devices.open_api import ROUTER as DEVICE_OPEN_API
from services.device.registry.devices.ownership import (
    ApplicationClient,
    DeviceAssigner,
    DeviceRemover,
    OrphanCleaner,
)
from services.device.registry.devices.rpc import DeviceSummaryRpc, IntegrationRpc
from services.device.registry.devices.service import DeviceService
from services.device.registry.imports.console import ROUTER as IMPORTS
from services.device.registry.imports.service import ImportService
from services.device.registry.imports.sheets import SheetService
from services.device.registry.imports.store import ImportStore
from services.device.registry.imports.worker import ImportWorker
from services.device.registry.products.console import ROUTER as PRODUCT_CONSOLE
from services.device.registry.products.console import RPS_ROUTER as RPS_CONSOLE
from services.device.registry.products.console import TEMPLATE_ROUTER as TEMPLATES
from services.device.registry.products.console import (
    TEMPLATE_SOURCE_ROUTER as TEMPLATE_SOURCES,
)
from services.device.registry.products.open_api import ROUTER as PRODUCT_OPEN_API
from services.device.registry.products.open_api import RPS_ROUTER as RPS_OPEN_API
from services.device.registry.products.rps import RpsService, RpsStore
from services.device.registry.products.service import ProductService
from services.device.registry.products.templates import (
    LibraryStore,
    ResourceClient,
    TemplateService,
)
from services.device.registry.products.write_only_eraser import WriteOnlyEraser
from services.device.telemetry.partitions import DAY_MS
from services.device.telemetry.wiring import TelemetryPackage
from services.device.things.wiring import ThingsPackage


@dataclass(frozen=True, kw_only=True)
class RegistryHandlerDependencies:
    """Dependencies of the HTTP handlers."""

    device_service: DeviceService
    user_devices: UserDevices
    device_adder: DeviceAdder
    groups: GroupService
    product_service: ProductService
    codec_service: CodecService
    rps_service: RpsService
    templates: TemplateService
    sheets: SheetService
    imports: ImportService


def wire_registry(
    clients: Clients,
    *,
    rpc: RpcServer,
    things: ThingsPackage,
    members: MembersPackage,
    telemetry: TelemetryPackage,
    commands: CommandsPackage,
    alarms: AlarmsPackage,
    codecs: CodecsPackage,
    lorawan: LorawanPackage,
) -> PackageParts:
    """Construct the operations on devices, products, templates, groups and imports."""
    settings, mongo, bus = clients.settings, clients.mongo, clients.bus
    devices, groups, grants = things.devices, things.groups, clients.grants
    integrations, integration_client = clients.integrations, clients.integration_client
    credentials, grants_rpc = members.credentials, GrantsClient(clients.rpc)
    remover = DeviceRemover(credentials, commands.canceller)
    records = RpsStore(mongo, clients.limits)
    orphans = OrphanCleaner(devices, records, ApplicationClient(clients.rpc), remover)
    products = ProductService(things.products, things.specifications)
    templates = TemplateService(
        LibraryStore(mongo.database), ResourceClient(clients.rpc), products, codecs.service
    )
    integration_device_writer = IntegrationDeviceWriter(
        devices, things.ids, products, templates, groups
    )
    user_devices = UserDevices(
        store=devices,
        groups=groups,
        grants=grants,
        granted=things.granted_devices,
        entities=members.directory,
        integrations=integrations,
        client=integration_client,
        credentials=credentials,
        first_keys=members.first_keys,
        remover=remover,
        grants_rpc=grants_rpc,
        rpc=clients.rpc,
        user_names=UserNames(clients.rpc),
    )
    adder = DeviceAdder(
        integrations=integrations,
        client=integration_client,
        integration_device_writer=integration_device_writer,
        grants=grants,
        groups=groups,
    )
    sheets = SheetService(adder, templates, groups, user_devices)
    import_store = ImportStore(mongo, clients.wakeups)
    worker = ImportWorker(
        store=import_store,
        sheets=sheets,
        adder=adder,
        integration_device_writer=integration_device_writer,
        devices=devices,
        groups=groups,
    )
    group_service = GroupService(groups, devices, grants, grants_rpc)
    eraser = WriteOnlyEraser(
        bus=bus,
        devices=devices,
        thing_store=things.thing_store,
        tsls=things.specifications,
        partitions=telemetry.partitions,
        frames=codecs.frames,
        latest=telemetry.values,
        commands=commands.store,
        redecodes=lorawan.redecodes,
        alarms=alarms.eraser,
    )
    rpc.offer("describe_groups", DescribeGroups, group_service.describe_groups)
    DeviceSummaryRpc(devices.queries, members.member_sets, integrations).offer(rpc)
    DeviceAssigner(devices, orphans, remover).offer(rpc)
    IntegrationRpc(
        devices=devices,
        integrations=integrations,
        integration_things=members.integration_things,
        directory=things.directory,
        reporter=telemetry.reporter,
        presence=telemetry.presence,
        products=products,
        templates=templates,
        latest=telemetry.values,
        integration_device_writer=integration_device_writer,
        retention_ms=settings.retention_days * DAY_MS,
    ).offer(rpc)
    handlers = RegistryHandlerDependencies(
        device_service=DeviceService(
            devices,
            telemetry.values,
            things.ids,
            products,
            commands.service,
            credentials,
            remover,
            orphans,
        ),
        user_devices=user_devices,
        device_adder=adder,
        groups=group_service,
        product_service=products,
        codec_service=codecs.service,
        rps_service=RpsService(records),
        templates=templates,
        sheets=sheets,
        imports=ImportService(
            store=import_store,
            sheets=sheets,
            devices=devices,
            grants=grants,
            credentials=credentials,
        ),
    )
    return PackageParts(
        routers=create_routers(
            handlers,
            open_api=[PRODUCT_OPEN_API, DEVICE_OPEN_API, RPS_OPEN_API],
            others=[
                DEVICE_CONSOLE,
                PRODUCT_CONSOLE,
                TEMPLATES,
                TEMPLATE_SOURCES,
                RPS_CONSOLE,
                BATCHES,
                IMPORTS,
                GROUPS,
            ],
        ),
        resources=[
            start_and_stop(partial(answer_usage_requests, bus, devices.count_used, "device"))
        ],
        jobs={
            "erasing": eraser.run,
            "orphans": partial(orphans.run, bus),
            "groups": group_service.run,
            "imports": worker.run,
        },
    )
