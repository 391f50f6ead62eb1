"""Management API: integrations, through the gateway."""

from typing import Any

import pytest

from libs.common.things import DIRECT_INTEGRATION
from tests.contract.console import Console, console_accepted, new_email, new_tenant
from tests.contract.hall import UNKNOWN, Hall
from tests.contract.ping import Ping
from tests.contract.shapes import Integration, IntegrationDetail, Page, shaped
from tests.e2e.platform import Platform
from tests.e2e.waiting import until

pytestmark = pytest.mark.xdist_group("platform")

BAD = "parameter_validation_failed"
SEARCH = "/integration/search"


def ids(found: Any) -> list[str]:
    """The ids of a list, each item of which has the shape."""
    return [one.id for one in shaped(found, list[Integration])]


async def test_search(admin: Console, hall: Hall) -> None:
    """A bare list; both spellings of the counts; what is hidden is not in it."""
    found = shaped(await admin.done("POST", SEARCH, {}), list[Integration])
    direct = next(entry for entry in found if entry.id == DIRECT_INTEGRATION)
    assert "system" not in {entry.id for entry in found}
    assert direct.device_count == direct.deviceCount > 0
    assert direct.entity_count == direct.entityCount >= len(hall.entities)
    assert direct.add_device_service_key == "direct.integration.add_device"


@pytest.mark.parametrize("name", ["device_addable", "device_deletable"])
async def test_search_compares(admin: Console, name: str) -> None:
    """A filter that is true finds those with the service, one that is false those without."""
    field = {"device_addable": "add", "device_deletable": "delete"}[name]
    every = await admin.done("POST", SEARCH, {})
    for wanted in (True, False):
        found = await admin.done("POST", SEARCH, {name: wanted})
        expected = [one for one in every if (f"{field}_device_service_key" in one) is wanted]
        assert ids(found) == ids(expected)


async def test_search_page_and_order(admin: Console) -> None:
    """A page when one is asked for, in the order that is asked for."""
    every = ids(await admin.done("POST", SEARCH, {}))
    body = {"page_size": 1, "page_number": 2, "sorts": [{"direction": "DESC", "property": "id"}]}
    page = shaped(await admin.done("POST", SEARCH, body), Page[Integration])
    assert (page.page_size, page.page_number, page.total) == (1, 2, len(every))
    assert [entry.id for entry in page.content] == [sorted(every)[-2]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"device_addable": "yes"}, "device_addable"),
        ({"device_deletable": []}, "device_deletable"),
        ({"page_size": 0}, "page_size"),
        ({"sorts": [{"property": "secret"}]}, "sorts[0].property"),
    ],
)
async def test_bad_search(admin: Console, body: Any, field: str) -> None:
    """A filter of another type is a 400 that names it."""
    await admin.fails(400, BAD, "POST", SEARCH, body, field)


async def test_detail(admin: Console, hall: Hall) -> None:
    """Its entities: each parent, then its children; every one with `value_attribute`."""
    found = shaped(await admin.done("GET", f"/integration/{DIRECT_INTEGRATION}"), IntegrationDetail)
    assert found.delete_device_service_key == "direct.integration.delete_device"
    keys = [entity.key for entity in found.integration_entities]
    assert keys[:3] == [
        "direct.integration.add_device",
        "direct.integration.add_device.sn",
        "direct.integration.add_device.model",
    ]
    assert [entity.parent for entity in found.integration_entities][1] == keys[0]
    assert {entity.type for entity in found.integration_entities} == {"SERVICE"}


async def test_icons_are_open(admin: Console) -> None:
    """The icon of every integration comes without a token, below both prefixes."""
    for integration in await admin.done("POST", SEARCH, {}):
        if integration["icon"].startswith("/public/"):
            for prefix in ("", "/api/v1"):
                answer = await admin.http.get(prefix + integration["icon"])
                assert (answer.status_code, answer.headers["content-type"]) == (
                    200,
                    "image/svg+xml",
                )


@pytest.mark.parametrize("integration", ["nothing", "system", UNKNOWN, "%2e%2e%2f"])
async def test_unknown_and_hidden_integrations(admin: Console, integration: str) -> None:
    """Both get 404."""
    answer = await admin.ask("GET", f"/integration/{integration}")
    assert (answer.status_code, answer.json()["error_code"]) == (404, "data_no_found")


async def test_with_one_grant(hall: Hall) -> None:
    """A grant of an integration shows that one and no other."""
    person = await hall.person("integration.view", grants=(("INTEGRATION", DIRECT_INTEGRATION),))
    assert ids(await person.done("POST", SEARCH, {})) == [DIRECT_INTEGRATION]
    shaped(await person.done("GET", f"/integration/{DIRECT_INTEGRATION}"), IntegrationDetail)
    await person.fails(403, "forbidden_permission", "GET", "/integration/simulator")


async def test_settings_and_services_with_one_grant(hall: Hall, ping: Ping) -> None:
    """A grant of an integration lets a user set properties, call services and add devices."""
    own = ping.manifest.id
    update = {"exchange": {f"{own}.integration.period": "45"}}
    call = {"exchange": {f"{own}.integration.trace.hops": 2}}
    params = {f"{own}.integration.add_device.ip": "10.1.1.1"}
    device = {"name": "Host", "integration": own, "param_entities": params}
    granted = (("INTEGRATION", own),)
    person = await hall.person("integration.view", "device.add", "device.edit", grants=granted)
    console_accepted(await person.ask("POST", "/entity/property/update", update), data=False)
    assert ping.changed[-1] == {"period": 45}
    found = await person.done("POST", "/entity/service/call", call)
    assert found == {"called": "trace", "hops": 2}
    console_accepted(await person.ask("POST", "/device", device), data=False)
    granted = (("INTEGRATION", DIRECT_INTEGRATION),)
    other = await hall.person("integration.view", "device.add", "device.edit", grants=granted)
    for path, body in (("property/update", update), ("service/call", call)):
        await other.fails(400, BAD, "POST", f"/entity/{path}", body, "exchange")
    await other.fails(403, "forbidden_permission", "POST", "/device", device, "integration")


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("period", 4, "out_of_range"),
        ("period", "soon", "not_match_type"),
        ("detect_status", "2", "invalid_enum"),
    ],
)
async def test_bad_settings(admin: Console, ping: Ping, path: str, value: Any, code: str) -> None:
    """Values outside the integration's TSL have the codes of values, and it hears of none."""
    before, key = len(ping.changed), f"{ping.manifest.id}.integration.{path}"
    body = {"exchange": {key: value}}
    url, field = "/entity/property/update", f"exchange.{key}"
    told = await admin.fails(400, "multiple_error", "POST", url, body, field)
    assert [entry["error_code"] for entry in told["data"]] == [f"entity_value_{code}"]
    assert len(ping.changed) == before


async def test_entities_are_there_from_the_first_look(platform: Platform, ping: Ping) -> None:
    """A new tenant finds the entities of integrations before it has opened any of them."""
    name, client = await new_tenant(platform)
    console = Console(platform.base_url, client, new_email())
    body = {"email": console.email, "nickname": "New", "password": console.password}
    await console.http.post("/user/register", json=body, headers={"TENANT_ID": name})
    await console.log_in()
    body = {"keyword": f"{ping.manifest.id}.integration.", "exclude_children": True}

    async def found() -> Any:  # an announcement is known everywhere within two seconds
        return await console.done("POST", "/entity/search", body)

    assert {one["entity_key"].rpartition(".")[2] for one in await until(found)} == {
        "detect_status", "period", "loss", "add_device", "delete_device", "benchmark", "trace",
    }  # fmt: skip
    await console.close()


async def test_with_other_grants(hall: Hall) -> None:
    """A grant of a device, or none at all, shows no integration: an empty list, and 403."""
    for grants in ((("DEVICE", hall.device),), ()):
        person = await hall.person("integration.view", "device.add", grants=grants)
        assert await person.done("POST", SEARCH, {"device_addable": True}) == []
        await person.fails(403, "forbidden_permission", "GET", f"/integration/{DIRECT_INTEGRATION}")


async def test_in_another_tenant(other_admin: Console, hall: Hall) -> None:
    """Integrations are of every tenant; what they have is of each alone."""
    found = shaped(await other_admin.done("POST", SEARCH, {}), list[Integration])
    direct = next(entry for entry in found if entry.id == DIRECT_INTEGRATION)
    ours = await hall.admin.done("GET", f"/integration/{DIRECT_INTEGRATION}")
    theirs = await other_admin.done("GET", f"/integration/{DIRECT_INTEGRATION}")
    assert direct.device_count == theirs["device_count"] < ours["device_count"]
    assert {entity["id"] for entity in ours["integration_entities"]}.isdisjoint(
        entity["id"] for entity in theirs["integration_entities"]
    )
