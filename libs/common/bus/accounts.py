"""The accounts of nats-server, and the names of connections in them (docs/decisions/0020)."""

ACCOUNT = "THINGWAY"
"""JetStream, the services, and the devices that speak MQTT."""
OUTSIDE = "OUTSIDE"
"""Every other connection from outside: devices, applications and integrations on plain NATS."""
ACCOUNTS = (ACCOUNT, OUTSIDE)
"""Those that connections from outside are put into."""
MQTT_SUBSCRIPTIONS = 100
"""Of one MQTT connection; one of QoS 1 is two."""
OUTSIDE_SUBSCRIPTIONS = 1000
"""Of one connection in `OUTSIDE`."""

APPLICATION_PREFIX = "app."


def application_user(client_id: str) -> str:
    """The name of an application's connections; the dot keeps it apart from every SN."""
    return f"{APPLICATION_PREFIX}{client_id}"


def inbox(user: str) -> str:
    """Where a user of the bus hears answers: the prefix of their subjects."""
    return f"_INBOX.{user}"


def device_inbox(sn: str) -> str:
    """The same of a device, below `sn.`.

    An SN is chosen outside, and a device called `auth` must not hear the replies to the service
    of that name.
    """
    return inbox(f"sn.{sn}")
