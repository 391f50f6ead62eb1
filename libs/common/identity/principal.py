"""The principal: on whose behalf a request runs."""

from enum import StrEnum

import msgspec

from libs.common.identity.functions import COMMANDERS, COMMANDING_VIEWERS

OWN_CONSOLE = "thingway-console"
"""Client id of the console that the gateway serves: a page in a browser can keep no secret."""
PLATFORM = "0"
"""The user that stands for the platform itself, as in the audit log."""


class Kind(StrEnum):
    """What sort of caller a principal is."""

    APPLICATION = "application"
    """A third-party application of the device open API."""
    DEVICE = "device"
    """A device at `/ingest`, proven by its key."""
    USER = "user"
    """A person at the console."""


class Principal(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A caller, as the gateway proved it; stored in Redis under the hash of its token.

    What a user may do is not stored with the token: the gateway adds it to each request
    (`libs.common.identity.access`), so that a change holds from the next request on.
    """

    kind: Kind
    tenant: str
    subject: str
    """Application id, device SN or user id."""
    name: str = ""
    """For people and logs: application name or user e-mail."""
    family: str = ""
    """Token family: tokens that come from one another by refresh."""
    client: str = ""
    """Users: the client id of the console that they signed in with; empty when unknown."""
    networks: tuple[str, ...] = ()
    """Applications: the networks (CIDR) that it may call from; empty means any."""
    functions: frozenset[str] = frozenset()
    """Users: the codes of `Function` that they hold through their roles."""
    super_admin: bool = False
    """Users: may do and see everything of the tenant."""
    viewers_may_command: bool = False
    """Users: the tenant's setting "Viewers may command devices" is on."""
    access: int = 0
    """Users: the version of the tenant's grants at this request; it grows with every change."""

    @property
    def uses_own_console(self) -> bool:
        """Return whether the user signed in at the console that the gateway serves."""
        return self.client == OWN_CONSOLE

    @property
    def application_id(self) -> int:
        """The id of the calling application."""
        return int(self.subject)

    @property
    def user_id(self) -> int:
        """The id of the calling user."""
        return int(self.subject)

    def may(self, *functions: str) -> bool:
        """Tell whether a user holds any one of `functions`."""
        return self.super_admin or not self.functions.isdisjoint(functions)

    @property
    def may_command(self) -> bool:
        """Whether a user may set values and call services."""
        may_as_viewer = self.viewers_may_command and self.may(*COMMANDING_VIEWERS)
        return may_as_viewer or self.may(*COMMANDERS)


class Caller(msgspec.Struct, frozen=True):
    """A principal with the circumstances of its request."""

    principal: Principal
    address: str = ""
    """The client's own address, as the gateway saw it."""
    request_id: str = ""

    @property
    def tenant(self) -> str:
        """The tenant of the principal."""
        return self.principal.tenant
