"""Composes the process `device-ingest`: `python -m services.device.ingest_main`."""

from collections.abc import Sequence

from libs.common.bus.streams import add_missing_stream_settings, create_uplink_streams
from libs.common.http import ServiceDescription, create_app, run_service, serve
from libs.common.identity import HeaderVerifier
from libs.common.process import PackageParts, run_packages, wait_for_store
from services.device.alarms.wiring import wire_trigger
from services.device.commands.wiring import wire_completion
from services.device.entities.tags import TagStore
from services.device.lorawan.wiring import wire_frames
from services.device.process import Foundation, start_process
from services.device.telemetry.batch_store import BatchStore
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.wiring import IngestPackage, wire_ingest, wire_stores

GC_THRESHOLD = 100_000
"""New objects after which Python collects garbage. A large batch creates about this many objects,
without reference cycles. At a tenth of this threshold a report took 5 % more processor time."""


def build_ingest(
    foundation: Foundation, streams: Sequence[str]
) -> tuple[IngestPackage, Sequence[PackageParts]]:
    """Compose the packages that ingest reports of `streams`.

    Return the ingest package, and the parts that the process runs.
    """
    clients, things, commands = foundation.clients, foundation.things, foundation.commands
    values = LatestValues(clients.mongo.direct)
    stores = wire_stores(clients, things=things)
    frames = wire_frames(clients, things=things, retention=stores.retention)
    batch_store = BatchStore(clients.mongo, stores.partitions, stores.ledger, frames.decoder)
    alarms = wire_trigger(clients, things=things)
    completion = wire_completion(
        things=things, values=values, store=commands, batch_store=batch_store
    )
    ingest = wire_ingest(
        clients,
        things=things,
        values=values,
        stores=stores,
        batch_store=batch_store,
        frames=frames.decoder,
        commands=completion,
        alarms=alarms,
        thing_data=[foundation.values, commands, TagStore(clients.mongo), *frames.thing_data],
        streams=streams,
    )
    return ingest, [frames.parts, ingest.parts]


async def main() -> None:
    """Ingest reports of `UPLINK` and its partitions until the process is stopped."""
    async with start_process("device-ingest") as foundation:
        clients, settings = foundation.clients, foundation.clients.settings
        bus, mongo, replicas = clients.bus, clients.mongo, settings.stream_replicas
        streams = await wait_for_store(
            "NATS", lambda: create_uplink_streams(bus.js, replicas, settings.uplink_partitions)
        )
        await wait_for_store("NATS", lambda: add_missing_stream_settings(bus.js, replicas))
        ingest, parts = build_ingest(foundation, streams)
        app = create_app(
            ServiceDescription(
                name="device-ingest",
                title="Thingway ingest",
                routes=[],
                verifier=HeaderVerifier(settings.internal_public_key),
                telemetry=clients.telemetry,
                checks={
                    "mongo": mongo.ping,
                    "nats": bus.check,
                    "ingest": ingest.metrics.check,
                },
                lifespan=lambda: run_packages(parts, mongo.database, "ingest"),
            )
        )
        await serve(app, settings, young=GC_THRESHOLD)


if __name__ == "__main__":
    run_service("device-ingest", main)
