"""Lets flows run and stop: checks a design, and tells the triggers.

A flow and its service entity are in two services: whoever saves a flow makes the entity first, and
removes it when the flow has gone. What a crash, or a `device` that was away, left between the
two is put right by `FlowSettler`.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from libs.common.errors import Conflict, InvalidInput
from libs.common.identity import Principal
from libs.common.store.mongo import Session
from services.workflow.entities import Entities, EntityAccess
from services.workflow.flows.model import AfterWrite, Deployments, Flow
from services.workflow.flows.store import FlowStore, Unsettled, UnsettledStore
from services.workflow.graph.design import FIELD, DesignInvalid, DesignNode, Reason, read_design
from services.workflow.graph.plan import Plan, compile_design, entries_of
from services.workflow.nodes.base import Entry, Registry, Step
from services.workflow.nodes.trigger import Trigger
from services.workflow.runs.model import Deployed, Owner
from services.workflow.sandbox.runner import Sandbox
from services.workflow.vault import Vault

MAY_NOT_COMMAND = (
    "sets values or calls services, which you may not: it needs entity_data.edit, device.edit, "
    "dashboard.edit or workflow.edit"
)
log = logging.getLogger(__name__)

SETTLING_PERIOD = 30.0
"""Seconds between looks."""
GRACE = 120
"""Seconds after which whoever changed a flow has ended, well or not."""
CHUNK = 100


@dataclass(frozen=True)
class FlowDeployer:
    """Checks designs and keeps triggers in step with flows."""

    registry: Registry
    sandbox: Sandbox
    entities: EntityAccess
    vault: Vault
    triggers: Sequence[Deployments]

    async def check(self, user: Principal, text: str) -> Plan:
        """The plan of a design that a user wants to run; raise `DesignInvalid`."""
        plan = await self._compiled(user.tenant, await self.vault.reveal(user.tenant, text))
        await self.check_entities(user, plan)
        return plan

    async def _compiled(self, tenant: str, text: str) -> Plan:
        """The plan of a design whose code can be read; raise `DesignInvalid`."""
        plan = compile_design(text, self.registry)
        DesignInvalid.raise_for(
            [
                Reason(node.id, f"parameters.{code.field}", reason)
                for node in plan.nodes.values()
                for code in node.parameters.code()
                if (reason := await self.sandbox.fault(Owner(tenant, 0), *code[1:]))
            ]
        )
        return plan

    async def check_entities(self, user: Principal, plan: Plan) -> None:
        """Raise `DesignInvalid` naming the entities that a user does not see.

        A flow reads and writes entities as the platform does, so whoever makes it run must
        see them.
        """
        named = {node.id: set(node.parameters.entity_keys()) for node in plan.nodes.values()}
        keys = set().union(*named.values())
        unseen = set(await self.entities.unseen(user, keys)) if keys else set()
        DesignInvalid.raise_for(
            [
                Reason(node_id, "parameters", f"there is no entity {key} that you see")
                for node_id, found in named.items()
                for key in sorted(found & unseen)
            ]
        )

    def check_commands(self, user: Principal, plan: Plan) -> None:
        """Raise `DesignInvalid` naming the nodes that command, unless the user may."""
        if user.may_command:
            return
        DesignInvalid.raise_for(
            [
                Reason(node.id, "componentName", MAY_NOT_COMMAND)
                for node in plan.nodes.values()
                if isinstance(node.type, Step) and node.type.commands
            ]
        )

    async def check_constants(self, tenant: str, plan: Plan) -> None:
        """Raise `DesignInvalid` naming the constants that nodes' entities do not take."""
        nodes = list(plan.nodes.values())
        judged = await asyncio.gather(*(one.type.judge(tenant, one.parameters) for one in nodes))
        DesignInvalid.raise_for(
            [
                Reason(node.id, f"parameters.{fault.field}", fault.reason)
                for node, faults in zip(nodes, judged, strict=True)
                for fault in faults
            ]
        )

    async def ready(
        self,
        user: Principal,
        flow: Flow,
        before: Flow | None,
        given: Mapping[str, str] | None = None,
    ) -> AfterWrite:
        """Prepare for a flow that is about to be stored; give what belongs into the transaction.

        Raises `InvalidInput` with the reasons when it shall run and cannot. Whoever changes
        nothing of what runs (its name) need not see what it touches. `given` are sealed secrets
        that are stored in the same transaction.
        """
        runs_already = before is not None and before.enabled and before.design == flow.design
        deployed = await self._deployed(None if runs_already else user, flow, given)
        await self._prepare(flow)

        async def after(session: Session) -> None:
            for trigger in self.triggers:
                await trigger.apply(flow.tenant, flow.id, deployed, session)

        return after

    async def restore(self, flow: Flow) -> bool:
        """Make what a flow with a trigger is called by; False for one without any.

        A draft with several entries keeps what it has.
        """
        await self._prepare(flow, Trigger.name)
        return begins_with_trigger(flow.design)

    async def stop(self, tenant: str, flow_id: int, session: Session) -> None:
        """In the transaction that deletes a flow, or that the engine disables it in."""
        for trigger in self.triggers:
            await trigger.apply(tenant, flow_id, None, session)

    async def changed(self, tenant: str, flow_id: int) -> None:
        """After a flow was stored."""
        for trigger in self.triggers:
            await trigger.changed(tenant, flow_id)

    async def forget(self, tenant: str, flow_id: int) -> None:
        """After a flow was deleted."""
        await self.changed(tenant, flow_id)
        for trigger in self.triggers:
            await trigger.forget(tenant, flow_id)

    async def _deployed(
        self, user: Principal | None, flow: Flow, given: Mapping[str, str] | None
    ) -> Deployed | None:
        if not flow.enabled:
            return None
        try:
            text = await self.vault.reveal(flow.tenant, flow.design, given)
            if user is None:
                plan = compile_design(text, self.registry)
            else:
                plan = await self._compiled(flow.tenant, text)
                self.check_commands(user, plan)
                await self.check_entities(user, plan)
                await self.check_constants(flow.tenant, plan)
        except DesignInvalid as error:
            raise refused(error) from error
        return Deployed(
            tenant=flow.tenant,
            flow_id=flow.id,
            version=flow.version,
            name=flow.name,
            node_id=plan.entry.id,
            component=plan.entry.type.name,
            parameters=plan.raw_entry,
        )

    async def _prepare(self, flow: Flow, component: str | None = None) -> None:
        """Prepare triggers for a design with exactly one entry, of a certain type or of any."""
        find = self.registry.find
        entries = [
            one for one in _begins(flow.design) if isinstance(find(one.component_name), Entry)
        ]
        if len(entries) == 1 and component in (None, entries[0].component_name):
            for trigger in self.triggers:
                await trigger.prepare(flow, entries[0])


def begins_with_trigger(text: str) -> bool:
    """Whether a node that no edge leads to makes the flow a service."""
    return any(node.component_name == Trigger.name for node in _begins(text))


def _begins(text: str) -> list[DesignNode]:
    """The nodes that no edge leads to; none of what cannot be read."""
    try:
        return entries_of(read_design(text))
    except DesignInvalid:
        return []


def refused(error: DesignInvalid, field: str = FIELD) -> InvalidInput:
    """400 with every reason: `data` of the answer is `[{node_id?, field, reason}]`."""
    detail = [reason.shown() for reason in error.reasons]
    return InvalidInput(str(error), field=field, detail=detail)


@dataclass(frozen=True)
class FlowSettler:
    """Looks after them, in one replica at a time."""

    store: UnsettledStore
    flows: FlowStore
    deployer: FlowDeployer
    entities: Entities

    async def look(self) -> None:
        """Settle the oldest of those that there are; doing it again does no harm."""
        for one in await self.store.older(GRACE, CHUNK):
            try:
                await self._settle(one)
            except Conflict as error:
                log.warning("flow %d has no service: %s", one.flow_id, error)
            await self.store.settled(one)

    async def _settle(self, one: Unsettled) -> None:
        flow = await self.flows.get(one.tenant, one.flow_id)
        if flow is None or not await self.deployer.restore(flow):
            await self.entities.remove_service(one.tenant, one.flow_id)
