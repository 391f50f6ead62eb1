"""Due states of one tenant do not wait for those of another."""

import asyncio
from typing import Any, cast

import pytest

from libs.common.bus import Wakeups
from services.device.alarms import evaluator
from services.device.alarms.evaluator import DueStateSweep
from services.device.alarms.model import Rule, State, ValueCondition, new_state


class Fake:
    """Rules, states and evaluations of two tenants, one of which never finishes."""

    def __init__(self) -> None:
        self.evaluated = asyncio.Event()
        self.wakeups = Wakeups(cast("Any", None), "device")
        self.asked = list[str]()
        self.rules = {
            number: Rule(
                id=number, tenant=tenant, name="r", severity="MAJOR", product="p",
                condition=ValueCondition("t", "GT", 30), created_at=0, updated_at=0, changed=0,
            )
            for number, tenant in enumerate(("loud", "quiet"))
        }  # fmt: skip

    async def list_pending_tenants(self) -> list[str]:
        return []

    async def list_pending_changes(self, _: str) -> list[Rule]:
        return []

    async def find_all(self, _: list[int]) -> dict[int, Rule]:
        return self.rules

    async def list_due_tenants(self, _: float) -> list[str]:
        return ["loud", "quiet"]

    async def list_due_states(self, tenant: str, *_: int) -> list[State]:
        self.asked.append(tenant)
        return [new_state(rule, 5) for rule in self.rules.values() if rule.tenant == tenant]

    async def end_states(self, *_: Any, **__: Any) -> None:
        """Do nothing: no state ends."""

    async def find_arrival_times(self, _: list[int]) -> dict[int, int]:
        return {}

    async def postpone_states(self, _: list[Any]) -> None:
        """Do nothing: no device is silent."""

    async def evaluate_due(self, tenant: str, _: list[Any]) -> None:
        if tenant == "loud":
            await asyncio.Event().wait()
        self.evaluated.set()


async def test_a_slow_tenant_delays_no_other_and_begins_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next turn of a tenant begins when its last one has ended."""
    monkeypatch.setattr(evaluator, "QUERY_INTERVAL_SECONDS", 0)
    fake = cast("Any", Fake())
    running = asyncio.ensure_future(DueStateSweep(fake, fake, fake, fake, fake).run())
    async with asyncio.timeout(30):
        for _ in range(2):
            await fake.evaluated.wait()
            fake.evaluated.clear()
    running.cancel()
    await asyncio.wait([running])
    assert fake.asked.count("loud") == 1
    assert fake.asked.count("quiet") > 1
