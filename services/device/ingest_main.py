"""`python -m services.device.ingest_main`: the process `device-ingest`, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from libs.common.bus import UPLINK, BatchConsumer
from libs.common.bus.streams import bound_streams
from libs.common.http import Service, create_app, run_service, serve
from libs.common.identity import HeaderVerifier
from libs.common.jobs import running
from libs.common.store.lease import Leader
from services.device.commands.replies import ReplyHandler
from services.device.history.partitions import DAY_MS
from services.device.members.shape_store import ShapeKeeper, ShapeStore
from services.device.reports.facts import Facts
from services.device.reports.ingest import Ingest
from services.device.reports.metrics import UplinkMetrics
from services.device.reports.quota import Quota
from services.device.reports.refusals import Refusals
from services.device.reports.store import ReportStore
from services.device.retention.job import RetentionJob
from services.device.retention.rows import HistoryRows
from services.device.retention.sweeps import Sweeps
from services.device.wiring import Base, connected

DURABLE = "ingest"
OVERLAP_FROM = 1000
"""Messages of a batch that is worth writing while another one is being written."""


def build_ingest(base: Base) -> Ingest:
    """Put ingest together."""
    return Ingest(
        bus=base.bus,
        things=base.things,
        store=ReportStore(base.mongo, base.partitions, base.ledger),
        latest=base.latest,
        facts=Facts(base.devices, base.latest),
        shapes=ShapeKeeper(ShapeStore(base.mongo.database), base.devices, base.limits),
        replies=ReplyHandler(
            mongo=base.mongo,
            devices=base.devices,
            commands=base.commands,
            outbox=base.outbox,
            latest=base.latest,
            partitions=base.partitions,
            ledger=base.ledger,
        ),
        quota=Quota(base.limits, base.rpc),
        refusals=Refusals(base.limits),
        retention_ms=base.settings.retention_days * DAY_MS,
    )


async def main() -> None:
    """Consume `UPLINK` until told to end; probes and metrics are served beside it."""
    async with connected("device-ingest") as base:
        settings = base.settings
        await bound_streams(base.bus.js)
        consumer = BatchConsumer(
            bus=base.bus,
            stream=UPLINK,
            durable=DURABLE,
            handle=build_ingest(base).handle,
            batch=settings.ingest_batch,
            concurrency=settings.ingest_concurrency,
            overlap_from=OVERLAP_FROM,
        )
        days = settings.retention_days
        rows = HistoryRows(base.mongo.database, base.limits, days)
        sweeps = Sweeps(base.mongo.database, base.devices, base.retention, rows, days)
        retention = RetentionJob(base.partitions, base.ledger, sweeps, days)
        uplink = UplinkMetrics(base.bus, base.ledger)
        shapes = ShapeStore(base.mongo.database)

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            async with running(
                consumer.run(),
                uplink.run(),
                Leader(base.mongo.database, "retention", retention.run).run(),
                Leader(base.mongo.database, "shapes", partial(shapes.sweep, base.devices)).run(),
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
        await serve(app, settings)


if __name__ == "__main__":
    run_service(main)
