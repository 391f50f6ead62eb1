"""Integrations: announced, shown to those who may see them, gone when they fall silent."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.contracts.access import ResourceType
from libs.common.contracts.entities import (
    DescribeIntegrationEntities,
    ThingEntities,
    ThingEntity,
)
from libs.common.contracts.integrations import (
    ANNOUNCEMENT_LIFETIME_SECONDS,
    Acknowledged,
    AddDevice,
    KnownIntegrations,
    Manifest,
    NewDevice,
    announce_subject,
    operation_subject,
)
from libs.common.contracts.names import (
    CountDevices,
    DescribedIntegrations,
    DescribeIntegrations,
    DeviceCount,
    DeviceCounts,
)
from libs.common.errors import Forbidden, InvalidInput
from libs.common.identity.functions import Function
from libs.common.integrations import Integration, IntegrationHost
from tests.integration.management.conftest import Management, present

LAMPS = Manifest(
    id="lamps",
    name="Lamps",
    tsl={
        "version": "v1.0",
        "properties": [],
        "events": [],
        "services": [
            {"id": "add_lamp", "name": "Add", "callType": "SYNC", "inputs": [], "outputs": []}
        ],
    },
    add_device_service="add_lamp",
)


BUILT_IN = sorted(
    ("chirpstack", "direct", "milesight", "openapi-client", "simulator", "tts", "webhook")
)


class Lamps(Integration):
    manifest = LAMPS


@pytest_asyncio.fixture
async def device(management: Management, servers) -> AsyncIterator[RpcServer]:
    """Plays `device`: three devices of `direct` with 12 entities, one entity of `lamps`."""
    bus = await Bus.connect(servers.nats_url, name="device")
    rpc = RpcServer(bus, "device")

    async def counts(_: CountDevices) -> DeviceCounts:
        return DeviceCounts({"direct": DeviceCount(3, 12)})

    async def entities(wanted: DescribeIntegrationEntities) -> ThingEntities:
        key = f"{wanted.integration}.integration.add_lamp"
        entity = ThingEntity(id=8193, key=key, name="Add", type="SERVICE", value_type="OBJECT")
        return ThingEntities([entity])

    rpc.offer("count_devices", CountDevices, counts)
    rpc.offer("integration_entities", DescribeIntegrationEntities, entities)
    await rpc.start()
    for integration in BUILT_IN:
        await present(management, integration)
    await bus.client.flush()
    yield rpc
    await rpc.stop()
    await bus.drain()


@contextlib.asynccontextmanager
async def _hosted(servers: Any, integration: Integration) -> AsyncIterator[IntegrationHost]:
    """An integration in a connection of its own."""
    bus = await Bus.connect(servers.nats_url, name="external")
    async with IntegrationHost(bus, integration) as host:
        yield host
    await bus.drain()


async def _ids(user: Any, **body: Any) -> list[str]:
    return [one["id"] for one in await user.done("POST", "/integration/search", body)]


@pytest.mark.usefixtures("device")
async def test_announced_integrations_are_listed(management: Management, servers):
    """One of another process appears next to the built-in ones; `system` is hidden."""
    admin = management.admin()
    assert await _ids(admin) == BUILT_IN
    async with _hosted(servers, Lamps()):
        found = await admin.done("POST", "/integration/search", {})
    assert [entry["id"] for entry in found] == sorted([*BUILT_IN, "lamps"])
    direct = found[1]
    assert direct["name"] == "Direct connection"
    assert direct["icon"].startswith("/public/")
    assert direct["add_device_service_key"] == "direct.integration.add_device"
    assert direct["device_count"] == direct["deviceCount"] == 3
    assert direct["entity_count"] == direct["entityCount"] == 12 + 4


async def test_an_integration_of_the_process_is_announced_without_a_message(servers) -> None:
    """With `announce`, its host sends no request to `management`."""
    bus, announced = await Bus.connect(servers.nats_url, name="management"), []
    requests = await bus.client.subscribe(announce_subject("*"))

    async def announce(integration: str, manifest: Manifest) -> Acknowledged:
        announced.append((integration, manifest))
        return Acknowledged()

    async with IntegrationHost(bus, Lamps(), announce):
        await bus.client.flush()
    assert announced == [("lamps", LAMPS)]
    assert requests.pending_msgs == 0
    await bus.drain()


@pytest.mark.usefixtures("device")
async def test_filters_compare(management: Management, servers):
    """`device_addable` true finds those that add devices, false those that do not."""
    admin = management.admin()
    async with _hosted(servers, Lamps()):
        assert await _ids(admin, device_addable=True) == sorted([*BUILT_IN, "lamps"])
        assert await _ids(admin, device_addable=False) == []
        assert await _ids(admin, device_deletable=False) == ["lamps"]
        assert await _ids(admin, device_deletable=True) == BUILT_IN


@pytest.mark.usefixtures("device")
async def test_one_that_falls_silent_is_gone(management: Management, servers):
    """When its lease has ended it is neither listed nor found."""
    admin = management.admin()
    async with _hosted(servers, Lamps()):
        pass
    await management.mongo.database["integrations"].update_one(
        {"_id": "lamps"},
        [
            {
                "$set": {
                    "announcedAt": {
                        "$subtract": ["$$NOW", int(ANNOUNCEMENT_LIFETIME_SECONDS * 1000)]
                    }
                }
            }
        ],
    )
    assert await _ids(admin) == BUILT_IN
    await admin.refused(
        404, "GET", "/integration/lamps", field="integration_id", code="data_no_found"
    )
    known = await management.rpc("get_integrations", {}, KnownIntegrations)
    assert {integration.manifest.id: integration.alive for integration in known.integrations} == {
        "lamps": False,
        "system": True,
        **dict.fromkeys(BUILT_IN, True),
    }


@pytest.mark.usefixtures("device")
async def test_the_detail_has_the_entities(management: Management):
    """Each entity has `value_attribute`, empty when there is nothing to say."""
    found = await management.admin().done("GET", "/integration/direct")
    assert found["delete_device_service_key"] == "direct.integration.delete_device"
    assert found["integration_entities"] == [
        {
            "id": "8193",
            "key": "direct.integration.add_lamp",
            "name": "Add",
            "type": "SERVICE",
            "value_type": "OBJECT",
            "value_attribute": {},
        }
    ]


@pytest.mark.usefixtures("device")
async def test_a_user_sees_granted_integrations(management: Management, servers):
    """Without a grant the list is empty and the detail forbidden."""
    user = management.user(7, Function.INTEGRATION_VIEW)
    async with _hosted(servers, Lamps()):
        assert await _ids(user) == []
        await user.refused(403, "GET", "/integration/lamps", code="forbidden_permission")
        management.grants.give(7, ResourceType.INTEGRATION, "lamps")
        assert await _ids(user) == ["lamps"]
        assert (await user.done("GET", "/integration/lamps"))["id"] == "lamps"
        await user.refused(403, "GET", "/integration/direct")
        await user.refused(403, "GET", "/integration/unknown")


async def test_an_integration_cannot_announce_another(management: Management):
    """The id in the manifest must be that of the subject, which the login permits."""
    with pytest.raises(Forbidden):
        await RpcClient(management.bus).call(announce_subject("doors"), LAMPS, Acknowledged)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"addDeviceService": "nothing"}, "add_device_service"),
        ({"tsl": {"version": "v1.0", "properties": [{"id": ""}]}}, "tsl"),
        ({"name": ""}, "name"),
        ({"id": "Lamps!"}, "id"),
    ],
)
async def test_a_manifest_that_does_not_hold_together_is_refused(
    management: Management, changes, named
):
    """The refusal names the field."""
    manifest = {"id": "lamps", "name": "Lamps", **changes}
    with pytest.raises(InvalidInput, match=named):
        await RpcClient(management.bus).call(announce_subject("lamps"), manifest, Acknowledged)


async def test_direct_takes_the_sn_as_it_is(management: Management):
    """Its identifier is the SN; the model is left to prefixes when none is given."""
    client = RpcClient(management.bus)
    subject = operation_subject("direct", "add_device")
    wanted = AddDevice(tenant="default", user_id=1, name="Hall", params={"sn": "S1"})
    assert await client.call(subject, wanted, NewDevice) == NewDevice(identifier="S1")


@pytest.mark.usefixtures("device")
async def test_auth_gets_names_of_integrations(management: Management):
    """Role lists request them by id or keyword; `system` is hidden there, too."""

    async def names(**wanted: Any) -> list[str]:
        found = await management.rpc(
            "describe_integrations",
            DescribeIntegrations("default", **wanted),
            DescribedIntegrations,
        )
        return [integration.name for integration in found.integrations]

    assert await names() == [
        "ChirpStack",
        "Direct connection",
        "Milesight gateway",
        "Open API client",
        "Simulator",
        "The Things Stack",
        "Webhook",
    ]
    assert await names(keyword="DIRECT") == ["Direct connection"]
    assert await names(keyword="lamp") == []
    assert await names(ids=["system", "lamps"]) == []


async def test_icons_need_no_login(management: Management):
    """Consoles load them without a token; nothing else is served from there."""
    answer = await management.http.get("/public/direct.svg")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.content.startswith(b"<svg")
    assert (await management.http.get("/public/passwd")).status_code == 404
