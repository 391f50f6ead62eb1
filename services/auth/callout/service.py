"""Answers NATS's auth callout on `$SYS.REQ.USER.AUTH`, in turns of tenants.

The tenant is the one that the user name logged in for last. Names that have not logged in yet
share one lane, because anybody can invent them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from libs.common.bus import Bus
from libs.common.bus.nkeys import KeyPair
from libs.common.contracts.auth import Connection
from libs.common.errors import TooManyRequests
from libs.common.identity.users import TenantsOfUsers
from libs.common.jobs import Beside
from libs.common.scheduling import FairScheduler, LaneFull
from services.auth.callout.jwt import (
    AuthorizationRequest,
    InvalidRequestError,
    accept,
    decode_request,
    refuse,
    user_jwt,
)
from services.auth.callout.login_authorizer import LoginAuthorizer

log = logging.getLogger(__name__)

SUBJECT = "$SYS.REQ.USER.AUTH"
MQTT = "mqtt"
HELD = 1.5
"""Seconds that a refusal is held back from who comes too often: nats-server, which gives a log-in
five, has the less to do with it. Clients wait for two or longer."""
MOST_HELD = 2_000
"""Refusals that are held back at a time; more are told at once."""
CONCURRENCY = 16
"""Log-ins that are handled at a time, half of them of one tenant alone. More would not be quicker,
and a crowd would use up the process although others have a turn."""
WAITING = 2_000
"""Log-ins of a tenant that wait; more are refused: nats-server gives up those that wait longer."""
LOOK_UPS = "?"
"""The lane in which the tenants of user names are looked up; no tenant has this name."""

_Step = Callable[[Msg, AuthorizationRequest], Coroutine[Any, Any, None]]


class Callout:
    """The subscription; replicas share the requests as one queue group."""

    def __init__(
        self, bus: Bus, doorkeeper: LoginAuthorizer, key: KeyPair, tenants: TenantsOfUsers
    ) -> None:
        self._bus = bus
        self._doorkeeper = doorkeeper
        self._key = key
        self._tenants = tenants
        self._log_ins = FairScheduler("bus log-ins", CONCURRENCY, items=WAITING)
        self._held = Beside()
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Begin to answer."""
        self._subscription = await self._bus.client.subscribe(SUBJECT, queue="auth", cb=self._take)

    async def stop(self) -> None:
        """Stop taking requests and finish those in hand."""
        if self._subscription and self._bus.connected:
            await self._subscription.unsubscribe()
        await self._log_ins.finish()
        await self._held.stop()

    async def _take(self, message: Msg) -> None:
        try:
            request = decode_request(message.data)
        except InvalidRequestError as error:
            log.warning("callout: %s", error)
            return
        tenant = self._tenants.known(request.connect_opts.user)
        if tenant is None:
            self._begin(LOOK_UPS, self._look_up, message, request)
        else:
            self._begin(tenant, self._answer, message, request)

    def _begin(self, lane: str, step: _Step, message: Msg, request: AuthorizationRequest) -> None:
        try:
            self._log_ins.start(lane, partial(step, message, request), size=len(message.data))
        except LaneFull as error:
            self._refuse_later(message, request, error)

    async def _look_up(self, message: Msg, request: AuthorizationRequest) -> None:
        tenant = await self._tenants.find(request.connect_opts.user)
        self._begin(tenant, self._answer, message, request)

    async def _answer(self, message: Msg, request: AuthorizationRequest) -> None:
        try:
            await self._tell(message, await self._decide(request))
        except TooManyRequests as error:
            self._refuse_later(message, request, error)

    def _refuse_later(
        self, message: Msg, request: AuthorizationRequest, error: TooManyRequests
    ) -> None:
        """Refuse after `HELD` seconds, or at once when many refusals are held back."""
        answer = refuse(request, str(error), self._key)
        late = self._tell_later if len(self._held) < MOST_HELD else self._tell
        connection = (request.server_id.id, request.client_info.id)
        self._held.begin(connection, partial(late, message, answer))

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
        self._tenants.learn(options.user, admission.tenant)
        user = user_jwt(
            request, name=admission.name, permissions=admission.permissions, key=self._key
        )
        return accept(request, user, self._key)
