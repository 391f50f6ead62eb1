"""Whose an MQTT client id is, and how many sessions a device has.

nats-server knows one space of client ids: who comes with an id takes the session over that has it,
whosever it is. So an id belongs to the device that uses it: its SN always, as the record has it
(another spelling is an id like any), any other one as long as no other device has it. A device has
a few ids; with a further one it loses the oldest, whose session is deleted.
"""

import hashlib
import logging
import string
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiomqtt
import msgspec
from nats.errors import Error as NatsError

from libs.common.bus import Bus
from libs.common.bus.streams import DAY, SESSION_DAYS, SESSIONS
from libs.common.jobs import Beside
from libs.common.store.redis import Redis
from services.auth.devices.store import DeviceStore

log = logging.getLogger(__name__)

MOST = 8
"""Client ids of a device beside its SN."""
LIFE = int(SESSION_DAYS * DAY)
"""Seconds that an id stays with its device; nats-server keeps its session no longer."""
DELETIONS = 1000
"""Sessions that wait to be deleted; of more the server keeps what it has until its end."""
WAIT = 5.0
"""Seconds that nats-server gets to answer."""
OTHERS, OWN, NEW = range(3)
"""Whose an id was (`claim.lua`)."""
_PREFIX = "tw:mqtt-id:"
_DIGITS = (string.digits + string.ascii_uppercase + string.ascii_lowercase).encode()


class _Session(msgspec.Struct):
    error: Any = None


class MqttSessions:
    """Gives client ids to devices."""

    def __init__(
        self, redis: Redis, devices: DeviceStore, bus: Bus, url: str, user: str, password: str
    ) -> None:
        """`url` is the MQTT door, `user` and `password` open it for a service."""
        self._redis = redis
        self._devices = devices
        self._bus = bus
        self._door = urlsplit(url)
        self._user = user
        self._password = password
        self._claim = redis.register_script(Path(__file__).with_name("claim.lua").read_text())
        self._deleting = Beside()

    async def claim(self, sn: str, client_id: str) -> bool:
        """Tell whether the device `sn` may come with `client_id`, which is its own from now on.

        An id that is new is claimed before the SNs are looked at, and an SN is released after
        its device got a key: one of both sees the other.
        """
        if client_id == sn:
            return True
        key = sn.upper()
        whose, *lost = await self._claim(
            keys=[f"{_PREFIX}{client_id}", f"tw:mqtt-ids:{key}"],
            args=[key, client_id, LIFE, MOST, _PREFIX],
        )
        if whose == NEW and client_id.upper() != key and await self._devices.get(client_id):
            await self.release(client_id)
            return False
        for one in lost:
            if len(self._deleting) < DELETIONS:
                self._deleting.begin(one, partial(self._delete, one.decode()))
        return bool(whose != OTHERS)

    async def release(self, client_id: str) -> None:
        """Take an id from the device that has claimed it, as it is the SN of another one."""
        await self._redis.delete(f"{_PREFIX}{client_id}")

    async def stop(self) -> None:
        """Leave what is not deleted yet to its end on the server."""
        await self._deleting.stop()

    async def _delete(self, client_id: str) -> None:
        """Delete a session as MQTT does it: by a clean one with the same id."""
        try:
            if await self._exists(client_id):
                async with aiomqtt.Client(
                    self._door.hostname or "",
                    self._door.port or 1883,
                    username=self._user,
                    password=self._password,
                    identifier=client_id,
                    timeout=WAIT,
                ):
                    pass
        except (aiomqtt.MqttError, NatsError, TimeoutError) as error:
            log.warning("the MQTT session %r was not deleted: %r", client_id, error)

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
