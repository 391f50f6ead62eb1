"""Lets users into the bus in one round trip to Redis: may it log in now, with this MQTT client id?

Who comes with a client id takes over the MQTT session of it, whosever it is: nats-server knows one
space of ids. So an id belongs to the device that uses it: its SN always, as the record has it
(another spelling is an id like any), any other one as long as no other device has it. A device has
a few ids; with a further one it loses the oldest, whose session is deleted.
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
from libs.common.bus.streams import DAY, SESSION_DAYS, SESSIONS
from libs.common.clock import now_ms
from libs.common.contracts.auth import Connection
from libs.common.identity.users import TENANT_LIFE, tenant_key
from libs.common.jobs import Beside
from libs.common.limits import TAKE, bucket_key
from libs.common.store.redis import Redis
from services.auth.callout.permissions import MOST_CLIENTS, Admission
from services.auth.connections import (
    KEPT,
    LIFE,
    AdmissionRecord,
    admissions_key,
    barred_key,
)
from services.auth.device_credentials import DeviceStore

log = logging.getLogger(__name__)

LOG_IN_RATE = 1.0
"""Log-ins per second of one device, application or integration."""
LOG_IN_BURST = 60
"""Log-ins that it may make at once."""
MOST = 8
"""Client ids of a device beside its SN."""
CLAIM_LIFE = int(SESSION_DAYS * DAY)
"""Seconds that an id stays with its device; nats-server keeps its session no longer."""
DELETIONS = 1000
"""Sessions that wait to be deleted; of more the server keeps what it has until its end."""
WAIT = 5.0
"""Seconds that nats-server gets to answer."""
OTHERS, OWN, NEW = range(3)
"""Whose an id was (`admit.lua`)."""
_PREFIX = "tw:mqtt-id:"
_DIGITS = (string.digits + string.ascii_uppercase + string.ascii_lowercase).encode()


class Entry(NamedTuple):
    """What came of a log-in with the right credentials."""

    wait: float = 0.0
    """Seconds until it may be tried again; 0 when it was let in."""
    kept: int = 0
    """How many admissions of the user are known, this one too."""


class _Session(msgspec.Struct):
    error: Any = None


class AdmissionRegistry:
    """Takes note of who comes in, and gives MQTT client ids to devices."""

    def __init__(
        self,
        redis: Redis,
        devices: DeviceStore,
        bus: Bus,
        doors: Sequence[Mapping[str, Any]],
        user: str,
        password: str,
    ) -> None:
        """`doors` are where MQTT is (`mqtt_doors`), `user` and `password` open them."""
        self._redis = redis
        self._devices = devices
        self._bus = bus
        self._doors = doors
        self._user = user
        self._password = password
        script = Path(__file__).with_name("admit.lua").read_text()
        self._admit = redis.register_script(TAKE + script)
        self._deleting = Beside()

    async def enter(
        self, admission: Admission, connection: Connection, client_id: str | None
    ) -> Entry | None:
        """Note an admission; None when the MQTT `client_id` is another device's.

        An id that is new is claimed before the SNs are looked at, and an SN is released after
        its device got a key: one of both sees the other.
        """
        user, key = admission.name, admission.name.upper()
        entry = msgspec.json.encode(
            AdmissionRecord(connection.server, connection.cid, admission.credential, now_ms())
        ).decode()
        keys = [
            bucket_key("bus", f"log-in:{key}"),
            admissions_key(user),
            tenant_key(user),
            barred_key(user),
        ]
        args: list[Any] = [LOG_IN_RATE, LOG_IN_BURST, entry, KEPT, LIFE]
        args += [admission.tenant, TENANT_LIFE]
        if client_id not in {None, user}:
            keys += [f"{_PREFIX}{client_id}", f"tw:mqtt-ids:{key}"]
            most = MOST_CLIENTS if admission.shared else MOST
            args += [key, client_id, CLAIM_LIFE, most, _PREFIX]
        whose, wait_ms, kept, *lost = await self._admit(keys=keys, args=args)
        if whose == OTHERS:
            return None
        new = client_id if client_id and whose == NEW and client_id.upper() != key else None
        if new and await self._devices.get(new):
            await self.release(new)
            await self._redis.lrem(admissions_key(user), 1, entry)
            return None
        for one in lost:
            if len(self._deleting) < DELETIONS:
                self._deleting.begin(one, partial(self._delete, one.decode()))
        return Entry(wait_ms / 1000, kept)

    async def release(self, client_id: str) -> None:
        """Take an id from the device that has claimed it, as it is the SN of another one."""
        await self._redis.delete(f"{_PREFIX}{client_id}")

    async def stop(self) -> None:
        """Leave what is not deleted yet to its end on the server."""
        await self._deleting.stop()

    async def _delete(self, client_id: str) -> None:
        """Delete a session at the first server that lets in."""
        for door in self._doors:
            try:
                if await self._exists(client_id):
                    await self._replace(client_id, door)
            except (aiomqtt.MqttError, NatsError, TimeoutError) as error:
                log.warning("the MQTT session %r was not deleted: %r", client_id, error)
            else:
                return

    async def _replace(self, client_id: str, door: Mapping[str, Any]) -> None:
        """Delete a session as MQTT does it: by a clean one with the same id."""
        async with aiomqtt.Client(
            **door,
            username=self._user,
            password=self._password,
            identifier=client_id,
            timeout=WAIT,
        ):
            pass

    async def _exists(self, client_id: str) -> bool:
        subject = f"$MQTT.sess.{_hash(client_id)}"
        answer = await self._bus.client.request(
            f"$JS.API.STREAM.MSG.GET.{SESSIONS}",
            msgspec.json.encode({"last_by_subj": subject}),
            timeout=WAIT,
        )
        return msgspec.json.decode(answer.data, type=_Session).error is None


def _hash(client_id: str) -> str:
    """Under which nats-server keeps a session (2.15: 8 digits of a SHA-256)."""
    digest = hashlib.sha256(client_id.encode()).digest()[:8]
    return bytes(_DIGITS[byte % len(_DIGITS)] for byte in digest).decode()
