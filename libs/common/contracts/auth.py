"""What `auth` answers: `rpc.auth.{operation}`."""

import msgspec

from libs.common.contracts.integrations import IntegrationId


class CreateApplication(msgspec.Struct, rename="camel"):
    """`create_application`."""

    name: str
    tenant: str = "default"
    events: bool = False
    """May read its tenant's events on NATS."""


class ApplicationSecret(msgspec.Struct, rename="camel"):
    """An application with its secret, which is shown only here."""

    application_id: int
    name: str
    client_id: str
    client_secret: str


class Application(msgspec.Struct, rename="camel"):
    """An application as lists show it."""

    application_id: int
    name: str
    tenant: str
    client_id: str
    events: bool
    created_at: int


class Applications(msgspec.Struct):
    """Answer of `list_applications`."""

    applications: list[Application]


class ListApplications(msgspec.Struct):
    """`list_applications`, of one tenant."""

    tenant: str = "default"


class ApplicationRef(msgspec.Struct, rename="camel"):
    """`rotate_application_secret`, `delete_application`, `get_application`."""

    application_id: int
    tenant: str = "default"


class DeviceRef(msgspec.Struct, rename="camel"):
    """`issue_device_credentials` (a new key; the old one dies), `revoke_device_credentials`."""

    sn: str
    device_id: int
    tenant: str


class DeviceCredentials(msgspec.Struct):
    """A device's key, shown only here."""

    sn: str
    key: str


class DeviceLogin(msgspec.Struct):
    """`check_device`: does this key open this SN?"""

    sn: str
    key: str


class DeviceIdentity(msgspec.Struct, rename="camel"):
    """Answer of `check_device`."""

    sn: str
    device_id: int
    tenant: str


DISCONNECT = "rpc.device.disconnect"


class Disconnect(msgspec.Struct, frozen=True):
    """What `auth` asks of `device`: to close the live connections of a user of the bus."""

    sn: str
    """An SN, or the name of another user."""


class Done(msgspec.Struct):
    """An answer that says only that it is done."""

    done: bool = True


class IntegrationRef(msgspec.Struct):
    """`create_integration_login`, `rotate_integration_secret`, `delete_integration_login`."""

    integration: IntegrationId


class IntegrationSecret(msgspec.Struct):
    """The login of an external integration with its secret, which is shown only here."""

    integration: str
    user: str
    """Its NATS user."""
    secret: str


class IntegrationLogin(msgspec.Struct, rename="camel"):
    """A login as lists show it; `createdAt` in ms."""

    integration: str
    user: str
    created_at: int


class ListIntegrationLogins(msgspec.Struct):
    """`list_integration_logins`."""


class IntegrationLogins(msgspec.Struct):
    """Answer of `list_integration_logins`, by integration."""

    logins: list[IntegrationLogin]
