"""The wiring of ingest, history, presence, rejected messages and HTTP ingest."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from libs.common.bus import STREAM_CONFIGS, BatchConsumer, Bus, RpcServer
from libs.common.bus.streams import add_missing_stream_settings
from libs.common.limits.meter import MessageMeter
from libs.common.process import PackageParts, create_routers, start_and_stop
from libs.common.scheduling.turns import IDLE_PERIOD_SECONDS
from libs.common.store_metrics import (
    StreamMetrics,
    measure_disk,
    measure_event_readers,
    measure_jetstream,
)
from services.device.clients import Clients
from services.device.members.shapes import ShapeStore, ShapeUpdater
from services.device.telemetry.backup_metrics import BackupMetrics
from services.device.telemetry.batch_store import BatchStore
from services.device.telemetry.console import CONNECTION_ROUTER as CONNECTIONS
from services.device.telemetry.console import LEDGER_ROUTER as LEDGER
from services.device.telemetry.console import STREAM_ROUTER as STREAM_STATES
from services.device.telemetry.console import ConnectionHistory, LedgerReader, StreamStateReader
from services.device.telemetry.dead_messages import DeadMessageBuilder, DeadMessagePublisher
from services.device.telemetry.device_events import ROUTER as EVENTS
from services.device.telemetry.device_events import EventService, EventStore
from services.device.telemetry.device_fields import DeviceFieldUpdater
from services.device.telemetry.history import (
    HistoryService,
    HistoryStore,
    KeyRangeResolver,
    get_property_history,
)
from services.device.telemetry.http_ingest import ROUTER as EDGE
from services.device.telemetry.http_ingest import HttpIngestService
from services.device.telemetry.ingest import Ingest
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.ledger import Ledger, UplinkMetrics
from services.device.telemetry.partitions import DAY_MS, Partitions
from services.device.telemetry.ports import (
    AlarmTrigger,
    CommandCloser,
    FrameDecoder,
    ReconnectListener,
)
from services.device.telemetry.presence_store import (
    HttpPresence,
    OfflineTimeouts,
    PresenceStore,
    offer_connections,
)
from services.device.telemetry.presence_watch import PresenceWatch
from services.device.telemetry.quota import MessageQuota
from services.device.telemetry.rejected_messages import ROUTER as REJECTIONS
from services.device.telemetry.rejected_messages import RejectedMessageReader
from services.device.telemetry.reporter import Reporter
from services.device.telemetry.retention import HistoryRowLimits, Retention, RetentionSweeper
from services.device.telemetry.system_account import SystemAccount
from services.device.telemetry.uplink import may_linger
from services.device.things.deleted_things import DeletedThings, ThingDataStore
from services.device.things.wiring import ThingsPackage

CONSUMER_NAME = "ingest"
MIN_OVERLAPPED_BATCH = 1000
"""Minimum messages of a batch for the next one to be written concurrently."""


@dataclass(frozen=True, kw_only=True)
class ReportStores:
    """The ledger, the partitions of history, and their retention."""

    ledger: Ledger
    partitions: Partitions
    retention: Retention


def wire_stores(clients: Clients, *, things: ThingsPackage) -> ReportStores:
    """Construct the ledger, the partitions of history, and their retention."""
    mongo, days = clients.mongo, clients.settings.retention_days
    return ReportStores(
        ledger=Ledger(mongo),
        partitions=Partitions(mongo.database),
        retention=Retention(things.products, clients.limits, days),
    )


@dataclass(frozen=True, kw_only=True)
class TelemetryHandlerDependencies:
    """Dependencies of the HTTP handlers."""

    edge: HttpIngestService
    history: HistoryService
    device_events: EventService
    rejections: RejectedMessageReader
    connections: ConnectionHistory
    streams: StreamStateReader
    ledger_reader: LedgerReader


@dataclass(frozen=True, kw_only=True)
class TelemetryPackage:
    """The components of telemetry that other packages use."""

    values: LatestValues
    partitions: Partitions
    direct_partitions: Partitions
    """The same partitions on the connection of PyMongo's own driver (decision 0021)."""
    events: EventStore
    """Reads events on the connection of PyMongo's own driver."""
    key_ranges: KeyRangeResolver
    retention: Retention
    reporter: Reporter
    presence: HttpPresence
    edge: HttpIngestService
    parts: PackageParts


def wire_telemetry(
    clients: Clients,
    *,
    rpc: RpcServer,
    things: ThingsPackage,
    values: LatestValues,
    system: Bus,
    uplinks: Sequence[str],
    reconnects: ReconnectListener,
) -> TelemetryPackage:
    """Construct telemetry.

    `system` is the connection to NATS's system account, `uplinks` are `UPLINK` and its partitions.
    """
    settings, mongo, bus = clients.settings, clients.mongo, clients.bus
    granted = things.granted_devices
    stores, direct_partitions = wire_stores(clients, things=things), Partitions(mongo.direct)
    store = PresenceStore(mongo, clients.outbox, things.devices)
    account = SystemAccount(system)
    presence = HttpPresence(store, settings.http_offline_after, OfflineTimeouts(things.products))
    watch = PresenceWatch(
        system=system,
        store=store,
        account=account,
        reconnects=reconnects,
        rest=min(IDLE_PERIOD_SECONDS, settings.http_offline_after / 2),
    )
    offer_connections(rpc, store, account)
    backups = BackupMetrics(mongo.database)
    backups.offer(rpc)
    key_ranges = KeyRangeResolver(things.directory, granted)
    events = EventStore(mongo.direct)
    history = HistoryStore(
        things.devices, direct_partitions, stores.retention, things.specifications
    )
    handlers = TelemetryHandlerDependencies(
        edge=HttpIngestService(
            bus=bus,
            things=things.directory,
            presence=presence,
            meter=MessageMeter(clients.limits),
            keeper=DeadMessagePublisher(bus, DeadMessageBuilder(clients.limits)),
            retention_days=settings.retention_days,
        ),
        history=HistoryService(history, settings.retention_days),
        device_events=EventService(events, key_ranges),
        rejections=RejectedMessageReader(bus, granted),
        connections=ConnectionHistory(bus, granted),
        streams=StreamStateReader(bus, uplinks),
        ledger_reader=LedgerReader(bus, uplinks, stores.ledger),
    )
    return TelemetryPackage(
        values=values,
        partitions=stores.partitions,
        direct_partitions=direct_partitions,
        events=events,
        key_ranges=key_ranges,
        retention=stores.retention,
        reporter=Reporter(bus),
        presence=presence,
        edge=handlers.edge,
        parts=PackageParts(
            routers=create_routers(
                handlers,
                open_api=[get_property_history],
                others=[EDGE, REJECTIONS, EVENTS, CONNECTIONS, LEDGER, STREAM_STATES],
            ),
            resources=[start_and_stop(stop=presence.stop)],
            tasks=[
                backups.run,
                StreamMetrics(bus, {*STREAM_CONFIGS, *uplinks}, mongo.database).run,
                partial(measure_disk, mongo.database),
                partial(measure_jetstream, system, settings.nats_storage),
                partial(measure_event_readers, bus),
            ],
            jobs={"presence": watch.run},
        ),
    )


@dataclass(frozen=True, kw_only=True)
class IngestPackage:
    """Ingest, and the metrics of messages that wait for it."""

    ingest: Ingest
    metrics: UplinkMetrics
    parts: PackageParts


def wire_ingest(
    clients: Clients,
    *,
    things: ThingsPackage,
    values: LatestValues,
    stores: ReportStores,
    batch_store: BatchStore,
    frames: FrameDecoder,
    commands: CommandCloser,
    alarms: AlarmTrigger,
    thing_data: Sequence[ThingDataStore],
    streams: Sequence[str],
) -> IngestPackage:
    """Construct ingest with a consumer for each of `streams`, and retention."""
    settings, bus, database = clients.settings, clients.bus, clients.mongo.database
    shapes = ShapeStore(database)
    ingest = Ingest(
        bus=bus,
        things=things.directory,
        store=batch_store,
        latest=values,
        device_fields=DeviceFieldUpdater(things.devices, values, things.products),
        shapes=ShapeUpdater(shapes, things.devices, clients.limits),
        commands=commands,
        alarms=alarms,
        quota=MessageQuota(clients.limits, clients.rpc),
        dead_messages=DeadMessageBuilder(clients.limits),
        frames=frames,
        retention_ms=settings.retention_days * DAY_MS,
    )
    consumers = [
        BatchConsumer(
            bus=bus,
            stream=stream,
            durable=CONSUMER_NAME,
            handle=ingest.handle,
            batch=settings.ingest_batch,
            concurrency=settings.ingest_concurrency,
            overlap_from=MIN_OVERLAPPED_BATCH,
            may_linger=may_linger,
        )
        for stream in streams
    ]
    lists, days = things.devices.queries, settings.retention_days
    sweeps = RetentionSweeper(
        devices=lists,
        thing_store=things.thing_store,
        deleted_things=DeletedThings(database),
        partitions=stores.partitions,
        events=EventStore(database).collection,
        ledger=stores.ledger,
        products=things.products,
        retention=stores.retention,
        rows=HistoryRowLimits(lists, things.thing_store, stores.partitions, clients.limits, days),
        stores=thing_data,
        days=days,
    )
    metrics = UplinkMetrics(bus, streams, stores.ledger)
    limits = partial(add_missing_stream_settings, bus.js, bus.replicas)
    return IngestPackage(
        ingest=ingest,
        metrics=metrics,
        parts=PackageParts(
            tasks=[
                *(consumer.run for consumer in consumers),
                ingest.slow.run,
                clients.wakeups.publish_forever,
                metrics.run,
                StreamMetrics(bus, {*STREAM_CONFIGS, *streams}, database, limits).run,
                partial(measure_disk, database),
            ],
            jobs={"retention": sweeps.run, "shapes": partial(shapes.sweep, things.devices)},
        ),
    )
