"""Puts together what flows are designed, run and logged with."""

from dataclasses import dataclass
from uuid import uuid4

from libs.common.bus import Bus, Outbox, RpcClient
from libs.common.contracts.access import ResourceType
from libs.common.identity.grants import GrantReader
from libs.common.identity.sharing import Sharing
from libs.common.limits.tenants import KnownLimits
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Mongo, StoreError
from services.workflow.designs.cutting import Cutting
from services.workflow.designs.deploying import Deploying
from services.workflow.designs.history import History
from services.workflow.designs.service import FlowService
from services.workflow.designs.settling import Settling
from services.workflow.designs.store import FlowStore
from services.workflow.designs.unsettled import UnsettledStore
from services.workflow.engine.breaker import CircuitBreaker
from services.workflow.engine.limits import Limits
from services.workflow.engine.notes import Notes
from services.workflow.engine.plans import Plans
from services.workflow.engine.queue import RunQueue
from services.workflow.engine.recovery import Recovery
from services.workflow.engine.refused import Refused
from services.workflow.engine.replicas import Replicas
from services.workflow.engine.runner import Engine
from services.workflow.engine.unbegun import Unbegun
from services.workflow.entities.access import EntityAccess
from services.workflow.entities.messages import EntitiesOverRpc
from services.workflow.nodes.base import Registry
from services.workflow.nodes.choice import Choice
from services.workflow.nodes.entity_assigner import EntityAssigner
from services.workflow.nodes.entity_selector import EntitySelector
from services.workflow.nodes.event_listener import EventListener
from services.workflow.nodes.http_in import HttpIn
from services.workflow.nodes.output import Output
from services.workflow.nodes.service_invocation import ServiceInvocation
from services.workflow.nodes.simple_timer import SimpleTimer
from services.workflow.nodes.trigger import Trigger
from services.workflow.outside import Outside
from services.workflow.people import PeopleOverRpc
from services.workflow.runs.log import ReplicaLog
from services.workflow.runs.retention import Retention
from services.workflow.runs.service import LogService
from services.workflow.runs.store import RunStore
from services.workflow.settings import WorkflowSettings
from services.workflow.trials.service import TrialService
from services.workflow.triggers.services.messages import EntitiesOverRpc as ServicesOverRpc
from services.workflow.triggers.wiring import Triggers
from services.workflow.vault.marks import Marks
from services.workflow.vault.service import RevealedDesigns, Vault
from services.workflow.vault.store import SecretStore

FLOW_IDS, RUN_IDS = 100, 1000
"""Ids taken at a time; a restart wastes at most so many."""


@dataclass(frozen=True, kw_only=True)
class Core:
    """The service without its edges; one per process."""

    settings: WorkflowSettings
    mongo: Mongo
    bus: Bus
    rpc: RpcClient
    outbox: Outbox
    registry: Registry
    replicas: Replicas
    engine: Engine
    limits: KnownLimits
    queue: RunQueue
    refused: Refused
    recovery: Recovery
    unbegun: Unbegun
    retention: Retention
    flows: FlowService
    settling: Settling
    logs: LogService
    trials: TrialService
    triggers: Triggers
    outside: Outside


def build_core(settings: WorkflowSettings, mongo: Mongo, bus: Bus) -> Core:
    """Make it on clients that are connected."""
    database, rpc = mongo.database, RpcClient(bus)
    grants, entities = GrantReader(rpc), EntitiesOverRpc(rpc)
    outside = Outside(settings)
    registry = registry_of(entities, outside)
    outbox, designs = Outbox(database, bus), FlowStore(mongo)
    secrets = SecretStore(database)
    vault = Vault(secrets, Marks(registry, settings.secrets_key))
    runs, replicas = RunStore(mongo, outbox), Replicas(database, uuid4().hex)
    run_ids = IdAllocator(database, "runs", RUN_IDS).take
    log = ReplicaLog(runs, replicas.own)
    triggers = Triggers(database, bus, rpc, designs)
    access, unsettled = EntityAccess(grants, entities), UnsettledStore(database)
    deploying = Deploying(registry, access, triggers.deployments, vault)
    limits, notes = limits_of(settings), Notes(log, run_ids)
    known = KnownLimits(rpc)
    queue, refused = RunQueue(limits, known.of), Refused(notes, (StoreError,))
    breaker = CircuitBreaker(Cutting(designs, deploying), notes, settings.flow_failures)
    engine = Engine(
        plans=Plans(RevealedDesigns(designs, vault), registry),
        log=log,
        breaker=breaker,
        limits=limits,
        queue=queue,
        refused=refused,
        next_id=run_ids,
    )
    flows = FlowService(
        store=designs,
        sharing=Sharing(rpc, grants, ResourceType.WORKFLOW),
        people=PeopleOverRpc(rpc),
        logs=runs,
        deploying=deploying,
        vault=vault,
        unsettled=unsettled,
        history=History(designs, runs, secrets),
        limits=known.of,
        next_id=IdAllocator(database, "flows", FLOW_IDS).take,
    )
    return Core(
        settings=settings,
        mongo=mongo,
        bus=bus,
        rpc=rpc,
        outbox=outbox,
        registry=registry,
        replicas=replicas,
        engine=engine,
        limits=known,
        queue=queue,
        refused=refused,
        recovery=Recovery(runs, replicas, engine, log.finish, (StoreError,)),
        unbegun=Unbegun(runs, replicas, engine, (StoreError,)),
        retention=Retention(runs, log.grown, settings.flow_log_days, settings.flow_log_entries),
        flows=flows,
        settling=Settling(unsettled, designs, deploying, ServicesOverRpc(rpc), (StoreError,)),
        logs=LogService(flows, runs),
        trials=TrialService(
            checker=deploying, vault=vault, runner=engine, registry=registry, next_id=run_ids
        ),
        triggers=triggers,
        outside=outside,
    )


def registry_of(entities: EntitiesOverRpc, outside: Outside) -> Registry:
    """All node types."""
    return Registry(
        [
            Trigger(),
            SimpleTimer(),
            EventListener(),
            HttpIn(),
            Choice(outside.sandbox),
            EntityAssigner(entities),
            EntitySelector(entities),
            ServiceInvocation(entities),
            Output(),
            *outside.nodes(),
        ]
    )


def limits_of(settings: WorkflowSettings) -> Limits:
    """The bounds of the engine."""
    return Limits(
        running=settings.flow_runs,
        waiting=settings.flow_runs_waiting,
        run_seconds=settings.flow_run_seconds,
        node_seconds=settings.flow_node_seconds,
    )
