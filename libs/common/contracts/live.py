"""What a page of a console hears live updates over MQTT with: `auth` gives it, `management` checks.

A user has a name of its own and hence a topic of its own. A password is 256 random bits and
belongs to one log-in; Redis has its SHA-256 only, with the user it stands for.
"""

import msgspec

from libs.common.identity.tokens import token_hash

HAS_LIVE_PAGES = "rpc.auth.has_live_pages"
WS_PATH = "/mqtt"
"""Where MQTT is spoken over WebSocket, on the gateway's own port."""


class LoginRef(msgspec.Struct):
    """`has_live_pages`: a log-in, by its token family."""

    family: str


class LivePages(msgspec.Struct):
    """Answer of `has_live_pages`: whether any page of the log-in has got a live password."""

    any: bool


def live_user(user_id: int) -> str:
    """The MQTT user name of a user; it has none of the characters that mean something in topics."""
    return f"user-{user_id}"


def live_topic(username: str) -> str:
    """The only topic that a user may subscribe to."""
    return f"beaver-iot/{username}/downlink/web/exchange"


def live_key(password: str) -> str:
    """Where Redis has the user of a password, for as long as its log-in lasts."""
    return f"tw:live:{token_hash(password)}"
