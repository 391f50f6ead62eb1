"""Flows as tests need them."""

from typing import Any

from services.workflow.runs.model import DeployedFlow


def flow(flow_id: int, component: str = "eventListener", tenant: str = "t", **parameters: Any):
    """A flow that runs."""
    return DeployedFlow(
        tenant=tenant,
        flow_id=flow_id,
        version=1,
        name=f"Flow {flow_id}",
        node_id="start",
        component=component,
        parameters=parameters,
    )
