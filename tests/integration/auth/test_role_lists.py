"""What roles show and could show, with the names that the owners know."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest_asyncio

from libs.common.bus import Outbox, RpcClient, RpcServer
from libs.common.contracts.names import (
    DescribeDashboards,
    DescribedDashboard,
    DescribedDashboards,
    DescribedDevice,
    DescribedDevices,
    DescribeDevices,
    DescribedGroups,
    DescribedIntegration,
    DescribedIntegrations,
    DescribeGroups,
    DescribeIntegrations,
)
from libs.common.errors import Unavailable
from libs.common.identity.access import AccessVersions
from services.auth.accounts import Accounts
from services.auth.accounts import grants as accounts_grants
from services.auth.audit import AuditStore
from services.auth.changes import ChangeRunner
from services.auth.connections import AdmissionLog, UserConnections
from services.auth.grants import deleted_resources
from services.auth.grants.listings import ResourceOwnerClient as Names
from services.auth.grants.service import GrantService
from services.auth.revocations import RevocationApplier, RevocationStore
from services.auth.roles.service import RoleService
from services.auth.tokens.device_keys import DeviceKeyCopyStore
from services.auth.tokens.writer import TokenWriter
from tests.integration.auth.rights import create_role, store_user

DEVICES = [
    DescribedDevice(5, "Lamp", "ping", 1000, user_id=7),
    DescribedDevice(6, "Door", "direct", 2000, user_id=99),
    DescribedDevice(7, "Bell", "direct", 3000, group=4),
]
INTEGRATIONS = [
    DescribedIntegration("direct", "Direct connection", 2, 20),
    DescribedIntegration("ping", "Ping", 1, 3),
    DescribedIntegration("system", "System", 0, 5),
]
DASHBOARDS = [DescribedDashboard(8, "Home", 1000, user_id=7), DescribedDashboard(9, "Work", 2000)]


@dataclass
class Owners:
    """Stand-ins for `device` and `management` on the bus; they answer as the contract says."""

    asked: list[Any] = field(default_factory=list)
    failure: Exception | None = None

    async def devices(self, wanted: DescribeDevices) -> DescribedDevices:
        self._asked(wanted)
        found = [
            device
            for device in DEVICES
            if device.id not in wanted.exclude_ids
            and device.integration not in wanted.exclude_integrations
            and device.group not in wanted.exclude_groups
            and (
                (wanted.ids is None and wanted.integrations is None and wanted.groups is None)
                or device.group in (wanted.groups or ())
                or device.id in (wanted.ids or ())
                or device.integration in (wanted.integrations or ())
            )
            and (
                _in(wanted.keyword, device.name)
                or device.integration in wanted.keyword_integrations
            )
        ]
        found.sort(key=lambda device: -device.id)
        return DescribedDevices(found[wanted.skip : wanted.skip + wanted.limit], len(found))

    async def groups(self, wanted: DescribeGroups) -> DescribedGroups:
        return DescribedGroups([id_ for id_ in wanted.ids if id_ == 4])

    async def integrations(self, wanted: DescribeIntegrations) -> DescribedIntegrations:
        self._asked(wanted)
        return DescribedIntegrations(
            [
                each
                for each in INTEGRATIONS
                if (wanted.ids is None or each.id in wanted.ids) and _in(wanted.keyword, each.name)
            ]
        )

    async def dashboards(self, wanted: DescribeDashboards) -> DescribedDashboards:
        self._asked(wanted)
        return DescribedDashboards(
            [
                each
                for each in DASHBOARDS
                if (wanted.ids is None or each.id in wanted.ids) and _in(wanted.keyword, each.name)
            ]
        )

    def _asked(self, wanted: Any) -> None:
        assert wanted.tenant == "default"
        self.asked.append(wanted)
        if self.failure is not None:
            raise self.failure


def _in(keyword: str, name: str) -> bool:
    return keyword.lower() in name.lower()


@contextlib.asynccontextmanager
async def offered(auth: Any, user: str, offer: Any) -> AsyncIterator[None]:
    bus = await auth.door.bus(user)
    rpc = RpcServer(bus, user)
    offer(rpc)
    await rpc.start()
    for _ in range(2):
        await bus.client.flush()
    yield
    await rpc.stop()
    await bus.drain()


@pytest_asyncio.fixture
async def device_owner(auth) -> AsyncIterator[Owners]:
    """`device` alone."""
    owners = Owners()

    def offer(rpc: RpcServer) -> None:
        rpc.offer("describe_devices", DescribeDevices, owners.devices)
        rpc.offer("describe_groups", DescribeGroups, owners.groups)

    async with offered(auth, "device", offer):
        yield owners


@pytest_asyncio.fixture
async def owners(auth, device_owner) -> AsyncIterator[Owners]:
    """`device` and `management`."""

    def offer(rpc: RpcServer) -> None:
        rpc.offer("describe_integrations", DescribeIntegrations, device_owner.integrations)
        rpc.offer("describe_dashboards", DescribeDashboards, device_owner.dashboards)

    async with offered(auth, "management", offer):
        yield device_owner


async def role_with(auth: Any, *granted: tuple[str, str]) -> str:
    """A role of user 7 that grants resources; answers its path."""
    await store_user(auth, 7, nickname="Ann")
    role = f"/user/roles/{await create_role(auth)}"
    if granted:
        body = {"resources": [{"type": kind, "id": resource} for kind, resource in granted]}
        await auth.done("POST", f"{role}/associate-resource", body)
    return role


async def summarize_ids(auth: Any, path: str, **body: Any) -> list[str]:
    """The ids of a list."""
    found = await auth.done("POST", path, body)
    (name,) = (
        {"integration_id", "device_id", "dashboard_id"}
        & set(found[0]) - ({"integration_id"} if "device_id" in found[0] else set())
        if found
        else ("",)
    )
    return [each[name] for each in found]


async def test_devices_come_by_themselves_and_through_their_integration(auth, owners):
    """The latter cannot be taken out alone; who added a device is named while it is there."""
    role = await role_with(auth, ("DEVICE", "6"), ("INTEGRATION", "ping"))

    found = await auth.done("POST", f"{role}/devices", {})

    assert found == [
        {
            "device_id": "6",
            "device_name": "Door",
            "created_at": "2000",
            "integration_id": "direct",
            "integration_name": "Direct connection",
            "user_id": "99",
            "role_integration": False,
        },
        {
            "device_id": "5",
            "device_name": "Lamp",
            "created_at": "1000",
            "integration_id": "ping",
            "integration_name": "Ping",
            "user_id": "7",
            "user_email": "7@example.com",
            "user_nickname": "Ann",
            "role_integration": True,
        },
    ]
    assert await summarize_ids(auth, f"{role}/undistributed-devices") == ["7"]


async def test_devices_come_through_their_group(auth, owners):
    """A role that is granted a group shows the devices that are in it, and may read each."""
    role = await role_with(auth, ("DEVICE_GROUP", "4"))
    (bell,) = await auth.done("POST", f"{role}/devices", {})
    assert (bell["device_id"], bell["role_integration"]) == ("7", True)
    assert await summarize_ids(auth, f"{role}/undistributed-devices") == ["6", "5"]
    await auth.done("POST", f"{role}/associate-user", {"user_ids": ["7"]})
    asked = {"resource_type": "DEVICE", "resource_id": "7"}
    answer = await auth.ask("POST", "/user/members/7/permission", asked)
    assert answer.json()["data"] == {"has_permission": True}


async def test_devices_are_found_by_their_name_and_their_integrations(auth, owners):
    """In part, in any case."""
    role = await role_with(auth, ("INTEGRATION", "ping"), ("INTEGRATION", "direct"))

    assert await summarize_ids(auth, f"{role}/devices", keyword="DOO") == ["6"]
    assert await summarize_ids(auth, f"{role}/devices", keyword="connect") == ["7", "6"]
    assert await summarize_ids(auth, f"{role}/devices", keyword="nothing") == []


async def test_device_lists_are_paged_and_sorted_by_the_device_service(auth, owners):
    """`auth` requests one page only."""
    role = await role_with(auth)

    page = await auth.done(
        "POST",
        f"{role}/undistributed-devices",
        {
            "page_size": 2,
            "page_number": 2,
            "sorts": [
                {"property": "device_name", "direction": "DESC"},
                {"property": "createdAt"},
                {"property": "integration_name"},
            ],
        },
    )

    assert [device["device_id"] for device in page["content"]] == ["5"]
    assert (page["total"], page["page_size"], page["page_number"]) == (3, 2, 2)
    asked = owners.asked[0]
    assert (asked.skip, asked.limit) == (2, 2)
    assert asked.order == [("name", -1), ("createdAt", 1), ("integrationName", 1)]


async def test_a_role_without_grants_shows_nothing(auth, owners):
    """All visible resources are candidates."""
    role = await role_with(auth)

    for kind in ("devices", "integrations", "dashboards"):
        assert await auth.done("POST", f"{role}/{kind}") == []
        page = await auth.done("POST", f"{role}/{kind}", {"page_size": 10, "page_number": 1})
        assert page == {"page_size": 10, "page_number": 1, "total": 0, "content": []}
    assert owners.asked == []
    assert await summarize_ids(auth, f"{role}/undistributed-devices") == ["7", "6", "5"]
    assert await summarize_ids(auth, f"{role}/undistributed-integrations") == ["direct", "ping"]
    assert await summarize_ids(auth, f"{role}/undistributed-dashboards") == ["8", "9"]


async def test_integrations_have_their_counts(auth, owners):
    """As numbers; `system` is hidden even when it is granted."""
    role = await role_with(auth, ("INTEGRATION", "ping"), ("INTEGRATION", "system"))

    assert await auth.done("POST", f"{role}/integrations", {"keyword": "PI"}) == [
        {"integration_id": "ping", "integration_name": "Ping", "device_num": 1, "entity_num": 3}
    ]
    assert await auth.done("POST", f"{role}/undistributed-integrations") == [
        {"integration_id": "direct", "integration_name": "Direct connection"}
    ]
    assert await summarize_ids(auth, f"{role}/integrations", keyword="x") == []


async def test_integrations_are_sorted_and_paged(auth, owners):
    """They are sorted by name by default."""
    role = await role_with(auth, ("INTEGRATION", "ping"), ("INTEGRATION", "direct"))

    assert await summarize_ids(auth, f"{role}/integrations") == ["direct", "ping"]
    sorts = [{"property": "entity_num", "direction": "ASC"}]
    assert await summarize_ids(auth, f"{role}/integrations", sorts=sorts) == ["ping", "direct"]
    page = await auth.done("POST", f"{role}/integrations", {"page_size": 1, "page_number": 2})
    assert [each["integration_id"] for each in page["content"]] == ["ping"]
    assert page["total"] == 2


async def test_dashboards_have_their_creators(auth, owners):
    """Existing users have a name and an email address."""
    role = await role_with(auth, ("DASHBOARD", "8"))

    assert await auth.done("POST", f"{role}/dashboards", {"keyword": "ho"}) == [
        {
            "dashboard_id": "8",
            "dashboard_name": "Home",
            "created_at": "1000",
            "user_id": "7",
            "user_email": "7@example.com",
            "user_nickname": "Ann",
        }
    ]
    assert await auth.done("POST", f"{role}/undistributed-dashboards") == [
        {"dashboard_id": "9", "dashboard_name": "Work", "created_at": "2000"}
    ]


async def test_without_management_its_lists_are_empty(auth, device_owner):
    """Devices are listed all the same, with the ids of integrations for their names."""
    role = await role_with(auth, ("INTEGRATION", "ping"), ("DASHBOARD", "8"), ("DEVICE", "6"))

    for kind in ("integrations", "dashboards"):
        assert await auth.done("POST", f"{role}/{kind}") == []
        assert await auth.done("POST", f"{role}/undistributed-{kind}") == []
    found = await auth.done("POST", f"{role}/devices")
    assert [device["integration_name"] for device in found] == ["direct", "ping"]


async def test_an_owner_that_cannot_answer_is_503(auth, owners):
    """An empty list would be a lie."""
    role = await role_with(auth, ("INTEGRATION", "ping"), ("DASHBOARD", "8"), ("DEVICE", "6"))
    owners.failure = Unavailable("overloaded")
    for kind in ("integrations", "devices", "dashboards"):
        for path in (kind, f"undistributed-{kind}"):
            await auth.refused(503, "POST", f"{role}/{path}", {})


async def test_device_has_to_be_there(auth):
    """The platform has always had one, so its absence is a failure."""
    role = await role_with(auth, ("DEVICE", "6"))

    await auth.refused(503, "POST", f"{role}/devices", {})


async def test_all_devices_are_listed_however_many(auth, monkeypatch, owners):
    """The owner is asked in parts that fit into a message."""
    many = [DescribedDevice(at, f"d{at}", "direct", 1000) for at in range(1, 1202)]
    monkeypatch.setitem(globals(), "DEVICES", many)
    role = await role_with(auth)

    whole = await summarize_ids(auth, f"{role}/undistributed-devices")
    page = await auth.done(
        "POST", f"{role}/undistributed-devices", {"page_size": 1100, "page_number": 1}
    )

    assert whole == [str(at) for at in range(1201, 0, -1)]
    assert (len(page["content"]), page["total"]) == (1100, 1201)
    parts = [asked for asked in owners.asked if isinstance(asked, DescribeDevices)]
    assert [(part.skip, part.limit) for part in parts[-3:]] == [(0, 500), (500, 500), (1000, 100)]


async def test_missing_resources_cannot_be_granted(auth, owners):
    """A missing resource fails the request; one without an owner is granted."""
    role = await role_with(auth)
    there = {"type": "DEVICE", "id": DEVICES[0].id}
    for missing in ({"type": "DEVICE", "id": "77"}, {"type": "DASHBOARD", "id": "77"}):
        body = {"resources": [there, missing]}
        path = f"{role}/associate-resource"
        refusal = await auth.refused(400, "POST", path, body, field="resources")
        assert f"{missing['type']} 77" in refusal["error_message"]
    assert await auth.done("POST", f"{role}/resources", {}) == []
    flow = {"type": "WORKFLOW", "id": "77"}
    await auth.done("POST", f"{role}/associate-resource", {"resources": [there, flow]})


class NoCredential:
    """No user of the bus has a credential."""

    async def list_credentials(self, user: str) -> frozenset[str]:
        return frozenset()


async def test_a_sweep_removes_grants_of_deleted_resources(auth, owners, monkeypatch):
    """Grants are deleted when the owner responds, except recent grants."""
    monkeypatch.setattr(deleted_resources, "PAGE_PAUSE_SECONDS", 0)
    monkeypatch.setattr(accounts_grants, "GRANTS_PER_PAGE", 2)
    role = await role_with(auth, ("DEVICE", DEVICES[0].id), ("DASHBOARD", "8"), ("WORKFLOW", "7"))
    grants = auth.mongo.database["grants"]
    old = {"at": datetime.now(UTC) - timedelta(hours=2)}
    await grants.update_many({}, {"$set": old})
    (one,) = await grants.find({"type": "DEVICE"}).to_list(None)
    del one["_id"]
    await grants.insert_many([{**one, "id": at} for at in (71, 72, 73)])
    await grants.insert_one({**one, "id": 74, "at": datetime.now(UTC)})

    versions, database = AccessVersions(auth.redis), auth.mongo.database
    revoker = RevocationApplier(
        TokenWriter(auth.redis, access_life=1, refresh_life=1),
        DeviceKeyCopyStore(auth.redis),
        UserConnections(AdmissionLog(auth.redis), auth.rpc, NoCredential()),
    )
    accounts, known = Accounts(auth.mongo.database), Names(RpcClient(auth.bus))
    changes = ChangeRunner(
        auth.mongo,
        AuditStore(database),
        Outbox(database, auth.bus),
        RevocationStore(database),
        revoker,
        accounts.tenants,
        versions,
    )
    roles = RoleService(changes, accounts)
    service = GrantService(changes, roles, accounts, known)
    await deleted_resources.GrantSweep(service).sweep()

    left = await auth.done("POST", f"{role}/resources", {"sorts": [{"property": "resource_id"}]})
    assert [each["resource_id"] for each in left] == ["5", "7", "8", "74"]
