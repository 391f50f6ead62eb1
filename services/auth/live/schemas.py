"""Live updates over MQTT on the wire."""

import msgspec

from libs.common.http.console import Shown


class LiveCredentials(msgspec.Struct):
    """Answer of `GET /mqtt/web/credentials`; shown only here."""

    client_id: str
    """Of this page alone."""
    username: str
    password: str


class BrokerInfo(Shown, kw_only=True):
    """Answer of `GET /mqtt/broker-info`.

    Neither host nor WebSocket ports: a console takes those of its page, which the gateway serves.
    """

    ws_path: str
    mqtt_port: int | None = None
    """Where devices and other clients speak MQTT; None when nobody said."""
    mqtts_port: int | None = None
    """The same over TLS."""
