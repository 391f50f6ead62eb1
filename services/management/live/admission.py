"""Lets pages in over MQTT by a password that `auth` gave, and counts them and subscribed keys."""

import msgspec

from libs.common.contracts.limits import AskUse
from libs.common.contracts.mqtt import live_user
from libs.common.errors import Unauthenticated
from libs.common.identity import Principal
from libs.common.identity.tokens import live_key
from libs.common.limits.counts import Claim, Counts, Held, taken
from libs.common.limits.tenants import KnownLimits
from libs.common.limits.use import Use
from libs.common.mqtt import Connect
from services.management.live.closing import Closer
from services.management.live.exchange import MqttListener
from services.management.live.store import Credentials, Judge
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
        held = taken(self._open, self._claims(holder, "websockets"), holder.tenant, AGAIN)
        return MqttListener(judged[0], credential, judged[1], closer), held

    def count_keys(self, subscriber: Subscriber, number: int) -> None:
        """Count the keys that a socket subscribes to instead of those before.

        Raises `TooManyRequests` when its user or tenant has too many; then it counts none.
        """
        user = subscriber.principal
        claims = self._claims(user, "websocketKeys")
        self._keys.give(claims, subscriber.counted)
        subscriber.counted = 0
        if number:
            taken(self._keys, claims, user.tenant, AGAIN, number)
            subscriber.counted = number

    def _claims(self, user: Principal, name: str) -> list[Claim]:
        """Return what a user and its tenant may have of a limit."""
        limits, each = msgspec.to_builtins(self._limits.of(user.tenant)), f"eachW{name[1:]}"
        user_claim = (_key(user.tenant, user.subject), limits[each], each)
        return [user_claim, (user.tenant, limits[name], name)]

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
