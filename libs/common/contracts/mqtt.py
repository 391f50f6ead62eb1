"""Logins of external MQTT clients: console pages with live updates, and credentials of tenants.

Each user has a name and hence a topic of its own. A password is 256 random bits and belongs to one
login; Redis stores only its SHA-256 with the user.
"""

import msgspec

HAS_LIVE_PAGES = "rpc.auth.has_live_pages"
MQTT_WEBSOCKET_PATH = "/mqtt"
"""The path of MQTT over WebSocket on the gateway's port."""


class LoginRef(msgspec.Struct):
    """`has_live_pages`: a login, by its token family."""

    family: str


class LivePages(msgspec.Struct):
    """Answer of `has_live_pages`: whether a page of the login has a live password."""

    any: bool


def live_mqtt_user(user_id: int) -> str:
    """Return the MQTT user name of a user, which has no special characters of topics."""
    return f"user-{user_id}"


def live_topic(username: str) -> str:
    """Return the only topic that a user may subscribe to."""
    return f"beaver-iot/{username}/downlink/web/exchange"


MQTT_LOGIN = "rpc.workflow.mqtt_login"
CLOSE_MQTT_CLIENTS = "rpc.auth.close_mqtt_clients"

CLIENT_USER_PREFIX = "flows."


def mqtt_client_user(access_key: str) -> str:
    """Return the NATS user of an MQTT client; the dot distinguishes it from any SN."""
    return f"{CLIENT_USER_PREFIX}{access_key}"


class MqttLogin(msgspec.Struct, rename="camel"):
    """`mqtt_login`: check an access key and a secret.

    Without a secret, only return the current credential.
    """

    access_key: str
    secret: str | None = None

    def __repr__(self) -> str:
        return f"MqttLogin({self.access_key})"


class MqttLoggedIn(msgspec.Struct, rename="camel", omit_defaults=True):
    """Answer of `mqtt_login`; empty if the login is rejected."""

    tenant: str = ""
    credential: str = ""
    """Changes with every secret."""


class CloseMqttClients(msgspec.Struct, rename="camel"):
    """`close_mqtt_clients`: disconnect the clients of a changed credential."""

    access_key: str
