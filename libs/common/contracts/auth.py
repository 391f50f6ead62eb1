"""Requests to `auth` and their answers: `rpc.auth.{operation}`.

The operator asks about tenants, applications and users; services about devices and users.
"""

from typing import Literal

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
    """`issue_device_credentials` (a new key; the old one dies), `revoke_device_credentials`,
    `last_refused_login`."""

    sn: str
    device_id: int
    tenant: str


class FirstKeyWanted(DeviceRef, rename="camel"):
    """`issue_first_device_credentials`: a key unless there is one."""

    repeatable: bool = False
    """The key is answered again for 10 minutes, until the device logs in."""


Way = Literal["MQTT", "NATS", "HTTP"]
"""What a device speaks."""
Wrong = Literal["KEY", "CERTIFICATE", "SN"]
"""What of a log-in was wrong: SN where the key was right, and its SN written otherwise."""


class LastRefusedLogin(msgspec.Struct, omit_defaults=True):
    """Answer of `last_refused_login`; empty when none was refused of late."""

    at: int | None = None
    """ms, up to 5 s late."""
    over: Way | None = None
    wrong: Wrong | None = None


class DeviceCredentials(msgspec.Struct):
    """A device's key, shown only here."""

    sn: str
    key: str


class FirstDeviceKey(msgspec.Struct):
    """The key of a device that had none; None when it had one that cannot be shown again."""

    key: str | None


class DeviceLogin(msgspec.Struct):
    """`check_device`: does this key open this SN?"""

    sn: str
    key: str


class DeviceIdentity(msgspec.Struct, rename="camel"):
    """Answer of `check_device`."""

    sn: str
    device_id: int
    tenant: str


class DeviceCertificateRef(msgspec.Struct, frozen=True):
    """`check_device_certificate`: does this certificate log this SN in?
    `revoke_device_certificate`: not any longer."""

    sn: str
    serial: str
    """Hexadecimal, in capitals."""


class DeviceCertificate(msgspec.Struct, frozen=True):
    """`add_device_certificate`: it logs the device in from now on."""

    sn: str
    serial: str
    expires: int
    """When it ends by itself, in ms."""


class ListDeviceCertificates(msgspec.Struct, frozen=True):
    """`list_device_certificates`, of one device."""

    sn: str


class DeviceCertificates(msgspec.Struct, frozen=True):
    """Answer of `list_device_certificates`; the latest first."""

    certificates: list[DeviceCertificate]


FIND_CONNECTIONS = "rpc.device.find_connections"
CLOSE_CONNECTIONS = "rpc.device.close_connections"


class Connection(msgspec.Struct, frozen=True):
    """A connection to the bus; no other one ever has the same two."""

    server: str
    """The id of the nats-server, which is another one after each of its starts."""
    cid: int
    """Its number there."""


class FindConnections(msgspec.Struct, frozen=True):
    """`find_connections`: of a user of the bus, in any case."""

    user: str
    """An SN, `app.{client id}` or `integration.{id}`."""
    ask_servers: bool = False
    """Look also where no event has told of them yet: each server looks through its own."""


class Connections(msgspec.Struct, frozen=True):
    """Answer of `find_connections`; `close_connections`."""

    connections: list[Connection]


SHUT_OUT = "rpc.auth.shut_out"
SHUT_OUT_SECONDS = 10


class ShutOut(msgspec.Struct, frozen=True):
    """`shut_out`: a user loses its connections, and makes none for `SHUT_OUT_SECONDS`."""

    user: str


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


GIVE_DEVICE = "rpc.device.give_device"
TAKE_DEVICE = "rpc.device.take_device"


class GiveDevice(msgspec.Struct, rename="camel"):
    """`give_device`: a device of the users, or nobody's, is the application's from now on."""

    tenant: str
    device_id: int
    application_id: int
    application_name: str


class TakeDevice(msgspec.Struct, rename="camel"):
    """`take_device`: a device of the application is the users' from now on."""

    tenant: str
    device_id: int
    application_id: int
    user_id: int
    """Who takes it."""


class OwnedDevice(msgspec.Struct, rename="camel"):
    """Answer of both."""

    sn: str
    name: str


class CreateTenant(msgspec.Struct):
    """`create_tenant`: 1 to 64 letters, digits, `_` or `-`."""

    name: str


class CreatedTenant(msgspec.Struct, rename="camel"):
    """Answer of `create_tenant`: the console client whose logins belong to the tenant.

    The secret is shown only here.
    """

    name: str
    client_id: str
    client_secret: str


class ListTenants(msgspec.Struct):
    """`list_tenants`."""


class Tenant(msgspec.Struct, rename="camel"):
    """A tenant as lists show it."""

    name: str
    created_at: int
    """ms."""
    users: int
    """How many; the first one may still register while there is none."""


class Tenants(msgspec.Struct):
    """Answer of `list_tenants`, by name."""

    tenants: list[Tenant]


DESCRIBE_USERS = "rpc.auth.describe_users"


class DescribeUsers(msgspec.Struct):
    """`describe_users`: those of a tenant with these ids."""

    tenant: str
    ids: list[int]


class DescribedUsers(msgspec.Struct):
    """Answer of `describe_users`: nicknames by id, as text; who is unknown is left out."""

    nicknames: dict[str, str]


class CreateUser(msgspec.Struct, rename="camel"):
    """`create_user`: with a password that `auth` makes."""

    email: str
    nickname: str
    tenant: str = "default"
    super_admin: bool = False


class UserRefByEmail(msgspec.Struct):
    """`reset_user_password`: a new password that `auth` makes; every token of the user ends."""

    email: str
    tenant: str = "default"


class UserPassword(msgspec.Struct, rename="camel"):
    """Answer of both: the password is shown only here."""

    user_id: int
    email: str
    password: str
