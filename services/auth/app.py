"""The wiring of `auth`, and nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from litestar import Litestar

from libs.common.bus import Bus, Outbox, RpcClient, RpcServer
from libs.common.bus.nkeys import KeyPair
from libs.common.http import Service, create_app, serve
from libs.common.identity import HeaderVerifier
from libs.common.identity.access import AccessVersions
from libs.common.identity.connections import ConnectionsOverRpc
from libs.common.identity.tokens import TokenWriter
from libs.common.jobs import running
from libs.common.limits import TokenBuckets
from libs.common.limits.tenants import KnownLimits
from libs.common.limits.use import UseQuestions
from libs.common.settings import load
from libs.common.store.ids import IdAllocator
from libs.common.store.lease import Leader
from libs.common.store.lifetime import keep_for
from libs.common.store.migrations import migrate
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis, check_redis, connect_redis
from libs.common.telemetry import Telemetry, start_telemetry
from services.auth.applications.consumers import EventConsumers
from services.auth.applications.messages import offer_applications
from services.auth.applications.routes import ROUTER as APPLICATION_ROUTES
from services.auth.applications.service import ApplicationService
from services.auth.applications.store import ApplicationStore
from services.auth.audit.refused import RefusedSessions
from services.auth.audit.routes import search_audit
from services.auth.audit.service import AuditService
from services.auth.audit.store import AuditStore
from services.auth.callout.messages import Callout
from services.auth.callout.service import Doorkeeper
from services.auth.callout.sessions import MqttSessions
from services.auth.changes import Changes
from services.auth.connections.admitted import Admissions
from services.auth.connections.credentials import Credentials
from services.auth.connections.service import UserConnections
from services.auth.devices.copies import DeviceCopies
from services.auth.devices.messages import offer_devices
from services.auth.devices.service import DeviceService
from services.auth.devices.store import DeviceStore
from services.auth.integrations.messages import offer_integration_logins
from services.auth.integrations.service import IntegrationLogins
from services.auth.integrations.store import IntegrationLoginStore
from services.auth.migrations import MIGRATIONS
from services.auth.people import OPEN_PATHS as PEOPLE_OPEN_PATHS
from services.auth.people import ROUTES as PEOPLE_ROUTES
from services.auth.people import wire_people
from services.auth.permissions import build_permissions
from services.auth.revocations.service import Revoker
from services.auth.revocations.store import RevocationStore
from services.auth.settings import AuthSettings
from services.auth.tenants.limits import TenantLimitsService
from services.auth.tenants.store import TenantStore
from services.auth.tenants.versions import TenantVersions
from services.auth.tokens.routes import issue_token
from services.auth.tokens.service import TokenService
from services.auth.use.routes import ROUTES as USE_ROUTES
from services.auth.use.service import UseService

ID_BLOCK = 10
"""Application ids are taken rarely, and a restart wastes at most this many."""


def build_app(
    settings: AuthSettings, mongo: Mongo, redis: Redis, bus: Bus, telemetry: Telemetry
) -> Litestar:
    """Put the service together on clients that are connected."""
    lives = {
        "access_life": settings.access_token_life,
        "refresh_life": settings.refresh_token_life,
    }
    writer = TokenWriter(redis, **lives)
    copies = DeviceCopies(redis)
    outbox = Outbox(mongo.database, bus)
    revocations = RevocationStore(mongo.database)
    keys = DeviceStore(mongo, revocations)
    applications = ApplicationStore(mongo.database)
    integrations = IntegrationLoginStore(mongo.database)
    client = RpcClient(bus)
    connections = UserConnections(
        Admissions(redis),
        ConnectionsOverRpc(client),
        Credentials(keys, applications, integrations),
    )
    revoker = Revoker(writer, copies, connections)
    versions = AccessVersions(redis)
    changes = Changes(mongo, outbox, revocations, revoker, versions)
    next_id = IdAllocator(mongo.database, "applications", ID_BLOCK).take
    sessions = MqttSessions(
        redis, keys, bus, settings.mqtt_url, settings.nats_user, settings.nats_password
    )
    devices = DeviceService(keys, copies, revoker, sessions.release)

    refused = RefusedSessions(changes, TokenBuckets(redis, "auth"))
    administration = ApplicationService(applications, changes, TenantStore(mongo.database), next_id)

    people = wire_people(settings, mongo, redis, bus, changes, refused)

    rpc = RpcServer(bus, "auth")
    people.offer(rpc)
    tenants = TenantStore(mongo.database)
    limits = TenantLimitsService(changes, tenants, settings.default_limits)
    permissions = build_permissions(mongo, bus, rpc, changes, versions, limits)
    offer_applications(rpc, administration)
    offer_devices(rpc, devices)
    offer_integration_logins(rpc, IntegrationLogins(integrations, changes))
    callout = Callout(
        bus,
        Doorkeeper(
            devices,
            applications,
            integrations,
            sessions,
            TokenBuckets(redis, "bus"),
            refused.record,
        ),
        KeyPair.from_seed(settings.callout_seed),
        connections,
        KnownLimits(client),
    )
    leaders = [
        Leader(mongo.database, "outbox", outbox.sweep),
        Leader(mongo.database, "consumers", EventConsumers(bus, applications).sweep),
        Leader(mongo.database, "revocations", partial(revoker.sweep, revocations)),
        Leader(mongo.database, "grants", permissions.sweep.run),
        Leader(mongo.database, "access", partial(TenantVersions(mongo.database).sweep, versions)),
    ]

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await keep_for(mongo.database, "audit", "at", settings.audit_retention_days)
        await permissions.tenants.ensure_default()
        jobs = (leader.run() for leader in leaders)
        async with running(*jobs, refused.run(), permissions.deletions.run()):
            await rpc.start()
            await callout.start()
            yield
            await callout.stop()
            await sessions.stop()
            await rpc.stop()
        people.hashes.close()

    return create_app(
        Service(
            name="auth",
            title="Thingway authentication",
            routes=[
                APPLICATION_ROUTES,
                search_audit,
                issue_token,
                *PEOPLE_ROUTES,
                *permissions.routes,
                *USE_ROUTES,
            ],
            verifier=HeaderVerifier(settings.internal_public_key),
            telemetry=telemetry,
            checks={"mongo": mongo.ping, "redis": partial(check_redis, redis), "nats": bus.check},
            dependencies={
                **people.dependencies,
                **permissions.dependencies,
                "applications": administration,
                "use": UseService(limits, UseQuestions(bus)),
                "audit": AuditService(AuditStore(mongo.database)),
                "tokens": TokenService(applications, writer, refused.record, **lives),
            },
            open_paths=frozenset({"/oauth/token"}) | PEOPLE_OPEN_PATHS,
            lifespan=lifespan,
        )
    )


async def main() -> None:
    """Run the service until it is told to end."""
    settings = load(AuthSettings)
    telemetry = start_telemetry("auth")
    mongo = Mongo(settings.mongo_url, settings.mongo_database or "thingway_auth")
    redis = connect_redis(settings.redis_url)
    bus = await Bus.connect(
        settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password,
        name="auth",
        streams=True,
    )
    try:
        await migrate(mongo.database, MIGRATIONS)
        await serve(build_app(settings, mongo, redis, bus, telemetry), settings)
    finally:
        await bus.drain()
        await redis.aclose()
        await mongo.close()
        telemetry.shutdown()
