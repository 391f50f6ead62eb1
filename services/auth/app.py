"""The wiring of `auth`, and nothing else: everything is made here, once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from litestar import Litestar
from litestar.types import ControllerRouterHandler

from libs.common.bus import Bus, Outbox, RpcClient, RpcServer
from libs.common.bus.nkeys import KeyPair
from libs.common.clients import connected
from libs.common.http import Service, create_app, serve
from libs.common.identity import HeaderVerifier
from libs.common.identity.access import AccessVersions
from libs.common.identity.device_keys import RefusedLogins
from libs.common.identity.header import PassVerifier
from libs.common.identity.users import TenantsOfUsers
from libs.common.jobs import running
from libs.common.limits import TokenBuckets
from libs.common.limits.tenants import KnownLimits
from libs.common.limits.use import UseQuestions
from libs.common.store.ids import IdAllocator
from libs.common.store.lease import Job, Leader
from libs.common.store.mongo import Mongo, keep_for
from libs.common.store.redis import Redis, check_redis, connect_redis
from libs.common.telemetry import Telemetry
from libs.common.tls import mqtt_doors
from services.auth.accounts import Accounts
from services.auth.applications.consumers import EventConsumers
from services.auth.applications.devices import DevicesOverRpc
from services.auth.applications.messages import offer_applications
from services.auth.applications.routes import ROUTER as APPLICATION_ROUTES
from services.auth.applications.service import ApplicationService
from services.auth.applications.store import ApplicationStore
from services.auth.audit.routes import search_audit
from services.auth.audit.store import AuditStore
from services.auth.callout.clients import MqttClients
from services.auth.callout.credentials import Credentials
from services.auth.callout.entries import Entries
from services.auth.callout.messages import Callout
from services.auth.callout.service import Doorkeeper
from services.auth.changes import Changes
from services.auth.connections.service import (
    Admissions,
    ConnectionsOverRpc,
    UserConnections,
    offer_connections,
)
from services.auth.devices.messages import offer_devices
from services.auth.devices.service import DeviceService
from services.auth.devices.store import DeviceStore
from services.auth.grants.access import AccessService, AccessSnapshots
from services.auth.grants.listings import Listings
from services.auth.grants.messages import consumer_of_deletions, offer_access, offer_grants
from services.auth.grants.owners import Owners
from services.auth.grants.routes import ROUTER as GRANT_ROUTES
from services.auth.grants.service import GrantService
from services.auth.grants.sweep import GrantSweep
from services.auth.integrations.service import (
    IntegrationLoginService,
    IntegrationLoginStore,
    offer_integration_logins,
)
from services.auth.live.routes import ROUTER as LIVE_ROUTES
from services.auth.live.service import broker_info, offer_live
from services.auth.menus.routes import ROUTER as MENU_ROUTES
from services.auth.menus.service import MenuService
from services.auth.migrations import MIGRATIONS
from services.auth.passwords.hashing import PasswordHashes
from services.auth.passwords.throttle import Throttle
from services.auth.revocations.service import RevocationStore, Revoker
from services.auth.roles.routes import ROUTER as ROLE_ROUTES
from services.auth.roles.service import RoleService
from services.auth.settings import AuthSettings
from services.auth.sign_in.applications import TokenService
from services.auth.sign_in.console import sign_in
from services.auth.sign_in.open_api import issue_token
from services.auth.sign_in.people import SignIn
from services.auth.sign_in.refused import RefusedSessions
from services.auth.sign_in.schemas import ClientCredentials
from services.auth.tenants.event_shares import EventShares
from services.auth.tenants.limits import TenantLimitsService
from services.auth.tenants.messages import offer_tenants
from services.auth.tenants.routes import ROUTES as LIMIT_ROUTES
from services.auth.tenants.seed import MENUS
from services.auth.tenants.service import TenantService
from services.auth.tenants.settings import TenantSettingsService
from services.auth.tokens.device_keys import DeviceCopies, FirstKeys
from services.auth.tokens.writer import TokenWriter
from services.auth.users.account import AccountService
from services.auth.users.account_routes import ROUTER as ACCOUNT_ROUTES
from services.auth.users.directory import UserDirectory
from services.auth.users.messages import offer_users
from services.auth.users.routes import ROUTER as USER_ROUTES
from services.auth.users.service import UserService
from services.auth.users.sessions import OwnSessions

ID_BLOCK = 10
"""Ids are taken rarely, and a restart wastes at most this many."""
REUSE_GRACE = 60
"""Seconds in which a console may use a refresh token twice: two tabs, or a late answer."""
ROUTES: list[ControllerRouterHandler] = [
    issue_token,
    sign_in,
    ACCOUNT_ROUTES,
    USER_ROUTES,
    ROLE_ROUTES,
    MENU_ROUTES,
    GRANT_ROUTES,
    APPLICATION_ROUTES,
    search_audit,
    LIVE_ROUTES,
    *LIMIT_ROUTES,
]
OPEN_PATHS = frozenset({"/oauth/token", "/oauth2/token", "/user/register", "/user/status"})


def build_app(
    settings: AuthSettings, mongo: Mongo, redis: Redis, bus: Bus, telemetry: Telemetry
) -> Litestar:
    """Put the service together on clients that are connected."""
    database, client, outbox = mongo.database, RpcClient(bus), Outbox(mongo.database, bus)
    accounts, audit, revocations = (
        Accounts(database, settings.default_limits),
        AuditStore(database),
        RevocationStore(database),
    )
    applications, integrations = ApplicationStore(database), IntegrationLoginStore(database)
    keys, copies = DeviceStore(mongo, revocations), DeviceCopies(redis)
    versions, mqtt_clients = AccessVersions(redis), MqttClients(client)
    lives = {
        "access_life": settings.access_token_life,
        "refresh_life": settings.refresh_token_life,
    }
    tokens, user_tokens = TokenWriter(redis, **lives), _user_tokens(redis, settings)
    connections = UserConnections(
        Admissions(redis),
        ConnectionsOverRpc(client),
        Credentials(keys, applications, integrations, mqtt_clients).of,
    )
    revoker = Revoker(tokens, copies, connections)
    changes = Changes(mongo, audit, outbox, revocations, revoker, accounts.tenants, versions)

    buckets, hashes = TokenBuckets(redis, "auth"), PasswordHashes()
    refused, refused_devices = RefusedSessions(changes, buckets), RefusedLogins(redis)
    throttle = Throttle(buckets, hashes.threads)
    next_role = IdAllocator(database, "roles", ID_BLOCK).take
    next_menu = IdAllocator(database, "menus", len(MENUS)).take

    tenants = TenantService(changes, accounts, next_role, next_menu)
    limits = TenantLimitsService(
        changes, accounts.tenants, settings.default_limits, UseQuestions(bus)
    )
    users = UserService(changes, accounts, hashes, IdAllocator(database, "users", ID_BLOCK).take)
    people = AccountService(changes, accounts, hashes, users, throttle)
    roles, owners = RoleService(changes, accounts, next_role), Owners(client)
    grants = GrantService(changes, roles, accounts, owners)
    administration = ApplicationService(
        applications,
        changes,
        accounts.tenants,
        IdAllocator(database, "applications", ID_BLOCK).take,
        DevicesOverRpc(client),
    )
    entries = Entries(
        redis,
        keys,
        bus,
        mqtt_doors(settings.mqtt_url, settings.ca_file),
        settings.nats_user,
        settings.nats_password,
    )
    devices = DeviceService(
        keys,
        copies,
        FirstKeys(redis, settings.callout_seed),
        revoker,
        entries.release,
        refused_devices,
    )
    doorkeeper = Doorkeeper(
        devices,
        applications,
        integrations,
        entries,
        connections,
        KnownLimits(client),
        refused.record,
        PassVerifier(settings.internal_public_key),
        mqtt_clients,
    )
    callout = Callout(
        bus, doorkeeper, KeyPair.from_seed(settings.callout_seed), TenantsOfUsers(redis)
    )

    rpc = RpcServer(bus, "auth")
    offer_users(rpc, people)
    offer_tenants(rpc, tenants, limits)
    offer_access(rpc, AccessService(AccessSnapshots(mongo), versions.reach))
    offer_grants(rpc, grants)
    offer_applications(rpc, administration)
    offer_devices(rpc, devices)
    offer_connections(rpc, connections)
    offer_integration_logins(rpc, IntegrationLoginService(integrations, changes))
    jobs: dict[str, Job] = {
        "outbox": outbox.sweep,
        "consumers": EventConsumers(bus, applications).sweep,
        "revocations": partial(revoker.sweep, revocations),
        "grants": GrantSweep(accounts.grants, owners, grants).run,
        "access": partial(accounts.tenants.settle_versions, versions),
        "events": EventShares(bus, accounts.tenants).run,
    }

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        await keep_for(database, "audit", "at", settings.audit_retention_days)
        await tenants.ensure_default()
        deletions = consumer_of_deletions(bus, grants)
        leader = Leader(database, "auth", jobs)
        async with running(leader.run(), refused.run(), refused_devices.run(), deletions.run()):
            await rpc.start()
            await callout.start()
            yield
            await callout.stop()
            await entries.stop()
            await rpc.stop()
        hashes.close()

    return create_app(
        Service(
            name="auth",
            title="Thingway authentication",
            routes=ROUTES,
            verifier=HeaderVerifier(settings.internal_public_key),
            telemetry=telemetry,
            checks={"mongo": mongo.ping, "redis": partial(check_redis, redis), "nats": bus.check},
            dependencies={
                "tokens": TokenService(applications, tokens, refused.record, **lives),
                "sign_in": SignIn(
                    ClientCredentials(settings.console_client_id, settings.console_client_secret),
                    accounts,
                    hashes,
                    throttle,
                    changes,
                    user_tokens,
                    refused.record,
                    access_life=settings.user_access_token_life,
                    own_console=settings.console == "on",
                ),
                "sessions": OwnSessions(changes, user_tokens),
                "accounts": people,
                "people": users,
                "directory": UserDirectory(accounts, client),
                "roles": roles,
                "menus": MenuService(changes, accounts.menus, accounts.roles, next_menu),
                "grants": grants,
                "listings": Listings(roles, accounts, owners),
                "applications": administration,
                "audit": audit,
                "limits": limits,
                "tenant_settings": TenantSettingsService(changes, accounts.tenants),
                "live_passwords": offer_live(rpc, user_tokens),
                "broker": broker_info(settings.public_mqtt_url),
            },
            open_paths=OPEN_PATHS,
            lifespan=lifespan,
        )
    )


def _user_tokens(redis: Redis, settings: AuthSettings) -> TokenWriter:
    return TokenWriter(
        redis,
        access_life=settings.user_access_token_life,
        refresh_life=settings.user_refresh_token_life,
        reuse_grace=REUSE_GRACE,
    )


async def main() -> None:
    """Run the service until it is told to end."""
    clients = connected(AuthSettings, "auth", MIGRATIONS)
    async with (
        clients as (settings, telemetry, mongo, bus),
        connect_redis(settings.redis_url) as redis,
    ):
        await serve(build_app(settings, mongo, redis, bus, telemetry), settings)
