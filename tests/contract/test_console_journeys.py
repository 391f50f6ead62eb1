"""People and fleets in the console, in a real browser; every page of them is looked at by axe."""

import asyncio
import json
from typing import Any

import pytest

from tests.clients.demo import add_board, add_flow, measured, widget
from tests.contract.client import MODEL, new_sn
from tests.contract.console import PASSWORD, Console, console_accepted, new_email, new_name
from tests.contract.hall import Hall, add_device
from tests.e2e.platform import Platform
from tests.e2e.waiting import until
from tests.integration.workflow.designs import choice, design, edge, when
from tests.node import node

pytestmark = pytest.mark.xdist_group("contract")

PAGES = {
    "rps": "/rps?sn=a",
    "users": "/people/users",
    "roles": "/people/roles",
    "role-members": "/people/roles/1",
    "applications": "/applications",
    "audit": "/audit",
    "system": "/system",
    "settings": "/settings",
    "groups": "/fleet/groups",
    "places": "/fleet/places",
    "selection": "/fleet/selection",
    "dashboards": "/dashboards",
    "flows": "/flows",
    "flow-new": "/flows/new",
    "imports": "/fleet/imports",
    "alarm-rules": "/alarms/rules",
    "alarm-rule-form": "/alarms/rules?new=1",
    "notifications": "/alarms/notifications",
    "integrations": "/integrations",
    "integration": "/integrations/openapi-client",
    "credentials": "/credentials",
    "events": "/events?keyword=temperature",
    "entities": "/entities",
    "entity-tags": "/entities/tags",
}


async def travel(platform: Platform, name: str, **given: Any) -> dict[str, Any]:
    """Go on a journey as the first super-admin; what it found, and nothing was wrong on its way."""
    user = platform.ready.user
    whole = {
        "baseUrl": platform.base_url,
        "email": user.email,
        "password": user.password,
        **given,
    }
    found = json.loads(await asyncio.to_thread(node, f"console/{name}.mjs", json.dumps(whole)))
    assert found.pop("problems") == []
    return dict(found)


async def test_a_role_shows_one_device_and_sessions_end(
    platform: Platform, admin: Console, hall: Hall
) -> None:
    """A user with the role sees only that device and its pages.

    A session that ended elsewhere says so.
    """
    name = new_name("seen")
    await add_device(admin, name)
    await add_device(admin, new_name("unseen"))
    person = {"email": new_email(), "password": PASSWORD}

    found = await travel(platform, "people", device=name, role=new_name("crew"), person=person)

    assert found["devices"] == [name]
    assert {"Devices", "Groups"} <= {text.strip() for text in found["menu"]}
    assert not {"Users", "System", "Entities"} & {text.strip() for text in found["menu"]}
    assert found["refused"] == ["You do not have access to this page"] * 2
    assert found["dead"] == 401
    assert found["ended"] == "The password is wrong."
    assert found["form"] == ["Begun1234", ""]


@pytest.mark.slow
async def test_faults_of_a_sheet_are_in_its_cells_and_an_alarm_is_claimed(
    platform: Platform, admin: Console, hall: Hall
) -> None:
    """Nothing is added until the sheet is mended; who claimed and why is seen.

    Fields of a condition and of a list say what is wrong with them.
    """
    good, bad = new_sn(), new_sn()
    head = "Name,SN,Model,Latitude,Longitude\n"
    rule = {
        "name": new_name("hot"),
        "severity": "MAJOR",
        "condition": {
            "type": "VALUE",
            "property": "temperature",
            "comparison": "GT",
            "threshold": 50,
        },
        "device_id": hall.device,
    }
    device = (await admin.done("GET", f"/device/{hall.device}"))["name"]
    await admin.done("POST", "/alarm-rules", rule)

    async def raised() -> bool:
        await hall.report(temperature=60)  # a rule is in force a second after its answer
        wanted = {"device_ids": [hall.device], "open": True, "page_size": 1, "page_number": 1}
        return bool((await admin.done("POST", "/alarms/search", wanted))["total"])

    await until(raised)
    found = await travel(
        platform,
        "fleet",
        sheet=f"{head}Good,{good},{MODEL},1,1\nBad,{bad},{MODEL},north,1\n",
        mended=f"{head}Good,{good},{MODEL},1,1\nBad,{bad},{MODEL},2,1\n",
        device=device,
        rule=rule["name"],
        note=new_name("looked at"),
    )

    assert found["number"].startswith("3")
    [cell] = found["faulty"]
    assert cell.startswith("north ")
    assert found["file"].endswith(".csv")
    assert found["claimed"].startswith("Claimed by ")
    assert found["faults"] == [
        "must be = or ≠ for a threshold that is not a number",
        "'300.1.1.1' is not an IP address or network",
    ]
    assert found["selection"] == {
        "during": True,
        "cancelled": True,
        "asked": "Delete 1,200 devices?",
    }


@pytest.mark.slow
async def test_texts_of_the_platform_are_read_in_chinese(
    platform: Platform, admin: Console, hall: Hall
) -> None:
    """Texts of the platform are Chinese, also those that users search for, and sizes have units.

    The audit log shows the names of permissions, users and integrations.
    """
    user = await admin.add_user(new_email(), "Wei")
    role = await admin.add_role("device.view", users=(user,))
    name = new_name("reader")
    application = (await admin.done("POST", "/application", {"name": name}))["application_id"]
    await hall.report(counter=2, temperature="warm")
    given = {"role": role, "device": hall.device, "application": application, "reader": name}

    found = await travel(platform, "chinese", **given)

    assert found["source"] == "ChirpStack"
    assert found["found"].startswith("已接受上行数")
    assert found["notice"] == "auth 未就绪。"
    assert found["size"] == "1 GiB"
    assert found["actor"] == "平台运维人员"
    assert {"邮箱", "名称", "角色"} <= set(found["fields"])
    permission, integration, member = found["values"]
    assert permission.startswith("设备")
    assert permission.endswith("查看")
    assert integration == "集成 模拟器"
    assert "@" in member
    assert "必须是数字" in found["refusal"]
    assert "拒绝记录" not in found["empty"]
    assert [key.partition("@")[0] for key in found["credentials"]] == ["smtp", "http"]


@pytest.mark.slow
async def test_pages_open_without_a_network(platform: Platform) -> None:
    """An unvisited page opens, says that it is offline, and loads when the platform answers."""
    found = await travel(platform, "offline")

    assert found["offline"].startswith("You are offline")
    assert found["kept"] == ["/", "/assets/"]


async def add_repetitions(admin: Console, device: str) -> dict[str, str]:
    """Store content that names something twice, as the API allows; the paths of its pages."""
    warm = await measured(admin, device, "temperature")
    name = new_name("twice")
    canvas = (await admin.done("POST", "/dashboard", {"name": name}))["main_canvas_id"]
    widgets = [
        widget(kind, (0, 4 * row, 6, 4), warm, warm, title=name)
        for row, kind in enumerate(("table", "bar", "line"))
    ]
    content = {"name": name, "widgets": widgets, "entity_ids": [warm["id"]]}
    console_accepted(await admin.ask("PUT", f"/canvas/{canvas}", content), data=False)
    fork = choice(when("same", "a", "EQ", "1"), when("same", "a", "EQ", "2"))
    draft = {"name": name, "design_data": design([fork, fork], *[edge("fork", "fork", "same")] * 2)}
    flow = (await admin.done("POST", "/workflow/flows/design", draft))["id"]
    condition = {"type": "VALUE", "property": "temperature", "comparison": "GT", "threshold": 90}
    rule = {"name": name, "severity": "MINOR", "condition": condition, "device_id": device}
    for _ in range(2):
        await admin.done("POST", "/alarm-rules", rule)
    return {
        "dashboard-twice": f"/dashboards/{canvas}",
        "flow-twice": f"/flows/{flow}",
        "about-twice": f"/devices/{device}?tab=about",
        "history-twice": f"/devices/{device}?tab=history&show={warm['id']}&show={warm['id']}",
    }


async def test_every_page_is_for_everybody(platform: Platform, admin: Console, hall: Hall) -> None:
    """axe finds nothing, the browser complains of nothing, and nothing fails.

    So it is also where stored content names something twice.
    """
    devices = [hall.device, *[(await add_device(admin))[0] for _ in range(3)]]
    made = {
        "entity": f"/entities/{hall.entities['temperature']}",
        "dashboard": f"/dashboards/{await add_board(admin, devices)}",
        "flow": f"/flows/{await add_flow(admin, hall.device)}",
    }
    twice = await add_repetitions(admin, devices[1])
    await travel(platform, "pages", pages=PAGES | made | twice)


@pytest.mark.slow
async def test_events_are_followed_and_kept(platform: Platform, admin: Console, hall: Hall) -> None:
    """The list of events is that of the filters, the device has its own, a test says its fault."""
    name = (await admin.done("GET", f"/device/{hall.device}"))["name"]
    happened = {"eventId": "historical_data", "outputs": {"temperature": 20.5}}

    async def report() -> None:
        while True:
            await hall.report(temperature=21.5, led=True)
            await hall.api.http.post(
                f"/ingest/v1/{hall.sn}/event", json=happened, auth=(hall.sn, hall.secret)
            )
            await asyncio.sleep(0.5)

    reporting = asyncio.create_task(report())
    try:
        event = hall.entities["historical_data"]
        found = await travel(platform, "events", device=hall.device, called=name, event=event)
    finally:
        reporting.cancel()
    assert found["followed"] == [True]
    assert found["values"] == ["On"]
    assert found["properties"] == 0
    assert found["first"].endswith("Temperature 20.5 ℃")
    assert found["value"] == '{"temperature":20.5}'
    assert "is not a public address" in found["reason"]
