"""Admits NATS users in one round trip to Redis, and reserves MQTT client ids.

A client that connects with an MQTT client id takes over the session of that id, because nats-server
has one namespace of ids for all users. So each id belongs to one user. A device always owns its SN
(in the exact spelling) as id. It reserves any other id, unless another user has reserved the id or
the id is the SN of another device. A device reserves up to `MAX_EXTRA_CLIENT_IDS` ids, an access
key up to `MAX_CLIENTS_PER_ACCESS_KEY`. With one more, the oldest id is released, and its session is
deleted.
"""

import hashlib
import logging
import string
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import aiomqtt
import msgspec
from nats.errors import Error as NatsError

from libs.common.bus import Bus
from libs.common.bus.streams import DAY_SECONDS, SESSION_DAYS, SESSIONS
from libs.common.clock import now_ms
from libs.common.contracts.auth import Connection
from libs.common.identity.users import TENANT_LIFETIME_SECONDS, user_tenant_key
from libs.common.jobs import NamedTasks
from libs.common.limits import TAKE_SCRIPT, bucket_key
from libs.common.store.redis import Redis
from services.auth.callout.permissions import MAX_CLIENTS_PER_ACCESS_KEY, Admission
from services.auth.connections import (
    ADMISSION_RETENTION_SECONDS,
    MAX_STORED_ADMISSIONS_PER_USER,
    AdmissionRecord,
    admissions_key,
    user_block_key,
)
from services.auth.device_credentials import DeviceCredentialStore

log = logging.getLogger(__name__)

USER_LOGINS_PER_SECOND = 1.0
"""Maximum logins per second of one NATS user, after a burst."""
MAX_USER_LOGIN_BURST = 60
"""Maximum logins at once of one NATS user."""
MAX_EXTRA_CLIENT_IDS = 8
"""Maximum client ids of a device in addition to its SN."""
CLIENT_ID_RESERVATION_SECONDS = int(SESSION_DAYS * DAY_SECONDS)
"""Seconds for which an MQTT client id stays reserved; nats-server keeps its session as long."""
MAX_WAITING_SESSION_DELETIONS = 1000
"""Maximum MQTT sessions waiting to be deleted. Further sessions expire in nats-server."""
REQUEST_TIMEOUT_SECONDS = 5.0
"""Timeout of requests to nats-server, in seconds."""
OTHER_OWNER, SAME_OWNER, NO_OWNER = range(3)
"""Previous owner of a client id, as `admit.lua` returns it."""
_CLIENT_ID_KEY_PREFIX = "tw:mqtt-id:"
_SESSION_HASH_ALPHABET = (string.digits + string.ascii_uppercase + string.ascii_lowercase).encode()


class AdmissionResult(NamedTuple):
    """The result of a login with valid credentials."""

    wait: float = 0.0
    """Seconds until the next attempt is allowed; 0 if the user was admitted."""
    kept: int = 0
    """Number of stored admissions of the user, including this one."""


class _SessionReply(msgspec.Struct):
    error: Any = None


class AdmissionRegistry:
    """Registers admissions, and reserves MQTT client ids for devices and access keys."""

    def __init__(
        self,
        redis: Redis,
        devices: DeviceCredentialStore,
        bus: Bus,
        endpoints: Sequence[Mapping[str, Any]],
        user: str,
        password: str,
    ) -> None:
        """Use `endpoints` (`tls.parse_mqtt_urls`) as `user` to delete MQTT sessions."""
        self._redis = redis
        self._devices = devices
        self._bus = bus
        self._endpoints = endpoints
        self._user = user
        self._password = password
        script = Path(__file__).with_name("admit.lua").read_text()
        self._admit = redis.register_script(TAKE_SCRIPT + script)
        self._deleting = NamedTasks()

    async def admit(
        self, admission: Admission, connection: Connection, client_id: str | None
    ) -> AdmissionResult | None:
        """Register an admission; return None if another user owns `client_id`.

        A new id is reserved first and then compared with all SNs. A new device gets its key first,
        and then a reservation of its SN by another device is deleted. So if both happen
        concurrently, at least one sees the other.
        """
        user, key = admission.name, admission.name.upper()
        entry = msgspec.json.encode(
            AdmissionRecord(connection.server, connection.cid, admission.credential, now_ms())
        ).decode()
        keys = [
            bucket_key("bus", f"log-in:{key}"),
            admissions_key(user),
            user_tenant_key(user),
            user_block_key(user),
        ]
        args: list[Any] = [
            USER_LOGINS_PER_SECOND,
            MAX_USER_LOGIN_BURST,
            entry,
            MAX_STORED_ADMISSIONS_PER_USER,
            ADMISSION_RETENTION_SECONDS,
        ]
        args += [admission.tenant, TENANT_LIFETIME_SECONDS]
        client_ids_key = f"tw:mqtt-ids:{key}"
        if client_id not in {None, user}:
            keys += [f"{_CLIENT_ID_KEY_PREFIX}{client_id}", client_ids_key]
            maximum = MAX_CLIENTS_PER_ACCESS_KEY if admission.shared else MAX_EXTRA_CLIENT_IDS
            args += [key, client_id, CLIENT_ID_RESERVATION_SECONDS, maximum, _CLIENT_ID_KEY_PREFIX]
        owner, wait_ms, admissions, *evicted = await self._admit(keys=keys, args=args)
        for evicted_id in evicted:
            if len(self._deleting) < MAX_WAITING_SESSION_DELETIONS:
                self._deleting.start(evicted_id, partial(self._delete_session, evicted_id.decode()))
        if owner == OTHER_OWNER:
            return None
        new = client_id if client_id and owner == NO_OWNER and client_id.upper() != key else None
        if new and await self._devices.get(new):
            await self.release_client_id(new)
            await self._redis.zrem(client_ids_key, new)
            await self._redis.lrem(admissions_key(user), 1, entry)
            return None
        return AdmissionResult(wait_ms / 1000, admissions)

    async def release_client_id(self, client_id: str) -> None:
        """Delete another user's reservation of `client_id`, which is the SN of a device."""
        await self._redis.delete(f"{_CLIENT_ID_KEY_PREFIX}{client_id}")

    async def stop(self) -> None:
        """Stop deleting sessions; nats-server expires the rest."""
        await self._deleting.stop()

    async def _delete_session(self, client_id: str) -> None:
        """Delete a session at the first endpoint that answers."""
        for endpoint in self._endpoints:
            try:
                if await self._session_exists(client_id):
                    await self._delete_by_clean_session(client_id, endpoint)
            except (aiomqtt.MqttError, NatsError, TimeoutError) as error:
                log.warning("the MQTT session %r was not deleted: %r", client_id, error)
            else:
                return

    async def _delete_by_clean_session(self, client_id: str, endpoint: Mapping[str, Any]) -> None:
        """Delete a session as MQTT defines it: by a clean session with the same id."""
        async with aiomqtt.Client(
            **endpoint,
            username=self._user,
            password=self._password,
            identifier=client_id,
            timeout=REQUEST_TIMEOUT_SECONDS,
        ):
            pass

    async def _session_exists(self, client_id: str) -> bool:
        subject = f"$MQTT.sess.{_hash_session_id(client_id)}"
        answer = await self._bus.client.request(
            f"$JS.API.STREAM.MSG.GET.{SESSIONS}",
            msgspec.json.encode({"last_by_subj": subject}),
            timeout=REQUEST_TIMEOUT_SECONDS,
        )
        return msgspec.json.decode(answer.data, type=_SessionReply).error is None


def _hash_session_id(client_id: str) -> str:
    """Return the session's key in nats-server 2.15: 8 characters of a SHA-256."""
    digest = hashlib.sha256(client_id.encode()).digest()[:8]
    return bytes(
        _SESSION_HASH_ALPHABET[byte % len(_SESSION_HASH_ALPHABET)] for byte in digest
    ).decode()
