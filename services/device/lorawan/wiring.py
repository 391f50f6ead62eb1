"""Wiring of the lorawan package."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.bus import RpcServer
from libs.common.process import PackageParts, create_routers
from services.device.clients import Clients
from services.device.commands.model import DownlinkEncoder
from services.device.commands.wiring import CommandsPackage
from services.device.lorawan import console, open_api
from services.device.lorawan.codec_cache import CodecCache
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_service import CodecService
from services.device.lorawan.downlinks import CodecDownlinkEncoder, DownlinkStateRpc
from services.device.lorawan.frame_decoder import CodecFrameDecoder
from services.device.lorawan.frame_queries import FrameService
from services.device.lorawan.frame_store import FrameStore
from services.device.lorawan.gaps import GapService, GapStore
from services.device.lorawan.healing import Healer, HealingStore
from services.device.lorawan.redecode_job import RedecodeWorker
from services.device.lorawan.redecode_service import RedecodeService, RedecodeStore
from services.device.lorawan.redecoder import Redecoder
from services.device.lorawan.rpc import FrameRpc
from services.device.telemetry.device_fields import DeviceFieldUpdater
from services.device.telemetry.history import KeyRangeResolver
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import DAY_MS
from services.device.telemetry.ports import FrameDecoder
from services.device.telemetry.retention import Retention
from services.device.telemetry.wiring import TelemetryPackage
from services.device.things.deleted_things import ThingDataStore
from services.device.things.wiring import ThingsPackage


@dataclass(frozen=True, kw_only=True)
class CodecsPackage:
    """Interface to codecs and stored frames for other packages."""

    workers: CodecWorkers
    cache: CodecCache
    service: CodecService
    frames: FrameStore
    encoder: DownlinkEncoder
    parts: PackageParts


def wire_codecs(clients: Clients, *, things: ThingsPackage) -> CodecsPackage:
    """Construct codecs and the encoder of commands."""
    workers, cache = CodecWorkers(), CodecCache(things.products)
    frames = FrameStore(clients.mongo)
    return CodecsPackage(
        workers=workers,
        cache=cache,
        service=CodecService(things.products, things.specifications, workers),
        frames=frames,
        encoder=CodecDownlinkEncoder(codecs=cache, workers=workers, frames=frames),
        parts=PackageParts(resources=[workers]),
    )


@dataclass(frozen=True, kw_only=True)
class FramesPackage:
    """Dependencies of ingest on frames."""

    decoder: FrameDecoder
    thing_data: Sequence[ThingDataStore]
    parts: PackageParts


def wire_frames(clients: Clients, *, things: ThingsPackage, retention: Retention) -> FramesPackage:
    """Construct the decoder of frames in batches."""
    settings, database = clients.settings, clients.mongo.database
    frames, workers = FrameStore(clients.mongo), CodecWorkers()
    return FramesPackage(
        decoder=CodecFrameDecoder(
            store=frames,
            codecs=CodecCache(things.products),
            workers=workers,
            retention=retention,
            retention_ms=settings.retention_days * DAY_MS,
            frame_days=settings.frame_retention_days,
        ),
        thing_data=[frames, GapStore(database), HealingStore(database)],
        parts=PackageParts(resources=[workers]),
    )


@dataclass(frozen=True, kw_only=True)
class LorawanHandlerDependencies:
    """Dependencies of the HTTP handlers."""

    codec_service: CodecService
    redecodes: RedecodeService
    frames: FrameService
    gaps: GapService
    key_ranges: KeyRangeResolver


@dataclass(frozen=True, kw_only=True)
class LorawanPackage:
    """Re-decode jobs and healing of gaps."""

    redecodes: RedecodeStore
    healer: Healer
    parts: PackageParts


def wire_lorawan(
    clients: Clients,
    *,
    rpc: RpcServer,
    things: ThingsPackage,
    telemetry: TelemetryPackage,
    commands: CommandsPackage,
    codecs: CodecsPackage,
) -> LorawanPackage:
    """Construct operations on codecs, frames and gaps, and their background jobs."""
    settings, mongo = clients.settings, clients.mongo
    devices, directory, products = things.devices, things.directory, things.products
    frames, gaps = codecs.frames, GapStore(mongo.database)
    FrameRpc(
        bus=clients.bus, directory=directory, presence=telemetry.presence, devices=devices
    ).offer(rpc)
    DownlinkStateRpc(
        devices=devices, things=directory, commands=commands.store, reporter=telemetry.reporter
    ).offer(rpc)
    redecodes = RedecodeStore(mongo.database, clients.wakeups)
    # PyMongo's own driver reads large results without a thread.
    latest = LatestValues(mongo.direct)
    worker = RedecodeWorker(
        store=redecodes,
        redecoder=Redecoder(
            mongo=mongo,
            frames=frames,
            partitions=telemetry.direct_partitions,
            workers=codecs.workers,
            outbox=clients.outbox,
            retention_ms=settings.retention_days * DAY_MS,
        ),
        codecs=codecs.cache,
        devices=devices,
        things=directory,
        latest=latest,
        device_fields=DeviceFieldUpdater(devices, latest, products),
        partitions=telemetry.direct_partitions,
    )
    healer = Healer(
        products=products,
        devices=devices,
        things=directory,
        latest=telemetry.values,
        frames=frames,
        partitions=telemetry.partitions,
        gaps=gaps,
        store=HealingStore(mongo.database),
        commands=commands.service,
        command_store=commands.store,
        frame_days=settings.frame_retention_days,
        history_days=settings.retention_days,
    )
    handlers = LorawanHandlerDependencies(
        codec_service=codecs.service,
        redecodes=RedecodeService(redecodes, products, devices.queries, things.granted_devices),
        frames=FrameService(frames, telemetry.partitions, directory),
        gaps=GapService(frames, gaps),
        key_ranges=telemetry.key_ranges,
    )
    return LorawanPackage(
        redecodes=redecodes,
        healer=healer,
        parts=PackageParts(
            routers=create_routers(
                handlers,
                open_api=[
                    open_api.CODEC_ROUTER,
                    open_api.list_device_frames,
                    open_api.list_device_gaps,
                ],
                others=[console.DEVICE_ROUTER, console.CODEC_ROUTER],
            ),
            jobs={"redecode": worker.run, "healing": healer.run},
        ),
    )
