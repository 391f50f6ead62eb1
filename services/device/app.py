"""The wiring of `device`, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from litestar import Litestar, Router

from libs.common.bus import Bus, RpcServer
from libs.common.bus.streams import uplink_streams
from libs.common.contracts.names import DescribeGroups
from libs.common.http import Service, create_app, serve
from libs.common.http.guards import applications
from libs.common.identity import HeaderVerifier
from libs.common.identity.grants import GrantReader
from libs.common.identity.users import People
from libs.common.jobs import running
from libs.common.limits.meter import MessageMeter
from libs.common.limits.use import report_use
from libs.common.store.ids import IdAllocator
from libs.common.store.lease import Job, Leader
from libs.common.store.mongo import keep_for
from services.device.alarms.console import ROUTERS as ALARM_ROUTES
from services.device.alarms.erasing import AlarmEraser
from services.device.alarms.evaluating import Evaluator, listen
from services.device.alarms.flows import FlowAlarms
from services.device.alarms.rows import History
from services.device.alarms.rules import AlarmRules
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.service import Alarms
from services.device.alarms.store import AlarmStore
from services.device.alarms.sweeping import Sweep
from services.device.alarms.unstored import UplinkReader
from services.device.codecs.workers import CodecWorkers
from services.device.commands.carrying import CommandCarrier
from services.device.commands.console import ROUTER as CONFIGURE_ROUTES
from services.device.commands.delivery import Delivery
from services.device.commands.downlinks import CodecDownlinkEncoder
from services.device.commands.ending import CommandEnding
from services.device.commands.open_api import ROUTER as COMMAND_ROUTES
from services.device.commands.polling import ROUTER as POLLING_ROUTES
from services.device.commands.polling import CommandPolls
from services.device.commands.selections import DeviceCommands, Selections
from services.device.commands.service import CommandService
from services.device.commands.told import DownlinksTold
from services.device.commands.wiping import CommandWiper
from services.device.devices.adding import DeviceAdder
from services.device.devices.batches import ROUTER as BATCH_ROUTES
from services.device.devices.bringing import DeviceBringer
from services.device.devices.console import ROUTER as CONSOLE_ROUTES
from services.device.devices.erasing import WriteOnlyEraser
from services.device.devices.giving import DeviceGiver
from services.device.devices.keys import CredentialsOverRpc, FirstKeys
from services.device.devices.leaving import Leaving
from services.device.devices.open_api import ROUTER as DEVICE_ROUTES
from services.device.devices.orphans import ApplicationsOverRpc, Orphans
from services.device.devices.rpc import DeviceNames
from services.device.devices.service import DeviceService
from services.device.devices.users import UserDevices
from services.device.entities.calling import EntityCaller
from services.device.entities.console import ROUTER as ENTITY_ROUTES
from services.device.entities.custom.service import CustomEntities, CustomEntityStore
from services.device.entities.history.export import EntityExport
from services.device.entities.history.service import EntityHistory
from services.device.entities.history.store import ValueStore
from services.device.entities.rpc import EntityRpc
from services.device.entities.search.service import EntitySearch
from services.device.entities.service import EntityService
from services.device.entities.tags.console import ROUTER as TAG_ROUTES
from services.device.entities.tags.service import EntityTags
from services.device.entities.tags.store import TagStore
from services.device.entities.values import ValueReader
from services.device.entities.writing import EntityWriter
from services.device.groups.console import ROUTER as GROUP_ROUTES
from services.device.groups.service import Groups
from services.device.groups.store import GroupStore
from services.device.healing.store import HealStore
from services.device.healing.working import Healer
from services.device.imports.console import ROUTER as IMPORT_ROUTES
from services.device.imports.service import Imports
from services.device.imports.sheets import Sheets
from services.device.imports.store import ImportStore
from services.device.imports.working import ImportWorker
from services.device.integrations.frames import FrameRpc
from services.device.integrations.own import ThingMaker
from services.device.integrations.rpc import IntegrationRpc
from services.device.members.directory import EntityDirectory, Models
from services.device.members.registry import MemberRegistry
from services.device.products.codec.encoding import Encoder
from services.device.products.codec.known import KnownCodecs
from services.device.products.codec.open_api import ROUTER as CODEC_ROUTES
from services.device.products.codec.service import CodecService
from services.device.products.console import ROUTER as PRODUCT_PAGES
from services.device.products.open_api import ROUTER as PRODUCT_ROUTES
from services.device.products.rps.console import ROUTER as RPS_PAGES
from services.device.products.rps.open_api import ROUTER as RPS_ROUTES
from services.device.products.rps.service import RpsService
from services.device.products.rps.store import RpsStore
from services.device.products.service import ProductService
from services.device.products.templates.console import ROUTER as TEMPLATE_ROUTES
from services.device.products.templates.console import SETTING_ROUTER as SOURCE_ROUTES
from services.device.products.templates.messages import ResourcesOverRpc
from services.device.products.templates.service import Templates
from services.device.products.templates.store import LibraryStore
from services.device.reports.edge.keeping import RefusalKeeper
from services.device.reports.edge.routes import ROUTER as EDGE_ROUTES
from services.device.reports.edge.service import EdgeService
from services.device.reports.events.console import ROUTER as EVENT_PAGES
from services.device.reports.events.service import EventService
from services.device.reports.events.store import EventStore
from services.device.reports.facts import Facts
from services.device.reports.frames.console import ROUTER as FRAME_PAGES
from services.device.reports.frames.open_api import list_device_frames
from services.device.reports.frames.service import FrameService
from services.device.reports.frames.windows import Windows
from services.device.reports.gaps.console import ROUTER as GAP_PAGES
from services.device.reports.gaps.open_api import list_device_gaps
from services.device.reports.gaps.service import GapService
from services.device.reports.gaps.store import GapStore
from services.device.reports.history.open_api import get_property_history
from services.device.reports.history.partitions import DAY_MS, Partitions
from services.device.reports.history.service import HistoryService
from services.device.reports.history.store import HistoryStore
from services.device.reports.ledger import Ledger
from services.device.reports.presence.connections import SystemAccount
from services.device.reports.presence.console import ROUTER as CONNECTION_ROUTES
from services.device.reports.presence.console import Connections
from services.device.reports.presence.http import HttpPresence
from services.device.reports.presence.rpc import offer_connections
from services.device.reports.presence.silence import Silence
from services.device.reports.presence.store import PresenceStore
from services.device.reports.presence.watch import PresenceWatch
from services.device.reports.quota import Refusals as KeptRefusals
from services.device.reports.redecode.console import ROUTER as REDECODE_PAGES
from services.device.reports.redecode.open_api import ROUTER as REDECODE_ROUTES
from services.device.reports.redecode.rereading import Rereader
from services.device.reports.redecode.service import RedecodeService
from services.device.reports.redecode.store import RedecodeStore
from services.device.reports.redecode.working import RedecodeWorker
from services.device.reports.refusals.console import ROUTER as REFUSAL_ROUTES
from services.device.reports.refusals.service import Refusals
from services.device.reports.reporting import Reporter
from services.device.reports.streams import ROUTER as SYSTEM_ROUTES
from services.device.reports.streams import Streams
from services.device.reports.totals import ROUTER as LEDGER_ROUTES
from services.device.reports.totals import LedgerReader
from services.device.settings import DeviceSettings
from services.device.things.granted import GrantedDevices
from services.device.things.integrations import IntegrationClient, Integrations
from services.device.things.latest import LatestValues
from services.device.things.messages import CanvasesOverRpc, GrantsOverRpc
from services.device.things.names import EntityNames
from services.device.wiring import Base, started

OPEN_API = Router(
    "/",
    guards=[applications],
    route_handlers=[
        PRODUCT_ROUTES,
        CODEC_ROUTES,
        REDECODE_ROUTES,
        DEVICE_ROUTES,
        RPS_ROUTES,
        get_property_history,
        list_device_frames,
        list_device_gaps,
        COMMAND_ROUTES,
    ],
)
"""The device open API: for applications."""


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What several rooms use, each made once."""

    base: Base
    rpc: RpcServer
    ids: IdAllocator
    grants: GrantReader
    groups: GroupStore
    credentials: CredentialsOverRpc
    leaving: Leaving
    forgetting: GrantsOverRpc
    products: ProductService
    codecs: CodecService
    templates: Templates
    models: Models
    directory: EntityDirectory
    integrations: Integrations
    client: IntegrationClient
    maker: ThingMaker
    carrier: CommandCarrier
    known_codecs: KnownCodecs
    commands: CommandService
    bringer: DeviceBringer


def share(base: Base, codecs: CodecWorkers) -> Shared:
    """Make what several rooms use; `codecs` are run by whoever holds them."""
    settings, database = base.settings, base.mongo.database
    ids = IdAllocator(database, "things")
    products = ProductService(base.products, base.tsls)
    codec_service = CodecService(base.products, base.tsls, codecs)
    templates = Templates(
        LibraryStore(database), ResourcesOverRpc(base.rpc), products, codec_service
    )
    models = Models(database, base.tsls)
    groups = GroupStore(database)
    integrations = Integrations(base.rpc)
    client = IntegrationClient(base.rpc, settings.service_call_timeout)
    known_codecs = KnownCodecs(base.products)
    encoder = CodecDownlinkEncoder(encoder=Encoder(known_codecs, codecs), frames=base.frames)
    carrier = CommandCarrier(base.devices, integrations, client, base.commands, encoder)
    credentials = CredentialsOverRpc(base.rpc)
    return Shared(
        base=base,
        rpc=RpcServer(base.bus, "device"),
        ids=ids,
        grants=GrantReader(base.rpc),
        groups=groups,
        credentials=credentials,
        leaving=Leaving(credentials, CommandEnding(base.commands, base.bus)),
        forgetting=GrantsOverRpc(base.rpc),
        products=products,
        codecs=codec_service,
        templates=templates,
        models=models,
        directory=EntityDirectory(base.devices, base.things, models),
        integrations=integrations,
        client=client,
        maker=ThingMaker(integrations, base.things.own, MemberRegistry(database), ids),
        carrier=carrier,
        known_codecs=known_codecs,
        commands=CommandService(
            things=base.things,
            store=base.commands,
            latest=base.latest,
            ids=IdAllocator(database, "tasks"),
            carrier=carrier,
            life=settings.command_life,
            coded_life=settings.downlink_life,
        ),
        bringer=DeviceBringer(base.devices, ids, products, templates, groups),
    )


def console(shared: Shared) -> dict[str, Any]:
    """What consoles do with devices."""
    base, groups, grants = shared.base, shared.groups, shared.grants
    database = base.mongo.database
    granted = GrantedDevices(base.devices, grants)
    streams = uplink_streams(base.settings.uplink_partitions)
    DeviceNames(base.devices.lists, shared.models, shared.integrations).offer(shared.rpc)
    users = UserDevices(
        store=base.devices,
        groups=groups,
        grants=grants,
        entities=shared.directory,
        integrations=shared.integrations,
        client=shared.client,
        credentials=shared.credentials,
        leaving=shared.leaving,
        forgetting=shared.forgetting,
        canvases=CanvasesOverRpc(base.rpc),
        people=People(base.rpc),
    )
    adder = DeviceAdder(
        integrations=shared.integrations,
        client=shared.client,
        bringer=shared.bringer,
        grants=grants,
        groups=groups,
    )
    sheets = Sheets(adder, shared.templates, groups, users)
    imported = ImportStore(base.mongo)
    imports = Imports(
        store=imported,
        sheets=sheets,
        devices=base.devices,
        grants=grants,
        keys=shared.credentials,
    )
    worker = ImportWorker(
        store=imported,
        sheets=sheets,
        adder=adder,
        bringer=shared.bringer,
        devices=base.devices,
        groups=groups,
    )
    windows = Windows(base.things, granted)
    return {
        "user_devices": users,
        "device_adder": adder,
        "selections": Selections(shared.commands, base.devices, base.things, grants),
        "device_commands": DeviceCommands(shared.commands, base.commands, granted, base.things),
        "refusals": Refusals(base.bus, granted),
        "connections": Connections(base.bus, granted),
        "frames": FrameService(base.frames, base.partitions, windows),
        "device_events": EventService(EventStore(base.mongo.direct), windows),
        "gaps": GapService(base.frames, GapStore(database), windows),
        "ledger_reader": LedgerReader(base.bus, streams, Ledger(base.mongo)),
        "sheets": sheets,
        "imports": imports,
        "import_worker": worker,
    }


def entities(shared: Shared, reporter: Reporter, alarms: AlarmStore) -> dict[str, Any]:
    """What consoles and other services do with entities."""
    base, directory = shared.base, shared.directory
    latest = ValueReader(
        base.latest, base.devices, alarms, EventStore(base.mongo.direct), base.retention
    )
    seconds = base.settings.service_call_timeout
    service = EntityService(
        directory=directory,
        grants=shared.grants,
        integrations=shared.integrations,
        maker=shared.maker,
        values=latest,
        names={
            True: base.devices.entity_names,
            False: EntityNames(base.mongo, base.things.own.collection),
        },
    )
    writer = EntityWriter(
        entities=service, commands=shared.commands, reporter=reporter, integrations=shared.client
    )
    caller = EntityCaller(
        entities=service,
        commands=shared.commands,
        bus=base.bus,
        store=base.commands,
        integrations=shared.integrations,
        client=shared.client,
        rpc=base.rpc,
        seconds=seconds,
    )
    custom_store = CustomEntityStore(
        base.mongo, base.things.own, base.latest, base.limits, shared.ids
    )
    tag_store = TagStore(base.mongo)
    tags = EntityTags(tag_store, service)
    custom = CustomEntities(custom_store, service, directory, shared.forgetting, tag_store)
    values = ValueStore(base.mongo)
    history = EntityHistory(service, values, base.retention, base.settings.retention_days)
    search = EntitySearch(
        base.devices.lists,
        shared.models,
        directory,
        shared.grants,
        shared.integrations,
        shared.maker,
        shared.groups,
        tags,
        latest,
        FirstKeys(shared.credentials, GrantedDevices(base.devices, shared.grants)),
    )
    EntityRpc(
        directory=directory,
        maker=shared.maker,
        values=latest,
        writer=writer,
        caller=caller,
        custom=custom,
    ).offer(shared.rpc)
    return {
        "entities": service,
        "entity_search": search,
        "entity_history": history,
        "entity_export": EntityExport(service, history, values, shared.integrations),
        "entity_writer": writer,
        "entity_caller": caller,
        "custom_entities": custom,
        "entity_tags": tags,
    }


@dataclass(frozen=True)
class Alarming:
    """What raises alarms."""

    rules: RuleStore
    alarms: AlarmStore
    evaluator: Evaluator
    sweep: Sweep


def alarming(base: Base) -> Alarming:
    """Make what raises alarms."""
    rules = RuleStore(base.mongo.database, base.limits)
    alarms = AlarmStore(base.mongo, base.outbox, base.devices)
    history = History(base.mongo, base.settings.retention_days)
    uplink = UplinkReader(base.bus, base.settings.uplink_partitions)
    evaluator = Evaluator(rules, alarms, history, base.devices, base.latest, uplink)
    sweep = Sweep(rules, alarms, evaluator, base.devices, base.latest)
    return Alarming(rules, alarms, evaluator, sweep)


def redecoder(
    base: Base, store: RedecodeStore, workers: CodecWorkers, known: KnownCodecs
) -> RedecodeWorker:
    """Make what reads frames again: it reads much, and lets no thread do it."""
    partitions, latest = Partitions(base.mongo.direct), LatestValues(base.mongo.direct)
    rereader = Rereader(
        mongo=base.mongo,
        frames=base.frames,
        partitions=partitions,
        workers=workers,
        outbox=base.outbox,
        retention_ms=base.settings.retention_days * DAY_MS,
    )
    return RedecodeWorker(
        store=store,
        rereader=rereader,
        codecs=known,
        devices=base.devices,
        things=base.things,
        latest=latest,
        facts=Facts(base.devices, latest, base.products),
        partitions=partitions,
    )


def eraser(base: Base, redecodes: RedecodeStore, alarm: Alarming) -> WriteOnlyEraser:
    """Make what removes stored values of properties that are write-only now."""
    return WriteOnlyEraser(
        bus=base.bus,
        devices=base.devices,
        own=base.things.own,
        tsls=base.tsls,
        partitions=base.partitions,
        frames=base.frames,
        latest=base.latest,
        commands=base.commands,
        redecodes=redecodes,
        alarms=AlarmEraser(alarm.alarms, alarm.rules),
    )


def healer(shared: Shared) -> Healer:
    """Make what heals gaps."""
    base, database = shared.base, shared.base.mongo.database
    return Healer(
        products=base.products,
        devices=base.devices,
        things=base.things,
        latest=base.latest,
        frames=base.frames,
        partitions=base.partitions,
        gaps=GapStore(database),
        store=HealStore(database),
        commands=shared.commands,
        sent=base.commands,
        frame_days=base.settings.frame_retention_days,
        history_days=base.settings.retention_days,
    )


def build_app(base: Base, system: Bus) -> Litestar:
    """Put the service together on clients that are connected; `system` is NATS's own account."""
    settings, mongo, database = base.settings, base.mongo, base.mongo.database
    codecs = CodecWorkers()
    shared, reporter = share(base, codecs), Reporter(base.bus)
    groups = Groups(shared.groups, base.devices, shared.grants, shared.forgetting)
    shared.rpc.offer("describe_groups", DescribeGroups, groups.describe)
    commands, rpc, alarm = shared.commands, shared.rpc, alarming(base)
    FlowAlarms(alarm.alarms, shared.directory).offer(rpc)
    records = RpsStore(mongo, base.limits)
    orphans = Orphans(base.devices, records, ApplicationsOverRpc(base.rpc), shared.leaving)
    devices = DeviceService(
        base.devices,
        base.latest,
        shared.ids,
        shared.products,
        commands,
        shared.credentials,
        shared.leaving,
        orphans,
    )
    DeviceGiver(base.devices, orphans, shared.leaving).offer(rpc)
    presence = PresenceStore(mongo, base.outbox, base.devices)
    heard = HttpPresence(presence, settings.http_offline_after, Silence(base.products))
    polls = CommandPolls(base.bus, base.things, base.commands, heard)
    edge = EdgeService(
        bus=base.bus,
        things=base.things,
        presence=heard,
        meter=MessageMeter(base.limits),
        keeper=RefusalKeeper(base.bus, KeptRefusals(base.limits)),
        retention_days=settings.retention_days,
    )
    pages = HistoryStore(base.devices, Partitions(mongo.direct), base.retention, base.tsls)
    history = HistoryService(pages, settings.retention_days)
    delivery = Delivery(
        devices=base.devices,
        bus=base.bus,
        commands=base.commands,
        carrier=shared.carrier,
    )
    seen = console(shared)
    account = SystemAccount(system)
    watch = PresenceWatch(system=system, store=presence, account=account, reconnects=base.commands)
    offer_connections(rpc, presence, account)
    IntegrationRpc(
        devices=base.devices,
        integrations=shared.integrations,
        maker=shared.maker,
        directory=base.things,
        reporter=reporter,
        presence=heard,
        products=shared.products,
        templates=shared.templates,
        latest=base.latest,
        bringer=shared.bringer,
        retention_ms=settings.retention_days * DAY_MS,
    ).offer(rpc)

    FrameRpc(bus=base.bus, directory=base.things, presence=heard, devices=base.devices).offer(rpc)

    DownlinksTold(
        devices=base.devices, things=base.things, commands=base.commands, reporter=reporter
    ).offer(rpc)
    redecodes = RedecodeStore(database)
    jobs: dict[str, Job] = {
        "outbox": base.outbox.sweep,
        "delivery": delivery.run,
        "wiping": CommandWiper(base.commands, base.bus).run,
        "erasing": eraser(base, redecodes, alarm).run,
        "orphans": partial(orphans.run, base.bus),
        "presence": watch.run,
        "groups": groups.run,
        "alarms": alarm.sweep.run,
        "imports": seen["import_worker"].run,
        "redecode": redecoder(base, redecodes, codecs, shared.known_codecs).run,
        "healing": healer(shared).run,
    }

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await rpc.start()
        await polls.start()
        await report_use(base.bus, base.devices.used, "device")
        async with (
            codecs,
            running(
                Leader(database, "device", jobs, life=5.0).run(),
                listen(base.bus, alarm.evaluator).run(),
            ),
        ):
            yield
        await rpc.stop()
        await polls.stop()
        await heard.stop()

    return create_app(
        Service(
            name="device",
            title="Thingway device open API",
            routes=[
                OPEN_API,
                EDGE_ROUTES,
                POLLING_ROUTES,
                CONSOLE_ROUTES,
                REFUSAL_ROUTES,
                EVENT_PAGES,
                FRAME_PAGES,
                GAP_PAGES,
                CONNECTION_ROUTES,
                PRODUCT_PAGES,
                TEMPLATE_ROUTES,
                SOURCE_ROUTES,
                REDECODE_PAGES,
                RPS_PAGES,
                LEDGER_ROUTES,
                BATCH_ROUTES,
                CONFIGURE_ROUTES,
                IMPORT_ROUTES,
                GROUP_ROUTES,
                ENTITY_ROUTES,
                TAG_ROUTES,
                *ALARM_ROUTES,
                SYSTEM_ROUTES,
            ],
            verifier=HeaderVerifier(settings.internal_public_key),
            telemetry=base.telemetry,
            checks={"mongo": mongo.ping, "nats": base.bus.check, "nats-system": system.check},
            dependencies={
                "product_service": shared.products,
                "codec_service": shared.codecs,
                "templates": shared.templates,
                "redecodes": RedecodeService(redecodes, base.products, base.devices.lists),
                "device_service": devices,
                "rps_service": RpsService(records),
                "things": base.things,
                "history": history,
                "commands": commands,
                "groups": groups,
                "alarms": Alarms(alarm.alarms, base.devices, shared.grants),
                "alarm_rules": AlarmRules(
                    alarm.rules,
                    base.devices,
                    base.products,
                    shared.grants,
                ),
                "edge": edge,
                "command_polls": polls,
                "streams": Streams(base.bus, settings.uplink_partitions),
                **seen,
                **entities(shared, reporter, alarm.alarms),
            },
            lifespan=lifespan,
        )
    )


async def connect_system(settings: DeviceSettings) -> Bus:
    """Connect to NATS's system account, which tells of connections and closes them."""
    return await Bus.connect(
        settings.nats_url,
        user=settings.sys_nats_user,
        password=settings.sys_nats_password,
        name="device-presence",
        ca_file=settings.ca_file,
    )


async def main() -> None:
    """Run the service until it is told to end."""
    async with started("device") as base:
        settings = base.settings
        days = max(settings.command_retention_days, settings.retention_days)
        await keep_for(base.mongo.database, "commands", "finishedAt", days)
        await keep_for(base.mongo.database, "alarms", "endedAt", settings.alarm_retention_days)
        await keep_for(base.mongo.database, "alarm_steps", "at", 1)
        system = await connect_system(settings)
        try:
            await serve(build_app(base, system), settings)
        finally:
            await system.drain()
