"""Plans in memory."""

import asyncio

import pytest

from services.workflow.engine import plans
from services.workflow.engine.plans import PlanCache
from tests.unit.workflow.fakes import Flow

FLOW = Flow("begin>a")


class Designs:
    """A store that counts requests."""

    def __init__(self):
        self.asked = []

    async def get_design(self, tenant, flow_id, version):
        self.asked.append((tenant, flow_id))
        await asyncio.sleep(0)
        return FLOW.text

    async def replace_marks_by_secrets(self, tenant, text):
        return text


async def test_hundreds_of_runs_of_a_flow_read_its_design_once():
    """Those that come while it is read wait for it."""
    designs = Designs()
    known = PlanCache(designs, designs, FLOW.registry)
    found = await asyncio.gather(*(known.get("t", 1, 1) for _ in range(300)))
    assert designs.asked == [("t", 1)]
    assert all(plan is found[0] for plan in found)


@pytest.mark.parametrize(
    "bound", [("MAX_CACHED_PLANS", 4), ("MAX_CACHED_CHARACTERS", 4 * len(FLOW.text))]
)
async def test_a_tenant_with_many_flows_pushes_out_its_own_plans(monkeypatch, bound):
    """Its oldest plan is removed; another tenant's plan stays cached."""
    monkeypatch.setattr(plans, *bound)
    designs = Designs()
    known = PlanCache(designs, designs, FLOW.registry)
    await known.get("calm", 1, 1)
    for flow_id in range(2, 20):
        await known.get("busy", flow_id, 1)
    designs.asked.clear()
    await known.get("calm", 1, 1)
    for flow_id in (18, 19, 17, 2):
        await known.get("busy", flow_id, 1)
    assert designs.asked == [("busy", 2)]
