"""Flows that are called, by many at once."""

import asyncio

import pytest

from libs.common.contracts.flows import CallFlow
from libs.common.errors import TooManyRequests
from services.workflow.runs.records import Cause, Run
from services.workflow.triggers import calls
from services.workflow.triggers.calls import FlowCaller
from tests.unit.workflow.triggers.flows import flow


class Played:
    """Flows that run until they are let go."""

    def __init__(self):
        self.done = asyncio.Event()

    async def find(self, tenant, flow_id):
        return flow(flow_id, "trigger", tenant)

    async def start(self, flow, entered, cause):
        await self.done.wait()
        cause = Cause(kind="SERVICE", key="k")
        run = Run(id=1, tenant="t", flow_id=1, version=1, cause=cause, entered={}, started_at=0)
        run.status = "SUCCESS"
        return run


async def test_a_tenant_whose_flows_do_not_answer_is_refused_alone(monkeypatch):
    """Beyond half of all calls in hand; another tenant's call is taken."""
    monkeypatch.setattr(calls, "AT_ONCE", 9)
    played = Played()
    caller = FlowCaller(played, played)

    def call(tenant):
        wanted = CallFlow(tenant=tenant, flow_id=1, inputs={}, hops=0, seconds=60, user_id=None)
        return asyncio.ensure_future(caller.call(wanted))

    waiting = [call("busy") for _ in range(4)]
    with pytest.raises(TooManyRequests):
        await call("busy")
    waiting.append(call("other"))
    await asyncio.sleep(0)
    played.done.set()
    assert len(await asyncio.gather(*waiting)) == 5
