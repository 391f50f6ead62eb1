"""Requests to `auth` and their answers: `rpc.auth.{operation}`.

The operator's command line manages tenants, applications and users; services ask about devices and
users.
"""

from typing import Literal

import msgspec

from libs.common.contracts.integrations import IntegrationId


class CreateApplication(msgspec.Struct, rename="camel"):
    """`create_application`: create an application in a tenant."""

    name: str
    tenant: str = "default"
    events: bool = False
    """Whether it may read its tenant's events on NATS."""


class ApplicationSecret(msgspec.Struct, rename="camel"):
    """An application with its secret, which is returned only here."""

    application_id: int
    name: str
    client_id: str
    client_secret: str


class Application(msgspec.Struct, rename="camel"):
    """An application in a list."""

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
    """`list_applications`: list the applications of a tenant."""

    tenant: str = "default"


class ApplicationRef(msgspec.Struct, rename="camel"):
    """Request of `rotate_application_secret`, `delete_application` and `get_application`."""

    application_id: int
    tenant: str = "default"


class DeviceRef(msgspec.Struct, rename="camel"):
    """A device in requests about its key and logins.

    Request of `issue_device_credentials`, which replaces the key, `revoke_device_credentials` and
    `last_refused_login`.
    """

    sn: str
    device_id: int
    tenant: str


class IssueFirstKey(DeviceRef, rename="camel"):
    """`issue_first_device_credentials`: issue a key unless the device has one."""

    repeatable: bool = False
    """Whether to return the same key again for 10 minutes, until the device logs in."""


LoginProtocol = Literal["MQTT", "NATS", "HTTP"]
"""The protocol of a device's login."""
LoginFault = Literal["KEY", "CERTIFICATE", "SN"]
"""The rejected part of a login; SN: the key is correct, but the SN differs in spelling."""


class LastRefusedLogin(msgspec.Struct, omit_defaults=True):
    """The last rejected login of a device; empty if none was rejected in the last 7 days."""

    at: int | None = None
    """Time of the login, ms. The login appears here up to 5 s later."""
    over: LoginProtocol | None = None
    """Protocol of the login."""
    wrong: LoginFault | None = None
    """Rejected part of the login. `SN`: the key is correct, but the SN differs in upper and lower
    case."""


class DeviceCredentials(msgspec.Struct):
    """A device's key, which is returned only here."""

    sn: str
    key: str
    """Device key: the password for MQTT, NATS and HTTP. Store it, because it is not returned
    again."""


class FirstDeviceKey(msgspec.Struct):
    """The new key of a device; None if it already had one, which cannot be returned again."""

    key: str | None


class DeviceLogin(msgspec.Struct):
    """`check_device`: check the SN and key of a device."""

    sn: str
    key: str


class DeviceIdentity(msgspec.Struct, rename="camel"):
    """Answer of `check_device`."""

    sn: str
    device_id: int
    tenant: str


class DeviceCertificateRef(msgspec.Struct, frozen=True):
    """`check_device_certificate` (may it log in?) and `revoke_device_certificate`."""

    sn: str
    serial: str
    """Hexadecimal, in capitals."""


class DeviceCertificate(msgspec.Struct, frozen=True):
    """`add_device_certificate`: let a device log in with the certificate."""

    sn: str
    serial: str
    expires: int
    """The end of its validity, ms."""


class ListDeviceCertificates(msgspec.Struct, frozen=True):
    """`list_device_certificates`: list the certificates of a device."""

    sn: str


class DeviceCertificates(msgspec.Struct, frozen=True):
    """Answer of `list_device_certificates`, the newest first."""

    certificates: list[DeviceCertificate]


FIND_CONNECTIONS = "rpc.device.find_connections"
CLOSE_CONNECTIONS = "rpc.device.close_connections"


class Connection(msgspec.Struct, frozen=True):
    """A connection to the bus, identified for ever by its two fields."""

    server: str
    """The id of the nats-server, which changes with each start."""
    cid: int
    """The number of the connection on this server."""


class FindConnections(msgspec.Struct, frozen=True):
    """`find_connections`: find the connections of a bus user, whose case is ignored."""

    user: str
    """An SN, `app.{client id}` or `integration.{id}`."""
    ask_servers: bool = False
    """Ask every server, also for connections that no event has announced yet."""


class Connections(msgspec.Struct, frozen=True):
    """Answer of `find_connections`, and request of `close_connections`."""

    connections: list[Connection]


BLOCK_USER = "rpc.auth.shut_out"
BLOCK_SECONDS = 10


class BlockUser(msgspec.Struct, frozen=True):
    """`shut_out`: close a user's connections, and reject new ones for `BLOCK_SECONDS`."""

    user: str


class Done(msgspec.Struct):
    """An answer without content."""

    done: bool = True


class IntegrationRef(msgspec.Struct):
    """`create_integration_login`, `rotate_integration_secret`, `delete_integration_login`."""

    integration: IntegrationId


class IntegrationSecret(msgspec.Struct):
    """The login of an external integration with its secret, which is returned only here."""

    integration: str
    user: str
    """The NATS user of the integration."""
    secret: str


class IntegrationLogin(msgspec.Struct, rename="camel"):
    """A login in a list; `createdAt` in ms."""

    integration: str
    user: str
    created_at: int


class ListIntegrationLogins(msgspec.Struct):
    """`list_integration_logins`: list the logins of external integrations."""


class IntegrationLogins(msgspec.Struct):
    """Answer of `list_integration_logins`, sorted by integration."""

    logins: list[IntegrationLogin]


ASSIGN_DEVICE = "rpc.device.give_device"
RECLAIM_DEVICE = "rpc.device.take_device"


class AssignDevice(msgspec.Struct, rename="camel"):
    """`give_device`: assign a device of users, or without an owner, to an application."""

    tenant: str
    device_id: int
    application_id: int
    application_name: str


class ReclaimDevice(msgspec.Struct, rename="camel"):
    """`take_device`: return a device of an application to the users."""

    tenant: str
    device_id: int
    application_id: int
    user_id: int
    """The user who takes the device."""


class OwnedDevice(msgspec.Struct, rename="camel"):
    """Answer of `give_device` and `take_device`."""

    sn: str
    name: str


class CreateTenant(msgspec.Struct):
    """`create_tenant`: create a tenant; its name has 1 to 64 letters, digits, `_` or `-`."""

    name: str


class CreatedTenant(msgspec.Struct, rename="camel"):
    """Answer of `create_tenant`: the console client, whose logins belong to the tenant.

    The secret is returned only here.
    """

    name: str
    client_id: str
    client_secret: str


class ListTenants(msgspec.Struct):
    """`list_tenants`: list all tenants."""


class Tenant(msgspec.Struct, rename="camel"):
    """A tenant in a list."""

    name: str
    created_at: int
    """Time in ms."""
    users: int
    """Number of users; while it is 0, the first user may register."""


class Tenants(msgspec.Struct):
    """Answer of `list_tenants`, sorted by name."""

    tenants: list[Tenant]


DESCRIBE_USERS = "rpc.auth.describe_users"


class DescribeUsers(msgspec.Struct):
    """`describe_users`: return the nicknames of users of a tenant."""

    tenant: str
    ids: list[int]


class DescribedUsers(msgspec.Struct):
    """Answer of `describe_users`: nicknames by id, as text; unknown users are omitted."""

    nicknames: dict[str, str]


class CreateUser(msgspec.Struct, rename="camel"):
    """`create_user`: create a user with a password that `auth` generates."""

    email: str
    nickname: str
    tenant: str = "default"
    super_admin: bool = False


class ListUsers(msgspec.Struct, rename="camel"):
    """`list_users`: list users of a tenant, or only its super-admins."""

    tenant: str = "default"
    super_admins: bool = False


class ListedUser(msgspec.Struct, rename="camel"):
    """A user in a list."""

    user_id: int
    email: str
    nickname: str
    super_admin: bool
    enabled: bool
    created_at: int
    """Time in ms."""


class Users(msgspec.Struct):
    """Answer of `list_users`: at most 1,000, sorted by email address."""

    users: list[ListedUser]


class UserRefByEmail(msgspec.Struct):
    """`reset_user_password`: generate a password and revoke all tokens of the user."""

    email: str
    tenant: str = "default"


class UserPassword(msgspec.Struct, rename="camel"):
    """Answer of `create_user` and `reset_user_password`, the only ones with the password."""

    user_id: int
    email: str
    password: str
