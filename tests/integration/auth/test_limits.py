"""The limits of tenants: the platform's, and those that the operator gives one tenant."""

from typing import Any

import pytest

from libs.common.contracts.limits import GetLimits, Limits, SetLimits, TenantLimits
from libs.common.errors import InvalidInput, NotFound


async def limits(auth: Any, tenant: str) -> TenantLimits:
    return await auth.call("get_limits", GetLimits(tenant), TenantLimits)


async def change(auth: Any, tenant: str, **changes: int | None) -> TenantLimits:
    return await auth.call("set_limits", SetLimits(tenant, changes), TenantLimits)


async def test_a_tenant_has_the_limits_of_the_platform(auth):
    """One that does not exist too: whoever asks may be ahead of its creation."""
    for tenant in ("default", "nobody"):
        assert await limits(auth, tenant) == TenantLimits(Limits())


async def test_what_the_operator_sets_holds_for_that_tenant_alone(auth):
    """Others keep theirs; null makes one the platform's again."""
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
async def test_a_bad_limit_is_refused_by_name(auth, changes: dict[str, Any]):
    """And nothing of the request is taken over."""
    with pytest.raises(InvalidInput, match=next(iter(changes))):
        await change(auth, "default", polls=7, **changes)
    assert (await limits(auth, "default")).own == {}


async def test_limits_of_an_unknown_tenant_cannot_be_set(auth):
    """It is told that there is no such tenant, also when nothing would change."""
    for changes in ({"requests": 5}, {}):
        with pytest.raises(NotFound, match="nobody"):
            await change(auth, "nobody", **changes)


async def test_a_change_is_audited_once(auth):
    """With what was before and after; setting the same again is no change."""
    for _ in range(2):
        await change(auth, "default", requests=5)
    await change(auth, "default", requests=6)

    found = auth.mongo.database["audit"].find({"action": "limited"})
    entries = {str(entry["before"]): entry["after"] async for entry in found}
    assert entries == {"{}": {"requests": 5}, "{'requests': 5}": {"requests": 6}}
    assert (await auth.entry(action="limited"))["object"]["id"] == "default"


async def test_a_limit_that_is_no_more_is_passed_over(auth):
    """What an earlier version stored under another name does no harm."""
    await auth.mongo.database["tenants"].update_one(
        {"_id": "default"}, {"$set": {"limits": {"teapots": 1, "polls": 3}}}
    )
    assert (await limits(auth, "default")).own == {"polls": 3}
