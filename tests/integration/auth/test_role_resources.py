"""What roles grant: setting it, asking for it, and how grants end."""

import asyncio
from typing import Any

import pytest

from libs.common.contracts.access import (
    ForgetResources,
    GrantedResources,
    ResourceRef,
    ResourceType,
    ShareWithRoles,
)
from libs.common.contracts.auth import Done
from libs.common.errors import Conflict, InvalidInput
from libs.common.things import MAX_MEMBER_NUMBER, entity_id
from services.auth.grants import service
from tests.integration.auth.rights import (
    STRANGER,
    audited,
    create_role,
    grants_of,
    store_user,
)

SAMPLE = [
    {"id": "ping", "type": "INTEGRATION"},
    {"id": "5", "type": "DEVICE"},
    {"id": 6, "type": "DEVICE"},
    {"id": "5", "type": "ENTITY"},
    {"id": "9007199254740991", "type": "DASHBOARD"},
    {"id": "8", "type": "WORKFLOW"},
]


async def grant(auth: Any, role_id: str, *resources: dict[str, Any], **more: Any) -> None:
    body = {"resources": list(resources)}
    await auth.done("POST", f"/user/roles/{role_id}/associate-resource", body, **more)


async def revoke(auth: Any, role_id: str, *resources: dict[str, Any]) -> None:
    body = {"resources": list(resources)}
    await auth.done("POST", f"/user/roles/{role_id}/disassociate-resource", body)


async def resources(auth: Any, role_id: str, **body: Any) -> list[tuple[str, str]]:
    found = await auth.done("POST", f"/user/roles/{role_id}/resources", body)
    return [(each["resource_type"], each["resource_id"]) for each in found]


async def devices_of(auth: Any, user_id: str) -> frozenset[int]:
    return (await grants_of(auth, user_id)).devices


async def test_resources_are_granted_and_listed(auth):
    """Ids are strings, types can be filtered, and repeated grants are stored once."""
    role_id = await create_role(auth)
    sorts = [{"property": "resource_type"}, {"property": "resource_id"}]

    await grant(auth, role_id, *SAMPLE, *SAMPLE)
    await grant(auth, role_id, SAMPLE[1])

    assert await resources(auth, role_id, sorts=sorts) == [
        ("DASHBOARD", "9007199254740991"),
        ("DEVICE", "5"),
        ("DEVICE", "6"),
        ("ENTITY", "5"),
        ("INTEGRATION", "ping"),
        ("WORKFLOW", "8"),
    ]
    assert sorted(await resources(auth, role_id, resource_type="DEVICE")) == [
        ("DEVICE", "5"),
        ("DEVICE", "6"),
    ]
    page = await auth.done(
        "POST", f"/user/roles/{role_id}/resources", {"page_size": 4, "page_number": 2}
    )
    assert (len(page["content"]), page["total"]) == (2, 6)
    assert await audited(auth, "role", action="resources_added") == ["resources_added"]


async def test_a_grant_is_visible_immediately(auth):
    """It is hidden immediately when the grant is removed."""
    role_id = await create_role(auth)
    user_id = await store_user(auth, 7, int(role_id))

    await grant(auth, role_id, *SAMPLE)
    granted = await grants_of(auth, user_id)
    await revoke(auth, role_id, *SAMPLE)
    taken = await grants_of(auth, user_id)

    assert granted == GrantedResources(
        version=granted.version,
        integrations=frozenset({"ping"}),
        devices=frozenset({5, 6}),
        entities=frozenset({5}),
        dashboards=frozenset({2**53 - 1}),
        workflows=frozenset({8}),
    )
    assert taken == GrantedResources(version=taken.version)
    assert taken.version > granted.version


async def test_taking_back_matches_type_and_id(auth):
    """An entity with the id of a device keeps its grant; missing grants are ignored."""
    role_id = await create_role(auth)
    await grant(auth, role_id, *SAMPLE)

    await revoke(auth, role_id, {"id": "5", "type": "DEVICE"}, {"id": "99", "type": "ENTITY"})

    assert set(await resources(auth, role_id)) == {
        ("INTEGRATION", "ping"),
        ("DEVICE", "6"),
        ("ENTITY", "5"),
        ("DASHBOARD", "9007199254740991"),
        ("WORKFLOW", "8"),
    }


async def test_taking_back_leaves_other_roles_alone(auth):
    """Each role has grants of its own."""
    first, second = await create_role(auth, "first"), await create_role(auth, "second")
    await grant(auth, first, SAMPLE[1])
    await grant(auth, second, SAMPLE[1])

    await revoke(auth, first, SAMPLE[1])

    assert await resources(auth, first) == []
    assert await resources(auth, second) == [("DEVICE", "5")]


BAD_RESOURCES = [
    ([], "resources", "parameter_syntax_error"),
    (None, "resources", "parameter_validation_failed"),
    ("DEVICE", "resources", "parameter_validation_failed"),
    ([{"id": "5"}], None, "parameter_validation_failed"),
    ([{"type": "DEVICE"}], None, "parameter_validation_failed"),
    ([{"id": "5", "type": "ROLE"}], "resources[0].type", "parameter_validation_failed"),
    ([{"id": "5", "type": "device"}], "resources[0].type", "parameter_validation_failed"),
    ([{"id": "x", "type": "DEVICE"}], "resources[0].id", "parameter_validation_failed"),
    ([{"id": "", "type": "ENTITY"}], "resources[0].id", "parameter_validation_failed"),
    ([{"id": "-1", "type": "DASHBOARD"}], "resources[0].id", "parameter_validation_failed"),
    ([{"id": "0", "type": "WORKFLOW"}], "resources[0].id", "parameter_validation_failed"),
    ([{"id": "٣", "type": "DEVICE"}], "resources[0].id", "parameter_validation_failed"),
    ([{"id": 2**53, "type": "DEVICE"}], "resources[0].id", "parameter_validation_failed"),
    ([{"id": 1.5, "type": "DEVICE"}], "resources[0].id", "parameter_validation_failed"),
    ([{"id": 5, "type": "INTEGRATION"}], "resources[0].id", "parameter_validation_failed"),
    ([{"id": " ", "type": "INTEGRATION"}], "resources[0].id", "parameter_validation_failed"),
    (
        [SAMPLE[0], {"id": "x" * 128, "type": "INTEGRATION"}],
        "resources[1].id",
        "parameter_validation_failed",
    ),
]


async def test_bad_resources_are_refused(auth):
    """400 names the one at fault, and nothing is granted."""
    role_id = await create_role(auth)
    for sent, field, code in BAD_RESOURCES:
        for operation in ("associate-resource", "disassociate-resource"):
            path = f"/user/roles/{role_id}/{operation}"
            await auth.refused(400, "POST", path, {"resources": sent}, field=field, code=code)

        assert await resources(auth, role_id) == []


async def test_a_bad_type_to_list_is_refused(auth):
    """400 names it."""
    await auth.refused(
        400, "POST", "/user/roles/1/resources", {"resource_type": "X"}, field="resource_type"
    )


async def test_a_role_has_a_bounded_number_of_resources(auth):
    """More than fits into a message of the bus is refused whole; integrations are the way."""
    role_id = await create_role(auth)
    body = {"resources": [{"id": at, "type": "ENTITY"} for at in range(1, 20_002)]}

    await auth.refused(
        409, "POST", f"/user/roles/{role_id}/associate-resource", body, field="resources"
    )

    assert await resources(auth, role_id) == []


async def test_the_largest_grants_are_answered(auth):
    """Twenty thousand of the longest ids fit into a message."""
    role_id = await create_role(auth)
    user_id = await store_user(auth, 7, int(role_id))
    ids = range(2**53 - 20_000, 2**53)
    await grant(auth, role_id, *({"id": str(at), "type": "ENTITY"} for at in ids))

    assert (await grants_of(auth, user_id)).entities == frozenset(ids)


async def test_concurrent_grants_are_all_kept(auth):
    """Overlapping ones too: each resource once."""
    role_id = await create_role(auth)

    await asyncio.gather(
        *(
            grant(auth, role_id, {"id": 5, "type": "DEVICE"}, {"id": 10 + at, "type": "DEVICE"})
            for at in range(6)
        )
    )

    assert sorted(await resources(auth, role_id)) == sorted(
        ("DEVICE", str(device)) for device in (5, *range(10, 16))
    )


async def share(auth: Any, user_id: int, *shared: ResourceRef, tenant: str = "default") -> None:
    await auth.call("share_with_roles", ShareWithRoles(tenant, user_id, list(shared)), Done)


async def forget(auth: Any, *gone: ResourceRef, tenant: str = "default") -> None:
    await auth.call("forget_resources", ForgetResources(tenant, list(gone)), Done)


DASHBOARD = ResourceRef("8", ResourceType.DASHBOARD)


async def test_created_resources_are_granted_to_all_roles_of_the_user(auth):
    """Repeated requests grant it once."""
    first, second = await create_role(auth, "first"), await create_role(auth, "second")
    await store_user(auth, 7, int(first), int(second))

    await share(auth, 7, DASHBOARD)
    await share(auth, 7, DASHBOARD)

    for role_id in (first, second):
        assert await resources(auth, role_id) == [("DASHBOARD", "8")]


async def test_the_audit_log_names_user_and_role_of_a_created_resource(auth):
    """A search for either name finds the entry, also when the resource is deleted."""
    role_id = await create_role(auth, "crew")
    await store_user(auth, 7, int(role_id))
    email = (await auth.mongo.database["users"].find_one({"_id": 7}))["email"]

    await share(auth, 7, DASHBOARD)
    await forget(auth, DASHBOARD)

    added, removed = [
        entry
        async for entry in auth.mongo.database["audit"]
        .find({"object.id": role_id, "action": {"$in": ["resources_added", "resources_removed"]}})
        .sort("at", 1)
    ]
    assert (added["actor"]["name"], added["object"]["name"]) == (email, "crew")
    assert removed["object"]["name"] == "crew"


async def test_a_role_that_is_full_gets_nothing_shared(auth, monkeypatch):
    """Creating resources cannot exceed the size limit of a role's grants."""
    monkeypatch.setattr(service, "MAX_GRANTS_PER_ROLE", 3)
    role_id = int(await create_role(auth))
    await store_user(auth, 7, role_id)
    grants = auth.mongo.database["grants"]
    await grants.insert_many(
        {"tenant": "default", "role": role_id, "type": "DEVICE", "id": number}
        for number in range(2)
    )

    await share(auth, 7, DASHBOARD)
    with pytest.raises(Conflict):
        await share(auth, 7, ResourceRef("9", ResourceType.DASHBOARD))

    assert await grants.count_documents({"role": role_id}) == 3


async def test_resources_of_users_without_roles_are_not_granted(auth):
    """Users without roles, unknown users and those of other tenants cause no error."""
    role_id = await create_role(auth)
    await store_user(auth, 7)
    await store_user(auth, 8, int(role_id))

    await share(auth, 7, DASHBOARD)
    await share(auth, 99, DASHBOARD)
    await share(auth, 8, DASHBOARD, tenant="elsewhere")

    assert not await auth.mongo.database["grants"].count_documents({})


async def test_deleted_resources_are_removed_from_all_roles_of_the_tenant(auth):
    """Other tenants keep theirs."""
    await auth.tenant("elsewhere")
    first, second = await create_role(auth, "first"), await create_role(auth, "second")
    theirs = await create_role(auth, caller=STRANGER)
    for role_id in (first, second):
        await grant(auth, role_id, {"id": "8", "type": "DASHBOARD"}, {"id": 8, "type": "DEVICE"})
    await grant(auth, theirs, {"id": "8", "type": "DASHBOARD"}, caller=STRANGER)

    await forget(auth, DASHBOARD)

    for role_id in (first, second):
        assert await resources(auth, role_id) == [("DEVICE", "8")]
    assert await auth.mongo.database["grants"].count_documents({"tenant": "elsewhere"}) == 1
    assert len(await audited(auth, "role", action="resources_removed")) == 2


async def test_a_device_takes_the_grants_of_its_entities_along(auth):
    """Those of its neighbours, and an integration's, stay."""
    role_id = await create_role(auth)
    first, last = entity_id(1_000_000, 0), entity_id(1_000_000, MAX_MEMBER_NUMBER)
    entities = [{"id": at, "type": "ENTITY"} for at in (first - 1, first, last, last + 1)]
    await grant(auth, role_id, *entities, SAMPLE[0])

    await forget(auth, ResourceRef("1000000", ResourceType.DEVICE))

    assert set(await resources(auth, role_id)) == {
        ("ENTITY", str(first - 1)),
        ("ENTITY", str(last + 1)),
        ("INTEGRATION", "ping"),
    }


async def test_bad_resources_are_refused_on_the_bus_too(auth):
    """With the error of the caller's making."""
    with pytest.raises(InvalidInput, match="resources"):
        await forget(auth)
    with pytest.raises(InvalidInput, match="must be an id"):
        await share(auth, 7, ResourceRef("x", ResourceType.DEVICE))


async def test_a_deleted_device_is_forgotten(auth):
    """The event deletes its grants; the grant of its integration stays."""
    role_id = await create_role(auth)
    user_id = await store_user(auth, 7, int(role_id))
    await grant(auth, role_id, *SAMPLE)
    before = await grants_of(auth, user_id)

    await auth.bus.js.publish("event.default.device.5.updated", b"{}")
    await auth.bus.js.publish("event.elsewhere.device.6.deleted", b"{}")
    await auth.bus.js.publish("event.default.device.5.deleted", b"{}")

    async with asyncio.timeout(20):
        while 5 in await devices_of(auth, user_id):
            await asyncio.sleep(0.05)
    after = await grants_of(auth, user_id)
    assert after.devices == {6}
    assert after.integrations == {"ping"}
    assert after.version > before.version
