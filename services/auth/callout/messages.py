"""Answers NATS's auth callout on `$SYS.REQ.USER.AUTH`, a bounded number at a time."""

import logging
from functools import partial

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from libs.common.bus import Bus
from libs.common.bus.nkeys import KeyPair
from libs.common.jobs import Bounded
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
ACCOUNT = "THINGWAY"
"""The account that devices and applications are put into."""
CONCURRENCY = 64
"""Log-ins in hand at a time; the others wait in the subscription."""


class Callout:
    """The subscription; replicas share the requests as one queue group."""

    def __init__(self, bus: Bus, doorkeeper: Doorkeeper, key: KeyPair) -> None:
        self._bus = bus
        self._doorkeeper = doorkeeper
        self._key = key
        self._in_hand = Bounded(CONCURRENCY)
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Begin to answer."""
        self._subscription = await self._bus.client.subscribe(SUBJECT, queue="auth", cb=self._take)

    async def stop(self) -> None:
        """Stop taking requests and finish those in hand."""
        if self._subscription and self._bus.connected:
            await self._subscription.unsubscribe()
        await self._in_hand.finish()

    async def _take(self, message: Msg) -> None:
        await self._in_hand.begin(partial(self._answer, message))

    async def _answer(self, message: Msg) -> None:
        try:
            request = decode_request(message.data)
        except InvalidRequestError as error:
            log.warning("callout: %s", error)
            return
        try:
            await message.respond(await self._decide(request))
        except NatsError as error:
            log.warning("callout: the answer could not be sent: %r", error)

    async def _decide(self, request: AuthorizationRequest) -> bytes:
        options = request.connect_opts
        try:
            admission = await self._doorkeeper.admit(
                options.user, options.password, request.client_info.host
            )
        except Exception:
            log.exception("callout: a log-in could not be checked")
            return refuse(request, "the log-in cannot be checked at the moment", self._key)
        if admission is None:
            return refuse(request, "wrong credentials", self._key)
        user = user_jwt(
            request,
            name=admission.name,
            account=ACCOUNT,
            permissions=admission.permissions,
            key=self._key,
        )
        return accept(request, user, self._key)
