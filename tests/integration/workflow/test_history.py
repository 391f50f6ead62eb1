"""Flows and versions have an end."""

from services.workflow.flows.service import MAX_OLD_VERSIONS, VERSIONS_BETWEEN_TRIMS
from tests.integration.workflow.designs import design, edge, node, trigger

FLOWS = "/workflow/flows"


async def save(user, number: int, flow_id: str = "", **fields):
    """Save the design of a number, with a secret of its own; the answer."""
    hook = node("w", "webhook", webhookUrl="https://a.example", secretKey=f"secret {number}")
    body = {"name": "Flow", "design_data": design([trigger(), hook], edge("start", "w")), **fields}
    if flow_id:
        body |= {"id": flow_id, "version": number - 1}
    return await user.done("POST", f"{FLOWS}/design", body)


async def test_a_flow_keeps_its_newest_versions_and_those_that_runs_need(workflow):
    """With their secrets; older ones are no longer found."""
    user, database = workflow.admin(), workflow.core.clients.mongo.database
    flow_id = (await save(user, 1))["id"]
    await save(user, 2, flow_id, enabled=True)
    flow = await workflow.core.triggers.deployed.find("default", int(flow_id))
    run = {"_id": 1, "flow": flow.flow_id, "version": 2, "key": "k", "status": "RUNNING"}
    await database["runs"].insert_one(run | {"tenant": "default", "replica": "other"})
    last = MAX_OLD_VERSIONS + VERSIONS_BETWEEN_TRIMS
    for number in range(3, last + 1):
        await save(user, number, flow_id, enabled=False)

    kept = [2, *range(last - MAX_OLD_VERSIONS, last)]
    found = database["flow_versions"].find({"_id.flow": flow.flow_id})
    assert sorted([row["_id"]["version"] async for row in found]) == kept
    assert await database["flow_secrets"].count_documents({}) == len(kept) + 1
    await user.refused(404, "GET", f"{FLOWS}/{flow_id}/design?version=1", field="version")
    await user.done("GET", f"{FLOWS}/{flow_id}/design?version=2")


async def test_a_tenant_has_so_many_flows(workflow):
    """Another tenant goes on making some; who deletes one may make another."""
    await workflow.limit("full", flows=1)
    user = workflow.admin("full")
    flow_id = (await save(user, 1))["id"]
    body = {"name": "Second", "design_data": design([trigger()])}
    answer = await user.ask("POST", f"{FLOWS}/design", body)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
    assert answer.json()["error_message"].startswith("flows: the tenant has 1 of these")
    await save(workflow.admin("other"), 1)
    await user.done("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [flow_id]})
    await save(user, 1)
