"""Answers NATS's auth callout on `$SYS.REQ.USER.AUTH`, a bounded number at a time."""

import asyncio
import logging
from functools import partial

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from libs.common.bus import Bus
from libs.common.bus.nkeys import KeyPair
from libs.common.contracts.auth import Connection
from libs.common.errors import TooManyRequests
from libs.common.jobs import Beside, Bounded
from services.auth.callout.jwt import (
    AuthorizationRequest,
    InvalidRequestError,
    accept,
    decode_request,
    refuse,
    user_jwt,
)
from services.auth.callout.service import Doorkeeper

log = logging.getLogger(__name__)

SUBJECT = "$SYS.REQ.USER.AUTH"
MQTT = "mqtt"
HELD = 1.5
"""Seconds that a refusal is held back from who comes too often: nats-server, which gives a log-in
five, has the less to do with it. Clients wait for two or longer."""
MOST_HELD = 2_000
"""Refusals that are held back at a time; more are told at once."""
CONCURRENCY = 64
"""Log-ins in hand at a time; the others wait in the subscription."""


class Callout:
    """The subscription; replicas share the requests as one queue group."""

    def __init__(self, bus: Bus, doorkeeper: Doorkeeper, key: KeyPair) -> None:
        self._bus = bus
        self._doorkeeper = doorkeeper
        self._key = key
        self._in_hand = Bounded(CONCURRENCY)
        self._held = Beside()
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Begin to answer."""
        self._subscription = await self._bus.client.subscribe(SUBJECT, queue="auth", cb=self._take)

    async def stop(self) -> None:
        """Stop taking requests and finish those in hand."""
        if self._subscription and self._bus.connected:
            await self._subscription.unsubscribe()
        await self._in_hand.finish()
        await self._held.stop()

    async def _take(self, message: Msg) -> None:
        await self._in_hand.begin(partial(self._answer, message))

    async def _answer(self, message: Msg) -> None:
        try:
            request = decode_request(message.data)
        except InvalidRequestError as error:
            log.warning("callout: %s", error)
            return
        try:
            answer = await self._decide(request)
        except TooManyRequests as error:
            answer = refuse(request, str(error), self._key)
            if len(self._held) < MOST_HELD:
                connection = (request.server_id.id, request.client_info.id)
                self._held.begin(connection, partial(self._tell_later, message, answer))
                return
        await self._tell(message, answer)

    async def _tell_later(self, message: Msg, answer: bytes) -> None:
        await asyncio.sleep(HELD)
        await self._tell(message, answer)

    async def _tell(self, message: Msg, answer: bytes) -> None:
        try:
            await message.respond(answer)
        except NatsError as error:
            log.warning("callout: the answer could not be sent: %r", error)

    async def _decide(self, request: AuthorizationRequest) -> bytes:
        options, client = request.connect_opts, request.client_info
        try:
            admission = await self._doorkeeper.admit(
                options.user,
                options.password,
                client.host,
                Connection(request.server_id.id, client.id),
                client.mqtt_id if client.type == MQTT else None,
            )
        except TooManyRequests:
            raise
        except Exception:
            log.exception("callout: a log-in could not be checked")
            return refuse(request, "the log-in cannot be checked at the moment", self._key)
        if admission is None:
            return refuse(request, "wrong credentials", self._key)
        user = user_jwt(
            request, name=admission.name, permissions=admission.permissions, key=self._key
        )
        return accept(request, user, self._key)
