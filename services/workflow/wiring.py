"""Puts together what flows are designed, made to run, run and logged with; each once."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Self
from uuid import uuid4

from libs.common.bus import Bus, Outbox, RpcClient
from libs.common.clock import now_ms
from libs.common.contracts.access import ResourceType
from libs.common.http.outgoing import networks_of
from libs.common.identity.grants import GrantReader, Sharing
from libs.common.identity.users import People
from libs.common.limits.tenants import KnownLimits
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Mongo
from services.workflow.credentials.messages import MqttClients
from services.workflow.credentials.service import TenantCredentials
from services.workflow.credentials.store import CredentialStore
from services.workflow.engine.notes import CircuitBreaker, Notes, Refused
from services.workflow.engine.plans import Plans
from services.workflow.engine.queue import Limits, RunQueue
from services.workflow.engine.recovery import Recovery, Unbegun
from services.workflow.engine.replicas import Replicas
from services.workflow.engine.runner import Engine
from services.workflow.entities import Entities, EntityAccess
from services.workflow.flows.deploying import Deploying
from services.workflow.flows.service import FlowService
from services.workflow.flows.settling import Settling
from services.workflow.flows.store import FlowStore, UnsettledStore
from services.workflow.logs.service import LogService
from services.workflow.nodes.alarm import AlarmNode
from services.workflow.nodes.base import Registry
from services.workflow.nodes.choice import Choice
from services.workflow.nodes.code import CodeNode
from services.workflow.nodes.email import Email
from services.workflow.nodes.entity_assigner import EntityAssigner
from services.workflow.nodes.entity_selector import EntitySelector
from services.workflow.nodes.event_listener import EventListener
from services.workflow.nodes.http_in import HttpIn
from services.workflow.nodes.http_request import HttpRequestNode
from services.workflow.nodes.mqtt_publish import MqttPublish
from services.workflow.nodes.output import Output
from services.workflow.nodes.service_invocation import ServiceInvocation
from services.workflow.nodes.simple_mqtt import SimpleMqtt
from services.workflow.nodes.simple_timer import SimpleTimer
from services.workflow.nodes.trigger import Trigger
from services.workflow.nodes.webhook import Webhook
from services.workflow.notifications.letters import Post
from services.workflow.notifications.sending import Sender
from services.workflow.notifications.service import NotificationSettings
from services.workflow.notifications.store import NotificationStore
from services.workflow.outgoing.http import OutgoingHttp
from services.workflow.outgoing.mail import OutgoingMail
from services.workflow.outgoing.mqtt import OutgoingMqtt
from services.workflow.runs.log import ReplicaLog
from services.workflow.runs.retention import Retention
from services.workflow.runs.store import RunStore
from services.workflow.sandbox.runner import Sandbox
from services.workflow.settings import WorkflowSettings
from services.workflow.trials.service import TrialService
from services.workflow.triggers.calls import FlowCaller, FlowServices
from services.workflow.triggers.hooks.service import HookBook, HookCaller
from services.workflow.triggers.hooks.store import HookStore
from services.workflow.triggers.listeners.following import FollowedIndex
from services.workflow.triggers.store import DeployedFlows
from services.workflow.triggers.timers.service import TimerBook, TimerWatch
from services.workflow.triggers.timers.store import TimerStore
from services.workflow.vault.service import Vault
from services.workflow.vault.store import SecretStore

FLOW_IDS, RUN_IDS, CREDENTIAL_IDS = 100, 1000, 10
"""Ids taken at a time; a restart wastes at most so many."""
RESOLVING = 256
"""Hosts that are looked up at a time: twice what runs and deliveries of one tenant can reach."""


class Outside:
    """What nodes reach beyond the platform with; `async with` holds processes and connections."""

    def __init__(self, settings: WorkflowSettings) -> None:
        allowed = networks_of(settings.outgoing_networks)
        self.sandbox = Sandbox(settings.code_processes)
        self.http = OutgoingHttp(allowed)
        self.mail = OutgoingMail(allowed)
        self.mqtt = OutgoingMqtt(allowed)
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        # Looking up a host takes a thread, for as long as its name servers do not answer.
        resolving = ThreadPoolExecutor(RESOLVING, "resolver")
        asyncio.get_running_loop().set_default_executor(resolving)
        await self._held.enter_async_context(self.sandbox)
        await self._held.enter_async_context(self.http)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()


def registry_of(entities: Entities, outside: Outside, credentials: TenantCredentials) -> Registry:
    """All node types."""
    return Registry(
        [
            Trigger(),
            SimpleTimer(),
            EventListener(),
            SimpleMqtt(),
            HttpIn(),
            Choice(outside.sandbox),
            EntityAssigner(entities),
            EntitySelector(entities),
            ServiceInvocation(entities),
            AlarmNode(entities),
            Output(),
            CodeNode(outside.sandbox),
            Webhook(outside.http),
            HttpRequestNode(outside.http),
            Email(outside.mail, credentials.mail_server),
            MqttPublish(outside.mqtt),
        ]
    )


class Core:
    """The service without its edges, on clients that are connected; one per process."""

    def __init__(self, settings: WorkflowSettings, mongo: Mongo, bus: Bus) -> None:
        self.settings, self.mongo, self.bus = settings, mongo, bus
        database, rpc = mongo.database, RpcClient(bus)
        grants, entities = GrantReader(rpc), Entities(rpc)
        self.outside = Outside(settings)
        self.credentials = TenantCredentials(
            CredentialStore(database, settings.secrets_key),
            IdAllocator(database, "credentials", CREDENTIAL_IDS).take,
            MqttClients(rpc).close,
        )
        self.registry = registry_of(entities, self.outside, self.credentials)
        self.outbox, self.limits = Outbox(database, bus), KnownLimits(rpc)
        self.flow_store, unsettled = FlowStore(mongo), UnsettledStore(database)
        secrets = SecretStore(database)
        vault = Vault(secrets, self.registry, settings.secrets_key)
        runs, self.replicas = RunStore(mongo, self.outbox), Replicas(database, uuid4().hex)
        log = ReplicaLog(runs, self.replicas.own)
        run_ids = IdAllocator(database, "runs", RUN_IDS).take
        timers, hooks = TimerStore(database), HookStore(database)
        self.deployed = DeployedFlows(database)
        self.followed = FollowedIndex(self.deployed, self.limits.of)
        deploying = Deploying(
            self.registry,
            self.outside.sandbox,
            EntityAccess(grants, entities),
            vault,
            [
                self.deployed,
                self.followed,
                TimerBook(timers, now_ms),
                HookBook(hooks),
                FlowServices(entities, self.flow_store),
            ],
        )
        self.flows = FlowService(
            store=self.flow_store,
            unsettled=unsettled,
            secrets=secrets,
            runs=runs,
            vault=vault,
            deploying=deploying,
            sharing=Sharing(rpc, grants, ResourceType.WORKFLOW),
            people=People(rpc),
            limits=self.limits.of,
            next_id=IdAllocator(database, "flows", FLOW_IDS).take,
        )
        self.settling = Settling(unsettled, self.flow_store, deploying, entities)
        self.notices = NotificationStore(database)
        self.notifications = NotificationSettings(self.notices, settings.secrets_key)
        post = Post(self.outside.mail, self.credentials.mail_server, self.outside.http)
        self.sender = Sender(self.notices, self.notifications, post, rpc, grants)
        self.logs = LogService(self.flows, runs, entities)
        limits, notes = limits_of(settings), Notes(log, run_ids)
        self.queue, self.refused = RunQueue(limits, self.limits.of), Refused(notes)
        self.engine = Engine(
            plans=Plans(self.flow_store, vault, self.registry),
            log=log,
            breaker=CircuitBreaker(self.flows, notes, settings.flow_failures),
            limits=limits,
            queue=self.queue,
            refused=self.refused,
            next_id=run_ids,
        )
        self.recovery = Recovery(runs, self.replicas, self.engine, log)
        self.unbegun = Unbegun(runs, self.replicas, self.engine)
        days, entries = settings.flow_log_days, settings.flow_log_entries
        self.retention = Retention(runs, log.grown, days, entries)
        self.trials = TrialService(
            self.flows, deploying, vault, self.engine, self.registry, run_ids
        )
        self.timers = TimerWatch(timers, self.engine, now_ms)
        self.hooks = HookCaller(hooks, self.engine)
        self.caller = FlowCaller(self.deployed, self.engine)


def limits_of(settings: WorkflowSettings) -> Limits:
    """The bounds of the engine."""
    return Limits(
        running=settings.flow_runs,
        waiting=settings.flow_runs_waiting,
        run_seconds=settings.flow_run_seconds,
        node_seconds=settings.flow_node_seconds,
    )
