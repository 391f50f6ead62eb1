"""Construction of the engine, the recovery of runs and their retention."""

from dataclasses import dataclass
from uuid import uuid4

from libs.common.store.ids import IdAllocator
from services.workflow.clients import Clients
from services.workflow.engine.log_entries import CircuitBreaker, RejectedRunCounter, UnstartedRunLog
from services.workflow.engine.plans import PlanCache
from services.workflow.engine.queue import EngineLimits, RunQueue
from services.workflow.engine.recovery import (
    OrphanedRunRecovery,
    PendingRunRecovery,
    ReplicaRegistry,
)
from services.workflow.engine.runner import Engine
from services.workflow.flows.wiring import Flows
from services.workflow.nodes.wiring import NodeTypes
from services.workflow.runs.log import ReplicaRunLog, RunRetention

RUN_IDS_PER_ALLOCATION = 1000
"""Ids of runs allocated at a time. A restart wastes at most this many."""


@dataclass(frozen=True)
class EngineParts:
    """The engine and its background tasks."""

    runner: Engine
    queue: RunQueue
    ids: IdAllocator
    """Ids of runs."""
    replicas: ReplicaRegistry
    recovery: OrphanedRunRecovery
    pending: PendingRunRecovery
    rejected_runs: RejectedRunCounter
    retention: RunRetention


def wire_engine(clients: Clients, *, nodes: NodeTypes, flows: Flows) -> EngineParts:
    """Construct the package for a new replica."""
    settings, database = clients.settings, clients.mongo.database
    replicas, ids = (
        ReplicaRegistry(database, uuid4().hex),
        IdAllocator(database, "runs", RUN_IDS_PER_ALLOCATION),
    )
    log = ReplicaRunLog(flows.runs, replicas.replica)
    limits = EngineLimits(
        running=settings.flow_runs,
        waiting=settings.flow_runs_waiting,
        run_seconds=settings.flow_run_seconds,
        node_seconds=settings.flow_node_seconds,
    )
    queue, writer = RunQueue(limits, clients.limits.get), UnstartedRunLog(log, ids)
    rejected_runs = RejectedRunCounter(writer)
    runner = Engine(
        plans=PlanCache(flows.store, flows.vault, nodes.registry),
        log=log,
        breaker=CircuitBreaker(flows.service, writer, settings.flow_failures),
        limits=limits,
        queue=queue,
        rejected_runs=rejected_runs,
        ids=ids,
    )
    return EngineParts(
        runner,
        queue,
        ids,
        replicas,
        OrphanedRunRecovery(flows.runs, replicas, runner, log),
        PendingRunRecovery(flows.runs, replicas, runner),
        rejected_runs,
        RunRetention(flows.runs, log, settings.flow_log_days, settings.flow_log_entries),
    )
