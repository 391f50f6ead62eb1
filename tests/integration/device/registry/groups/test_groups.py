"""Groups of devices: their creation, members, grants and deletion."""

import asyncio

import pytest

from libs.common.contracts.access import ResourceType
from libs.common.contracts.names import DESCRIBE_GROUPS, DescribedGroups, DescribeGroups
from libs.common.identity.functions import Function
from libs.common.identity.grants import GrantReader, GrantsClient
from services.device.registry.devices.groups import GroupService
from services.device.things import groups as store
from tests.console import User
from tests.integration.device.values.test_adding import lamp
from tests.integration.device.values.world import Lamps, World


async def add_group(world: World, name: str, tenant: str = "default") -> str:
    """Create a group and return its id."""
    made = await world.admin(tenant).done("POST", "/device-group", {"name": name})
    return str(made["id"])


async def move(user: User, group: str | None, *devices: int) -> None:
    """Move devices to a group; without one, remove them from their groups."""
    body = {"device_id_list": list(map(str, devices))}
    await user.done(
        "POST", "/device/move-to-group", body if group is None else {"group_id": group, **body}
    )


async def found(user: User, **asked: object) -> list[str]:
    """Return the names of devices that a search finds."""
    page = await user.done("POST", "/device/search", asked)
    assert page["total"] == len(page["content"])
    return sorted(row["name"].removeprefix("device ") for row in page["content"])


async def groups(user: User, **asked: object) -> list[dict[str, object]]:
    """Return the groups that a search finds."""
    page = await user.done("POST", "/device-group/search", asked)
    return list(page["content"])


async def test_a_group_is_made_renamed_and_listed(world: World):
    """By parts of the name, the newest first; another tenant has its own."""
    number = (await world.admin().done("GET", "/device-group/number"))["number"]
    first, second = await add_group(world, "G1 roof"), await add_group(world, "G1 cellar")
    assert await groups(world.admin(), name="g1 ", page_size=999_999) == [
        {"id": second, "name": "G1 cellar"},
        {"id": first, "name": "G1 roof"},
    ]
    await world.admin().done("PUT", f"/device-group/{first}", {"name": "G1 attic"})
    order = [{"property": "name", "direction": "ASC"}]
    names = [group["name"] for group in await groups(world.admin(), name="G1", sorts=order)]
    assert names == ["G1 attic", "G1 cellar"]
    assert (await world.admin().done("GET", "/device-group/number"))["number"] == number + 2
    assert await groups(world.admin("other"), name="G1") == []
    await add_group(world, "G1 cellar", "other")
    path = f"/device-group/{first}"
    await world.admin("other").refused(
        404, "DELETE", path, code="device_group_not_found", field="group_id"
    )


async def test_a_name_is_taken_once(world: World):
    """By creating and by renaming, with the code that consoles know."""
    taken = await add_group(world, "G2")
    other = await add_group(world, "G2 too")
    refusal = {"code": "device_group_name_exists", "field": "name"}
    await world.admin().refused(400, "POST", "/device-group", {"name": " G2 "}, **refusal)
    await world.admin().refused(400, "PUT", f"/device-group/{other}", {"name": "G2"}, **refusal)
    await world.admin().done("DELETE", f"/device-group/{taken}")
    await world.admin().done("PUT", f"/device-group/{other}", {"name": "G2"})


async def test_groups_have_a_bound(world: World, monkeypatch: pytest.MonkeyPatch, lamps: Lamps):
    """One more is refused, also where a device would bring it; nothing is added then."""
    monkeypatch.setattr(store, "MAX_GROUPS", 0)
    code = "device_group_number_limitation"
    await world.admin("third").refused(400, "POST", "/device-group", {"name": "G"}, code=code)
    body = lamp("G-BOUND") | {"group_name": "G"}
    await world.admin().refused(400, "POST", "/device", body, code=code)
    assert lamps.asked == []
    assert await world.device("G-BOUND") is None


async def test_a_device_is_in_one_group(world: World):
    """Moving takes it out of the one before; lists tell the name of now."""
    device, group = await world.add_direct("G3-a"), await add_group(world, "G3")
    await world.add_direct("G3-b")
    other = await add_group(world, "G3 other")
    await move(world.admin(), group, device)
    await move(world.admin(), other, device)
    assert await found(world.admin(), group_id=group) == []
    assert await found(world.admin(), group_id=other) == ["G3-a"]
    assert await found(world.admin(), name="G3-", filter_not_grouped=True) == ["G3-b"]
    assert await found(world.admin(), group_id=other, filter_not_grouped=True) == []
    await world.admin().done("PUT", f"/device-group/{other}", {"name": "G3 renamed"})
    row = await world.admin().done("GET", f"/device/{device}")
    assert (row["group_id"], row["group_name"]) == (other, "G3 renamed")
    await move(world.admin(), None, device)
    assert "group_id" not in await world.admin().done("GET", f"/device/{device}")


async def test_devices_cannot_move_to_an_unknown_group(world: World):
    """The group gets 404; a device of another tenant is skipped."""
    device, theirs = await world.add_direct("G4-a"), await world.add_direct("G4-x", tenant="other")
    foreign, mine = await add_group(world, "G4", "other"), await add_group(world, "G4")
    body = {"group_id": foreign, "device_id_list": [str(device)]}
    await world.admin().refused(
        404, "POST", "/device/move-to-group", body, code="device_group_not_found"
    )
    await move(world.admin(), mine, theirs, device)
    assert await found(world.admin(), group_id=mine) == ["G4-a"]
    assert "group" not in await world.device("G4-x")


async def test_a_group_that_ends_leaves_its_devices(world: World):
    """They are in none, and its name is free."""
    device, group = await world.add_direct("G5-a"), await add_group(world, "G5")
    await move(world.admin(), group, device)
    world.grants.give(7, ResourceType.DEVICE_GROUP, group)
    await world.admin().done("DELETE", f"/device-group/{group}")
    assert world.grants.held(7) == set()
    assert await found(world.admin(), name="G5-", filter_not_grouped=True) == ["G5-a"]
    assert await world.database["device_groups"].find_one({"_id": int(group)}) is None
    await add_group(world, "G5")


async def test_a_deletion_that_broke_off_is_finished(world: World):
    """By the next look for such: nobody has seen the group meanwhile."""
    device, group = await world.add_direct("G6-a"), await add_group(world, "G6")
    await move(world.admin(), group, device)
    await store.GroupStore(world.database).mark_deleted("default", int(group))
    assert await groups(world.admin(), name="G6") == []
    assert "group_name" not in await world.admin().done("GET", f"/device/{device}")
    body = {"group_id": group, "device_id_list": [str(device)]}
    await world.admin().refused(404, "POST", "/device/move-to-group", body)
    ended = GroupService(
        store.GroupStore(world.database),
        world.foundation.things.devices,
        GrantReader(world.clients.rpc),
        GrantsClient(world.clients.rpc),
    ).finish_deletions("default")
    assert len([step async for step in ended]) == 1
    assert "group" not in await world.device("G6-a")
    assert await world.database["device_groups"].find_one({"_id": int(group)}) is None


async def test_counts_include_visible_devices_only(world: World):
    """A group without visible devices has no count."""
    one, two = await world.add_direct("G7-a"), await world.add_direct("G7-b")
    group, empty = await add_group(world, "G7"), await add_group(world, "G7 empty")
    await move(world.admin(), group, one, two)

    async def counts(user: User) -> dict[str, object]:
        rows = await groups(user, name="G7", with_device_count=True)
        return {str(row["id"]): row.get("device_count") for row in rows}

    assert await counts(world.admin()) == {group: 2, empty: None}
    assert await counts(world.user(7)) == {group: None, empty: None}
    world.grants.give(7, ResourceType.DEVICE, one)
    assert await counts(world.user(7)) == {group: 1, empty: None}


async def test_a_grant_of_a_group_shows_devices_that_join_it(world: World):
    """They and their entities are visible from the next request on, until they leave the group."""
    inside, later = await world.add_direct("G8-a"), await world.add_direct("G8-b")
    outside = await world.add_direct("G8-c")
    group, other = await add_group(world, "G8"), await add_group(world, "G8 other")
    await move(world.admin(), group, inside)
    user = world.user(7)
    world.grants.give(7, ResourceType.DEVICE_GROUP, group)
    assert await found(user) == ["G8-a"]
    await user.refused(404, "GET", f"/device/{later}")
    await move(world.admin(), group, later)
    await move(world.admin(), other, outside)
    assert await found(user) == ["G8-a", "G8-b"]
    assert (await user.done("GET", f"/device/{later}"))["group_name"] == "G8"
    assert await found(user, group_id=other) == []
    assert await found(user, id_list=[str(outside)]) == []
    await user.refused(404, "GET", f"/device/{outside}")
    await move(world.admin(), None, inside)
    assert await found(user) == ["G8-b"]
    await user.refused(404, "GET", f"/device/{inside}")
    await world.admin().done("DELETE", f"/device-group/{group}")
    await user.refused(403, "GET", f"/device/{later}")


async def test_only_visible_devices_can_be_moved(world: World):
    """Devices that the caller does not see stay in their group."""
    mine, hidden = await world.add_direct("G9-a"), await world.add_direct("G9-b")
    group = await add_group(world, "G9")
    world.grants.give(7, ResourceType.DEVICE, mine)
    await move(world.user(7), group, mine, hidden)
    assert await found(world.admin(), group_id=group) == ["G9-a"]


async def test_a_device_is_added_to_a_group_by_name(world: World, lamps: Lamps):
    """A missing group is created once for all simultaneous requests."""
    bodies = [lamp(f"G10-{at}", name=f"device G10-{at}") | {"group_name": "G10"} for at in range(4)]
    await asyncio.gather(*(world.admin().done("POST", "/device", body) for body in bodies))
    (group,) = await groups(world.admin(), name="G10", with_device_count=True)
    assert group["device_count"] == 4
    await world.admin().done("POST", "/device", lamp("G10-x") | {"group_name": "", "location": {}})
    assert {"group", "location"}.isdisjoint(await world.device("G10-x"))


async def test_services_can_list_groups(world: World):
    """They get those of the requested groups that exist in the tenant."""
    group, theirs = await add_group(world, "G11"), await add_group(world, "G11", "other")
    wanted = DescribeGroups("default", [int(group), int(theirs), 5])
    answer = await world.rpc(DESCRIBE_GROUPS, wanted, DescribedGroups)
    assert answer.ids == [int(group)]


async def test_a_move_is_published(world: World):
    """Each device that really moved has one event with its group."""
    device, group = await world.add_direct("G12-a"), await add_group(world, "G12")
    messages = await world.outside.client.subscribe(f"event.default.device.{device}.updated")
    await world.outside.client.flush()
    await move(world.admin(), group, device)
    await move(world.admin(), group, device)
    await move(world.admin(), None, device)
    heard = [(await messages.next_msg(timeout=10)).data for _ in range(2)]
    assert f'"groupId":{group}'.encode() in heard[0]
    assert b"groupId" not in heard[1]


@pytest.mark.parametrize(
    ("method", "path", "body", "needed"),
    [
        ("POST", "/device-group/search", {}, {Function.DEVICE_VIEW, Function.DASHBOARD_EDIT}),
        ("GET", "/device-group/number", None, {Function.DEVICE_VIEW, Function.DASHBOARD_EDIT}),
        ("POST", "/device-group", {"name": ""}, {Function.DEVICE_GROUP_MANAGE}),
        ("PUT", "/device-group/5", {"name": ""}, {Function.DEVICE_GROUP_MANAGE}),
        ("DELETE", "/device-group/5", None, {Function.DEVICE_GROUP_MANAGE}),
        ("POST", "/device/move-to-group", {"device_id_list": []}, {Function.DEVICE_EDIT}),
    ],
)
async def test_operations_need_one_of_their_functions(world: World, method, path, body, needed):
    """Any one of them lets a user in, all others do not."""
    for function in Function:
        answer = await world.user(7, function).ask(method, path, body)
        assert (answer.status_code != 403) == (function in needed), (function, answer.text)
