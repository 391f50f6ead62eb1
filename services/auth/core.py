"""Clients and stores that the packages of `auth` share."""

from libs.common.bus import Bus, Outbox, RpcClient, RpcServer
from libs.common.identity.access import AccessVersions
from libs.common.limits import TokenBuckets
from libs.common.store.mongo import Mongo
from libs.common.store.redis import Redis
from services.auth.accounts import Accounts
from services.auth.applications.store import ApplicationStore
from services.auth.audit import AuditStore
from services.auth.bus_credentials import BusCredentialLookup, MqttLoginClient
from services.auth.changes import ChangeRunner
from services.auth.connections import AdmissionLog, UserConnections
from services.auth.device_credentials import DeviceCredentialStore
from services.auth.integration_logins import IntegrationLoginStore
from services.auth.login_records import RejectedLoginRecorder
from services.auth.passwords import LoginThrottle, PasswordHasherPool
from services.auth.revocations import RevocationApplier, RevocationStore
from services.auth.settings import AuthSettings
from services.auth.tokens.device_keys import DeviceKeyCopyStore
from services.auth.tokens.writer import TokenWriter

REFRESH_REUSE_GRACE_SECONDS = 60
"""Seconds in which a console may reuse a refresh token: two tabs, or a lost response."""


class Core:
    """The clients of the process, and stores and services that several packages use."""

    def __init__(self, settings: AuthSettings, mongo: Mongo, redis: Redis, bus: Bus) -> None:
        """Construct the stores from connected clients."""
        database = mongo.database
        self.settings, self.mongo, self.redis, self.bus = settings, mongo, redis, bus
        self.rpc, self.rpc_server = RpcClient(bus), RpcServer(bus, "auth")
        self.outbox, self.buckets = Outbox(database, bus), TokenBuckets(redis, "auth")
        self.accounts = Accounts(database, settings.default_limits)
        self.audit, self.revocations = AuditStore(database), RevocationStore(database)
        self.applications = ApplicationStore(database)
        self.integrations = IntegrationLoginStore(database)
        self.devices = DeviceCredentialStore(mongo, self.revocations)
        self.device_copies = DeviceKeyCopyStore(redis)
        self.mqtt_clients, self.versions = MqttLoginClient(self.rpc), AccessVersions(redis)
        self.connections = UserConnections(
            AdmissionLog(redis),
            self.rpc,
            BusCredentialLookup(
                self.devices, self.applications, self.integrations, self.mqtt_clients
            ),
        )
        self.application_tokens = TokenWriter(
            redis, access_life=settings.access_token_life, refresh_life=settings.refresh_token_life
        )
        self.user_tokens = TokenWriter(
            redis,
            access_life=settings.user_access_token_life,
            refresh_life=settings.user_refresh_token_life,
            reuse_grace=REFRESH_REUSE_GRACE_SECONDS,
        )
        self.revoker = RevocationApplier(
            self.application_tokens, self.device_copies, self.connections
        )
        self.changes = ChangeRunner(
            mongo,
            self.audit,
            self.outbox,
            self.revocations,
            self.revoker,
            self.accounts.tenants,
            self.versions,
        )
        self.rejected_logins = RejectedLoginRecorder(self.changes, self.buckets)
        self.hashes = PasswordHasherPool()
        self.throttle = LoginThrottle(self.buckets, self.hashes.threads)
