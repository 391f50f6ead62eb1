"""Lets pages in over MQTT by a password that `auth` gave, and counts them and subscribed keys."""

from libs.common.contracts.limits import AskUse
from libs.common.contracts.live import live_key, live_user
from libs.common.errors import Unauthenticated
from libs.common.identity import Principal
from libs.common.limits.counts import Counts, Held, taken
from libs.common.limits.tenants import KnownLimits
from libs.common.limits.use import Use
from libs.common.mqtt import Connect
from services.management.live.closing import Closer
from services.management.live.judging import Judge
from services.management.live.listener import MqttListener
from services.management.live.store import Credentials
from services.management.live.subscriber import Subscriber

AGAIN = 5.0
"""Seconds after which consoles try again."""


class Admission:
    """Judges CONNECT; counts connections by user and tenant, each replica its own."""

    def __init__(self, credentials: Credentials, judge: Judge, limits: KnownLimits) -> None:
        self._credentials = credentials
        self._judge = judge
        self._limits = limits
        self._open = Counts()
        self._keys = Counts()

    async def of(self, connect: Connect, closer: Closer) -> tuple[MqttListener, Held]:
        """The listener that a client is, and its share of the limits, to be given back.

        Raises `Unauthenticated`, `TooManyRequests`, and `Unavailable` without Redis or `auth`.
        """
        credential = live_key((connect.password or b"").decode(errors="replace"))
        holder = await self._credentials.holder(credential)
        if holder is None or connect.user != live_user(holder.user_id).encode():
            raise Unauthenticated("the user name or the password is wrong")
        if len(connect.fields) > 1:  # the client id alone, unless there is a will
            raise Unauthenticated("a will would be a publish, and nobody publishes here")
        (version,) = await self._credentials.versions([holder.tenant])
        judged = await self._judge.of(holder, version)
        if judged is None:
            raise Unauthenticated("the user is gone")
        held = self._take(holder)
        return MqttListener(judged[0], credential, judged[1], closer), held

    def _take(self, user: Principal) -> Held:
        limits = self._limits.of(user.tenant)
        claims = (
            (_key(user.tenant, user.subject), limits.each_websockets, "eachWebsockets"),
            (user.tenant, limits.websockets, "websockets"),
        )
        return taken(self._open, claims, user.tenant, AGAIN)

    def count_keys(self, subscriber: Subscriber, number: int) -> None:
        """Count the keys that a socket subscribes to instead of those before.

        Raises `TooManyRequests` when its user or tenant has too many; then it counts none.
        """
        user, limits = subscriber.principal, self._limits.of(subscriber.principal.tenant)
        claims = (
            (_key(user.tenant, user.subject), limits.each_websocket_keys, "eachWebsocketKeys"),
            (user.tenant, limits.websocket_keys, "websocketKeys"),
        )
        self._keys.give(claims, subscriber.counted)
        subscriber.counted = 0
        if number:
            taken(self._keys, claims, user.tenant, AGAIN, number)
            subscriber.counted = number

    async def use(self, asked: AskUse) -> Use:
        """What a user and its tenant have open, by the name of the limit."""
        return {
            "websockets": self._open.of(asked.tenant),
            "eachWebsockets": self._open.of(_key(asked.tenant, asked.subject)),
            "websocketKeys": self._keys.of(asked.tenant),
            "eachWebsocketKeys": self._keys.of(_key(asked.tenant, asked.subject)),
        }


def _key(tenant: str, subject: str) -> str:
    return f"{tenant}/{subject}"
