"""Responds to the NATS auth callout on `$SYS.REQ.USER.AUTH`, fairly by tenant.

A user name counts for the tenant of its latest login. Unknown user names share one lane, because
anyone can invent them.
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
from libs.common.identity.users import UserTenants
from libs.common.jobs import NamedTasks
from libs.common.scheduling import FairScheduler, LaneFull
from services.auth.callout.jwt import (
    AuthorizationRequest,
    InvalidRequestError,
    build_acceptance,
    build_rejection,
    build_user_jwt,
    decode_request,
)
from services.auth.callout.login_authorizer import LoginAuthorizer

log = logging.getLogger(__name__)

CALLOUT_SUBJECT = "$SYS.REQ.USER.AUTH"
MQTT_CLIENT_TYPE = "mqtt"
REJECTION_DELAY_SECONDS = 1.5
"""Seconds by which rejections for too many logins are delayed, to slow down the clients.
nats-server waits 5 seconds for an answer, and clients wait at least 2 seconds."""
MAX_DELAYED_REJECTIONS = 2_000
"""Maximum delayed rejections. Further rejections are sent immediately."""
MAX_CONCURRENT_LOGINS = 16
"""Maximum concurrent logins; one tenant may use half of them. More would not be faster and would
exhaust the process."""
MAX_WAITING_LOGINS_PER_TENANT = 2_000
"""Maximum waiting logins of a tenant; nats-server would time out further ones."""
TENANT_LOOKUP_LANE = "?"
"""Scheduler lane of the lookups of user names' tenants; no tenant has this name."""

_LoginStep = Callable[[Msg, AuthorizationRequest], Coroutine[Any, Any, None]]


class Callout:
    """The callout subscription. Replicas share the requests as one queue group."""

    def __init__(
        self, bus: Bus, authorizer: LoginAuthorizer, key: KeyPair, tenants: UserTenants
    ) -> None:
        self._bus = bus
        self._authorizer = authorizer
        self._key = key
        self._tenants = tenants
        self._log_ins = FairScheduler(
            "bus log-ins", MAX_CONCURRENT_LOGINS, items=MAX_WAITING_LOGINS_PER_TENANT
        )
        self._delayed = NamedTasks()
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Subscribe to callout requests."""
        self._subscription = await self._bus.client.subscribe(
            CALLOUT_SUBJECT, queue="auth", cb=self._handle
        )

    async def stop(self) -> None:
        """Unsubscribe and finish pending requests."""
        if self._subscription and self._bus.is_connected:
            await self._subscription.unsubscribe()
        await self._log_ins.finish()
        await self._delayed.stop()

    async def _handle(self, message: Msg) -> None:
        try:
            request = decode_request(message.data)
        except InvalidRequestError as error:
            log.warning("callout: %s", error)
            return
        tenant = self._tenants.known(request.connect_opts.user)
        if tenant is None:
            self._schedule(TENANT_LOOKUP_LANE, self._look_up_tenant, message, request)
        else:
            self._schedule(tenant, self._answer, message, request)

    def _schedule(
        self, lane: str, step: _LoginStep, message: Msg, request: AuthorizationRequest
    ) -> None:
        try:
            self._log_ins.start(lane, partial(step, message, request), size=len(message.data))
        except LaneFull as error:
            self._reject_later(message, request, error)

    async def _look_up_tenant(self, message: Msg, request: AuthorizationRequest) -> None:
        tenant = await self._tenants.find(request.connect_opts.user)
        self._schedule(tenant, self._answer, message, request)

    async def _answer(self, message: Msg, request: AuthorizationRequest) -> None:
        try:
            await self._respond(message, await self._build_answer(request))
        except TooManyRequests as error:
            self._reject_later(message, request, error)

    def _reject_later(
        self, message: Msg, request: AuthorizationRequest, error: TooManyRequests
    ) -> None:
        """Reject after a delay, or at once if too many rejections are delayed."""
        answer = build_rejection(request, str(error), self._key)
        respond = (
            self._respond_later if len(self._delayed) < MAX_DELAYED_REJECTIONS else self._respond
        )
        connection = (request.server_id.id, request.client_info.id)
        self._delayed.start(connection, partial(respond, message, answer))

    async def _respond_later(self, message: Msg, answer: bytes) -> None:
        await asyncio.sleep(REJECTION_DELAY_SECONDS)
        await self._respond(message, answer)

    async def _respond(self, message: Msg, answer: bytes) -> None:
        try:
            await message.respond(answer)
        except NatsError as error:
            log.warning("callout: the response was not sent: %r", error)

    async def _build_answer(self, request: AuthorizationRequest) -> bytes:
        options, client = request.connect_opts, request.client_info
        try:
            admission = await self._authorizer.admit(
                options.user,
                options.password,
                client.host,
                Connection(request.server_id.id, client.id),
                client.mqtt_id if client.type == MQTT_CLIENT_TYPE else None,
            )
        except TooManyRequests:
            raise
        except Exception:
            log.exception("callout: a login could not be verified")
            return build_rejection(request, "the login cannot be verified at the moment", self._key)
        if admission is None:
            return build_rejection(request, "wrong credentials", self._key)
        self._tenants.remember(options.user, admission.tenant)
        user = build_user_jwt(
            request, name=admission.name, permissions=admission.permissions, key=self._key
        )
        return build_acceptance(request, user, self._key)
