"""Management API: groups, places, tags and selections, through the gateway."""

import io
from typing import Annotated, Any

import msgspec
import pytest
from python_calamine import CalamineWorkbook

from tests.contract.client import new_sn
from tests.contract.console import Console, console_accepted, new_name
from tests.contract.hall import UNKNOWN, Hall, add_custom, add_device
from tests.contract.shapes import Device, DeviceDetail, Entity, Exact, IdText, Ms, Page, shaped

pytestmark = [pytest.mark.xdist_group("platform"), pytest.mark.usefixtures("api")]


class Group(Exact, kw_only=True):
    """A group in a list."""

    id: IdText
    name: str
    device_count: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET


class Tag(Exact, kw_only=True):
    """A tag in a list."""

    id: IdText
    name: str
    description: str
    color: str
    created_at: Ms
    updated_at: Ms
    tagged_entities_count: int


async def add_group(admin: Console, name: str) -> str:
    """Make a group; its id."""
    return str((await admin.done("POST", "/device-group", {"name": name}))["id"])


async def does(console: Console, method: str, path: str, body: Any = None) -> None:
    """A call whose success has no `data`."""
    console_accepted(await console.ask(method, path, body), data=False)


async def find_devices(console: Console, **asked: Any) -> list[str]:
    """The ids of the devices that a search finds."""
    page = shaped(await console.done("POST", "/device/search", asked), Page[Device])
    return [entry.id for entry in page.content]


async def test_a_list_of_devices_by_group(admin: Console) -> None:
    """As a console does it: number, groups of any page size, a group's devices, those of none."""
    name = new_name()
    group = await add_group(admin, name)
    inside, _ = await add_device(admin, f"{name} in")
    outside, _ = await add_device(admin, f"{name} out")
    await does(
        admin, "POST", "/device/move-to-group", {"group_id": group, "device_id_list": [inside]}
    )
    assert (await admin.done("GET", "/device-group/number"))["number"] >= 1
    body = {"name": name, "with_device_count": True, "page_size": 999_999, "page_number": 1}
    found = shaped(await admin.done("POST", "/device-group/search", body), Page[Group])
    assert found.content == [Group(id=group, name=name, device_count=1)]
    asked = {"page_size": 10, "page_number": 1, "template": None, "name": name}
    assert await find_devices(admin, **asked, group_id=group) == [inside]
    assert await find_devices(admin, **asked, filter_not_grouped=True) == [outside]
    await does(admin, "PUT", f"/device-group/{group}", {"name": f"{name} 2"})
    detail = shaped(await admin.done("GET", f"/device/{inside}"), DeviceDetail)
    assert (detail.group_id, detail.group_name) == (group, f"{name} 2")
    taken = {"name": f"{name} 2"}
    await admin.fails(400, "device_group_name_exists", "POST", "/device-group", taken, "name")
    await does(admin, "DELETE", f"/device-group/{group}", {})
    assert await find_devices(admin, name=name, filter_not_grouped=True) == [outside, inside]
    path = f"/device-group/{group}"
    await admin.fails(404, "device_group_not_found", "DELETE", path, field="group_id")


async def test_a_grant_of_a_group(admin: Console) -> None:
    """A device that joins is visible with the next request, and hidden when it leaves.

    `permission` agrees.
    """
    name = new_name()
    group = await add_group(admin, name)
    device, _ = await add_device(admin, name)
    person = await admin.person()
    role = await admin.add_role("device.view", users=(person.id,))
    grant = {"resources": [{"id": group, "type": "DEVICE_GROUP"}]}
    await admin.does("POST", f"/user/roles/{role}/associate-resource", grant)
    await admin.fails(
        400,
        "parameter_validation_failed",
        "POST",
        f"/user/roles/{role}/associate-resource",
        {"resources": [{"id": UNKNOWN, "type": "DEVICE_GROUP"}]},
    )
    asked = {"resource_type": "DEVICE", "resource_id": device}

    async def may() -> bool:
        path = f"/user/members/{person.id}/permission"
        answer = await admin.ask("POST", path, asked)
        return bool(answer.json()["data"]["has_permission"])

    assert (await find_devices(person), await may()) == ([], False)
    moving = {"group_id": group, "device_id_list": [device]}
    await does(admin, "POST", "/device/move-to-group", moving)
    assert (await find_devices(person), await may()) == ([device], True)
    shown = await admin.done("POST", f"/user/roles/{role}/devices", {})
    assert [entry["device_id"] for entry in shown] == [device]
    await does(admin, "POST", "/device/move-to-group", {"device_id_list": [device]})
    assert (await find_devices(person), await may()) == ([], False)
    await person.close()


async def test_a_place(admin: Console) -> None:
    """Set with text as consoles do, shown as numbers, found by area, cleared."""
    name = new_name()
    device, _ = await add_device(admin, name)
    sent = {"latitude": "1.500000", "longitude": "2.500000", "address": "Road"}
    await does(admin, "PUT", f"/device/{device}/location", sent)
    detail = shaped(await admin.done("GET", f"/device/{device}"), DeviceDetail)
    assert detail.location == {"latitude": 1.5, "longitude": 2.5, "address": "Road"}
    area = {"south": 1, "north": 2, "west": 2, "east": 3}
    assert await find_devices(admin, name=name, area=area) == [device]
    assert await find_devices(admin, name=name, area=area | {"south": 1.6}) == []
    await does(admin, "POST", f"/device/{device}/clear-location", {})
    detail = shaped(await admin.done("GET", f"/device/{device}"), DeviceDetail)
    assert detail.location is msgspec.UNSET
    code = "device_location_latitude_and_longitude_not_both_provided"
    await admin.fails(400, code, "PUT", f"/device/{device}/location", {"latitude": 1}, "longitude")


async def test_tags(admin: Console) -> None:
    """Made, put on an entity, shown with it, taken off by their end."""
    name = new_name("t")[:25]
    body = {"name": name, "color": "#6b7785", "description": ""}
    tag = (await admin.done("POST", "/entity/tags", body))["id"]
    entity = (await add_custom(admin))["id"]
    mapping = {"operation": "ADD", "added_tag_ids": [tag], "entity_ids": [entity]}
    await does(admin, "POST", "/entity/tags/mapping", mapping)
    asked = {"keyword": name, "page_size": 300, "page_number": 1}
    found = shaped(await admin.done("POST", "/entity/tags/search", asked), Page[Tag])
    assert [(entry.id, entry.tagged_entities_count) for entry in found.content] == [(tag, 1)]
    asked = {"entity_ids": [entity], "page_size": 10, "page_number": 1}
    rows = shaped(await admin.done("POST", "/entity/search", asked), Page[Entity])
    assert rows.content[0].entity_tags == [body | {"id": tag}]
    await does(admin, "POST", "/entity/tags/delete", {"ids": [tag]})
    rows = shaped(await admin.done("POST", "/entity/search", asked), Page[Entity])
    assert rows.content[0].entity_tags is msgspec.UNSET
    await admin.fails(404, "entity_tag_not_found", "POST", "/entity/tags/mapping", mapping)


async def test_selections(admin: Console, hall: Hall, other_admin: Console) -> None:
    """One result for each device; those of another tenant are unknown."""
    name = new_name()
    device, _ = await add_device(admin, name)
    body: dict[str, Any] = {"device_id_list": [device, UNKNOWN]}
    tagging = body | {"operation": "ADD", "tags": [name]}
    results = (await admin.done("POST", "/device-batch/tag", tagging))["results"]
    assert [one.get("error_code") for one in results] == [None, "data_no_found"]
    assert await find_devices(admin, tags=[name]) == [device]
    for what, more in (("move", {}), ("delete", {}), ("tag", {"operation": "ADD", "tags": []})):
        theirs = {"device_id_list": [hall.device], **more}
        (one,) = (await other_admin.done("POST", f"/device-batch/{what}", theirs))["results"]
        assert one["error_code"] == "data_no_found"
    results = (await admin.done("POST", "/device-batch/delete", body))["results"]
    assert [one["status"] for one in results] == ["SUCCESS", "FAILED"]
    assert await find_devices(admin, name=name) == []


async def test_a_sheet_with_a_good_and_a_bad_row(admin: Console) -> None:
    """As a console brings it in: template, parse, a device for each row, the row that failed."""
    name, sn = new_name(), new_sn()
    asked = {"integration": "direct"}
    made = await admin.ask("POST", "/device-batch/template", asked)
    assert made.headers["content-type"] == "application/octet-stream"
    heads = CalamineWorkbook.from_filelike(io.BytesIO(made.content)).get_sheet_by_index(0)
    titles = [str(cell) for cell in heads.to_python()[0]]
    lines = [titles, *([name, one, *[""] * (len(titles) - 2)] for one in (sn, "no SN"))]
    file = {"file": ("devices.csv", "\n".join(map(",".join, lines)))}
    parsed = await admin.ask("POST", "/device-batch/parse", data=asked, files=file)
    sheet = console_accepted(parsed)
    good, bad = sheet["create_device_requests"]
    assert sheet["row_id"] == [0, 1]
    await does(admin, "POST", "/device", good)
    refused = (await admin.ask("POST", "/device", bad)).json()
    errors = msgspec.json.encode({"errors": [{"id": 1, "msg": refused["error_message"]}]}).decode()
    filled = await admin.ask(
        "POST", "/device-batch/fill-error", data=asked | {"errors": errors}, files=file
    )
    rows = CalamineWorkbook.from_filelike(io.BytesIO(filled.content)).get_sheet_by_index(0)
    (_, row) = rows.to_python()
    assert (row[0], row[1], row[-1]) == (name, "no SN", refused["error_message"])
    begun = await admin.ask("POST", "/device-batch/import", data=asked, files=file)
    import_id = console_accepted(begun)["import_id"]
    known = await admin.done("GET", f"/device-batch/import/{import_id}")
    assert (known["state"], known["failed"]) == ("REFUSED", 1)
