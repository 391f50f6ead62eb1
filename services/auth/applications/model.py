"""Applications: as this service keeps them, and on the wire of the management API."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from libs.common.bus.accounts import application_user
from libs.common.clock import to_ms
from libs.common.contracts.auth import Application
from libs.common.http.console import PageRequest, Shown
from libs.common.identity import Kind, Principal
from libs.common.identity.networks import is_inside
from services.auth.audit import Subject

MAX_ALLOWED = 100
"""Most addresses and networks of an allow-list."""

AllowList = Annotated[
    list[Annotated[str, msgspec.Meta(max_length=64)]], msgspec.Meta(max_length=MAX_ALLOWED)
]
"""IPv4 and IPv6 addresses, and networks in CIDR; empty means that any address may call."""


class StoredApplication(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An application with the hash of its secret."""

    id: int = msgspec.field(name="_id")
    tenant: str
    name: str
    client_id: str
    """A UUID, unique over all tenants."""
    secret_hash: str
    generation: int
    """Counts the secrets and allow-lists it has had; tokens of an earlier one are void."""
    events: bool
    allowed_addresses: tuple[str, ...] = ()
    created_at: datetime

    @property
    def principal(self) -> Principal:
        """The principal that its tokens stand for."""
        return Principal(
            kind=Kind.APPLICATION,
            tenant=self.tenant,
            subject=str(self.id),
            name=self.name,
            networks=self.allowed_addresses,
        )

    @property
    def user(self) -> str:
        """The name of its connections to the bus."""
        return application_user(self.client_id)

    def may_call_from(self, address: str) -> bool:
        """Tell whether `address` is one that the application may call from."""
        return not self.allowed_addresses or is_inside(address, self.allowed_addresses)

    @property
    def subject(self) -> Subject:
        """The application as the audit log names it."""
        return Subject("application", str(self.id), self.name)

    @property
    def audit_fields(self) -> dict[str, Any]:
        """What the audit log may say of it."""
        return {
            "name": self.name,
            "client_id": self.client_id,
            "events": self.events,
            "allowed_addresses": list(self.allowed_addresses),
        }

    @property
    def contract(self) -> Application:
        """What other services may know."""
        return Application(
            application_id=self.id,
            name=self.name,
            tenant=self.tenant,
            client_id=self.client_id,
            events=self.events,
            created_at=to_ms(self.created_at),
        )

    @property
    def response(self) -> "ShownApplication":
        """What the management API shows."""
        return ShownApplication.from_fields(
            self,
            application_id=str(self.id),
            tenant_id=self.tenant,
            allowed_addresses=list(self.allowed_addresses),
        )


class NewApplication(msgspec.Struct, kw_only=True):
    """`POST /application`."""

    name: str
    events: bool = False
    """May read its tenant's events on NATS."""
    allowed_addresses: AllowList = []


class ApplicationUpdate(msgspec.Struct, kw_only=True):
    """`PUT /application/{application_id}`; what is left out stays as it is."""

    name: str
    events: bool | None = None


class AllowedAddresses(msgspec.Struct, kw_only=True):
    """`PUT /application/{application_id}/allowed-addresses`: the whole list."""

    allowed_addresses: AllowList


class ApplicationSearch(PageRequest):
    """`POST /application/search`."""

    keyword: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    """Part of the name or of the client id, in any case."""


class ShownApplication(Shown):
    """An application without its secret."""

    application_id: str
    tenant_id: str
    name: str
    client_id: str
    events: bool
    allowed_addresses: list[str]
    created_at: int
    """ms."""


class ShownSecret(Shown):
    """An application with its secret, which is shown only here."""

    application_id: str
    name: str
    client_id: str
    client_secret: str
