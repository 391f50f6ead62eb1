"""Refused log-ins in the audit log, with fakes."""

import asyncio
import contextlib

import pytest

from libs.common.identity import Caller, Principal, PrincipalKind
from services.auth.audit import AuditEntry, AuditTarget
from services.auth.login_records import MAX_WAITING_PER_TENANT, RejectedLoginRecorder
from tests.unit.auth.fakes import FakeChanges


class FakeBuckets:
    """Buckets that are never filled again; `broken` counts the failures that are left."""

    def __init__(self, broken: int = 0) -> None:
        self.taken: dict[str, int] = {}
        self.broken = broken

    async def take_permits(self, key: str, *, rate: float, burst: int) -> tuple[int, float]:
        assert rate == burst / 3600
        if self.broken:
            self.broken -= 1
            raise ConnectionError
        self.taken[key] = self.taken.get(key, 0) + 1
        return int(self.taken[key] <= burst), 0.0


def claimed(user: int = 7, tenant: str = "t1") -> Caller:
    principal = Principal(
        kind=PrincipalKind.USER, tenant=tenant, subject=str(user), name="a@example.com"
    )
    return Caller(principal, "192.0.2.1", "r1")


@contextlib.asynccontextmanager
async def running(buckets: FakeBuckets):
    changes = FakeChanges()
    refused = RejectedLoginRecorder(changes, buckets)
    task = asyncio.ensure_future(refused.record_forever())
    yield refused, changes
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    """Let what waits be recorded."""
    for _ in range(1000):
        await asyncio.sleep(0)


async def test_a_rejected_login_is_recorded():
    """The entry names the user and the reason."""
    async with running(FakeBuckets()) as (refused, changes):
        refused.enqueue(claimed(), "wrong_password")
        await settle()

    target = AuditTarget("session", "7", "a@example.com")
    assert changes.entries == [
        AuditEntry(action="refused", target=target, after={"reason": "wrong_password"})
    ]


@pytest.mark.parametrize(
    ("storm", "recorded"),
    [
        ([claimed()] * 100, 6),
        ([claimed(user) for user in range(200)], 120),
        ([claimed(user, f"t{user}") for user in range(200)], 200),
    ],
    ids=["one account", "one tenant", "many tenants"],
)
async def test_a_storm_is_recorded_in_part(storm, recorded):
    """Six of an account and 120 of a tenant in an hour."""
    async with running(FakeBuckets()) as (refused, changes):
        for each in storm:
            refused.enqueue(each, "wrong_password")
        await settle()

    assert len(changes.entries) == recorded


async def test_a_refusal_never_waits():
    """Rejections beyond a full queue are not recorded."""
    refused = RejectedLoginRecorder(FakeChanges(), FakeBuckets())

    for user in range(MAX_WAITING_PER_TENANT + 10):
        refused.enqueue(claimed(user), "wrong_password")


async def test_a_storm_of_one_tenant_hides_no_refusal_of_another():
    """Each has its own short queue, and they take turns."""
    changes = FakeChanges()
    refused = RejectedLoginRecorder(changes, FakeBuckets())
    for user in range(MAX_WAITING_PER_TENANT + 10):
        refused.enqueue(claimed(user), "wrong_password")
    refused.enqueue(claimed(9999, "t2"), "wrong_password")
    task = asyncio.ensure_future(refused.record_forever())
    await settle()
    task.cancel()
    assert [entry.target.id for entry in changes.entries].index("9999") < 5


async def test_recording_continues_after_a_failure():
    """The next login is recorded."""
    async with running(FakeBuckets(broken=1)) as (refused, changes):
        refused.enqueue(claimed(1), "disabled")
        refused.enqueue(claimed(2), "disabled")
        await settle()

    assert [entry.target.id for entry in changes.entries] == ["2"]
