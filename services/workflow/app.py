"""The wiring of `workflow` at its edges, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from litestar import Litestar, Router

from libs.common.bus import RpcClient, RpcServer
from libs.common.clients import connected
from libs.common.contracts.flows import CallFlow
from libs.common.contracts.limits import AskUse
from libs.common.http import Service, create_app, serve
from libs.common.identity import HeaderVerifier
from libs.common.jobs import running
from libs.common.limits.use import Use, report_use
from libs.common.scheduling.turns import repeat
from libs.common.store.lease import Job, Leader
from libs.common.telemetry import Telemetry
from services.workflow.components.editors import Editors
from services.workflow.components.routes import ROUTER as COMPONENT_ROUTES
from services.workflow.credentials.messages import offer_logins
from services.workflow.credentials.routes import ROUTER as CREDENTIAL_ROUTES
from services.workflow.engine.notes import REFUSED_PERIOD
from services.workflow.engine.recovery import RECOVERY_PERIOD, UNBEGUN_PERIOD
from services.workflow.flows.messages import offer_names
from services.workflow.flows.routes import ROUTES as FLOW_ROUTES
from services.workflow.flows.settling import PERIOD as SETTLING_PERIOD
from services.workflow.logs.routes import ROUTES as LOG_ROUTES
from services.workflow.migrations import MIGRATIONS
from services.workflow.notifications.messages import listen as hear_alarms
from services.workflow.notifications.routes import ROUTER as NOTIFICATION_ROUTES
from services.workflow.runs.retention import PERIOD as CLEAN_PERIOD
from services.workflow.settings import WorkflowSettings
from services.workflow.trials.routes import ROUTES as TRIAL_ROUTES
from services.workflow.triggers.calls import AT_ONCE
from services.workflow.triggers.hooks.logins import HttpLogins
from services.workflow.triggers.hooks.routes import OPEN_PATHS, begin_flow, call_flows
from services.workflow.triggers.listeners.messages import listen
from services.workflow.triggers.topics.messages import TopicListening
from services.workflow.wiring import Core

ROUTER = Router(
    "/workflow",
    route_handlers=[
        Router("/flows", route_handlers=[*FLOW_ROUTES, *TRIAL_ROUTES, *LOG_ROUTES]),
        COMPONENT_ROUTES,
        begin_flow,
    ],
    tags=["Workflows"],
)


def build_app(core: Core, telemetry: Telemetry) -> Litestar:
    """Put the service together."""
    offered = RpcServer(core.bus, "workflow")
    offered.offer("call_flow", CallFlow, core.caller.call, at_once=AT_ONCE)
    offer_names(offered, core.flow_store)
    offer_logins(offered, core.credentials)

    async def use(wanted: AskUse) -> Use:
        return core.queue.use(wanted.tenant)

    jobs: dict[str, Job] = {
        "outbox": core.outbox.sweep,
        "recovery": partial(repeat, core.recovery.look, RECOVERY_PERIOD, "interrupted runs wait"),
        "settling": partial(repeat, core.settling.look, SETTLING_PERIOD, "services of flows wait"),
    }

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await core.replicas.sign()
        await report_use(core.bus, use)
        async with (
            core.outside,
            running(
                core.replicas.renew(),
                Leader(core.mongo.database, "workflow", jobs).run(),
                hear_alarms(core.bus, core.notices).run(),
                core.sender.run(),
                repeat(core.unbegun.look, UNBEGUN_PERIOD, "runs that were not begun wait"),
                repeat(core.retention.clean, CLEAN_PERIOD, "old runs could not be deleted"),
                repeat(core.refused.write, REFUSED_PERIOD, "refused runs are not logged"),
            ),
        ):
            listening = listen(core.bus, core.followed, core.engine)
            topics = TopicListening(core.bus, core.followed, core.engine)
            listening_to = (listening.run(), topics.run())
            async with running(core.followed.run(), *listening_to, core.timers.run()):
                await offered.start()
                yield
                await offered.stop()
            await core.engine.drain(core.settings.shutdown_grace)
        await core.replicas.leave()

    return create_app(
        Service(
            name="workflow",
            title="Thingway workflows",
            routes=[ROUTER, CREDENTIAL_ROUTES, NOTIFICATION_ROUTES, call_flows],
            verifier=HeaderVerifier(core.settings.internal_public_key),
            telemetry=telemetry,
            checks={"mongo": core.mongo.ping, "nats": core.bus.check},
            dependencies={
                "flows": core.flows,
                "logs": core.logs,
                "notifications": core.notifications,
                "notification_sender": core.sender,
                "trials": core.trials,
                "registry": core.registry,
                "editors": Editors(RpcClient(core.bus)),
                "hooks": core.hooks,
                "credentials": core.credentials,
                "logins": HttpLogins(core.credentials),
            },
            open_paths=OPEN_PATHS,
            lifespan=lifespan,
        )
    )


async def main() -> None:
    """Run the service until it is told to end."""
    clients = connected(WorkflowSettings, "workflow", MIGRATIONS)
    async with clients as (settings, telemetry, mongo, bus):
        await serve(build_app(Core(settings, mongo, bus), telemetry), settings)
