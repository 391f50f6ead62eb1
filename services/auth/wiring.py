"""Construction of the packages of `auth` that have several services."""

from dataclasses import dataclass

from libs.common.bus import BatchConsumer
from libs.common.bus.nkeys import KeyPair
from libs.common.identity.device_keys import RejectedLogins
from libs.common.identity.header import CertificatePassVerifier
from libs.common.identity.users import UserTenants
from libs.common.limits.tenants import LimitsCache
from libs.common.tls import parse_mqtt_urls
from services.auth.accounts import Accounts
from services.auth.callout.admission_registry import AdmissionRegistry
from services.auth.callout.login_authorizer import LoginAuthorizer
from services.auth.callout.service import Callout
from services.auth.connections import offer_connections
from services.auth.core import Core
from services.auth.device_credentials import DeviceCredentialService, offer_devices
from services.auth.grants.access import AccessService, offer_access
from services.auth.grants.console import GrantHandlerDependencies
from services.auth.grants.deleted_resources import GrantSweep, create_deletion_consumer
from services.auth.grants.listings import ResourceOwnerClient, RoleListings
from services.auth.grants.service import GrantService, offer_grants
from services.auth.roles.service import RoleService
from services.auth.sign_in.token_requests import ClientCredentialsGrant
from services.auth.sign_in.tokens import ApplicationTokenService, UserTokenService
from services.auth.tokens.device_keys import FirstKeyStore


@dataclass(frozen=True)
class SignInHandlerDependencies:
    """Dependencies of the token endpoints."""

    tokens: ApplicationTokenService
    sign_in: UserTokenService


def construct_sign_in(core: Core) -> SignInHandlerDependencies:
    """Construct the services that issue tokens."""
    settings = core.settings
    tokens = ApplicationTokenService(
        applications=core.applications,
        tokens=core.application_tokens,
        rejected_logins=core.rejected_logins,
        access_life=settings.access_token_life,
        refresh_life=settings.refresh_token_life,
    )
    sign_in = UserTokenService(
        console=ClientCredentialsGrant(settings.console_client_id, settings.console_client_secret),
        accounts=core.accounts,
        hashes=core.hashes,
        throttle=core.throttle,
        changes=core.changes,
        tokens=core.user_tokens,
        rejected_logins=core.rejected_logins,
        access_life=settings.user_access_token_life,
        own_console=settings.console == "on",
    )
    return SignInHandlerDependencies(tokens, sign_in)


@dataclass(frozen=True)
class GrantComponents:
    """The handlers and background tasks of grants."""

    handlers: GrantHandlerDependencies
    sweep: GrantSweep
    deletions: BatchConsumer


def construct_grants(core: Core, *, roles: RoleService) -> GrantComponents:
    """Construct grants and offer their operations to other services."""
    owners = ResourceOwnerClient(core.rpc)
    grants = GrantService(core.changes, roles, core.accounts, owners)
    access = AccessService(core.mongo, Accounts(core.mongo.direct), core.versions)
    offer_access(core.rpc_server, access)
    offer_grants(core.rpc_server, grants)
    return GrantComponents(
        GrantHandlerDependencies(grants, RoleListings(roles, core.accounts, owners)),
        GrantSweep(grants),
        create_deletion_consumer(core.bus, grants),
    )


@dataclass(frozen=True)
class CalloutComponents:
    """The callout and the parts that the process has to run and stop."""

    callout: Callout
    registry: AdmissionRegistry
    rejected_logins: RejectedLogins


def construct_callout(core: Core) -> CalloutComponents:
    """Construct the callout; offer operations on device credentials and connections."""
    settings, redis, bus = core.settings, core.redis, core.bus
    rejected_logins = RejectedLogins(redis)
    registry = AdmissionRegistry(
        redis,
        core.devices,
        bus,
        parse_mqtt_urls(settings.mqtt_url, settings.ca_file),
        settings.nats_user,
        settings.nats_password,
    )
    first_keys = FirstKeyStore(redis, settings.callout_seed)
    devices = DeviceCredentialService(
        core.devices, core.device_copies, first_keys, core.revoker, registry, rejected_logins
    )
    authorizer = LoginAuthorizer(
        devices=devices,
        applications=core.applications,
        integrations=core.integrations,
        registry=registry,
        connections=core.connections,
        limits=LimitsCache(core.rpc),
        rejected_logins=core.rejected_logins,
        passes=CertificatePassVerifier(settings.internal_public_key),
        clients=core.mqtt_clients,
    )
    offer_devices(core.rpc_server, devices)
    offer_connections(core.rpc_server, core.connections)
    key = KeyPair.from_seed(settings.callout_seed)
    callout = Callout(bus, authorizer, key, UserTenants(redis))
    return CalloutComponents(callout, registry, rejected_logins)
