"""The principal: the caller of a request."""

from enum import StrEnum

import msgspec

from libs.common.identity.functions import COMMAND_FUNCTIONS, VIEWER_COMMAND_FUNCTIONS

OWN_CONSOLE_CLIENT_ID = "thingway-console"
"""Client id of the console that the gateway serves; it has no secret, because browser pages cannot
keep one."""
PLATFORM_USER_ID = "0"
"""The user id of the platform itself, as in the audit log."""


class PrincipalKind(StrEnum):
    """The kind of a principal."""

    APPLICATION = "application"
    """A third-party application of the device open API."""
    DEVICE = "device"
    """A device at `/ingest`, authenticated by its key or certificate."""
    USER = "user"
    """A user of the console."""


class Principal(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A caller that the gateway authenticated; stored in Redis if a token identifies it.

    The permissions of a user are not stored with the token. The gateway adds them to each request
    (`libs.common.identity.access`), so that a change takes effect with the next request.
    """

    kind: PrincipalKind
    tenant: str
    subject: str
    """Application id, device SN or user id."""
    name: str = ""
    """For display and logs: application name or user email."""
    family: str = ""
    """Token family: all tokens that were issued for one login by refresh."""
    client: str = ""
    """Users: the client id of the console used for the login; empty if unknown."""
    networks: tuple[str, ...] = ()
    """Applications: the networks (CIDR) from which they may call; empty allows all."""
    functions: frozenset[str] = frozenset()
    """Users: the codes of `Function` that their roles include."""
    super_admin: bool = False
    """Users: may do and see everything of the tenant."""
    viewers_may_command: bool = False
    """Users: the tenant's setting "Viewers may command devices" is on."""
    access: int = 0
    """Users: the version of the tenant's access; it grows with every change."""

    @property
    def uses_own_console(self) -> bool:
        """Return whether the user logged in at the console that the gateway serves."""
        return self.client == OWN_CONSOLE_CLIENT_ID

    @property
    def application_id(self) -> int:
        """Return the id of the calling application."""
        return int(self.subject)

    @property
    def user_id(self) -> int:
        """Return the id of the calling user."""
        return int(self.subject)

    def may(self, *functions: str) -> bool:
        """Return whether a user has any of `functions`, which a super-admin always has."""
        return self.super_admin or not self.functions.isdisjoint(functions)

    @property
    def may_command(self) -> bool:
        """Return whether a user may set values and call services."""
        may_as_viewer = self.viewers_may_command and self.may(*VIEWER_COMMAND_FUNCTIONS)
        return may_as_viewer or self.may(*COMMAND_FUNCTIONS)


class Caller(msgspec.Struct, frozen=True):
    """A principal with address and id of its request."""

    principal: Principal
    address: str = ""
    """The client's IP address, as seen by the gateway."""
    request_id: str = ""

    @property
    def tenant(self) -> str:
        """Return the tenant of the principal."""
        return self.principal.tenant
