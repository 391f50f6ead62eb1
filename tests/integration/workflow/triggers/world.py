"""What tests of triggers share: more replicas, events, and the runs that are recorded."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import Bus, OutgoingMessage
from libs.common.bus.subjects import device_event
from libs.common.contracts.events import DeviceProfile, PropertiesReported
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from services.workflow.app import WorkflowPackages, build_app, wire_packages
from services.workflow.clients import Clients
from services.workflow.triggers import deployed_flows
from tests.integration.workflow.conftest import Workflow
from tests.integration.workflow.designs import node
from tests.lending import lent
from tests.lifespan import running

FLOWS = "/workflow/flows"


def device() -> str:
    """The key of a device that no other test has."""
    return f"direct.device.{uuid4().hex}"


def listener(*keys: str) -> dict[str, Any]:
    """An entry that listens."""
    return node("start", "eventListener", entities=list(keys))


def timer(**settings: Any) -> dict[str, Any]:
    """An entry with a timer."""
    return node("start", "simpleTimer", timerSettings=settings)


async def enabled(user: Any, text: str, **fields: Any) -> int:
    """Save a flow that runs; its id."""
    body = {"name": "Flow", "design_data": text, "enabled": True, **fields}
    return int((await user.done("POST", f"{FLOWS}/design", body))["id"])


async def make_due(core: WorkflowPackages, flow_id: int, **fields: Any) -> int:
    """Move the next time of a flow's timer to a second ago; that time in ms."""
    due = int(time.time()) * 1000 - 1000
    change = {"$set": {"due": due, **fields}}
    assert (
        await core.clients.mongo.database["timers"].update_one({"_id": flow_id}, change)
    ).modified_count
    core.clients.wakeups.notify(deployed_flows.FLOWS_TOPIC)
    return due


def reported(
    key: str, event_id: str = "", hops: int = 0, tenant: str = "default", **values: Any
) -> OutgoingMessage:
    """Return a report event without a message id, so that copies are delivered."""
    body = PropertiesReported(
        event_id=event_id or uuid4().hex,
        created_at=1,
        tenant=tenant,
        device=DeviceProfile(device_id=5, sn="SN", thing_key=key),
        ts=1,
        properties=values,
    )
    headers = {"Thingway-Hops": str(hops)} if hops else {}
    subject = device_event(tenant, 5, "reported")
    return OutgoingMessage(subject, msgspec.json.encode(body), None, headers)


@asynccontextmanager
async def replica(workflow: Workflow, servers: Any) -> AsyncIterator[WorkflowPackages]:
    """Another replica on the same database."""
    core = workflow.core
    mongo = Mongo(servers.mongo_url, core.clients.mongo.database.name)
    bus = await Bus.connect(servers.nats_url, name="workflow-2")
    telemetry = Telemetry(None, MeterProvider())
    second = wire_packages(Clients(core.clients.settings, telemetry, mongo, bus))
    with lent(lambda: build_app(second)) as app:
        async with running(app):
            yield second
    await bus.drain()
    await mongo.close()


async def following(*cores: WorkflowPackages) -> None:
    """Wait until replicas know which flows listen."""
    for core in cores:
        await core.triggers.index.ready.wait()


async def runs_of(core: WorkflowPackages, flow_ids: Iterable[int]) -> list[dict[str, Any]]:
    """The runs that are recorded, ended or not."""
    query = {"flow": {"$in": list(flow_ids)}}
    return [run async for run in core.clients.mongo.database["runs"].find(query)]


async def ended(
    core: WorkflowPackages, flow_ids: Iterable[int], count: int
) -> list[dict[str, Any]]:
    """Wait until so many runs have ended; fail when there are more."""
    flow_ids = list(flow_ids)
    async with asyncio.timeout(60):
        while True:
            runs = await runs_of(core, flow_ids)
            done = [run for run in runs if run["status"] != "RUNNING"]
            if len(done) >= count:
                assert len(runs) == count
                return done
            await asyncio.sleep(0.05)
