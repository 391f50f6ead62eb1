"""One's own use and limits, asked of every process."""

import asyncio
from typing import Any

import pytest

from deploy.platform.nats_grants import SERVICE_USERS
from libs.common.contracts.limits import SetLimits, TenantLimits, UsageRequest
from libs.common.identity import Principal, PrincipalKind
from libs.common.limits.tenants import Usage, UsageReader, answer_usage_requests

APPLICATION = Principal(kind=PrincipalKind.APPLICATION, tenant="default", subject="7")
USER = Principal(kind=PrincipalKind.USER, tenant="default", subject="8")


def telling(use: Usage, asked: list[UsageRequest] | None = None) -> UsageReader:
    """Return a reporter of a constant usage that records requests."""

    async def part(wanted: UsageRequest) -> Usage:
        if asked is not None:
            asked.append(wanted)
        return use

    return part


async def reporting(auth: Any, user: str, *parts: UsageReader, queue: str = "") -> Any:
    """Processes of a service that report their usage."""
    buses = [await auth.door.bus(user) for _ in parts]
    for bus, part in zip(buses, parts, strict=True):
        await answer_usage_requests(bus, part, queue)
        await bus.client.flush()
    return buses


async def ended(buses: Any) -> None:
    await asyncio.gather(*(bus.drain() for bus in buses))


async def test_an_application_sees_its_limits_and_their_use(auth):
    """Usage of all processes is summed; `own` marks individual limits."""
    asked: list[UsageRequest] = []
    await auth.call("set_limits", SetLimits("default", {"polls": 9}), TenantLimits)
    buses = await reporting(
        auth, "gateway", telling({"requests": 2}, asked), telling({"requests": 3})
    )
    found = await auth.ask("GET", "/device/openapi/v1/limits", caller=APPLICATION)
    await ended(buses)

    data = found.json()["data"]
    limits = {limit["name"]: limit for limit in data["limits"]}
    assert (found.status_code, data["tenant"]) == (200, "default")
    assert limits["requests"] == {"name": "requests", "limit": 1024, "used": 5}
    assert limits["polls"] == {"name": "polls", "limit": 9, "own": True}
    assert asked == [UsageRequest("default", "application", "7")]


async def test_a_tenants_admin_sees_the_same_and_no_other_user_does(auth):
    """On the management API, for super-admins."""
    buses = await reporting(auth, "gateway", telling({"eachRequests": 1}))
    data = await auth.done("GET", "/tenant/limits")
    await ended(buses)
    assert {"name": "eachRequests", "limit": 256, "used": 1} in data["limits"]
    await auth.refused(403, "GET", "/tenant/limits", caller=USER)


@pytest.mark.parametrize("user", SERVICE_USERS)
async def test_every_service_may_tell_its_part(auth, user: str):
    """One process of a queue group responds for all of them."""
    part = telling({"devices": 4})
    buses = await reporting(auth, user, part, part, queue=user)
    data = await auth.done("GET", "/tenant/limits")
    await ended(buses)
    assert [limit["used"] for limit in data["limits"] if limit["name"] == "devices"] == [4]


async def test_limits_are_returned_without_answers_of_processes(auth):
    """`used` is missing where processes count, and present where `auth` itself does."""
    await auth.application(events=True)
    await auth.application(name="second")
    data = await auth.done("GET", "/tenant/limits")
    used = {limit["name"]: limit["used"] for limit in data["limits"] if "used" in limit}
    assert used == {"users": 0, "roles": 1, "applications": 2, "consumers": 1}


async def test_many_questions_of_one_tenant_do_not_delay_another(auth):
    """They wait for their turn, and are answered; the last one is not another tenant's."""
    done: list[str] = []

    async def ask(tenant: str) -> None:
        caller = Principal(kind=PrincipalKind.APPLICATION, tenant=tenant, subject="7")
        answer = await auth.ask("GET", "/device/openapi/v1/limits", caller=caller)
        assert answer.status_code == 200
        done.append(tenant)

    await asyncio.gather(*(ask("default") for _ in range(10)), ask("acme"))
    assert done.index("acme") < 10
