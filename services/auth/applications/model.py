"""Applications as stored, and their requests and responses."""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from libs.common.bus.accounts import application_user
from libs.common.clock import to_ms
from libs.common.contracts.auth import Application
from libs.common.http.console import PageRequest, ResponseModel
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.networks import is_in_networks
from services.auth.audit import AuditTarget

MAX_ALLOWED_ADDRESSES = 100
"""Maximum entries of an allow-list."""

AllowList = Annotated[
    list[Annotated[str, msgspec.Meta(max_length=64)]],
    msgspec.Meta(max_length=MAX_ALLOWED_ADDRESSES),
]
"""IPv4 and IPv6 addresses, and networks in CIDR notation. Empty allows all addresses."""


class StoredApplication(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An application with the hash of its secret."""

    id: int = msgspec.field(name="_id")
    tenant: str
    name: str
    client_id: str
    """A UUID, unique across all tenants."""
    secret_hash: str
    generation: int
    """Increased with a new secret or allow-list. Tokens of earlier generations are invalid."""
    events: bool
    allowed_addresses: tuple[str, ...] = ()
    created_at: datetime

    @property
    def principal(self) -> Principal:
        """Return the principal of the application's tokens."""
        return Principal(
            kind=PrincipalKind.APPLICATION,
            tenant=self.tenant,
            subject=str(self.id),
            name=self.name,
            networks=self.allowed_addresses,
        )

    @property
    def nats_user(self) -> str:
        """Return the NATS user of the application's connections."""
        return application_user(self.client_id)

    def may_call_from(self, address: str) -> bool:
        """Return whether the allow-list includes `address`."""
        return not self.allowed_addresses or is_in_networks(address, self.allowed_addresses)

    @property
    def audit_target(self) -> AuditTarget:
        """Return the application as an audit log object."""
        return AuditTarget("application", str(self.id), self.name)

    @property
    def audit_fields(self) -> dict[str, Any]:
        """Return the fields for the audit log."""
        return {
            "name": self.name,
            "client_id": self.client_id,
            "events": self.events,
            "allowed_addresses": list(self.allowed_addresses),
        }

    @property
    def rpc_contract(self) -> Application:
        """Return the application as RPC operations return it to other services."""
        return Application(
            application_id=self.id,
            name=self.name,
            tenant=self.tenant,
            client_id=self.client_id,
            events=self.events,
            created_at=to_ms(self.created_at),
        )

    @property
    def api_response(self) -> "ApplicationResponse":
        """Return the application as the management API returns it."""
        return ApplicationResponse.from_fields(
            self,
            application_id=str(self.id),
            tenant_id=self.tenant,
            allowed_addresses=list(self.allowed_addresses),
        )


class NewApplication(msgspec.Struct, kw_only=True):
    """Body of `POST /application`."""

    name: str
    events: bool = False
    """Whether the application may read its tenant's events on NATS."""
    allowed_addresses: AllowList = []


class ApplicationUpdate(msgspec.Struct, kw_only=True):
    """Body of `PUT /application/{application_id}`. Absent fields do not change."""

    name: str
    events: bool | None = None


class AllowedAddresses(msgspec.Struct, kw_only=True):
    """The whole allow-list of `PUT /application/{application_id}/allowed-addresses`."""

    allowed_addresses: AllowList


class ApplicationSearch(PageRequest):
    """Body of `POST /application/search`."""

    keyword: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    """Part of the name or client id, ignoring case."""


class ApplicationResponse(ResponseModel):
    """An application without its secret."""

    application_id: str
    tenant_id: str
    name: str
    client_id: str
    """Id that the application sends when it requests a token."""
    events: bool
    allowed_addresses: list[str]
    created_at: int
    """Unix time in ms."""


class ApplicationWithSecret(ResponseModel):
    """An application with its secret, which is shown only once."""

    application_id: str
    name: str
    client_id: str
    """Id that the application sends when it requests a token."""
    client_secret: str
    """Secret for token requests. Store it, because it is not returned again."""
