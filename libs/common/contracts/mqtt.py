"""Logins of MQTT clients outside: pages with live updates, and credentials of tenants.

A user has a name of its own and hence a topic of its own. A password is 256 random bits and
belongs to one log-in; Redis has its SHA-256 only, with the user it stands for.
"""

import msgspec

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


MQTT_LOGIN = "rpc.workflow.mqtt_login"
CLOSE_MQTT_CLIENTS = "rpc.auth.close_mqtt_clients"

LOGIN_PREFIX = "flows."


def login_of(access_key: str) -> str:
    """The name of such a client's connections; the dot keeps it apart from every SN."""
    return f"{LOGIN_PREFIX}{access_key}"


class MqttLogin(msgspec.Struct, rename="camel"):
    """`mqtt_login`: may a client with this access key and secret come in?

    Without a secret: what is the credential now?
    """

    access_key: str
    secret: str | None = None

    def __repr__(self) -> str:
        return f"MqttLogin({self.access_key})"


class MqttLoggedIn(msgspec.Struct, rename="camel", omit_defaults=True):
    """Answer of `mqtt_login`; empty when it may not."""

    tenant: str = ""
    credential: str = ""
    """Another one with every secret."""


class CloseMqttClients(msgspec.Struct, rename="camel"):
    """`close_mqtt_clients`: those that came in with a credential that has changed."""

    access_key: str
