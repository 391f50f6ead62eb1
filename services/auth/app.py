"""The composition of `auth`: its routers, RPC operations and jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from litestar import Litestar, Router

from libs.common.bus import Bus
from libs.common.device_client import DeviceClient
from libs.common.http import ServiceDescription, build_dependencies, create_app, serve
from libs.common.identity import HeaderVerifier
from libs.common.jobs import run_in_background
from libs.common.limits.tenants import UsageCollector
from libs.common.process import connect_process
from libs.common.store.lease import Job, Leader
from libs.common.store.migrations import set_retention_days
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, check_redis, connect_redis
from libs.common.store_metrics import measure_redis
from libs.common.telemetry import Telemetry
from services.auth import live, menus
from services.auth.applications import console as applications
from services.auth.applications.event_consumers import AbandonedConsumerSweep
from services.auth.applications.event_partitions import EventStreamUpdater
from services.auth.applications.service import ApplicationService, offer_applications
from services.auth.audit import AuditHandlerDependencies, search_audit
from services.auth.core import Core
from services.auth.grants import console as grants
from services.auth.integration_logins import IntegrationLoginService, offer_integration_logins
from services.auth.migrations import MIGRATIONS
from services.auth.roles import console as roles
from services.auth.roles.service import RoleService
from services.auth.settings import AuthSettings
from services.auth.sign_in.console import sign_in
from services.auth.sign_in.open_api import issue_token
from services.auth.tenants import console as tenants
from services.auth.tenants.event_shares import EventShareEnforcer
from services.auth.tenants.service import (
    TenantLimitsService,
    TenantService,
    TenantSettingsService,
    offer_tenants,
)
from services.auth.users import console as users
from services.auth.users.account import AccountService, CallerSessions, offer_users
from services.auth.users.directory import UserDirectory
from services.auth.users.service import UserService
from services.auth.wiring import construct_callout, construct_grants, construct_sign_in

PUBLIC_PATHS = frozenset({"/oauth/token", "/oauth2/token", "/user/register", "/user/status"})


def build_app(
    settings: AuthSettings, mongo: Mongo, redis: Redis, bus: Bus, telemetry: Telemetry
) -> Litestar:
    """Compose the packages of `auth` from connected clients."""
    core = Core(settings, mongo, redis, bus)
    accounts, changes, rpc = core.accounts, core.changes, core.rpc_server

    callout = construct_callout(core)
    user_service = UserService(changes, accounts, core.hashes)
    account_service = AccountService(changes, accounts, core.hashes, user_service, core.throttle)
    user_handlers = users.UserHandlerDependencies(
        account_service=account_service,
        directory=UserDirectory(accounts, DeviceClient(core.rpc)),
        user_service=user_service,
        sessions=CallerSessions(changes, core.user_tokens),
    )
    role_handlers = roles.RoleHandlerDependencies(RoleService(changes, accounts))
    menu_handlers = menus.MenuHandlerDependencies(
        menus.MenuService(changes, accounts.menus, accounts.roles)
    )
    granting = construct_grants(core, roles=role_handlers.roles)
    application_handlers = applications.ApplicationHandlerDependencies(
        ApplicationService(core.applications, changes, accounts.tenants, core.rpc)
    )
    live_handlers = live.LiveHandlerDependencies(
        live.LivePasswordService(core.user_tokens), live.build_broker_info(settings.public_mqtt_url)
    )
    limits = TenantLimitsService(
        changes, accounts.tenants, settings.default_limits, UsageCollector(bus)
    )
    tenant_handlers = tenants.TenantHandlerDependencies(
        limits, TenantSettingsService(changes, accounts.tenants)
    )
    tenant_service = TenantService(changes, accounts)

    offer_users(rpc, account_service)
    offer_tenants(rpc, tenant_service, limits)
    offer_applications(rpc, application_handlers.applications)
    offer_integration_logins(rpc, IntegrationLoginService(core.integrations, changes))
    live.offer_live(rpc, live_handlers.live_passwords)
    jobs: dict[str, Job] = {
        "outbox": core.outbox.sweep,
        "consumers": AbandonedConsumerSweep(bus, core.applications).run,
        "revocations": partial(core.revoker.reapply_forever, core.revocations),
        "grants": granting.sweep.run,
        "access": partial(accounts.tenants.copy_recent_versions_forever, core.versions),
        "events": EventShareEnforcer(bus, accounts.tenants).run,
        "partitions": EventStreamUpdater(bus, core.applications, settings.events_partitions).run,
    }

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await set_retention_days(mongo.database, "audit", "at", settings.audit_retention_days)
        await tenant_service.ensure_default()
        leader = Leader(mongo.database, "auth", jobs)
        async with run_in_background(
            leader.run(),
            core.rejected_logins.record_forever(),
            callout.rejected_logins.run(),
            granting.deletions.run(),
            measure_redis(redis),
        ):
            await rpc.start()
            await callout.callout.start()
            yield
            await callout.callout.stop()
            await callout.registry.stop()
            await rpc.stop()
        core.hashes.close()

    return create_app(
        ServiceDescription(
            name="auth",
            title="Thingway authentication",
            routes=[
                Router("/", route_handlers=handlers, dependencies=build_dependencies(dependencies))
                for handlers, dependencies in (
                    ([issue_token, sign_in], construct_sign_in(core)),
                    ([users.ACCOUNT_ROUTER, users.USER_ROUTER], user_handlers),
                    ([roles.ROUTER], role_handlers),
                    ([menus.ROUTER], menu_handlers),
                    ([grants.ROUTER], granting.handlers),
                    ([applications.ROUTER], application_handlers),
                    ([search_audit], AuditHandlerDependencies(core.audit)),
                    ([live.ROUTER], live_handlers),
                    (tenants.ROUTES, tenant_handlers),
                )
            ],
            verifier=HeaderVerifier(settings.internal_public_key),
            telemetry=telemetry,
            checks={"mongo": mongo.ping, "redis": partial(check_redis, redis), "nats": bus.check},
            public_paths=PUBLIC_PATHS,
            lifespan=lifespan,
        )
    )


async def main() -> None:
    """Run the service until the process is terminated."""
    clients = connect_process(AuthSettings, "auth", MIGRATIONS)
    async with (
        clients as (settings, telemetry, mongo, bus),
        connect_redis(settings.redis_url) as redis,
    ):
        await serve(build_app(settings, mongo, redis, bus, telemetry), settings)
