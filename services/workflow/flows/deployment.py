"""Deploys and stops flows: validates designs and notifies triggers.

A flow and its service entity belong to two services. Saving a flow creates the entity first; the
entity is deleted after the flow. `FlowSettler` repairs the entity after a crash, or if `device` was
unreachable.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libs.common.errors import Conflict, InvalidInput
from libs.common.identity import Principal
from libs.common.store.mongo import Session
from services.workflow.entities import Entities, EntityAccess
from services.workflow.flows.model import DeploymentObserver, Flow, TransactionStep
from services.workflow.flows.store import FlowStore, UnsettledFlow, UnsettledStore
from services.workflow.graph.design import (
    DESIGN_FIELD,
    DesignFaultReason,
    DesignInvalid,
    DesignNode,
    decode_design,
)
from services.workflow.graph.plan import Plan, compile_design, find_start_nodes
from services.workflow.nodes.base import Entry, NodeRegistry, Step
from services.workflow.nodes.triggers import Trigger
from services.workflow.runs.model import DeployedFlow, FlowOwner
from services.workflow.sandbox.runner import Sandbox
from services.workflow.vault import Vault

COMMAND_PERMISSION_REASON = (
    "sets values or calls services; this needs entity_data.edit, device.edit, dashboard.edit or "
    "workflow.edit"
)
log = logging.getLogger(__name__)

REPAIR_SECONDS = 30.0
"""Seconds between two repairs."""
MAX_CHANGE_SECONDS = 120
"""Seconds after which a change of a flow has certainly finished or failed."""
FLOWS_PER_READ = 100


@dataclass(frozen=True)
class FlowDeployer:
    """Validates designs and keeps triggers in step with flows."""

    registry: NodeRegistry
    sandbox: Sandbox
    entities: EntityAccess
    vault: Vault
    triggers: Sequence[DeploymentObserver]

    async def compile_for_user(self, user: Principal, text: str) -> Plan:
        """Return the plan of a design that a user wants to run; raise `DesignInvalid`."""
        plan = await self._compile_with_syntax_check(
            user.tenant, await self.vault.replace_marks_by_secrets(user.tenant, text)
        )
        await self.check_entities(user, plan)
        return plan

    async def _compile_with_syntax_check(self, tenant: str, text: str) -> Plan:
        """Compile a design and check the syntax of its code; raise `DesignInvalid`."""
        plan = compile_design(text, self.registry)
        DesignInvalid.raise_if_any(
            [
                DesignFaultReason(node.id, f"parameters.{code.field}", reason)
                for node in plan.nodes.values()
                for code in node.parameters.list_code()
                if (reason := await self.sandbox.find_syntax_error(FlowOwner(tenant, 0), *code[1:]))
            ]
        )
        return plan

    async def check_entities(self, user: Principal, plan: Plan) -> None:
        """Raise `DesignInvalid` for entities that are not visible to the user.

        A flow reads and writes entities with the permissions of the platform, so its author must
        see them.
        """
        keys_by_node = {
            node.id: set(node.parameters.list_entity_keys()) for node in plan.nodes.values()
        }
        keys = set().union(*keys_by_node.values())
        unseen = set(await self.entities.find_invisible(user, keys)) if keys else set()
        DesignInvalid.raise_if_any(
            [
                DesignFaultReason(
                    node_id, "parameters", f"entity {key} does not exist or is not visible to you"
                )
                for node_id, found in keys_by_node.items()
                for key in sorted(found & unseen)
            ]
        )

    def check_commands(self, user: Principal, plan: Plan) -> None:
        """Raise `DesignInvalid` for commanding nodes unless the user may command."""
        if user.may_command:
            return
        DesignInvalid.raise_if_any(
            [
                DesignFaultReason(node.id, "componentName", COMMAND_PERMISSION_REASON)
                for node in plan.nodes.values()
                if isinstance(node.type, Step) and node.type.commands
            ]
        )

    async def check_constants(self, tenant: str, plan: Plan) -> None:
        """Raise `DesignInvalid` for constants that the entities of nodes reject."""
        nodes = list(plan.nodes.values())
        checks = (node.type.find_constant_faults(tenant, node.parameters) for node in nodes)
        DesignInvalid.raise_if_any(
            [
                DesignFaultReason(node.id, f"parameters.{fault.field}", fault.reason)
                for node, faults in zip(nodes, await asyncio.gather(*checks), strict=True)
                for fault in faults
            ]
        )

    async def prepare_write(
        self,
        user: Principal,
        flow: Flow,
        before: Flow | None,
        unsaved_secrets: Mapping[str, str] | None = None,
    ) -> TransactionStep:
        """Prepare triggers for a write of a flow; return the step for its transaction.

        Raises `InvalidInput` with the reasons if an enabled flow cannot run. A user who does not
        change the running design (only the name) need not see its entities. `unsaved_secrets` are
        sealed secrets that the same transaction stores.
        """
        runs_already = before is not None and before.enabled and before.design == flow.design
        deployed = await self._compile_deployed(
            None if runs_already else user, flow, unsaved_secrets
        )
        await self._prepare_triggers(flow)

        async def apply(session: Session) -> None:
            for trigger in self.triggers:
                await trigger.write_deployment(flow.tenant, flow.id, deployed, session)

        return apply

    async def restore_service(self, flow: Flow) -> bool:
        """Create or update the service entity of a flow.

        Returns False if no start node is a trigger node, so that the flow needs no service. A draft
        with several entries keeps its service as it is.
        """
        await self._prepare_triggers(flow, Trigger.name)
        return starts_with_trigger(flow.design)

    async def undeploy(self, tenant: str, flow_id: int, session: Session) -> None:
        """Undeploy a flow in the transaction that deletes or disables it."""
        for trigger in self.triggers:
            await trigger.write_deployment(tenant, flow_id, None, session)

    async def notify_stored(self, tenant: str, flow_id: int) -> None:
        """Notify triggers after a flow was stored."""
        for trigger in self.triggers:
            await trigger.handle_stored(tenant, flow_id)

    async def notify_deleted(self, tenant: str, flow_id: int) -> None:
        """Notify triggers after a flow was deleted."""
        await self.notify_stored(tenant, flow_id)
        for trigger in self.triggers:
            await trigger.handle_deleted(tenant, flow_id)

    async def _compile_deployed(
        self, user: Principal | None, flow: Flow, unsaved_secrets: Mapping[str, str] | None
    ) -> DeployedFlow | None:
        if not flow.enabled:
            return None
        try:
            text = await self.vault.replace_marks_by_secrets(
                flow.tenant, flow.design, unsaved_secrets
            )
            if user is None:
                plan = compile_design(text, self.registry)
            else:
                plan = await self._compile_with_syntax_check(flow.tenant, text)
                self.check_commands(user, plan)
                await self.check_entities(user, plan)
                await self.check_constants(flow.tenant, plan)
        except DesignInvalid as error:
            raise build_design_error(error) from error
        return DeployedFlow(
            tenant=flow.tenant,
            flow_id=flow.id,
            version=flow.version,
            name=flow.name,
            node_id=plan.entry.id,
            component=plan.entry.type.name,
            parameters=plan.raw_entry_parameters,
        )

    async def _prepare_triggers(self, flow: Flow, component: str | None = None) -> None:
        """Prepare triggers if a design has a single entry (of type `component` if given)."""
        find = self.registry.find
        entries = [
            node
            for node in _find_start_nodes(flow.design)
            if isinstance(find(node.component_name), Entry)
        ]
        if len(entries) == 1 and component in (None, entries[0].component_name):
            for trigger in self.triggers:
                await trigger.prepare_entry(flow, entries[0])


def starts_with_trigger(text: str) -> bool:
    """Return whether a trigger node without incoming edges makes the flow a service."""
    return any(node.component_name == Trigger.name for node in _find_start_nodes(text))


def _find_start_nodes(text: str) -> list[DesignNode]:
    """Return the nodes without incoming edges; empty for an invalid design."""
    try:
        return find_start_nodes(decode_design(text))
    except DesignInvalid:
        return []


def build_design_error(error: DesignInvalid, field: str = DESIGN_FIELD) -> InvalidInput:
    """Return a 400 error with all reasons as `data`: `[{node_id?, field, reason}]`."""
    detail = [reason.to_detail() for reason in error.reasons]
    return InvalidInput(str(error), field=field, detail=detail)


@dataclass(frozen=True)
class FlowSettler:
    """Repairs the service entities of flows; one replica at a time."""

    store: UnsettledStore
    flows: FlowStore
    deployer: FlowDeployer
    entities: Entities

    async def repair(self) -> None:
        """Repair the oldest unsettled flows. Idempotent."""
        for flow in await self.store.list_older(MAX_CHANGE_SECONDS, FLOWS_PER_READ):
            try:
                await self._repair(flow)
            except Conflict as error:
                log.warning("flow %d has no service: %s", flow.flow_id, error)
            await self.store.unmark(flow)

    async def _repair(self, unsettled: UnsettledFlow) -> None:
        flow = await self.flows.get(unsettled.tenant, unsettled.flow_id)
        if flow is None or not await self.deployer.restore_service(flow):
            await self.entities.remove_service(unsettled.tenant, unsettled.flow_id)
