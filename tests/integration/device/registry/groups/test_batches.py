"""Operations on selections of devices: one result for each."""

from typing import Any

from libs.common.contracts.access import ResourceType
from libs.common.errors import Unavailable
from libs.common.identity.functions import Function
from tests.console import User
from tests.integration.device.registry.groups.test_groups import add_group, found
from tests.integration.device.values.test_adding import lamp
from tests.integration.device.values.world import Lamps, World


async def batch(user: User, what: str, devices: list[int], **more: Any) -> list[str]:
    """What became of each device, in the order they were given."""
    body = {"device_id_list": list(map(str, devices)), **more}
    results = (await user.done("POST", f"/device-batch/{what}", body))["results"]
    assert [row["device_id"] for row in results] == list(map(str, devices))
    assert all(row["error_message"] for row in results if row["status"] == "FAILED")
    return [row.get("error_code", row["status"]) for row in results]


async def test_each_device_of_a_move_has_a_result(world: World):
    """Those that the caller does not see stay; without the group nothing moves."""
    mine, hidden = await world.add_direct("B1-a"), await world.add_direct("B1-b")
    group = await add_group(world, "B1")
    world.grants.give(7, ResourceType.DEVICE, mine)
    moved = await batch(world.user(7), "move", [hidden, 5, mine], group_id=group)
    assert moved == ["data_no_found", "data_no_found", "SUCCESS"]
    assert await found(world.admin(), group_id=group) == ["B1-a"]
    body = {"device_id_list": [str(mine)], "group_id": "5"}
    code = "device_group_not_found"
    await world.admin().refused(404, "POST", "/device-batch/move", body, code=code)
    assert await batch(world.admin(), "move", [mine]) == ["SUCCESS"]
    assert await found(world.admin(), group_id=group) == []


async def test_each_device_of_a_tagging_has_a_result(world: World):
    """ADD adds, OVERWRITE sets, REMOVE takes away; more than a device may have is refused."""
    one, two = await world.add_direct("B2-a"), await world.add_direct("B2-b")
    admin = world.admin()
    many = [f"B2 {at}" for at in range(20)]
    assert await batch(admin, "tag", [one], operation="OVERWRITE", tags=many) == ["SUCCESS"]
    tagged = await batch(admin, "tag", [one, two, 5], operation="ADD", tags=["B2 x", "B2 y"])
    assert tagged == ["parameter_validation_failed", "SUCCESS", "data_no_found"]
    assert await found(admin, tags=["B2 x"]) == ["B2-b"]
    await batch(admin, "tag", [two], operation="ADD", tags=["B2 y", "B2 z"])
    await batch(admin, "tag", [one, two], operation="REMOVE", tags=["B2 x", *many[1:]])
    assert (await world.device("B2-a"))["tag"] == ["B2 0"]
    assert (await world.device("B2-b"))["tag"] == ["B2 y", "B2 z"]
    world.grants.give(7, ResourceType.DEVICE, one)
    tagged = await batch(world.user(7), "tag", [two], operation="OVERWRITE", tags=[])
    assert tagged == ["data_no_found"]


async def test_each_device_of_a_deletion_has_a_result(world: World, lamps: Lamps):
    """A device that its integration does not release stays; the others are deleted."""
    await world.admin().done("POST", "/device", lamp("B3-a"))
    kept = int((await world.device("B3-a"))["_id"])
    direct, hidden = await world.add_direct("B3-b"), await world.add_direct("B3-c")
    lamps.fails = Unavailable("the lamps are asleep")
    world.grants.give(7, ResourceType.DEVICE, kept, direct)
    deleted = await batch(world.user(7), "delete", [kept, hidden, direct])
    assert deleted == ["service_unavailable", "data_no_found", "SUCCESS"]
    assert await found(world.admin(), id_list=[str(kept), str(hidden), str(direct)]) == [
        "B3-c",
        "Lamp",
    ]
    assert {one.id for one in world.grants.held(7)} == {str(kept)}


async def test_operations_need_their_function(world: World):
    """It lets a user in, all others do not."""
    tagging = {"operation": "ADD", "tags": []}
    for what, function, more in (
        ("move", Function.DEVICE_EDIT, {}),
        ("tag", Function.DEVICE_EDIT, tagging),
        ("delete", Function.DEVICE_DELETE, {}),
    ):
        for other in Function:
            body = {"device_id_list": [], **more}
            answer = await world.user(7, other).ask("POST", f"/device-batch/{what}", body)
            assert (answer.status_code == 403) == (other is not function), (what, other)
