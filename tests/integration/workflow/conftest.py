"""The workflow service in this process, on real servers; `auth` and `device` are played."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import pytest
import pytest_asyncio
from httpx import ASGITransport, AsyncClient
from opentelemetry.sdk.metrics import MeterProvider

from libs.common.bus import Bus, RpcServer
from libs.common.contracts.access import Access, UserRef
from libs.common.contracts.auth import DescribedUsers, DescribeUsers
from libs.common.contracts.entities import (
    CalledServices,
    CallServices,
    EntityUpdate,
    EntityValues,
    ReadEntities,
    ResolvedEntities,
    ResolvedEntity,
    ResolveEntities,
    UpdatedEntities,
    UpdateEntities,
    UpdateOutcome,
)
from libs.common.contracts.flows import (
    ChangeAlarm,
    ChangeAlarmAnswer,
    FlowServiceAnswer,
    PutFlowService,
    RemoveFlowService,
)
from libs.common.contracts.limits import GetLimits, Limits, TenantLimits
from libs.common.contracts.names import DescribedDevice, DescribedDevices, DescribeDevices
from libs.common.errors import InvalidInput, Unauthenticated, UpstreamFailed
from libs.common.identity import HeaderSigner, generate_keys
from libs.common.identity.functions import Function
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.telemetry import Telemetry
from services.workflow.app import WorkflowPackages, build_app, wire_packages
from services.workflow.clients import Clients
from services.workflow.migrations import MIGRATIONS
from services.workflow.nodes import wiring
from services.workflow.sandbox.runner import Sandbox
from services.workflow.settings import WorkflowSettings
from tests.console import AskedByUsers, Grants
from tests.databases import empty_documents
from tests.lending import lent
from tests.lifespan import running
from tests.servers import Servers

GONE = 90
HERE = Path(__file__).parent
SHARING = {
    "outgoing/test_flows.py",
    "outgoing/test_http.py",
    "outgoing/test_mail.py",
    "outgoing/test_mqtt.py",
    "outgoing/test_secrets.py",
    "test_credentials.py",
    "test_examples.py",
    "test_flows.py",
    "test_trials.py",
}
"""Modules about operations: their tests share a service, whose stores are emptied.

Modules about triggers, notifications, recovery and replicas have a service for each test.
"""
AUTHOR = (Function.WORKFLOW_VIEW, Function.WORKFLOW_ADD, Function.WORKFLOW_EDIT)


class PlayedDevice:
    """Fake of `device` with entities and a record of requests."""

    def __init__(self, bus: Bus) -> None:
        self._rpc = RpcServer(bus, "device")
        self._rpc.offer("entity_values", ReadEntities, self._values)
        self._rpc.offer("update_entities", UpdateEntities, self._update)
        self._rpc.offer("call_service", CallServices, self._call)
        self._rpc.offer("resolve_entities", ResolveEntities, self._resolve)
        self._rpc.offer("describe_devices", DescribeDevices, self._describe)
        self._rpc.offer("change_alarm", ChangeAlarm, self._change_alarm)
        self._rpc.offer("put_flow_service", PutFlowService, self._put_service)
        self._rpc.offer("remove_flow_service", RemoveFlowService, self._remove_service)
        self.renew()

    def renew(self) -> None:
        """Forget everything."""
        self.values: dict[str, Any] = {}
        self.known: dict[str, ResolvedEntity] = {}
        self.missing: set[str] = set()
        """Keys of no entity; others exist."""
        self.updates: list[EntityUpdate] = []
        self.asked: list[int] = []
        """How many updates each question had."""
        self.calls: list[CallServices] = []
        self.outputs: dict[str, Any] = {}
        self.refuses = ""
        self.alarms: list[ChangeAlarm] = []
        self.groups: dict[int, int] = {}
        """Groups of the devices 5 to 9, which there are."""
        self.services: dict[int, PutFlowService] = {}

    def has(self, key: str, value: Any = None, **fields: Any) -> None:
        """Let there be a property."""
        self.values[key] = value
        shown = {"id": len(self.known) + 8192, "thing_id": 1, "integration": "direct"}
        shown |= {"device": True, "member": key.rpartition(".")[2], "name": key}
        self.known[key] = ResolvedEntity(
            key=key, type="PROPERTY", value_type="LONG", **(shown | fields)
        )

    async def start(self) -> None:
        await self._rpc.start()

    async def stop(self) -> None:
        await self._rpc.stop()

    async def _values(self, wanted: ReadEntities) -> EntityValues:
        return EntityValues({key: self.values[key] for key in wanted.keys if key in self.values})

    async def _update(self, wanted: UpdateEntities) -> UpdatedEntities:
        self.asked.append(len(wanted.updates))
        return UpdatedEntities([self._updated(update) for update in wanted.updates])

    def _updated(self, one: EntityUpdate) -> UpdateOutcome:
        if self.refuses:
            error = InvalidInput(self.refuses, field="exchange")
            return UpdateOutcome(status=error.status, code=error.code, error=error.text)
        if not one.dry_run:
            self.updates.append(one)
            self.values |= one.exchange
        return UpdateOutcome(keys=list(one.exchange))

    async def _call(self, wanted: CallServices) -> CalledServices:
        if not wanted.dry_run:
            self.calls.append(wanted)
        return CalledServices(self.outputs)

    async def _put_service(self, wanted: PutFlowService) -> FlowServiceAnswer:
        self.services[wanted.flow_id] = wanted
        return FlowServiceAnswer()

    async def _remove_service(self, wanted: RemoveFlowService) -> FlowServiceAnswer:
        if self.refuses:
            raise UpstreamFailed(self.refuses)
        self.services.pop(wanted.flow_id, None)
        return FlowServiceAnswer()

    async def _describe(self, wanted: DescribeDevices) -> DescribedDevices:
        found = [
            DescribedDevice(id_, f"device {id_}", "direct", 0, group=self.groups.get(id_))
            for id_ in wanted.ids or []
            if id_ in range(5, 10)
        ]
        return DescribedDevices(found, 0)

    async def _change_alarm(self, wanted: ChangeAlarm) -> ChangeAlarmAnswer:
        if not wanted.dry_run:
            self.alarms.append(wanted)
        return ChangeAlarmAnswer(7, changed=True)

    async def _resolve(self, wanted: ResolveEntities) -> ResolvedEntities:
        there = [key for key in wanted.keys if key not in self.missing]
        return ResolvedEntities([self.known.get(key) or _stranger(key) for key in there])


def _stranger(key: str) -> ResolvedEntity:
    """An entity that exists, and that nobody is granted."""
    return ResolvedEntity(
        id=1,
        key=key,
        thing_id=1,
        integration="strangers",
        device=True,
        member="m",
        name=key,
        type="PROPERTY",
        value_type="LONG",
    )


@dataclass
class Workflow(AskedByUsers):
    """The running service."""

    http: AsyncClient
    core: WorkflowPackages
    bus: Bus
    grants: Grants
    device: PlayedDevice
    signer: HeaderSigner
    limits: dict[str, Limits]
    """Of tenants that have others than the usual."""

    async def limit(self, tenant: str, **limits: int) -> None:
        """Give a tenant limits, and wait until the service knows them."""
        self.limits[tenant] = Limits(**limits)
        while self.core.clients.limits.get(tenant) != self.limits[tenant]:
            await asyncio.sleep(0.01)


def settings_for(servers: Any, public_key: str, **more: Any) -> WorkflowSettings:
    """Settings for the test's servers."""
    return WorkflowSettings(
        mongo_url=servers.mongo_url,
        nats_url=servers.nats_url,
        internal_public_key=public_key,
        secrets_key=public_key,
        **{"code_processes": 2, **more},
    )


async def _access(wanted: UserRef) -> Access:
    """Return permissions: user 1 has all, users from 90 on are deleted."""
    if wanted.user_id >= GONE:
        raise Unauthenticated("the user is gone")
    return Access(1, frozenset({Function.DEVICE_VIEW}), super_admin=wanted.user_id == 1)


async def _describe_users(wanted: DescribeUsers) -> DescribedUsers:
    return DescribedUsers({str(id_): f"Nick {id_}" for id_ in wanted.ids})


class SharedSandbox(Sandbox):
    """A sandbox whose processes serve all tests: to start them takes longer than most tests."""

    start, stop = Sandbox.__aenter__, Sandbox.__aexit__

    async def __aenter__(self) -> Self:
        """Return the sandbox, which has been started for all tests."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Keep the processes for the next test."""


@pytest_asyncio.fixture(scope="session")
async def shared_sandbox() -> AsyncIterator[SharedSandbox]:
    """The sandbox of all services in this process."""
    sandbox = SharedSandbox(2)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


@pytest.fixture
def database(emptied: Callable[[str], str]) -> str:
    """Name of an empty database with the service's indexes."""
    return emptied("workflow")


@asynccontextmanager
async def started(
    servers: Servers, mongo: Mongo, sandbox: SharedSandbox
) -> AsyncIterator[Workflow]:
    """The service on a database."""
    private, public = generate_keys()
    settings = settings_for(
        servers, public, flow_failures=3, flow_node_seconds=3.0, outgoing_networks="127.0.0.0/8"
    )
    bus = await Bus.connect(servers.nats_url, name="workflow", stream_replicas=1)
    others = await Bus.connect(servers.nats_url, name="others")
    await migrate(mongo.database, MIGRATIONS)
    telemetry = Telemetry(None, MeterProvider())
    with patch.object(wiring, "Sandbox", lambda _: sandbox):
        core = wire_packages(Clients(settings, telemetry, mongo, bus))
    device = PlayedDevice(others)
    await device.start()
    people = RpcServer(others, "auth")
    people.offer("describe_users", DescribeUsers, _describe_users)
    people.offer("get_access", UserRef, _access)
    limits: dict[str, Limits] = {}

    async def limits_of(wanted: GetLimits) -> TenantLimits:
        return TenantLimits(limits.get(wanted.tenant, Limits()))

    people.offer("get_limits", GetLimits, limits_of)
    await people.start()
    with lent(lambda: build_app(core)) as app:
        async with Grants(others) as grants, running(app):
            http = AsyncClient(transport=ASGITransport(app), base_url="http://workflow")
            yield Workflow(http, core, bus, grants, device, HeaderSigner(private), limits)
            await http.aclose()
    await people.stop()
    await device.stop()
    await bus.drain()
    await others.drain()


@pytest_asyncio.fixture
async def own_workflow(servers, database, mongo_of, shared_sandbox) -> AsyncIterator[Workflow]:
    """One service with an empty database."""
    async with started(servers, mongo_of(database), shared_sandbox) as found:
        yield found


@pytest_asyncio.fixture(scope="module")
async def module_workflow(servers, emptied, mongo_of, shared_sandbox) -> AsyncIterator[Workflow]:
    """The service of a module."""
    database = emptied("workflow of a module")
    async with started(servers, mongo_of(database), shared_sandbox) as found:
        yield found


@pytest_asyncio.fixture
async def emptied_workflow(module_workflow: Workflow) -> Workflow:
    """The service of a module, as if it had just started."""
    await empty_documents(module_workflow.core.clients.mongo.database)
    module_workflow.device.renew()
    module_workflow.grants.renew()
    return module_workflow


@pytest.fixture
def workflow(request: pytest.FixtureRequest) -> Workflow:
    """The service with an empty database."""
    is_shared = str(request.path.relative_to(HERE)) in SHARING
    found: Workflow = request.getfixturevalue("emptied_workflow" if is_shared else "own_workflow")
    return found
