"""Construction of the triggers and their stores."""

from dataclasses import dataclass

from libs.common.bus import BatchConsumer
from libs.common.clock import now_ms
from libs.common.contracts.flows import CallFlow
from services.workflow.clients import Clients
from services.workflow.engine.runner import Engine
from services.workflow.entities import Entities
from services.workflow.flows.model import DeploymentObserver
from services.workflow.flows.store import FlowStore
from services.workflow.nodes.wiring import NodeTypes
from services.workflow.triggers.deployed_flows import (
    FLOWS_TOPIC,
    DeployedFlowIndex,
    DeployedFlowStore,
)
from services.workflow.triggers.events import create_event_consumer
from services.workflow.triggers.hooks import (
    MAX_CONCURRENT_CALLS,
    FlowCaller,
    FlowServices,
    HookCaller,
    HookDeployments,
    HookStore,
    HttpLogins,
)
from services.workflow.triggers.timers import TimerDeployments, TimerRunner, TimerStore
from services.workflow.triggers.topics import TopicListener


@dataclass(frozen=True)
class TriggerStores:
    """The stores of triggers, which need no engine."""

    deployed: DeployedFlowStore
    index: DeployedFlowIndex
    timers: TimerStore
    hooks: HookStore
    all: tuple[DeploymentObserver, ...]
    """Observers of flow changes, in the order in which they are called."""


@dataclass(frozen=True)
class Triggers:
    """The parts that start runs."""

    deployed: DeployedFlowStore
    index: DeployedFlowIndex
    timers: TimerRunner
    events: BatchConsumer
    topics: TopicListener
    hooks: HookCaller
    logins: HttpLogins


def wire_stores(clients: Clients, *, entities: Entities, flows: FlowStore) -> TriggerStores:
    """Construct the stores of triggers."""
    database = clients.mongo.database
    deployed, timers, hooks = DeployedFlowStore(database), TimerStore(database), HookStore(database)
    index = DeployedFlowIndex(deployed, clients.limits.get, clients.wakeups)
    timer_deployments, services = TimerDeployments(timers, now_ms), FlowServices(entities, flows)
    observers = (deployed, index, timer_deployments, HookDeployments(hooks), services)
    return TriggerStores(deployed, index, timers, hooks, observers)


def wire_triggers(
    clients: Clients, *, nodes: NodeTypes, engine: Engine, stores: TriggerStores
) -> Triggers:
    """Construct the triggers, and offer `call_flow` on the bus."""
    caller, index = FlowCaller(stores.deployed, engine), stores.index
    clients.server.offer("call_flow", CallFlow, caller.call_flow, at_once=MAX_CONCURRENT_CALLS)
    return Triggers(
        stores.deployed,
        index,
        TimerRunner(stores.timers, engine, now_ms, clients.wakeups.create_event(FLOWS_TOPIC)),
        create_event_consumer(clients.bus, index, engine),
        TopicListener(clients.bus, index.topics, index.ready, engine),
        HookCaller(stores.hooks, engine),
        HttpLogins(nodes.credentials),
    )
