"""`python -m services.device.ingest_main`: the process `device-ingest`, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from libs.common.bus import STREAMS, BatchConsumer
from libs.common.bus.streams import complete_streams, ensure_uplinks
from libs.common.http import Service, create_app, run_service, serve
from libs.common.identity import HeaderVerifier
from libs.common.jobs import running
from libs.common.store.lease import Job, Leader
from libs.common.store_metrics import DiskMetrics, StreamMetrics
from services.device.alarms.following import FollowedRules
from services.device.alarms.pointing import RuleAlarmTrigger
from services.device.alarms.rules_store import RuleStore
from services.device.alarms.store import AlarmStore
from services.device.codecs.workers import CodecWorkers
from services.device.commands.completion import CommandCompletion
from services.device.entities.tags.store import TagStore
from services.device.healing.store import HealStore
from services.device.members.shapes import ShapeKeeper, ShapeStore
from services.device.products.codec.known import KnownCodecs
from services.device.reports.events.store import EventStore
from services.device.reports.facts import Facts
from services.device.reports.frames.reading import CodecFrameDecoder
from services.device.reports.gaps.store import GapStore
from services.device.reports.history.partitions import DAY_MS
from services.device.reports.ingest import Ingest
from services.device.reports.ledger import Ledger
from services.device.reports.metrics import UplinkMetrics
from services.device.reports.quota import Quota, Refusals
from services.device.reports.retention.rows import HistoryRows
from services.device.reports.retention.sweeps import Sweeps
from services.device.reports.store import ReportStore
from services.device.things.removed import RemovedThings
from services.device.wiring import Base, started

DURABLE = "ingest"
YOUNG = 100_000
"""New objects after which the garbage collector looks at them: a large batch has as many, and
none in a circle. With ten times fewer a report took 5 % more of the processor."""
OVERLAP_FROM = 1000
"""Messages of a batch that is worth writing while another one is being written."""


def build_ingest(base: Base, ledger: Ledger, shapes: ShapeStore, workers: CodecWorkers) -> Ingest:
    """Put ingest together."""
    retention_ms = base.settings.retention_days * DAY_MS
    frames = CodecFrameDecoder(
        store=base.frames,
        codecs=KnownCodecs(base.products),
        workers=workers,
        retention=base.retention,
        retention_ms=retention_ms,
        frame_days=base.settings.frame_retention_days,
    )
    store = ReportStore(base.mongo, base.partitions, ledger, frames)
    rules = RuleStore(base.mongo.database, base.limits)
    states = AlarmStore(base.mongo, base.outbox, base.devices)
    alarms = RuleAlarmTrigger(FollowedRules(rules, states))
    commands = CommandCompletion(
        mongo=base.mongo,
        devices=base.devices,
        commands=base.commands,
        outbox=base.outbox,
        latest=base.latest,
        reports=store,
        alarms=alarms,
    )
    return Ingest(
        bus=base.bus,
        things=base.things,
        store=store,
        latest=base.latest,
        facts=Facts(base.devices, base.latest, base.products),
        shapes=ShapeKeeper(shapes, base.devices, base.limits),
        commands=commands,
        alarms=alarms,
        quota=Quota(base.limits, base.rpc),
        refusals=Refusals(base.limits),
        frames=frames,
        retention_ms=retention_ms,
    )


async def main() -> None:
    """Consume `UPLINK` and its partitions until told to end, with probes and metrics beside it."""
    async with started("device-ingest") as base:
        settings = base.settings
        streams = await ensure_uplinks(
            base.bus.js, settings.stream_replicas, settings.uplink_partitions
        )
        await complete_streams(base.bus.js, settings.stream_replicas)
        ledger = Ledger(base.mongo)
        shapes = ShapeStore(base.mongo.database)
        workers = CodecWorkers()
        ingest = build_ingest(base, ledger, shapes, workers)
        consumers = [
            BatchConsumer(
                bus=base.bus,
                stream=stream,
                durable=DURABLE,
                handle=ingest.handle,
                batch=settings.ingest_batch,
                concurrency=settings.ingest_concurrency,
                overlap_from=OVERLAP_FROM,
            )
            for stream in streams
        ]
        days = settings.retention_days
        own = base.things.own
        rows = HistoryRows(base.devices.lists, own, base.partitions, base.limits, days)
        sweeps = Sweeps(
            devices=base.devices.lists,
            own=own,
            removed=RemovedThings(base.mongo.database),
            partitions=base.partitions,
            events=EventStore(base.mongo.database).collection,
            ledger=ledger,
            products=base.products,
            retention=base.retention,
            rows=rows,
            stores=[
                base.latest,
                base.commands,
                TagStore(base.mongo),
                base.frames,
                GapStore(base.mongo.database),
                HealStore(base.mongo.database),
            ],
            days=days,
        )
        uplink = UplinkMetrics(base.bus, streams, ledger)
        jobs: dict[str, Job] = {
            "retention": sweeps.run,
            "shapes": partial(shapes.sweep, base.devices),
        }

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            async with (
                workers,
                running(
                    *(one.run() for one in consumers),
                    ingest.slow.run(),
                    uplink.run(),
                    StreamMetrics(base.bus, {*STREAMS, *streams}).run(),
                    DiskMetrics(base.mongo.database).run(),
                    Leader(base.mongo.database, "ingest", jobs).run(),
                ),
            ):
                yield

        app = create_app(
            Service(
                name="device-ingest",
                title="Thingway ingest",
                routes=[],
                verifier=HeaderVerifier(settings.internal_public_key),
                telemetry=base.telemetry,
                checks={
                    "mongo": base.mongo.ping,
                    "nats": base.bus.check,
                    "ingest": uplink.check,
                },
                lifespan=lifespan,
            )
        )
        await serve(app, settings, young=YOUNG)


if __name__ == "__main__":
    run_service("device-ingest", main)
