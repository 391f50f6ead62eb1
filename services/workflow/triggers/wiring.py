"""Wires what keeps triggers in step with flows, and what begins runs."""

from dataclasses import dataclass

from libs.common.bus import BatchConsumer
from libs.common.clock import now_ms
from libs.common.contracts.flows import CallFlow
from services.workflow.engine.runner import Engine
from services.workflow.entities import Entities
from services.workflow.flows.model import Deployments
from services.workflow.flows.store import FlowStore
from services.workflow.nodes.wiring import Nodes
from services.workflow.settings import Clients
from services.workflow.triggers.calls import AT_ONCE, FlowCaller, FlowServices
from services.workflow.triggers.deployed_flows import DeployedFlowIndex, DeployedFlows
from services.workflow.triggers.events import consume_events
from services.workflow.triggers.hooks import HookCaller, HookDeployments, HookStore, HttpLogins
from services.workflow.triggers.timers import TimerDeployments, TimerRunner, TimerStore
from services.workflow.triggers.topics import TopicListener


@dataclass(frozen=True)
class TriggerStores:
    """What keeps triggers in step with flows; it needs no engine."""

    deployed: DeployedFlows
    index: DeployedFlowIndex
    timers: TimerStore
    hooks: HookStore
    all: tuple[Deployments, ...]
    """Told what becomes of flows, in this order."""


@dataclass(frozen=True)
class Triggers:
    """What begins runs."""

    deployed: DeployedFlows
    index: DeployedFlowIndex
    timers: TimerRunner
    events: BatchConsumer
    topics: TopicListener
    hooks: HookCaller
    logins: HttpLogins


def wire_stores(clients: Clients, *, entities: Entities, flows: FlowStore) -> TriggerStores:
    """Wire what flows are deployed to."""
    database = clients.mongo.database
    deployed, timers, hooks = DeployedFlows(database), TimerStore(database), HookStore(database)
    index = DeployedFlowIndex(deployed, clients.limits.of)
    timer_deployments, services = TimerDeployments(timers, now_ms), FlowServices(entities, flows)
    told = (deployed, index, timer_deployments, HookDeployments(hooks), services)
    return TriggerStores(deployed, index, timers, hooks, told)


def wire_triggers(
    clients: Clients, *, nodes: Nodes, engine: Engine, stores: TriggerStores
) -> Triggers:
    """Wire what begins runs, and answer `call_flow` on the bus."""
    caller, index = FlowCaller(stores.deployed, engine), stores.index
    clients.server.offer("call_flow", CallFlow, caller.call, at_once=AT_ONCE)
    return Triggers(
        stores.deployed,
        index,
        TimerRunner(stores.timers, engine, now_ms),
        consume_events(clients.bus, index, engine),
        TopicListener(clients.bus, index.topics, index.ready, engine),
        HookCaller(stores.hooks, engine),
        HttpLogins(nodes.credentials),
    )
