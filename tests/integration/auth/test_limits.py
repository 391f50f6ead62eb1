"""The limits of tenants: the platform's, and those that the operator gives one tenant."""

import asyncio
from typing import Any

import pytest

from libs.common.contracts.limits import GetLimits, Limits, SetLimits, TenantLimits
from libs.common.errors import InvalidInput, NotFound


async def limits(auth: Any, tenant: str) -> TenantLimits:
    return await auth.call("get_limits", GetLimits(tenant), TenantLimits)


async def change(auth: Any, tenant: str, **changes: int | None) -> TenantLimits:
    return await auth.call("set_limits", SetLimits(tenant, changes), TenantLimits)


async def test_a_tenant_has_the_limits_of_the_platform(auth):
    """An unknown tenant has them too, because it may be created later."""
    for tenant in ("default", "nobody"):
        assert await limits(auth, tenant) == TenantLimits(Limits())


async def test_a_limit_of_a_tenant_applies_to_it_alone(auth):
    """Other tenants keep theirs; null restores the platform's limit."""
    await auth.tenant("acme")
    answered = await change(auth, "acme", requests=5, eachPolls=1)

    assert answered == await limits(auth, "acme")
    assert (answered.limits.requests, answered.limits.each_polls) == (5, 1)
    assert answered.own == {"requests": 5, "eachPolls": 1}
    assert await limits(auth, "default") == TenantLimits(Limits())
    assert (await change(auth, "acme", requests=None)).own == {"eachPolls": 1}
    assert (await limits(auth, "acme")).limits == Limits(each_polls=1)


@pytest.mark.parametrize(
    "changes",
    [{"teapots": 5}, {"each_requests": 5}, {"teapots": None}, {"requests": 0}, {"runs": 2**53 + 1}],
)
async def test_the_error_of_an_invalid_limit_names_it(auth, changes: dict[str, Any]):
    """No limit of the request is stored."""
    with pytest.raises(InvalidInput, match=next(iter(changes))):
        await change(auth, "default", polls=7, **changes)
    assert (await limits(auth, "default")).own == {}


async def test_limits_of_an_unknown_tenant_cannot_be_set(auth):
    """The response is 404, even without a change."""
    for changes in ({"requests": 5}, {}):
        with pytest.raises(NotFound, match="nobody"):
            await change(auth, "nobody", **changes)


async def test_a_change_is_audited_once(auth):
    """The entry has the values before and after; an equal value is no change."""
    for _ in range(2):
        await change(auth, "default", requests=5)
    await change(auth, "default", requests=6)

    found = auth.mongo.database["audit"].find({"action": "limited"})
    entries = {str(entry["before"]): entry["after"] async for entry in found}
    assert entries == {"{}": {"requests": 5}, "{'requests': 5}": {"requests": 6}}
    assert (await auth.entry(action="limited"))["object"]["id"] == "default"


async def test_a_limit_of_an_earlier_version_is_ignored(auth):
    """It is stored under a name that no longer exists."""
    await auth.mongo.database["tenants"].update_one(
        {"_id": "default"}, {"$set": {"limits": {"teapots": 1, "polls": 3}}}
    )
    assert (await limits(auth, "default")).own == {"polls": 3}


async def make_user(auth: Any, number: int) -> Any:
    body = {"email": f"u{number}@example.com", "nickname": "U", "password": "Long-Enough-1"}
    return await auth.ask("POST", "/user/members", body)


async def make_role(auth: Any, number: int) -> Any:
    return await auth.ask("POST", "/user/roles", {"name": f"role {number}"})


async def make_application(auth: Any, number: int) -> Any:
    return await auth.ask("POST", "/application", {"name": f"application {number}"})


async def make_reader(auth: Any, number: int) -> Any:
    return await auth.ask("POST", "/application", {"name": f"reader {number}", "events": True})


async def make_menu(auth: Any, number: int) -> Any:
    body = {"code": f"menu{number}", "name": "M", "type": "MENU"}
    return await auth.ask("POST", "/user/menus", body)


@pytest.mark.parametrize(
    ("limit", "present", "make"),
    [
        ("users", 0, make_user),
        ("roles", 1, make_role),
        ("applications", 0, make_application),
        ("consumers", 0, make_reader),
        ("records", None, make_menu),
    ],
)
async def test_concurrent_creators_do_not_exceed_a_limit(
    auth, limit: str, present: int | None, make: Any
):
    """Exactly as many succeed as fit; the others get a 429 that names the limit."""
    if present is None:
        present = await auth.mongo.database["menus"].count_documents({"tenant": "default"})
    await change(auth, "default", **{limit: present + 2})

    answers = await asyncio.gather(*(make(auth, number) for number in range(5)))

    assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429]
    assert all(limit in one.text for one in answers if one.status_code == 429)


async def test_a_tenant_above_a_new_limit_keeps_its_items(auth):
    """It can change and delete existing items, and cannot add new ones."""
    roles = [(await make_role(auth, number)).json()["data"]["role_id"] for number in range(3)]
    await change(auth, "default", roles=2)

    await auth.done("PUT", f"/user/roles/{roles[0]}", {"name": "renamed"})
    assert (await make_role(auth, 3)).status_code == 429
    for role in roles:
        await auth.done("DELETE", f"/user/roles/{role}")
    assert (await make_role(auth, 3)).status_code == 200


async def test_an_application_reads_events_only_within_the_limit(auth):
    """An update that turns events on counts as a new consumer."""
    await change(auth, "default", consumers=1)
    await auth.application(events=True)
    second = await auth.application(name="second")
    body = {"name": "second", "events": True}
    await auth.refused(429, "PUT", f"/application/{second.application_id}", body)
