"""Management API: dashboards as tiles, canvases, covers and pictures, through the gateway."""

from typing import Any

import httpx
import msgspec
import pytest

from libs.common.things import SYSTEM_INTEGRATION
from tests.contract.client import Api
from tests.contract.console import Console, console_accepted, new_name
from tests.contract.hall import ALL, UNKNOWN, Hall
from tests.contract.shapes import Exact, IdText, MsText, Widget, shaped

pytestmark = pytest.mark.xdist_group("platform")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
VIEW = "dashboard.view"


class Tile(Exact, kw_only=True):
    """A dashboard in the list."""

    dashboard_id: IdText
    main_canvas_id: IdText
    name: str
    home: bool
    description: str | msgspec.UnsetType = msgspec.UNSET
    cover_type: str | msgspec.UnsetType = msgspec.UNSET
    cover_data: str | msgspec.UnsetType = msgspec.UNSET
    user_id: IdText
    created_at: MsText


class Cover(Exact, kw_only=True):
    """A preset cover."""

    id: IdText
    name: str
    type: str
    data: str
    ordered: int


class Canvas(Exact, kw_only=True):
    """A canvas with what lies on it."""

    id: IdText
    name: str
    attach_type: str
    attach_id: IdText
    widgets: list[Widget]
    entity_ids: list[IdText]
    entities: list[dict[str, Any]]
    device_ids: list[IdText]


async def does(console: Console, method: str, path: str, body: Any = None) -> None:
    """A call whose success has no `data`."""
    console_accepted(await console.ask(method, path, body), data=False)


async def tiles(console: Console, name: str = "") -> list[Tile]:
    """The dashboards that somebody sees, as the page lists them."""
    return shaped(await console.done("POST", "/dashboard/search", {"name": name}), list[Tile])


async def canvas_at(console: Console, canvas_id: str) -> Canvas:
    """A canvas as its page loads it."""
    return shaped(await console.done("GET", f"/canvas/{canvas_id}"), Canvas)


async def upload(console: Console, http: httpx.AsyncClient, content: bytes = PNG) -> str:
    """Upload a picture as the form does, without a token; its URL."""
    asked = {"file_name": "roof.png", "name": "roof", "description": ""}
    made = await console.done("POST", "/resource/upload-config", asked)
    put = await http.put(
        f"/api/v1{made['upload_url']}", content=content, headers={"Content-Type": "image/png"}
    )
    console_accepted(put, data=False)
    return str(made["resource_url"])


async def test_a_board_with_a_preset_cover(admin: Console, api: Api) -> None:
    """The list, the covers and their pictures, a new board, which opens empty."""
    covers = shaped(await admin.done("GET", "/dashboard/covers"), list[Cover])
    (purple,) = [cover for cover in covers if cover.name == "Purple"]
    for cover in covers:
        shown = await api.http.get(f"/api/v1/{cover.data}")
        assert (shown.status_code, shown.headers["content-type"]) == (200, "image/svg+xml")
    name = new_name()
    body = {"name": name, "description": "", "cover_type": purple.type, "cover_data": purple.data}
    made = await admin.done("POST", "/dashboard", body)
    (tile,) = await tiles(admin, name.upper())
    assert (tile.dashboard_id, tile.main_canvas_id) == (
        made["dashboard_id"],
        made["main_canvas_id"],
    )
    assert (tile.cover_type, tile.cover_data, tile.home) == (purple.type, purple.data, False)
    canvas = await canvas_at(admin, made["main_canvas_id"])
    assert (canvas.name, canvas.attach_type, canvas.widgets) == (name, "DASHBOARD", [])
    taken = {"name": name}
    await admin.fails(409, "dashboard_name_exist", "POST", "/dashboard", taken, "name")
    wrong = {"name": new_name(), "cover_type": "DEFAULT_IMAGE", "cover_data": "public/x.png"}
    code = "dashboard_preset_cover_not_exist"
    await admin.fails(400, code, "POST", "/dashboard", wrong, "cover_data")


async def test_a_board_with_pictures_of_ones_own(admin: Console, api: Api) -> None:
    """A cover and an image widget from files, read without a token, with safe headers."""
    cover, picture = await upload(admin, api.http), await upload(admin, api.http)
    body = {"name": new_name(), "cover_type": "RESOURCE", "cover_data": cover}
    made = await admin.done("POST", "/dashboard", body)
    widget = {"tempId": "1", "data": {"type": "image", "config": {"file": {"url": picture}}}}
    path = f"/canvas/{made['main_canvas_id']}"
    await does(admin, "PUT", path, {"name": body["name"], "widgets": [widget]})
    for url in (cover, picture):
        shown = await api.http.get(f"/api/v1{url}")
        assert (shown.status_code, shown.content) == (200, PNG)
        assert shown.headers["content-type"] == "image/png"
        assert shown.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in shown.headers["content-security-policy"]
    gone = await api.http.get(f"/api/v1/resource/files/{UNKNOWN}")
    assert gone.status_code == 404


async def test_an_upload_has_bounds(admin: Console, api: Api) -> None:
    """Files of more than 8 MiB get through, of more than 10 MiB they are a 413 of the gateway."""
    await upload(admin, api.http, PNG + bytes(9 * 1024**2))
    made = await admin.done("POST", "/resource/upload-config", {"file_name": "a.png"})
    large = await api.http.put(made["upload_url"], content=PNG + bytes(10 * 1024**2))
    assert (large.status_code, large.json()["error_code"]) == (413, "data_too_large")
    page = await api.http.put(made["upload_url"], content=b"<html></html>")
    assert (page.status_code, page.json()["error_code"]) == (415, "unsupported_media_type")


async def test_a_board_is_arranged(hall: Hall) -> None:
    """Widgets of entities that the picker finds; the layout survives, removed ones are gone."""
    admin = hall.admin
    asked = {**ALL, "entity_type": ["PROPERTY"], "page_size": 999_999}
    found = await admin.done("POST", "/entity/search", asked)
    entity = hall.entities["temperature"]
    assert entity in {entry["entity_id"] for entry in found["content"]}
    made = await admin.done("POST", "/dashboard", {"name": new_name()})
    path, name = f"/canvas/{made['main_canvas_id']}", new_name()
    data = {"type": "dataCard", "pos": {"x": 1, "i": "9"}, "config": {"entity": {"value": entity}}}
    body = {
        "name": name,
        "entity_ids": [entity, UNKNOWN],
        "device_ids": [hall.device],
        "widgets": [{"tempId": "9", "data": data}, {"data": {"type": "text"}}],
    }
    await does(admin, "PUT", path, body)
    canvas = await canvas_at(admin, made["main_canvas_id"])
    assert [widget.data for widget in canvas.widgets] == [data, {"type": "text"}]
    assert (canvas.entity_ids, canvas.device_ids) == ([entity], [hall.device])
    assert [one["entity_key"] for one in canvas.entities] == [hall.key("temperature")]
    kept = {"widget_id": canvas.widgets[0].widget_id, "data": data | {"pos": {"x": 5}}}
    await does(admin, "PUT", path, body | {"widgets": [kept]})
    canvas = await canvas_at(admin, made["main_canvas_id"])
    assert [(one.widget_id, one.data["pos"]) for one in canvas.widgets] == [
        (kept["widget_id"], {"x": 5})
    ]


async def test_a_board_is_opened_made_the_home_and_deleted(hall: Hall) -> None:
    """As a click does it: may I, the canvas, home for this user alone, deletion by function."""
    first, second = [
        str((await hall.admin.done("POST", "/dashboard", {"name": new_name()}))["dashboard_id"])
        for _ in range(2)
    ]
    grants = (("DASHBOARD", first), ("DASHBOARD", second))
    anna = await hall.person(VIEW, "dashboard.delete", grants=grants)
    ben = await hall.person(VIEW, "dashboard.edit", grants=grants)
    may = {"resource_type": "DASHBOARD", "resource_id": first}
    for person in (anna, ben):
        asked = await person.ask("POST", f"/user/members/{person.id}/permission", may)
        assert asked.json()["data"] == {"has_permission": True}
    await canvas_at(anna, first)
    await does(anna, "POST", f"/dashboard/{first}/home", {})
    assert [(tile.dashboard_id, tile.home) for tile in await tiles(anna)] == [
        (first, True),
        (second, False),
    ]
    assert [(tile.dashboard_id, tile.home) for tile in await tiles(ben)] == [
        (second, False),
        (first, False),
    ]
    main = await anna.done("GET", "/dashboard/main-canvas")
    assert main == {"dashboard_id": first, "main_canvas_id": first}
    await does(anna, "POST", f"/dashboard/{first}/cancel-home", {})
    body = {"dashboard_ids": [first, UNKNOWN]}
    await ben.fails(403, "forbidden_permission", "POST", "/dashboard/batch-delete", body)
    await does(anna, "POST", "/dashboard/batch-delete", body)
    assert [tile.dashboard_id for tile in await tiles(ben)] == [second]
    await ben.fails(404, "data_no_found", "GET", f"/canvas/{first}", None, "canvas_id")


async def test_the_canvas_of_a_device(hall: Hall) -> None:
    """The same for all who see the device; `device.edit` saves it, without a grant it is 403."""
    grants = (("DEVICE", hall.device),)
    reader = await hall.person("device.view", grants=grants)
    writer = await hall.person("device.view", "device.edit", grants=grants)
    stranger = await hall.person("device.view", grants=(("INTEGRATION", SYSTEM_INTEGRATION),))
    path = f"/device/{hall.device}/canvas"
    ref = await reader.done("GET", path)
    assert ref.keys() == {"canvas_id", "name"}
    assert await writer.done("GET", path) == ref
    await stranger.fails(404, "data_no_found", "GET", path, None, "device_id")
    canvas = f"/canvas/{ref['canvas_id']}"
    body = {"name": ref["name"], "widgets": [{"data": {"type": "text"}}], "device_ids": []}
    await reader.fails(403, "forbidden_permission", "PUT", canvas, body)
    await does(writer, "PUT", canvas, body)
    shown = await canvas_at(reader, ref["canvas_id"])
    assert (shown.attach_type, shown.attach_id) == ("DEVICE", hall.device)
    assert len(shown.widgets) == 1
    await stranger.fails(403, "forbidden_permission", "GET", canvas)
