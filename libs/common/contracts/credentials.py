"""Credentials of tenants that MQTT clients outside log in with: `workflow` keeps them."""

import msgspec

LOGIN = "rpc.workflow.mqtt_login"
CLOSE = "rpc.auth.close_mqtt_clients"

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
