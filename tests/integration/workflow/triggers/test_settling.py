"""Services of flows that were left half changed are brought in step."""

from datetime import UTC, datetime

import pytest

from libs.common.contracts.flows import PutFlowService
from libs.common.errors import UpstreamFailed
from services.workflow.flows.store import UnsettledStore
from tests.integration.workflow.conftest import AUTHOR, Workflow
from tests.integration.workflow.designs import design, trigger
from tests.integration.workflow.triggers.world import FLOWS, enabled, listener

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
CALLED, LISTENING = design([trigger()]), design([listener("a.device.b.c")])


async def settle(workflow: Workflow) -> int:
    """Settle as if all was changed long ago; how many are left."""
    unsettled = workflow.core.clients.mongo.database["unsettled"]
    await unsettled.update_many({}, {"$set": {"at": LONG_AGO}})
    await workflow.core.flows.settler.repair()
    left: int = await unsettled.count_documents({})
    return left


async def test_a_service_that_was_not_removed_is_removed_later(workflow: Workflow):
    """`device` was away when the flow was deleted, and when another one got another entry."""
    admin, device = workflow.admin(), workflow.device
    gone, other = await enabled(admin, CALLED), await enabled(admin, CALLED)
    device.refuses = "away"
    await admin.done("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [str(gone)]})
    body = {"id": str(other), "version": 1, "name": "F", "design_data": LISTENING}
    await admin.done("POST", f"{FLOWS}/design", body)
    assert device.services.keys() == {gone, other}

    device.refuses = ""
    assert await settle(workflow) == 0
    assert device.services == {}


async def test_one_that_cannot_be_removed_yet_is_tried_again(workflow: Workflow):
    """The mark stays until the service is deleted."""
    admin, device = workflow.admin(), workflow.device
    gone = await enabled(admin, CALLED)
    device.refuses = "away"
    await admin.done("POST", f"{FLOWS}/batch-delete", {"workflow_id_list": [str(gone)]})
    with pytest.raises(UpstreamFailed):
        await settle(workflow)
    device.refuses = ""
    assert (await settle(workflow), device.services) == (0, {})


async def test_a_service_without_a_flow_is_removed(workflow: Workflow):
    """The process died between the service and its flow."""
    admin, device = workflow.admin(), workflow.device
    flow_id = await enabled(admin, CALLED)
    await workflow.core.clients.mongo.database["flows"].delete_one({"_id": flow_id})
    assert (await settle(workflow), device.services) == (0, {})


async def test_a_flow_gets_a_service_that_is_missing(workflow: Workflow):
    """It went by a removal that came late."""
    admin, device = workflow.admin(), workflow.device
    flow_id = await enabled(admin, CALLED)
    made = device.services.pop(flow_id)
    assert (await settle(workflow), device.services) == (0, {flow_id: made})


async def test_recently_changed_flows_are_skipped(workflow: Workflow):
    """The change may still be in progress."""
    device = workflow.device
    device.services[4711] = PutFlowService(tenant="default", flow_id=4711, name="F")
    await UnsettledStore(workflow.core.clients.mongo.database).mark("default", [4711])
    await workflow.core.flows.settler.repair()
    assert 4711 in device.services


async def test_a_flow_that_cannot_be_shared_leaves_no_service(workflow: Workflow):
    """Its author could not see it."""
    workflow.grants.refuses = "not now"
    body = {"name": "F", "design_data": CALLED}
    await workflow.user(7, *AUTHOR).refused(502, "POST", f"{FLOWS}/design", body)
    assert workflow.device.services == {}
