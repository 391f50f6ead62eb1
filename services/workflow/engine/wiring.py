"""Construction of the engine, the recovery of runs and their retention."""

from dataclasses import dataclass
from uuid import uuid4

from libs.common.store.ids import IdAllocator
from services.workflow.clients import Clients
from services.workflow.engine.log_entries import CircuitBreaker, RejectedRunCounter, RunLogWriter
from services.workflow.engine.plans import Plans
from services.workflow.engine.queue import EngineLimits, RunQueue
from services.workflow.engine.recovery import PendingRunRecovery, Recovery, Replicas
from services.workflow.engine.runner import Engine
from services.workflow.flows.wiring import Flows
from services.workflow.nodes.wiring import Nodes
from services.workflow.runs.log import ReplicaLog, RunRetention

RUN_IDS = 1000
"""Ids allocated at a time. A restart wastes at most this many."""


@dataclass(frozen=True)
class EngineParts:
    """The engine and its background tasks."""

    runner: Engine
    queue: RunQueue
    ids: IdAllocator
    """Ids of runs."""
    replicas: Replicas
    recovery: Recovery
    pending: PendingRunRecovery
    rejected_runs: RejectedRunCounter
    retention: RunRetention


def wire_engine(clients: Clients, *, nodes: Nodes, flows: Flows) -> EngineParts:
    """Construct the package for a new replica."""
    settings, database = clients.settings, clients.mongo.database
    replicas, ids = Replicas(database, uuid4().hex), IdAllocator(database, "runs", RUN_IDS)
    log = ReplicaLog(flows.runs, replicas.own)
    limits = EngineLimits(
        running=settings.flow_runs,
        waiting=settings.flow_runs_waiting,
        run_seconds=settings.flow_run_seconds,
        node_seconds=settings.flow_node_seconds,
    )
    queue, writer = RunQueue(limits, clients.limits.get), RunLogWriter(log, ids)
    rejected_runs = RejectedRunCounter(writer)
    runner = Engine(
        plans=Plans(flows.store, flows.vault, nodes.registry),
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
        Recovery(flows.runs, replicas, runner, log),
        PendingRunRecovery(flows.runs, replicas, runner),
        rejected_runs,
        RunRetention(flows.runs, log, settings.flow_log_days, settings.flow_log_entries),
    )
