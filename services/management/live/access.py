"""Access to live updates: credentials, current grants, limits of connections and keys.

This service reads only credentials and access versions from Redis.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from libs.common.bus import RpcClient
from libs.common.contracts.limits import UsageRequest
from libs.common.contracts.mqtt import live_mqtt_user
from libs.common.errors import Unauthenticated, Unavailable
from libs.common.identity import Principal
from libs.common.identity.access import AccessReader, access_version_key
from libs.common.identity.grants import GrantReader, Grants
from libs.common.identity.tokens import live_password_key
from libs.common.limits.tenants import (
    HeldSlots,
    LimitsCache,
    SlotCounts,
    SlotLimit,
    Usage,
    acquire_slots,
)
from libs.common.mqtt import Connect
from libs.common.store.redis import Redis, RedisError
from services.management.live.mqtt_publisher import MqttListener
from services.management.live.sockets import LiveSocket
from services.management.live.subscriber import Subscriber

RETRY_AFTER_SECONDS = 5.0
"""Seconds after which a client that exceeds a limit may retry."""


class CredentialReader:
    """Reads credentials of users and access versions of tenants from Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def are_valid(self, keys: Sequence[str]) -> list[bool]:
        """Return for each Redis key of a credential whether it is valid; raise `Unavailable`."""
        return [found is not None for found in await self._read_keys(list(keys))]

    async def find_user(self, key: str) -> Principal | None:
        """Return the user of a credential's Redis key, None if invalid; raise `Unavailable`."""
        (principal,) = await self._read_keys([key])
        return None if principal is None else msgspec.json.decode(principal, type=Principal)

    async def read_access_versions(self, tenants: Sequence[str]) -> list[int]:
        """Return the access version of each tenant, 0 if unknown; raise `Unavailable`."""
        return [
            int(found or 0)
            for found in await self._read_keys(list(map(access_version_key, tenants)))
        ]

    async def _read_keys(self, keys: list[str]) -> list[bytes | str | None]:
        try:
            return await self._redis.mget(keys) if keys else []
        except (RedisError, OSError) as error:
            raise Unavailable("the token database does not answer at the moment") from error


class UserAccessReader:
    """The current permissions and grants of users."""

    def __init__(self, rpc: RpcClient, grants: GrantReader) -> None:
        self._access = AccessReader(rpc)
        self._grants = grants

    async def read_user_and_grants(
        self, principal: Principal, version: int
    ) -> tuple[Principal, Grants] | None:
        """Return a user with current permissions, and grants; None if deleted or disabled.

        Permissions and grants have the access version `version` or a later one.

        Raises the errors of `auth`, except `Unauthenticated`.
        """
        try:
            user = await self._access.add_access(replace(principal, access=version))
            user = replace(user, access=max(user.access, version))
            return user, await self._grants.read(user)
        except Unauthenticated:
            return None


class AdmissionControl:
    """Admits MQTT clients, and limits them per user and tenant in this replica.

    It also limits the keys that sockets subscribe to. The gateway limits `/websocket` connections.
    """

    def __init__(
        self, credentials: CredentialReader, user_access: UserAccessReader, limits: LimitsCache
    ) -> None:
        self._credentials = credentials
        self._user_access = user_access
        self._limits = limits
        self._open = SlotCounts()
        self._keys = SlotCounts()

    async def admit_mqtt_client(
        self, connect: Connect, live_socket: LiveSocket
    ) -> tuple[MqttListener, HeldSlots]:
        """Return the listener of a client, and its slots, which the caller releases.

        Raises `Unauthenticated`, `TooManyRequests`, and `Unavailable` without Redis or `auth`.
        """
        credential = live_password_key((connect.password or b"").decode(errors="replace"))
        holder = await self._credentials.find_user(credential)
        if holder is None or connect.user != live_mqtt_user(holder.user_id).encode():
            raise Unauthenticated("the user name or the password is wrong")
        if len(connect.fields) > 1:  # the client id, and the parts of a will
            raise Unauthenticated("a will is not permitted, because clients must not publish")
        (version,) = await self._credentials.read_access_versions([holder.tenant])
        current = await self._user_access.read_user_and_grants(holder, version)
        if current is None:
            raise Unauthenticated("the user does not exist or is disabled")
        slots = acquire_slots(
            self._open, self._slot_limits(holder, "websockets"), holder.tenant, RETRY_AFTER_SECONDS
        )
        return MqttListener(current[0], credential, current[1], live_socket), slots

    def set_key_count(self, subscriber: Subscriber, number: int) -> None:
        """Set the number of keys that a socket subscribes to, and count it in the limits.

        Raises `TooManyRequests` if the user or the tenant has too many; then the socket has none.
        """
        user = subscriber.principal
        slot_limits = self._slot_limits(user, "websocketKeys")
        self._keys.release(slot_limits, subscriber.counted_keys)
        subscriber.counted_keys = 0
        if number:
            acquire_slots(self._keys, slot_limits, user.tenant, RETRY_AFTER_SECONDS, number)
            subscriber.counted_keys = number

    def _slot_limits(self, user: Principal, name: str) -> list[SlotLimit]:
        """Return the slot limits of a user and its tenant."""
        user_limit_name = f"each{name[0].upper()}{name[1:]}"
        limits = msgspec.to_builtins(self._limits.get(user.tenant))
        user_limit = (
            _user_key(user.tenant, user.subject),
            limits[user_limit_name],
            user_limit_name,
        )
        return [user_limit, (user.tenant, limits[name], name)]

    async def measure_usage(self, request: UsageRequest) -> Usage:
        """Return how much a user and its tenant use of each limit of live updates."""
        return {
            "websockets": self._open.occupied(request.tenant),
            "eachWebsockets": self._open.occupied(_user_key(request.tenant, request.subject)),
            "websocketKeys": self._keys.occupied(request.tenant),
            "eachWebsocketKeys": self._keys.occupied(_user_key(request.tenant, request.subject)),
        }


def _user_key(tenant: str, subject: str) -> str:
    return f"{tenant}/{subject}"
