"""The composition of `workflow`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from litestar import Litestar, Router

from libs.common.contracts.limits import UsageRequest
from libs.common.http import ServiceDescription, create_app, serve
from libs.common.identity import HeaderVerifier
from libs.common.jobs import run_in_background
from libs.common.limits.tenants import Usage, answer_usage_requests
from libs.common.process import connect_process
from libs.common.scheduling.turns import repeat
from libs.common.store.lease import Job, Leader
from services.workflow.clients import Clients
from services.workflow.components.catalogue import (
    ComponentHandlerDependencies,
    ConsoleEditors,
    component_router,
)
from services.workflow.credentials.console import CredentialHandlerDependencies, credential_router
from services.workflow.engine.log_entries import REJECTED_RUNS_LOG_SECONDS
from services.workflow.engine.recovery import PENDING_PERIOD_SECONDS, RECOVERY_PERIOD_SECONDS
from services.workflow.engine.wiring import EngineParts, wire_engine
from services.workflow.flows.console import FlowHandlerDependencies, flow_router
from services.workflow.flows.deployment import REPAIR_SECONDS
from services.workflow.flows.logs import LogHandlerDependencies, log_router
from services.workflow.flows.store import FlowStore
from services.workflow.flows.wiring import Flows, wire_flows
from services.workflow.migrations import MIGRATIONS
from services.workflow.nodes.wiring import NodeTypes, wire_nodes
from services.workflow.notifications.channels import NotificationChannels
from services.workflow.notifications.console import (
    NotificationHandlerDependencies,
    notification_router,
)
from services.workflow.notifications.events import create_alarm_consumer
from services.workflow.notifications.sender import NotificationSender
from services.workflow.notifications.service import NotificationSettings
from services.workflow.notifications.store import NotificationStore
from services.workflow.runs.log import CLEANUP_SECONDS
from services.workflow.settings import WorkflowSettings
from services.workflow.trials import TrialHandlerDependencies, TrialService, trial_router
from services.workflow.triggers.console import PUBLIC_PATHS, hook_router
from services.workflow.triggers.wiring import Triggers, wire_stores, wire_triggers


@dataclass(frozen=True)
class WorkflowPackages:
    """The clients and the constructed packages of a process."""

    clients: Clients
    nodes: NodeTypes
    flows: Flows
    engine: EngineParts
    triggers: Triggers
    sender: NotificationSender
    trials: TrialService


def wire_packages(clients: Clients) -> WorkflowPackages:
    """Construct all packages, lowest first."""
    nodes, store = wire_nodes(clients), FlowStore(clients.mongo)
    stores = wire_stores(clients, entities=nodes.entities, flows=store)
    flows = wire_flows(clients, nodes=nodes, store=store, triggers=stores.all)
    engine = wire_engine(clients, nodes=nodes, flows=flows)
    notices = NotificationStore(clients.mongo.database, clients.wakeups)
    external = nodes.external
    sender = NotificationSender(
        notices,
        NotificationSettings(notices, clients.settings.secrets_key),
        NotificationChannels(external.mail, nodes.credentials, external.http),
        clients.rpc,
        clients.grants,
    )
    return WorkflowPackages(
        clients,
        nodes,
        flows,
        engine,
        wire_triggers(clients, nodes=nodes, engine=engine.runner, stores=stores),
        sender,
        TrialService(
            flows.service, flows.deployer, flows.vault, engine.runner, nodes.registry, engine.ids
        ),
    )


def build_app(core: WorkflowPackages) -> Litestar:
    """Build the HTTP application."""
    clients, nodes, triggers = core.clients, core.nodes, core.triggers
    routers = [
        flow_router(FlowHandlerDependencies(core.flows.service)),
        trial_router(TrialHandlerDependencies(core.trials)),
        log_router(LogHandlerDependencies(core.flows.logs)),
        component_router(ComponentHandlerDependencies(nodes.registry, ConsoleEditors(clients.rpc))),
    ]
    return create_app(
        ServiceDescription(
            name="workflow",
            title="Thingway workflows",
            routes=[
                Router("/workflow", route_handlers=routers, tags=["Workflows"]),
                hook_router(triggers),
                credential_router(CredentialHandlerDependencies(nodes.credentials)),
                notification_router(
                    NotificationHandlerDependencies(core.sender.settings, core.sender)
                ),
            ],
            verifier=HeaderVerifier(clients.settings.internal_public_key),
            telemetry=clients.telemetry,
            checks={"mongo": clients.mongo.ping, "nats": clients.bus.check},
            public_paths=PUBLIC_PATHS,
            lifespan=partial(lifespan, core),
        )
    )


@asynccontextmanager
async def lifespan(core: WorkflowPackages) -> AsyncIterator[None]:
    """Run the background tasks of a replica.

    At the end, stop the triggers, then wait for current runs, then stop the other tasks.
    """
    clients, engine, triggers = core.clients, core.engine, core.triggers

    async def use(request: UsageRequest) -> Usage:
        return engine.queue.measure_usage(request.tenant)

    recover, settle = engine.recovery.recover, core.flows.settler.repair
    jobs: dict[str, Job] = {
        "outbox": clients.outbox.sweep,
        "recovery": partial(
            repeat,
            recover,
            RECOVERY_PERIOD_SECONDS,
            "interrupted runs were not recovered; retrying",
        ),
        "settling": partial(
            repeat, settle, REPAIR_SECONDS, "services of flows were not synchronized; retrying"
        ),
    }
    await engine.replicas.renew_entry()
    await answer_usage_requests(clients.bus, use)
    async with (
        core.nodes.external.open(),
        run_in_background(
            clients.wakeups.run(),
            engine.replicas.keep_renewing(),
            Leader(clients.mongo.database, "workflow", jobs).run(),
            create_alarm_consumer(clients.bus, core.sender.store).run(),
            core.sender.run(),
            repeat(
                engine.pending.recover,
                PENDING_PERIOD_SECONDS,
                "pending runs were not started; retrying",
            ),
            repeat(engine.retention.clean, CLEANUP_SECONDS, "old runs were not deleted; retrying"),
            repeat(
                engine.rejected_runs.write_counts,
                REJECTED_RUNS_LOG_SECONDS,
                "rejected runs were not logged; retrying",
            ),
        ),
    ):
        jobs_of_triggers = (
            triggers.index.run(),
            triggers.events.run(),
            triggers.topics.run(),
            triggers.timers.run(),
        )
        async with run_in_background(*jobs_of_triggers):
            await clients.server.start()
            yield
            await clients.server.stop()
        await engine.runner.drain(clients.settings.shutdown_grace)
    await engine.replicas.delete_entry()


async def main() -> None:
    """Run the service until the process is terminated."""
    async with connect_process(WorkflowSettings, "workflow", MIGRATIONS) as connections:
        clients = Clients(*connections)
        await serve(build_app(wire_packages(clients)), clients.settings)
