"""The process of a service: its connections, and the parts that its packages add."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from litestar import Router
from litestar.types import ControllerRouterHandler
from nats.errors import Error as NatsError

from libs.common.bus import Bus, Outbox, RpcClient
from libs.common.bus.connection import START_SECONDS
from libs.common.http import build_dependencies
from libs.common.http.guards import applications
from libs.common.identity.grants import GrantReader
from libs.common.jobs import run_in_background
from libs.common.limits.tenants import LimitsCache
from libs.common.settings import StoreSettings, load_settings
from libs.common.store.lease import Job, Leader
from libs.common.store.migrations import Migration, migrate
from libs.common.store.mongo import Database, Mongo, StoreError
from libs.common.telemetry import Telemetry, start_telemetry

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

log = logging.getLogger(__name__)
_RETRY_SECONDS = 0.5
"""Seconds between two attempts to reach a store."""


@dataclass(frozen=True, kw_only=True)
class PackageParts:
    """The parts that a package adds to its process."""

    routers: Sequence[Router] = ()
    """Its HTTP operations, with the dependencies of their handlers."""
    resources: Sequence[AbstractAsyncContextManager[object]] = ()
    """Context managers, entered in order before tasks and jobs start, and exited in reverse after
    they have ended."""
    tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """Endless background tasks of every replica."""
    jobs: Mapping[str, Job] = field(default_factory=dict)
    """Endless background jobs of the replica that holds the lease, by name."""


def create_routers(
    handlers: "DataclassInstance",
    *,
    open_api: Sequence[ControllerRouterHandler] = (),
    others: Sequence[ControllerRouterHandler] = (),
) -> list[Router]:
    """Return routers whose handlers get the fields of `handlers`.

    Only applications may call the operations of `open_api`; `others` have their own guards.
    """
    dependencies = build_dependencies(handlers)
    return [
        Router("/", guards=[applications], route_handlers=open_api, dependencies=dependencies),
        Router("/", route_handlers=others, dependencies=dependencies),
    ]


def collect_routers(parts: Sequence[PackageParts]) -> list[Router]:
    """Return the routers of all packages, in order."""
    return [router for part in parts for router in part.routers]


@asynccontextmanager
async def run_packages(
    parts: Sequence[PackageParts], database: Database, lease: str, life: float = 10.0
) -> AsyncIterator[None]:
    """Open the resources, and run tasks and jobs, while the block runs.

    `life` is the duration of the lease of the jobs in seconds (`Leader`).
    """
    jobs = {name: job for part in parts for name, job in part.jobs.items()}
    tasks = [task for part in parts for task in part.tasks]
    async with AsyncExitStack() as stack:
        for part in parts:
            for resource in part.resources:
                await stack.enter_async_context(resource)
        leader = Leader(database, lease, jobs, life)
        await stack.enter_async_context(
            run_in_background(*(task() for task in tasks), leader.run())
        )
        yield


@asynccontextmanager
async def start_and_stop(
    start: Callable[[], Awaitable[None]] | None = None,
    stop: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[None]:
    """Call `start` before the block, and `stop` after it."""
    if start is not None:
        await start()
    try:
        yield
    finally:
        if stop is not None:
            await stop()


S = TypeVar("S", bound=StoreSettings)
T = TypeVar("T")


class ProcessConnections(NamedTuple, Generic[S]):
    """The settings and connections of a process."""

    settings: S
    telemetry: Telemetry
    mongo: Mongo
    bus: Bus


class ProcessClients(Generic[S]):
    """The connections of a process, and clients that use them."""

    def __init__(self, settings: S, telemetry: Telemetry, mongo: Mongo, bus: Bus) -> None:
        """Create the clients; the arguments are the fields of `ProcessConnections`."""
        self.settings, self.telemetry, self.mongo, self.bus = settings, telemetry, mongo, bus
        self.rpc, self.outbox = RpcClient(bus), Outbox(mongo.database, bus)
        self.limits, self.grants = LimitsCache(self.rpc), GrantReader(self.rpc)


@asynccontextmanager
async def connect_process(
    kind: type[S], service: str, migrations: Sequence[Migration], *, process: str = ""
) -> AsyncIterator[ProcessConnections[S]]:
    """Connect a process of `service`, migrate its database, and close all at the end."""
    settings, process = load_settings(kind), process or service
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    async with AsyncExitStack() as stack:
        telemetry = start_telemetry(process, settings.replicas)
        stack.callback(telemetry.shutdown)
        mongo = Mongo(settings.mongo_url, settings.mongo_database or f"thingway_{service}")
        stack.push_async_callback(mongo.close)
        bus = await Bus.connect(
            settings.nats_url,
            user=settings.nats_user,
            password=settings.nats_password,
            name=process,
            ca_file=settings.ca_file,
            stream_replicas=settings.stream_replicas,
        )
        stack.push_async_callback(bus.drain)
        await wait_for_store("MongoDB", mongo.ping, deadline)
        await migrate(mongo.database, migrations)
        yield ProcessConnections(settings, telemetry, mongo, bus)


async def wait_for_store(
    name: str, attempt: Callable[[], Awaitable[T]], deadline: float | None = None
) -> T:
    """Return the result of `attempt`, repeated while the store `name` fails.

    Raises its error at `deadline`, a time of the event loop's clock; the default is `START_SECONDS`
    from now. A new MongoDB has no primary and no users until a job has created them. A stream of
    NATS does not answer while too few of its servers run.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + START_SECONDS if deadline is None else deadline
    logged = ""
    while True:
        try:
            return await attempt()
        except (StoreError, NatsError, TimeoutError) as error:
            if clock() > deadline:
                raise
            reason, *_ = re.split(", Topology|, full error", str(error), maxsplit=1)
            if reason != logged:
                log.warning("waiting for %s: %s", name, reason)
                logged = reason
            await asyncio.sleep(_RETRY_SECONDS)
