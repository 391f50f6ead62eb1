"""The designs on the page about flows run, and its numbers are those of the code."""

import re
from pathlib import Path
from typing import Any

import pytest

from libs.common.contracts.limits import Limits as TenantLimits
from services.workflow.engine.queue import QUICK_RUNS_FACTOR, EngineLimits
from services.workflow.engine.runner import MAX_TEST_SECONDS
from services.workflow.graph.design import MAX_EDGES, MAX_NODES
from services.workflow.nodes.base import Entry
from services.workflow.runs.model import MAX_HOPS, Cause, DeployedFlow, Run
from services.workflow.settings import WorkflowSettings

PAGE = (Path(__file__).parents[3] / "docs/reference/flows.md").read_text()
HOT, MEAN, SERVICE = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
ONE, TWO = "direct.device.SN1.temperature", "direct.device.SN2.temperature"
SIREN, RESULT = "direct.device.SN2.siren", "system.integration.mean"


async def run(workflow: Any, text: str, entered: Any) -> Run:
    """Save a design, let it run, and give the run."""
    body = {"name": "Example", "enabled": True, "design_data": text}
    saved = await workflow.admin().done("POST", "/workflow/flows/design", body)
    flow = DeployedFlow(
        tenant="default",
        flow_id=int(saved["id"]),
        version=1,
        name="Example",
        node_id="",
        component="",
    )
    found: Run = await workflow.core.engine.runner.run_to_end(
        flow, entered, Cause(kind="EVENT", key="x")
    )
    assert found.status == "SUCCESS", found.error
    return found


@pytest.mark.parametrize(("degrees", "siren"), [(30.5, True), (30, False)])
async def test_warn_when_it_gets_hot(workflow, degrees, siren):
    """The siren follows the temperature."""
    await run(workflow, HOT, {ONE: degrees})
    assert [update.exchange for update in workflow.device.updates] == [{SIREN: siren}]


async def test_the_mean_of_two_rooms(workflow):
    """The result of the code is written."""
    workflow.device.has(ONE, 20)
    workflow.device.has(TWO, 23)
    await run(workflow, MEAN, None)
    assert [update.exchange for update in workflow.device.updates] == [{RESULT: 21.5}]


@pytest.mark.parametrize(
    ("guests", "answer"),
    [(13, {"tables": 3, "text": "It has 19.5 degrees"}), (100, {"text": "100 are too many"})],
)
async def test_a_service_that_answers(workflow, guests, answer):
    """Both branches meet, and the answer is that of the output node."""
    workflow.device.has(ONE, 19.5)
    found = await run(workflow, SERVICE, {"guests": guests})
    assert found.output == answer
    assert [trace.node_id for trace in found.traces].count("fits") == 1


async def test_the_page_names_every_node_type(workflow):
    """The table of nodes has every node type and no other, and says which start a flow."""
    table = PAGE.partition("## Nodes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\w+)", table, re.MULTILINE)
    nodes = {node.name: isinstance(node, Entry) for node in workflow.core.nodes.registry}
    assert {name: verb == "starts" for name, verb in rows} == nodes


def test_the_limits_of_the_page_are_those_of_the_code():
    """Limits on the page equal the constants of the code."""
    limits, tenant = EngineLimits(), TenantLimits()
    settings = WorkflowSettings(internal_public_key="", secrets_key="")
    assert f"| {MAX_NODES}; {MAX_EDGES:,} |" in PAGE
    assert (
        f"| {limits.node_seconds:g} s; {limits.run_seconds:g} s; {MAX_TEST_SECONDS:g} s |" in PAGE
    )
    assert f"| {tenant.each_runs}; {tenant.runs}; {limits.running}. More wait |" in PAGE
    quick = (QUICK_RUNS_FACTOR * one for one in (tenant.each_runs, tenant.runs, limits.running))
    assert "| {}; {:,}; {:,} |".format(*quick) in PAGE
    waiting = f"{tenant.each_waiting_runs:,}; {tenant.waiting_runs:,}; {limits.waiting:,}"
    assert f"| {waiting}. More are rejected |" in PAGE
    assert (limits.running, limits.waiting) == (settings.flow_runs, settings.flow_runs_waiting)
    assert settings.flow_node_seconds == limits.node_seconds
    assert settings.flow_run_seconds == limits.run_seconds
    assert f"fails {settings.flow_failures} times in a row" in PAGE
    assert f"kept for {settings.flow_log_days} days and {settings.flow_log_entries:,} runs" in PAGE
    assert MAX_HOPS == 8
